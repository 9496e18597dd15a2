"""Rollouts of Codex: what the lines of a session say, turn by turn.

Only response items are turns; events repeat them, and lend the task, exit codes and token counts. A turn of the model is
what it wrote between two things that were said to it: reasoning, messages and calls up to the first output. A fork
repeats the items of the session that it goes on from: those are copied context where that session lies in the same logs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from quintain.importers.protocol import Report, Run
from quintain.importers.run_builder import COMPACTED, build_session_run
from quintain.importers.transcripts.field_values import (
    as_dict,
    as_text,
    dicts_in,
    first_text,
    nonblank,
    parse_json_text,
)
from quintain.importers.transcripts.message_parts import (
    Message,
    join_messages,
    join_thoughts,
    plain_text,
    spoken_content,
    visible_content,
)
from quintain.importers.transcripts.responses_api import item_call
from quintain.importers.transcripts.token_usage import parse_usage
from quintain.importers.transcripts.tool_schemas import inferred_tools, parse_tool_schemas
from quintain.importers.transcripts.transcript import Transcript, make_call, parse_time
from quintain.records.trajectory import AgentInfo

ITEMS = {"message", "reasoning", "local_shell_call", "web_search_call"} | {
    f"{maker}_{end}" for maker in ("function", "custom_tool") for end in ("call", "call_output")
}
"""Kinds of response items that a bare line is known by."""

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
UNMARKED = (
    "a fork repeats turns of the session that it goes on from, which is not in the same logs: they are not marked"
)
Origin = Callable[[str], Callable[[dict[str, Any]], bool] | None]
"""Of a session's id: says of one item after the other whether it repeats that session; None where that is not there."""

_EXIT = re.compile(r"^(?:Exit code: |Process exited with code )(\d+)$", re.MULTILINE)


