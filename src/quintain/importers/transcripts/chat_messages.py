"""Chat messages, OpenAI or Anthropic style, to steps. Nothing is invented: what the messages do not say stays unknown.

Both styles may stand in one list. A tool's result goes into the agent step that called it. Fields of a message that no
record holds are kept in the step's `extra`. Not read: signatures of thinking blocks.

Two ways: a recording is strict (`from_messages`, `extended`), so that a caller learns of a mistake; the import of a log is
tolerant (`read_turns`): a part that cannot be read is counted, and the rest comes in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.transcripts.field_values import as_dict, dicts_in, first_text, parse_json_text, short_fields
from quintain.importers.transcripts.message_parts import (
    RESULTS,
    Message,
    OnInvalid,
    Result,
    join_thoughts,
    parse_call,
    parse_result,
    part_kind,
    plain_text,
    raise_invalid,
    simplify_content,
    sort_parts,
)
from quintain.importers.transcripts.token_usage import parse_usage
from quintain.importers.transcripts.transcript import Transcript, function_tool, parse_time
from quintain.records.text import require_clean
from quintain.records.trajectory import AgentInfo, Outcome, Task, Trajectory, read_trajectory

SEALED = "some thoughts are encrypted in the log: there is nothing to read"

ACTORS = {
    **{"system": "system", "developer": "system", "user": "user", "assistant": "agent"},
    **{"tool": "tool", "function": "tool"},
}
"""The actor of a role; a recording may use no other roles."""

ROLES = {
    **{role: role for role in ACTORS},
    **dict.fromkeys(("human", "Human", "User", "prompter"), "user"),
    **dict.fromkeys(("gpt", "ai", "AI", "model", "bot", "agent", "Assistant"), "assistant"),
    **dict.fromkeys(("chatgpt", "bing", "bard"), "assistant"),
    **dict.fromkeys(
        ("observation", "ipython", "tool_response", "tool_result", "toolResult", "function_response"), "tool"
    ),
}
"""The role of each name that logs have for one."""

_THOUGHTS = ("reasoning_content", "reasoningContent", "reasoning", "thinking")
_THOUGHT_BLOCKS = ("thinking_blocks", "reasoning_details")
"""Of LiteLLM and OpenRouter, which mostly repeat the text of a field above."""
MASKS = ("weight", "loss_weight", "train", "training", "loss")
"""Switches of a message that say whether it is in the loss: OpenAI, LLaMA-Factory v1, Axolotl, AgentGym."""
_SMALL = 500
"""Characters of JSON that a field without a place may have to be kept from a log."""
_THINK = re.compile(r"\A\s*<think>(.*?)</think>\s*", re.DOTALL)

_UNTOLD: dict[str, Any] = {"model": None, "timestamp": None}
_NOT_YET: dict[str, Any] = {"actor": "agent", "train": False, "extra": {"acted": False}}
"""Stands for the agent's turn in a recording that was opened before it acted, as in an episode that ended before."""


