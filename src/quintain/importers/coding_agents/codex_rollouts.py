"""Convert the lines of a Codex rollout to turns.

Only response items become turns; events repeat them, and supply the task, exit codes and token counts. In a session without
an item of the model, the messages of events are the turns. A turn of the model is its output between two inputs:
reasoning, messages and calls up to the first result. A fork repeats the items of the session that it continues: those are
copied context if that session is in the same logs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from quintain.importers.protocol import Report, Run
from quintain.importers.run_builder import COMPACTED, build_session_run
from quintain.importers.transcripts.message_parts import (
    Message,
    join_messages,
    join_thoughts,
    plain_text,
    simplify_content,
    sort_parts,
    visible_content,
)
from quintain.importers.transcripts.responses_api import item_call
from quintain.importers.transcripts.tool_schemas import inferred_tools, parse_tool_schemas
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, parse_json_text, parse_time, parse_usage

ITEMS = {"message", "reasoning", "local_shell_call", "web_search_call"} | {
    f"{maker}_{end}" for maker in ("function", "custom_tool") for end in ("call", "call_output")
}
"""Kinds of response items that identify a bare line."""

_PREAMBLE = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md",
    "<INSTRUCTIONS>",
    "<permissions",
    "<turn_aborted>",
    "<skill>",
    "<apps_instructions>",
    "<collaboration_mode>",
    "<subagent_notification>",
)
UNMARKED = "a fork repeats turns of a session outside these logs: they are not marked as copied context"
Origin = Callable[[str], Callable[[dict[str, Any]], bool] | None]
"""Session id -> test whether successive items repeat that session; None if it is not found."""

_AUTHORS = {"user_message": "user", "UserMessage": "user", "agent_message": "agent", "AgentMessage": "agent"}
"""Event, or item of an event, that repeats a message -> its author."""

_EXIT = re.compile(r"^(?:Exit code: |Process exited with code )(\d+)$", re.MULTILINE)


@dataclass
class _Turn:
    """Output of the model since its last input."""

    contents: list[Message] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    model: str | None = None
    time: Any = None
    is_copy: bool = False


class Rollout:
    """One session, turn by turn."""

    def __init__(self, line: int, report: Report, origin: Origin) -> None:
        self.line, self.report = line, report
        self.script = Transcript()
        self.meta: dict[str, Any] = {}
        self.model: str | None = None
        self.asked: str | None = None
        """First user prompt, as recorded by an event."""
        self.prompt: str | None = None
        self._asked_at: list[int] = []
        """Indices of the steps with user prompts."""
        self._prompts_from_items = 0
        """User prompts since the last model output, which an event may repeat."""
        self._pending_prompt: dict[str, Any] | None = None
        """User prompt of an event that no item has repeated yet."""
        self._origin = origin
        self._repeats: Callable[[dict[str, Any]], bool] | None = None
        """Test whether an item repeats the forked session; None after the first item that does not."""
        self._turn: _Turn | None = None
        self._failed: dict[str, bool] = {}
        """Call id -> whether an event reports that the call failed."""
        self._total: Any = None
        self._pending_usage: dict[str, int | None] | None = None
        """Token count not yet assigned to a reply."""
        self._unmeasured: dict[str, Any] | None = None
        """The last reply, while it has no token count."""
        self._events: list[tuple[str, str, Any]] = []
        """Actor, text and time of the messages in events, until an item of the model comes."""
        self._counts_follow: bool | None = None
        """Whether token counts follow their replies; None before the first count."""

    @property
    def session(self) -> str | None:
        """Session id."""
        return nonblank(self.meta.get("id"), self.meta.get("session_id"))

    @property
    def has_model_output(self) -> bool:
        """Whether the model has written anything."""
        return self._turn is not None or self.script.has_acted

    def take(self, line: int, kind: str, row: dict[str, Any], payload: dict[str, Any]) -> None:
        """Process one line."""
        if kind == "session_meta" or (not kind and "id" in row):  # the first generation wrote it without a type
            self._open(payload or row)
        elif kind == "turn_context":
            known = nonblank(payload.get("model"), as_dict(payload.get("turn_context")).get("model"))
            self.model = known or self.model
        elif kind == "response_item":
            self._item(line, payload, row.get("timestamp"))
        elif kind == "event_msg":
            self._event(payload, row.get("timestamp"))
        elif kind == "compacted":
            self._close()
            self.report.skip(kind)
            self.report.note(COMPACTED)
            if summary := as_text(payload.get("message")):
                time = parse_time(row.get("timestamp"))
                self.script.add_message("user", summary, timestamp=time, extra={"compacted": True})
        elif kind in ITEMS and not payload:
            self._item(line, row, row.get("timestamp"))
        else:
            self.report.skip(kind or ("record_type" if "record_type" in row else "without type"))

    def _open(self, meta: dict[str, Any]) -> None:
        if self.meta:
            self.report.skip("session_meta")  # of the session that this one was forked from or resumed
            return
        self.meta = meta
        if forked := nonblank(meta.get("forked_from_id")):
            self._repeats = self._origin(forked)
            if self._repeats is None:
                self.report.note(UNMARKED)
        instructions = meta.get("base_instructions")
        if system := nonblank(as_dict(instructions).get("text"), instructions, meta.get("instructions")):
            self.script.add_message("system", system, timestamp=parse_time(meta.get("timestamp")))

    def _item(self, line: int, item: dict[str, Any], time: Any) -> None:
        kind = as_text(item.get("type")) or ("message" if "role" in item else "")
        if self._repeats is not None and not self._repeats(item):
            self._close()
            self._repeats = None
        if kind == "message":
            self._message(item, time)
        elif kind == "agent_message":  # from another agent to this one
            self._write_message("user", visible_content(item.get("content")), time, {"author": item.get("author")})
        elif kind == "reasoning":
            self._reason(item, time)
        elif kind.endswith("_output"):
            self._close()
            self._answer(item)
        elif kind.endswith("_call"):
            called = item_call(item)
            function = called["function"]
            if kind == "custom_tool_call":
                self.script.text_tools.add(function["name"])
            self._acting(time).calls.append(make_call(function["name"], function["arguments"], called["id"]))
        elif not kind:
            self.report.reject(line, "expected a response item with a type")
        else:
            self.report.skip(f"response_item/{kind}")

    def _message(self, item: dict[str, Any], time: Any) -> None:
        role = item.get("role")
        if role == "assistant":
            parts = sort_parts(item.get("content"), "content", self.report.refuse)
            turn = self._acting(time)
            turn.contents.append(simplify_content(parts.content))
            turn.thoughts += parts.thoughts
            turn.calls += parts.calls
            return
        content = visible_content(item.get("content"))
        if role in ("system", "developer"):
            self._write_message("system", content, time, {"role": "developer"} if role == "developer" else {})
        else:
            opening = plain_text(content).lstrip().startswith(_PREAMBLE)
            if not opening:
                self._prompts_from_items += self._pending_prompt is None
                self._pending_prompt = None
                self.prompt = self.prompt or nonblank(plain_text(content))
            self._write_message("user", content, time, {"context": True} if opening else {})
            self._asked_at += [] if opening else [len(self.script.steps) - 1]

    def _user_event(self, prompt: str | None, time: Any) -> None:
        """Process a user prompt recorded by an event; an item or a second event usually repeats it before or after."""
        if self.asked is None:
            self.asked = prompt
        if self._prompts_from_items:
            self._prompts_from_items -= 1
        elif prompt and not prompt.lstrip().startswith(_PREAMBLE) and prompt != self._last_prompt:
            self._close()  # what the model wrote before answers an earlier prompt
            self._write_pending_prompt()
            self._pending_prompt = {"message": prompt, "timestamp": parse_time(time)}

    @property
    def _last_prompt(self) -> str | None:
        """User prompt after which the model has not written yet."""
        if self._pending_prompt is not None:
            return str(self._pending_prompt["message"])
        is_last = self._turn is None and self._asked_at[-1:] == [len(self.script.steps) - 1]
        return plain_text(self.script.steps[-1]["message"]) if is_last else None

    def _write_pending_prompt(self) -> None:
        if self._pending_prompt is not None:
            self._asked_at.append(len(self.script.steps))
            self.script.add_message("user", **self._pending_prompt)
            self._pending_prompt = None

    def _roll_back(self, n: Any) -> None:
        """Remove the last user turns and the model output that followed."""
        self._close()
        self._pending_prompt, self._prompts_from_items = None, 0
        if not isinstance(n, int) or isinstance(n, bool) or n < 1 or not self._asked_at:
            return
        self.report.note("turns that were rolled back are left out, because the model no longer saw them")
        self.script.cut(self._asked_at[-n:][0])
        del self._asked_at[-n:]
        if not self._asked_at:
            self.asked = self.prompt = None

    def _write_message(self, actor: str, content: Message, time: Any, extra: dict[str, Any]) -> None:
        self._close()
        kept = {name: value for name, value in extra.items() if isinstance(value, str | bool)}
        copied = True if self._repeats is not None else None
        self.script.add_message(actor, content, timestamp=parse_time(time), extra=kept or None, copied_context=copied)

    def _reason(self, item: dict[str, Any], time: Any) -> None:
        pieces = [*dicts_in(item.get("summary")), *dicts_in(item.get("content"))]
        thought = [as_text(piece.get("text")) for piece in pieces]
        self._acting(time).thoughts.extend(thought)
        if item.get("encrypted_content"):
            self.report.note("thoughts are encrypted; their summaries are used where the log has them")

    def _acting(self, time: Any) -> _Turn:
        self._events.clear()
        if self._turn is None:
            self._write_pending_prompt()
            self._prompts_from_items = 0
            self._turn = _Turn(model=self.model, time=time, is_copy=self._repeats is not None)
        return self._turn

    def _close(self) -> None:
        turn, self._turn = self._turn, None
        if turn is None or not (turn.contents or turn.calls or any(turn.thoughts)):
            return
        usage, self._pending_usage = self._pending_usage, None
        self.script.add_agent_turn(
            join_messages(*turn.contents),
            thought=join_thoughts(turn.thoughts),
            actions=turn.calls,
            model=turn.model,
            usage=usage,
            timestamp=parse_time(turn.time),
            copied_context=turn.is_copy or None,
        )
        self._unmeasured = None if usage else self.script.steps[-1]

    def _answer(self, item: dict[str, Any]) -> None:
        output = item.get("output", item.get("tools"))
        fields, failed = as_dict(output), None
        if isinstance(fields.get("content"), str | list):
            output, failed = fields["content"], fields.get("success") is False
        answer, call_id = visible_content(output), nonblank(item.get("call_id"))
        self.script.add_result(answer, call_id=call_id, is_error=bool(failed) or _states_failure(plain_text(answer)))

    def _event(self, event: dict[str, Any], time: Any) -> None:
        kind, call_id = as_text(event.get("type")), nonblank(event.get("call_id"))
        self.report.skip(f"event_msg/{kind}")
        item = as_dict(event.get("item")) if kind == "item_completed" else {}  # since 0.148
        spoken = nonblank(event.get("message"), plain_text(visible_content(item.get("content"))))
        author = _AUTHORS.get(as_text(item.get("type")) or kind)
        if author and spoken and not self.has_model_output:
            self._events.append((author, spoken, time))
        if author == "user":
            self._user_event(spoken, time)
        elif kind == "thread_rolled_back":
            self._roll_back(event.get("num_turns"))
        elif kind == "token_count":
            self._count_tokens(as_dict(event.get("info")))
        elif call_id and kind == "exec_command_end" and isinstance(event.get("exit_code"), int):
            self._failed[call_id] = event["exit_code"] != 0
        elif call_id and kind == "patch_apply_end" and isinstance(event.get("success"), bool):
            self._failed[call_id] = not event["success"]
        elif call_id and kind == "mcp_tool_call_end":
            result = as_dict(event.get("result"))
            self._failed[call_id] = "Err" in result or as_dict(result.get("Ok")).get("isError") is True

    def _take_events(self) -> None:
        """Write the turns that events alone record: the session has no item of the model."""
        if not any(author == "agent" for author, _, _ in self._events):
            return
        self._pending_prompt = None
        if self._asked_at:
            self.script.cut(self._asked_at[0])
        for author, text, time in self._events:
            if author == "agent":
                self.script.add_agent_turn(text, model=self.model, timestamp=parse_time(time))
            else:
                self.script.add_message("user", text, timestamp=parse_time(time))

    def _count_tokens(self, info: dict[str, Any]) -> None:
        """Record a token count; equal totals are repetitions.

        It follows its reply, since 0.142 after the results of the calls; in old versions it precedes the reply.
        """
        usage, total = as_dict(info.get("last_token_usage")), info.get("total_token_usage")
        if not usage or (total is not None and total == self._total):
            return
        self._total = total
        if self._counts_follow is None:
            self._counts_follow = self.has_model_output
        if self._turn is None and self._unmeasured is not None and self._counts_follow:
            self._unmeasured["usage"], self._unmeasured = parse_usage(usage), None
            return
        self._pending_usage = parse_usage(usage)
        if self._turn is not None:
            self._close()

    def _corrected(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Return an observation with the exit status that an event reported."""
        failed = self._failed.get(observation["call_id"], observation["is_error"])
        return observation if failed == observation["is_error"] else {**observation, "is_error": failed}

    def run(self) -> Iterator[Run]:
        """Yield the session as a run."""
        if not self.has_model_output:
            self._take_events()
        self._close()
        self._write_pending_prompt()
        for place, step in enumerate(self.script.steps if self._failed else ()):
            corrected = [self._corrected(observation) for observation in step.get("observations", ())]
            if corrected != step.get("observations", []):
                self.script.steps[place] = {**step, "observations": corrected}
        source, session = as_dict(as_dict(self.meta.get("source")).get("subagent")), self.session
        spawned = as_dict(source.get("thread_spawn"))
        parent = nonblank(spawned.get("parent_thread_id"), self.meta.get("parent_thread_id"))
        forked = nonblank(self.meta.get("forked_from_id"))
        known = parse_tool_schemas(self.meta.get("dynamic_tools"))
        names = {tool["function"]["name"] for tool in known}
        tools = known + [tool for tool in inferred_tools(self.script) if tool["function"]["name"] not in names]
        if tools:
            self.report.note("the log has no schemas of the built-in tools: they are inferred from the calls")
        git = as_dict(self.meta.get("git"))
        where = {"cwd": self.meta.get("cwd"), "git_branch": git.get("branch"), "git_commit": git.get("commit_hash")}
        yield from build_session_run(
            self.script,
            self.report,
            self.line,
            parent=parent,
            continues=None if parent else forked,
            prompt=self.asked or self.prompt or "",
            session=session,
            tools=tools,
            agent="codex",
            version=self.meta.get("cli_version"),
            about=where | {"tools": "inferred" if tools else None},
        )


def _states_failure(answer: str) -> bool:
    """Whether a command failed, by the exit code around its output; False if none is stated."""
    result = as_dict(parse_json_text(answer)) if answer.startswith(('{"output"', '{"content"')) else {}
    if result:
        return result.get("success") is False or as_dict(result.get("metadata")).get("exit_code", 0) not in (0, None)
    found = _EXIT.search(answer.partition("\nOutput:")[0][:400])
    return found is not None and int(found[1]) > 0