@dataclass
class _Turn:
    """What the model wrote since it was last told something."""

    said: list[Message] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)
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
        """The first thing that the person wrote, as the event tells it."""
        self.prompt: str | None = None
        self._asked_at: list[int] = []
        """Steps at which the person asked for something."""
        self._heard = 0
        """Turns of the person since the model last wrote, which an event may tell once more."""
        self._unheard: dict[str, Any] | None = None
        """An event with a turn of the person that no item has told yet."""
        self._origin = origin
        self._repeats: Callable[[dict[str, Any]], bool] | None = None
        """Does an item repeat the session that this one was forked from? None once one did not."""
        self._turn: _Turn | None = None
        self._failed: dict[str, bool] = {}
        self._total: Any = None
        self._spent: dict[str, int | None] | None = None
        """A count that no reply has taken yet."""

    @property
    def session(self) -> str | None:
        """Its id."""
        return first_text(self.meta.get("id"), self.meta.get("session_id"))

    @property
    def has_begun(self) -> bool:
        """Has the model written anything?"""
        return self._turn is not None or self.script.has_acted

    def take(self, line: int, kind: str, row: dict[str, Any], payload: dict[str, Any]) -> None:
        """One line."""
        if kind == "session_meta" or (not kind and "id" in row):  # the first generation wrote it without a type
            self._open(payload or row)
        elif kind == "turn_context":
            known = first_text(payload.get("model"), as_dict(payload.get("turn_context")).get("model"))
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
                self.script.say("user", summary, timestamp=parse_time(row.get("timestamp")), extra={"compacted": True})
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
        given = meta.get("base_instructions")
        if system := first_text(as_dict(given).get("text"), given, meta.get("instructions")):
            self.script.say("system", system, timestamp=parse_time(meta.get("timestamp")))

    def _item(self, line: int, item: dict[str, Any], time: Any) -> None:
        kind = as_text(item.get("type"))
        if self._repeats is not None and not self._repeats(item):
            self._close()
            self._repeats = None
        if kind == "message":
            self._message(item, time)
        elif kind == "agent_message":  # from another agent to this one
            self._tell("user", visible_content(item.get("content")), time, {"author": item.get("author")})
        elif kind == "reasoning":
            self._reason(item, time)
        elif kind.endswith("_output"):
            self._close()
            self._answer(item)
        elif kind.endswith("_call"):
            called = item_call(item)
            function = called["function"]
            self._acting(time).calls.append(make_call(function["name"], function["arguments"], called["id"]))
        elif not kind:
            self.report.reject(line, "a response item without type")
        else:
            self.report.skip(f"response_item/{kind}")

    def _message(self, item: dict[str, Any], time: Any) -> None:
        role = item.get("role")
        if role == "assistant":
            self._acting(time).said.append(spoken_content(item.get("content"), self.report.skip))
            return
        said = visible_content(item.get("content"))
        if role in ("system", "developer"):
            self._tell("system", said, time, {"role": "developer"} if role == "developer" else {})
        else:
            opening = plain_text(said).lstrip().startswith(_PREAMBLE)
            if not opening:
                self._heard, self._unheard = self._heard + (self._unheard is None), None
            if not opening and self.prompt is None and plain_text(said).strip():
                self.prompt = plain_text(said)
            self._tell("user", said, time, {"context": True} if opening else {})
            self._asked_at += [] if opening else [len(self.script.steps) - 1]

    def _told(self, event: dict[str, Any], time: Any) -> None:
        """A turn of the person as an event tells it: most often an item does so too, before or after it."""
        said = nonblank(event.get("message"))
        if self.asked is None:
            self.asked = said
        if self._heard:
            self._heard -= 1
        elif said and not said.lstrip().startswith(_PREAMBLE):
            self._say_unheard()
            self._unheard = {"message": said, "timestamp": parse_time(time)}

    def _say_unheard(self) -> None:
        if self._unheard is not None:
            self._asked_at.append(len(self.script.steps))
            self.script.say("user", **self._unheard)
            self._unheard = None

    def _roll_back(self, n: Any) -> None:
        """Leave out the last turns of the person, with what the model did about them."""
        self._close()
        self._unheard, self._heard = None, 0
        if not isinstance(n, int) or isinstance(n, bool) or n < 1 or not self._asked_at:
            return
        self.report.note("turns that were rolled back are left out, as the model no longer saw them")
        self.script.cut(self._asked_at[-n:][0])
        del self._asked_at[-n:]
        if not self._asked_at:
            self.asked = self.prompt = None

    def _tell(self, actor: str, said: Message, time: Any, extra: dict[str, Any]) -> None:
        self._close()
        kept = {name: value for name, value in extra.items() if isinstance(value, str | bool)}
        copied = True if self._repeats is not None else None
        self.script.say(actor, said, timestamp=parse_time(time), extra=kept or None, copied_context=copied)

    def _reason(self, item: dict[str, Any], time: Any) -> None:
        pieces = [*dicts_in(item.get("summary")), *dicts_in(item.get("content"))]
        thought = [as_text(piece.get("text")) for piece in pieces]
        self._acting(time).thought.extend(thought)
        if item.get("encrypted_content"):
            self.report.note("thoughts are encrypted; where the log holds summaries of them, those are the thoughts")

    def _acting(self, time: Any) -> _Turn:
        if self._turn is None:
            self._say_unheard()
            self._heard = 0
            self._turn = _Turn(model=self.model, time=time, is_copy=self._repeats is not None)
        return self._turn

    def _close(self) -> None:
        turn, self._turn = self._turn, None
        if turn is None or not (turn.said or turn.calls or any(turn.thought)):
            return
        spent, self._spent = self._spent, None
        self.script.act(
            join_messages(*turn.said),
            thought=join_thoughts(turn.thought),
            actions=turn.calls,
            model=turn.model,
            usage=spent,
            timestamp=parse_time(turn.time),
            copied_context=turn.is_copy or None,
        )

    def _answer(self, item: dict[str, Any]) -> None:
        given = item.get("output", item.get("tools"))
        held, failed = as_dict(given), None
        if isinstance(held.get("content"), str | list):
            given, failed = held["content"], held.get("success") is False
        answer, call_id = visible_content(given), nonblank(item.get("call_id"))
        self.script.observe(answer, call_id=call_id, is_error=bool(failed) or _failed(plain_text(answer)))

    def _event(self, event: dict[str, Any], time: Any) -> None:
        kind, call_id = as_text(event.get("type")), nonblank(event.get("call_id"))
        self.report.skip(f"event_msg/{kind}")
        if kind == "user_message":
            self._told(event, time)
        elif kind == "thread_rolled_back":
            self._roll_back(event.get("num_turns"))
        elif kind == "token_count":
            self._spend(as_dict(event.get("info")))
        elif call_id and kind == "exec_command_end" and isinstance(event.get("exit_code"), int):
            self._failed[call_id] = event["exit_code"] != 0
        elif call_id and kind == "patch_apply_end" and isinstance(event.get("success"), bool):
            self._failed[call_id] = not event["success"]
        elif call_id and kind == "mcp_tool_call_end":
            result = as_dict(event.get("result"))
            self._failed[call_id] = "Err" in result or as_dict(result.get("Ok")).get("isError") is True

    def _spend(self, info: dict[str, Any]) -> None:
        """A count follows its reply or, in old versions, goes before it; equal totals are repetitions."""
        spent, total = as_dict(info.get("last_token_usage")), info.get("total_token_usage")
        if not spent or (total is not None and total == self._total):
            return
        self._total = total
        self._spent = parse_usage(spent)
        if self._turn is not None:
            self._close()

    def run(self) -> Iterator[Run]:
        """The session as a run."""
        self._close()
        self._say_unheard()
        for step in self.script.steps:
            for seen in step.get("observations", ()):
                seen["is_error"] = self._failed.get(seen["call_id"], seen["is_error"])
        source, session = as_dict(as_dict(self.meta.get("source")).get("subagent")), self.session
        spawned = as_dict(source.get("thread_spawn"))
        parent = first_text(spawned.get("parent_thread_id"), self.meta.get("parent_thread_id"))
        forked = nonblank(self.meta.get("forked_from_id"))
        known = parse_tool_schemas(self.meta.get("dynamic_tools"))
        tools = known + [t for t in inferred_tools(self.script) if t["function"]["name"] not in _names(known)]
        if tools:
            self.report.note("the log holds no schemas of the built-in tools: they are inferred from the calls")
        git = as_dict(self.meta.get("git"))
        where = {"cwd": self.meta.get("cwd"), "git_branch": git.get("branch"), "git_commit": git.get("commit_hash")}
        keys = {"key": session, "parent": parent, "continues": None if parent else forked}
        yield from build_session_run(
            self.script,
            self.report,
            self.line,
            format="codex",
            **{name: f"codex:{key}" for name, key in keys.items() if key},
            prompt=self.asked or self.prompt or "",
            session_id=session,
            tools=tools,
            agent=AgentInfo(name="codex", version=nonblank(self.meta.get("cli_version")), model=self.script.model),
            extra={name: value for name, value in where.items() if nonblank(value)}
            | ({"tools": "inferred"} if tools else {}),
        )


def _names(tools: list[dict[str, Any]]) -> set[str]:
    return {tool["function"]["name"] for tool in tools}


def _failed(answer: str) -> bool:
    """Whether a command failed, as the program wrote above or around its output; no where it did not write it."""
    told = as_dict(parse_json_text(answer)) if answer.startswith(('{"output"', '{"content"')) else {}
    if told:
        return told.get("success") is False or as_dict(told.get("metadata")).get("exit_code", 0) not in (0, None)
    found = _EXIT.search(answer.partition("\nOutput:")[0][:400])
    return found is not None and int(found[1]) > 0