def from_messages(
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    task: Task | None = None,
    agent: AgentInfo | None = None,
    outcome: Outcome | None = None,
    session_id: str | None = None,
    unfinished: bool = False,
) -> Trajectory:
    """One run from the messages of a chat.

    Args:
        messages: OpenAI chat messages or Anthropic messages, in order.
        tools: Tool schemas of either style; stored OpenAI style.
        task: What was asked; its prompt defaults to the text of the first user message.
        agent: Who acted.
        outcome: How it ended; unknown unless given.
        session_id: Of the log that the messages come from.
        unfinished: The run goes on (see `extended`): the agent need not have acted yet.

    Raises:
        InvalidInput: names the message by its index, what is wrong with it and what is valid.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidInput(f"messages must be a list of chat messages, not {type(messages).__name__}")
    # Before the walk, so that the depth and the text of every part are known to be sound.
    messages = list(messages)
    require_clean(messages, "messages")
    if not messages:
        raise InvalidInput("messages is empty; give the messages of the chat in their order")
    transcript = Transcript()
    read_turns(messages, transcript)
    if not transcript.has_acted:
        if not unfinished:
            raise InvalidInput(f"the {len(messages)} messages hold no assistant message; a run needs at least one")
        transcript.steps.append(_NOT_YET)
    schemas = [_tool(index, tool) for index, tool in enumerate(tools)]
    return transcript.trajectory(
        format="chat", task=task, agent=agent, tools=schemas, outcome=outcome, session_id=session_id
    )


def extend_run(run: Trajectory, messages: Sequence[Mapping[str, Any]]) -> Trajectory:
    """A run that goes on: the new messages become steps, and results go to the calls that still wait for theirs.

    Raises:
        InvalidInput: names the message by its index, what is wrong with it and what is valid.
    """
    messages = list(messages)
    require_clean(messages, "messages")
    transcript = Transcript.resumed(
        [step.model_dump(mode="json") for step in run.steps if step.extra.get("acted") is not False]
    )
    read_turns(messages, transcript)
    if not transcript.has_acted:
        transcript.steps.append(_NOT_YET)
    return read_trajectory(run.model_dump(mode="json") | {"steps": transcript.steps})


def read_turns(messages: Sequence[Any], transcript: Transcript, refuse: OnInvalid = raise_invalid) -> None:
    """Add the turns of chat messages to a transcript.

    Args:
        messages: In order. Their values are clean (`require_clean`).
        transcript: Gets the steps.
        refuse: What happens to what cannot be read. The strict way is an error.

    Raises:
        InvalidInput: strict only: names the message by its index, what is wrong with it and what is valid.
    """
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if (turn := parse_message(message, where, refuse)) is None:
            continue
        if refuse is raise_invalid:
            _check_answers(turn, where, transcript)
        append_turn(turn, transcript)


@dataclass(slots=True)
class Turn:
    """One message, sorted: who wrote it and what it holds. It can be compared with others before it becomes a step."""

    actor: str
    """`system`, `user`, `agent`, or `tool` for results alone."""
    content: Message = ""
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    """Further fields of the step: model, usage, timestamp, train, extra, ..."""

    @property
    def call_ids(self) -> tuple[str, ...]:
        """Of its calls, where the log gives any."""
        return tuple(call["call_id"] for call in self.calls if call["call_id"])

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal messages, however they are spelt: thoughts, ids and the form of arguments do not count."""
        calls = tuple((call["tool"], canonical_arguments(call)) for call in self.calls)
        return (
            self.actor,
            plain_text(self.content).strip(),
            calls,
            tuple(plain_text(r.content).strip() for r in self.results),
        )

    def __bool__(self) -> bool:
        """Does it hold anything?"""
        return bool(self.content or self.thoughts or self.calls or self.results)


def canonical_arguments(call: Mapping[str, Any]) -> str:
    """The arguments of a call in the one form in which equal ones are equal."""
    return str(call["raw_args"]).strip() if call["args"] is None else json.dumps(call["args"], sort_keys=True)


def parse_message(message: Any, where: str, refuse: OnInvalid) -> Turn | None:
    """One message; None for what was passed over."""
    if not isinstance(message, (dict, Mapping)):  # most are plain objects, and that one is quick to ask for
        refuse("message", f"{where} is {type(message).__name__}; each message must be an object with `role`")
        return None
    rest = dict(message)
    role = rest.pop("role", None)
    if refuse is not raise_invalid and isinstance(role, str):
        role = ROLES.get(role, role)
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
    """Make a turn the next step of a transcript, and its results observations."""
    if turn.actor == "agent":
        thought = join_thoughts(turn.thoughts) if turn.thoughts else None
        transcript.act(turn.content, thought=thought, actions=turn.calls, **turn.fields)
    for result in turn.results:  # of an agent's turn: a tool that ran at the model's vendor
        transcript.observe(result.content, call_id=result.call_id, is_error=result.is_error, tool=result.tool)
    if turn.actor != "agent" and (turn.content or not turn.results):
        transcript.say("system" if turn.actor == "system" else "user", turn.content, **turn.fields)


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
    """A tool's message: what it gave back, or parts that each are a result."""
    turn = Turn("tool")
    if not isinstance(content, list):
        turn.results.append(parse_result(rest, content, where, refuse))
        return turn
    inner = sort_parts(content, where, _ignoring)
    if not inner.results or refuse is raise_invalid:
        body = [part for part in content if part_kind(part) not in RESULTS] if inner.results else content
        turn.results.append(parse_result(rest, body, where, refuse))
    turn.results += inner.results
    return turn


