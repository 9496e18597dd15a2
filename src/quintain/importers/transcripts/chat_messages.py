"""Convert OpenAI and Anthropic chat messages to steps, mixed styles included. Missing information stays unknown.

A tool's result goes into the agent step that called it. Fields of a message without a place in a record are kept in the
step's `extra`. Signatures of thinking blocks are not read.

Recording is strict (`from_messages`, `extend_run`) and names the mistake. Import is tolerant (`read_turns`): an
unreadable part is counted, and the rest comes in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from math import inf
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.transcripts.message_parts import (
    RESULTS,
    Message,
    OnInvalid,
    Result,
    join_thoughts,
    parse_call,
    parse_inner_result,
    parse_result,
    part_kind,
    plain_text,
    raise_invalid,
    simplify_content,
    sort_parts,
)
from quintain.importers.transcripts.result_envelopes import result_in_call
from quintain.importers.transcripts.transcript import Transcript, function_tool
from quintain.importers.values import (
    as_dict,
    as_list,
    dicts_in,
    nonblank,
    parse_json_text,
    parse_time,
    parse_usage,
    short_fields,
)
from quintain.records.trajectory import AgentInfo, Outcome, Task, Trajectory, read_trajectory

SEALED = "some thoughts are encrypted in the log and cannot be read"

ACTORS = {
    **{"system": "system", "developer": "system", "user": "user", "assistant": "agent"},
    **{"tool": "tool", "function": "tool"},
}
"""Role -> actor; recordings accept only these roles."""

ROLES = {
    **{role: role for role in ACTORS},
    **dict.fromkeys(("human", "Human", "User", "prompter", "userMessage"), "user"),
    **dict.fromkeys(("gpt", "ai", "AI", "model", "bot", "agent", "Assistant", "apiMessage"), "assistant"),
    **dict.fromkeys(("chatgpt", "bing", "bard"), "assistant"),
    **dict.fromkeys(
        ("observation", "ipython", "tool_response", "tool_result", "toolResult", "function_response"), "tool"
    ),
}
"""Any role name found in logs -> role."""

_THOUGHTS = ("reasoning_content", "reasoningContent", "reasoning", "thinking")
_THOUGHT_BLOCKS = ("thinking_blocks", "reasoning_details")
"""Fields of LiteLLM and OpenRouter that mostly repeat one of the fields above."""
MASKS = ("weight", "loss_weight", "train", "training", "loss")
"""Message fields that switch the loss on or off: OpenAI, LLaMA-Factory v1, Axolotl, AgentGym."""
_SMALL = 500
"""Characters of JSON up to which an unmapped field of a log is kept."""
_THINK = re.compile(r"\A\s*<think>(.*?)</think>\s*", re.DOTALL)

_OF_ANSWER = ("role", "content", "model", "timestamp")
_NO_FIELDS: dict[str, Any] = {"model": None, "timestamp": None}
_NOT_YET: dict[str, Any] = {"actor": "agent", "train": False, "extra": {"acted": False}}
"""Placeholder for the agent's turn in a recording opened before the agent acted."""