def _read_agent(turn: Turn, rest: dict[str, Any], where: str, refuse: OnInvalid) -> None:
    if turn.results and not all(str(result.call_id).startswith("srvtoolu") for result in turn.results):
        refuse("result", f"{where} is an assistant message with a tool_result; results belong in a user message")
    made = _calls(rest, where, refuse)
    if turn.calls:
        told = set(turn.call_ids)
        made = [call for call in made if not call["call_id"] or call["call_id"] not in told]
    turn.calls = [*made, *turn.calls]
    said = _thoughts_beside(rest, refuse) if rest else []  # most messages hold nothing more than their calls
    if said or turn.thoughts:
        turn.thoughts = list(dict.fromkeys(thought for thought in [*said, *turn.thoughts] if thought.strip()))
    if not turn.content:
        spoken = as_dict(rest.get("audio")).get("transcript")
        turn.content = first_text(rest.pop("refusal", None), spoken) or ""
    if refuse is not raise_invalid and isinstance(turn.content, str) and (written := _THINK.match(turn.content)):
        turn.thoughts = list(dict.fromkeys([*turn.thoughts, *filter(None, [written[1].strip()])]))
        turn.content = turn.content[written.end() :]
    turn.fields |= _taken(rest) if rest else _UNTOLD


def _thoughts_beside(rest: dict[str, Any], refuse: OnInvalid) -> list[str]:
    said = [rest.pop(key) for key in _THOUGHTS if key in rest and isinstance(rest[key], str)]
    if refuse is not raise_invalid and not any(said) and not rest.keys().isdisjoint(_THOUGHT_BLOCKS):
        blocks = [part for key in _THOUGHT_BLOCKS for part in dicts_in(rest.pop(key, None))]
        return [
            known
            for part in blocks
            if (known := first_text(part.get("thinking"), part.get("text"), part.get("summary")))
        ]
    return said


def _calls(rest: dict[str, Any], where: str, refuse: OnInvalid) -> list[dict[str, Any]]:
    calls, legacy = rest.pop("tool_calls", None) or [], rest.pop("function_call", None)
    if refuse is not raise_invalid:
        calls, legacy = parse_json_text(calls), parse_json_text(legacy)
    if not isinstance(calls, list):
        refuse("calls", f"{where}.tool_calls is {type(calls).__name__}; it must be a list")
        calls = [calls]
    made = [parse_call(each, f"{where}.tool_calls[{i}]", refuse) for i, each in enumerate(calls)]
    if legacy:
        told = parse_call({"function": legacy}, f"{where}.function_call", refuse)
        again = told and any(
            each and (each["tool"], canonical_arguments(each)) == (told["tool"], canonical_arguments(told))
            for each in made
        )
        made.append(None if again else told)
    return [each for each in made if each]


def _left_over(rest: dict[str, Any], where: str, refuse: OnInvalid) -> dict[str, Any]:
    left = {key: value for key, value in rest.items() if value is not None}
    if refuse is raise_invalid or not left:
        return left
    kept = short_fields(left, _SMALL)
    for key in left.keys() - kept.keys():
        if left[key] not in ("", [], {}):
            refuse(f"field:{key}", f"{where}.{key} is too long to be kept")
    return kept


def _ignoring(_: str, __: str) -> None:
    """What a first look does with what it cannot read."""


def _taken(rest: dict[str, Any]) -> dict[str, Any]:
    """The fields of a message that a step has a place for, taken out of `rest`."""
    model = rest.pop("model", None)
    taken: dict[str, Any] = {"model": model if isinstance(model, str) else None}
    for key in MASKS:
        if key in rest and isinstance(rest[key], bool | int | float):
            taken["train"] = bool(rest.pop(key))
            break
    if "usage" in rest and isinstance(rest["usage"], Mapping):
        taken["usage"] = parse_usage(rest.pop("usage"))
    return taken | _time(rest)


def _time(rest: dict[str, Any]) -> dict[str, Any]:
    when = parse_time(rest.get("timestamp")) if "timestamp" in rest else None
    if when is not None:
        del rest["timestamp"]
    return {"timestamp": when}


def _tool(index: int, tool: Any) -> dict[str, Any]:
    """A tool schema in OpenAI's function style."""
    if isinstance(tool, Mapping):
        if isinstance(tool.get("function"), Mapping) and tool["function"].get("name"):
            return {"type": "function", **tool}
        if isinstance(tool.get("name"), str):
            schema = tool.get("input_schema", tool.get("parameters"))
            return function_tool(tool["name"], tool.get("description"), schema)
    raise InvalidInput(
        f"tools[{index}] is {tool!r:.80}; it must be an OpenAI function ({{'type': 'function', 'function': {{...}}}}) or an "
        "Anthropic tool with `name` and `input_schema`"
    )