def from_messages(
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    task: Task | None = None,
    agent: AgentInfo | None = None,
    outcome: Outcome | None = None,
    unfinished: bool = False,
) -> Trajectory:
    """Build one run from chat messages.

    Args:
        messages: OpenAI or Anthropic messages in order, whose text has passed `require_clean`.
        tools: Tool schemas of either style; stored OpenAI style.
        task: The task; its prompt defaults to the text of the first user message.
        agent: The agent.
        outcome: The outcome; unknown by default.
        unfinished: Whether the run goes on (see `extend_run`): the agent need not have acted yet.

    Raises:
        InvalidInput: names the message by its index, the mistake and the valid values.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidInput(f"messages must be a list of chat messages, not {type(messages).__name__}")
    messages = list(messages)
    if not messages:
        raise InvalidInput("messages is empty; give the messages of the chat in their order")
    transcript = Transcript(memory_chars=inf)
    read_turns(messages, transcript)
    if not transcript.has_acted:
        if not unfinished:
            raise InvalidInput(f"the {len(messages)} messages hold no assistant message; a run needs at least one")
        transcript.steps.append(_NOT_YET)
    schemas = [_tool(index, tool) for index, tool in enumerate(tools)]
    return transcript.trajectory(format="chat", task=task, agent=agent, tools=schemas, outcome=outcome)


def extend_run(run: Trajectory, messages: Sequence[Mapping[str, Any]]) -> Trajectory:
    """Append messages to a run; results are matched with the calls that still wait for one.

    Raises:
        InvalidInput: names the message by its index, what is wrong with it and what is valid.
    """
    transcript = Transcript.resumed(
        [step.model_dump(mode="json") for step in run.steps if step.extra.get("acted") is not False]
    )
    read_turns(messages, transcript)
    if not transcript.has_acted:
        transcript.steps.append(_NOT_YET)
    return read_trajectory(run.model_dump(mode="json") | {"steps": list(transcript.steps)})


def read_turns(messages: Iterable[Any], transcript: Transcript, refuse: OnInvalid = raise_invalid) -> None:
    """Add the turns of chat messages to a transcript.

    Raises:
        InvalidInput: strict only: names the message by its index, the mistake and the valid values.
    """
    if refuse is not raise_invalid:
        messages = _unfolded(messages)
    thinking: Turn | None = None  # a message of thoughts alone, which belong to the next turn of the agent
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if (turn := parse_message(message, where, refuse)) is None:
            continue
        if refuse is not raise_invalid and turn.actor == "agent" and not turn and message.get("content") in (None, []):
            refuse("empty message", f"{where} is an assistant message without content")
            continue
        if refuse is raise_invalid:
            _check_answers(turn, where, transcript)
        elif thinking is not None and turn.actor == "agent":
            turn.thoughts, thinking = [*thinking.thoughts, *turn.thoughts], None
        if thinking is not None:
            append_turn(thinking, transcript)
        is_thought = refuse is not raise_invalid and turn.actor == "agent" and bool(turn.thoughts)
        thinking = turn if is_thought and not (turn.content or turn.calls or turn.results) else None
        if thinking is None:
            append_turn(turn, transcript)
    if thinking is not None:
        append_turn(thinking, transcript)


def _unfolded(messages: Iterable[Any]) -> Iterator[Any]:
    """Yield messages; of one that holds calls with their results, the text follows: it was stored when the tools had run."""
    for message, following in pairwise(chain(messages, (None,))):
        calls = message.get("tool_calls") if isinstance(message, (dict, Mapping)) else None
        is_whole = bool(calls) and all(map(result_in_call, as_list(parse_json_text(calls)) or [None]))
        if is_whole and nonblank(message.get("content")) and role_of(as_dict(following)) != "tool":
            yield {**message, "content": ""}
            yield {key: message[key] for key in _OF_ANSWER if key in message}
        else:
            yield message


@dataclass(slots=True)
class Turn:
    """One parsed message. It can be compared with others before it becomes a step."""

    actor: str
    """`system`, `user`, `agent`, or `tool` for results only."""
    content: Message = ""
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    """Further fields of the step: model, usage, timestamp, train, extra, ..."""

    @property
    def call_ids(self) -> tuple[str, ...]:
        """Ids of the calls, where the log has them."""
        return tuple(call["call_id"] for call in self.calls if call["call_id"])

    @property
    def key(self) -> tuple[Any, ...]:
        """Comparison key: ignores thoughts, ids and the formatting of arguments."""
        calls = tuple((call["tool"], canonical_arguments(call)) for call in self.calls)
        return (
            self.actor,
            plain_text(self.content).strip(),
            calls,
            tuple(plain_text(r.content).strip() for r in self.results),
        )

    def __bool__(self) -> bool:
        """Whether the turn has any content."""
        return bool(self.content or self.thoughts or self.calls or self.results)


def canonical_arguments(call: Mapping[str, Any]) -> str:
    """Return the arguments of a call in a canonical form for comparison."""
    return str(call["raw_args"]).strip() if call["args"] is None else json.dumps(call["args"], sort_keys=True)


def role_of(message: Mapping[str, Any]) -> str | None:
    """Return the role of a message in a log: by its name, or by its call or call id where the name is a speaker's."""
    role = message.get("role")
    if isinstance(role, str) and role in ROLES:
        return ROLES[role]
    if nonblank(message.get("tool_call_id")):
        return "tool"
    return "assistant" if dicts_in(message.get("tool_calls")) else None


def parse_message(message: Any, where: str, refuse: OnInvalid) -> Turn | None:
    """Parse one message; None if it was skipped."""
    if not isinstance(message, (dict, Mapping)):  # most are plain objects, and that one is quick to ask for
        refuse("message", f"{where} is {type(message).__name__}; each message must be an object with `role`")
        return None
    rest = dict(message)
    role = rest.pop("role", None)
    if refuse is not raise_invalid:
        role = role_of(message) or role
    if not isinstance(role, str) or role not in ACTORS:
        refuse(f"role:{role}", f"{where}.role is {role!r}; valid: {', '.join(ACTORS)}")
        return None
    content = rest.pop("content", None)
    if ACTORS[role] == "tool":
        return _answers(rest, content, where, refuse)
    if isinstance(content, str):
        turn = Turn(ACTORS[role], content)
    else:
        parts = sort_parts(content, where, refuse)
        if parts.sealed and refuse is not raise_invalid:
            refuse("sealed", SEALED)
        turn = Turn(ACTORS[role], simplify_content(parts.content), parts.thoughts, parts.calls, parts.results)
    if role == "assistant":
        _read_agent(turn, rest, where, refuse)
    elif turn.calls or turn.thoughts:
        kind = "part:call by another than the agent"
        refuse(kind, f"{where} is a {role} message with tool_use or thinking; only an assistant writes those")
        turn.calls, turn.thoughts = [], []
    else:
        turn.fields |= _time(rest)
    extra = _left_over(rest, where, refuse) if rest else {}
    turn.fields["extra"] = extra | {"role": role} if role == "developer" else extra
    return turn


def append_turn(turn: Turn, transcript: Transcript) -> None:
    """Append a turn as the next step, and its results as observations."""
    if turn.actor == "agent":
        thought = join_thoughts(turn.thoughts) if turn.thoughts else None
        transcript.add_agent_turn(turn.content, thought=thought, actions=turn.calls, **turn.fields)
    for result in turn.results:  # of an agent's turn: a tool that ran at the model's vendor
        transcript.add_result(result.content, call_id=result.call_id, is_error=result.is_error, tool=result.tool)
    if turn.actor != "agent" and (turn.content or not turn.results):
        transcript.add_message("system" if turn.actor == "system" else "user", turn.content, **turn.fields)


def _check_answers(turn: Turn, where: str, transcript: Transcript) -> None:
    waiting = list(transcript.waiting) + [call["call_id"] for call in turn.calls]
    for result in turn.results:
        if result.call_id not in waiting:
            known = ", ".join(repr(key) for key in waiting) or "none"
            raise InvalidInput(
                f"{where} answers the call {result.call_id!r}, which no earlier message made or which is answered already; "
                f"calls that wait for a result: {known}"
            )
        waiting.remove(result.call_id)


def _answers(rest: dict[str, Any], content: Any, where: str, refuse: OnInvalid) -> Turn:
    """Parse a tool message: one result, or parts that are results."""
    turn = Turn("tool")
    if not isinstance(content, list):
        turn.results.append(parse_result(rest, content, where, refuse))
        return turn
    inner = sort_parts(content, where, lambda *_: None)
    if not inner.results or refuse is raise_invalid:
        body = [part for part in content if part_kind(part) not in RESULTS] if inner.results else content
        turn.results.append(parse_result(rest, body, where, refuse))
    turn.results += inner.results
    return turn


def _read_agent(turn: Turn, rest: dict[str, Any], where: str, refuse: OnInvalid) -> None:
    if turn.results and not all(str(result.call_id).startswith("srvtoolu") for result in turn.results):
        refuse("result", f"{where} is an assistant message with a tool_result; results belong in a user message")
    calls, results = _calls(rest, where, refuse)
    if turn.calls:
        known_ids = set(turn.call_ids)
        calls = [call for call in calls if not call["call_id"] or call["call_id"] not in known_ids]
    turn.calls, turn.results = [*calls, *turn.calls], [*results, *turn.results]
    thought_fields = _thoughts_beside(rest, refuse) if rest else []  # most messages hold nothing more than their calls
    if thought_fields or turn.thoughts:
        turn.thoughts = list(dict.fromkeys(thought for thought in [*thought_fields, *turn.thoughts] if thought.strip()))
    if not turn.content:
        spoken = as_dict(rest.get("audio")).get("transcript")
        turn.content = nonblank(rest.pop("refusal", None), spoken) or ""
    if refuse is not raise_invalid and isinstance(turn.content, str) and (written := _THINK.match(turn.content)):
        turn.thoughts = list(dict.fromkeys([*turn.thoughts, *filter(None, [written[1].strip()])]))
        turn.content = turn.content[written.end() :]
    turn.fields |= _taken(rest) if rest else _NO_FIELDS


def _thoughts_beside(rest: dict[str, Any], refuse: OnInvalid) -> list[str]:
    thought_fields = [rest.pop(key) for key in _THOUGHTS if key in rest and isinstance(rest[key], str)]
    if refuse is not raise_invalid and not any(thought_fields) and not rest.keys().isdisjoint(_THOUGHT_BLOCKS):
        blocks = [part for key in _THOUGHT_BLOCKS for part in dicts_in(rest.pop(key, None))]
        return [
            known for part in blocks if (known := nonblank(part.get("thinking"), part.get("text"), part.get("summary")))
        ]
    return thought_fields


def _calls(rest: dict[str, Any], where: str, refuse: OnInvalid) -> tuple[list[dict[str, Any]], list[Result]]:
    """Take the calls out of a message, with the results that stand in them."""
    calls, legacy = rest.pop("tool_calls", None) or [], rest.pop("function_call", None)
    if refuse is not raise_invalid:
        legacy = legacy or (rest.pop("tool_call") if as_dict(rest.get("tool_call")) else None)
        calls, legacy = parse_json_text(calls), parse_json_text(legacy)
    if not isinstance(calls, list):
        refuse("calls", f"expected {where}.tool_calls to be a list, got {type(calls).__name__}")
        calls = [calls]
    parsed = [parse_call(each, f"{where}.tool_calls[{i}]", refuse) for i, each in enumerate(calls)]
    results = []
    if refuse is not raise_invalid:
        both = [(each, call) for each, call in zip(calls, parsed, strict=True) if call]
        results = [found for each, call in both if (found := parse_inner_result(each, call, where, refuse))]
    if legacy:
        legacy_call = parse_call({"function": legacy}, f"{where}.function_call", refuse)
        again = legacy_call and any(
            each
            and (each["tool"], canonical_arguments(each)) == (legacy_call["tool"], canonical_arguments(legacy_call))
            for each in parsed
        )
        parsed.append(None if again else legacy_call)
    return [each for each in parsed if each], results


def _left_over(rest: dict[str, Any], where: str, refuse: OnInvalid) -> dict[str, Any]:
    left = {key: value for key, value in rest.items() if value is not None}
    if refuse is raise_invalid or not left:
        return left
    kept = short_fields(left, _SMALL)
    for key in left.keys() - kept.keys():
        if left[key] not in ("", [], {}):
            refuse(f"field:{key}", f"{where}.{key} is too long to be kept")
    return kept


def _taken(rest: dict[str, Any]) -> dict[str, Any]:
    """Take the fields that a step stores out of `rest`."""
    model, about = rest.pop("model", None), as_dict(rest.get("metadata")) or as_dict(rest.get("meta"))
    taken: dict[str, Any] = {"model": nonblank(model, about.get("model"))}
    for key in MASKS:
        if key in rest and isinstance(rest[key], bool | int | float):
            taken["train"] = bool(rest.pop(key))
            break
    if "usage" in rest and isinstance(rest["usage"], Mapping):
        taken["usage"] = parse_usage(rest.pop("usage"))
    elif usage := parse_usage(about.get("usage")):
        taken["usage"] = usage
    return taken | _time(rest)


def _time(rest: dict[str, Any]) -> dict[str, Any]:
    when = parse_time(rest.get("timestamp")) if "timestamp" in rest else None
    if when is not None:
        del rest["timestamp"]
    return {"timestamp": when}


def _tool(index: int, tool: Any) -> dict[str, Any]:
    """Return a tool schema in OpenAI's function style."""
    if isinstance(tool, Mapping):
        if isinstance(tool.get("function"), Mapping) and tool["function"].get("name"):
            return {"type": "function", **tool}
        if isinstance(tool.get("name"), str):
            schema = tool.get("input_schema", tool.get("parameters"))
            return function_tool(tool["name"], tool.get("description"), schema)
    raise InvalidInput(
        f"expected tools[{index}] to be an OpenAI function ({{'type': 'function', 'function': {{...}}}}) or an "
        f"Anthropic tool with `name` and `input_schema`, got {tool!r:.80}"
    )
