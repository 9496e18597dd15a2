"""Events of `codex exec --json`: the agent's actions, without its task and without the boundaries of replies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from quintain.importers.protocol import Report, Run
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.message_parts import join_thoughts, visible_content
from quintain.importers.values import as_dict, as_text, nonblank, total_usage
from quintain.records.trajectory import Outcome

EXEC_EVENTS = {"thread.started", "turn.started", "turn.completed", "turn.failed", "item.started", "item.updated"}
EXEC_EVENTS |= {"item.completed"}

_NO_TASK = "codex exec --json does not record the task: add a prompt to the runs before training"


def exec_runs(
    line: int, row: dict[str, Any], rest: Iterable[tuple[int, dict[str, Any]]], report: Report
) -> Iterator[Run]:
    """Yield the runs of such a file, one for each `thread.started`."""
    thread = _Events(line)
    thread.take(line, row, report)
    for number, event in rest:
        if event.get("type") == "thread.started" and thread.has_acted:
            yield from thread.run(report)
            thread = _Events(number)
        thread.take(number, event, report)
    yield from thread.run(report)


class _Events:
    """One thread: messages and thoughts wait for the call that belongs to them."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.messages: list[dict[str, Any]] = []
        self.session: str | None = None
        self.failure: str | None = None
        self._spent: list[dict[str, Any]] = []
        self._reply: dict[str, Any] = {}
        self._running: dict[str, dict[str, Any]] = {}

    def take(self, line: int, event: dict[str, Any], report: Report) -> None:
        kind, item = as_text(event.get("type")), as_dict(event.get("item"))
        if kind == "thread.started":
            self.session = nonblank(event.get("thread_id"))
        elif kind == "turn.completed":
            self._spent.append(as_dict(event.get("usage")))
            self._write([])
        elif kind in ("turn.failed", "error"):
            self.failure = nonblank(as_dict(event.get("error")).get("message"), event.get("message"), kind)
            report.skip(kind)
        elif kind == "item.started":
            self._running[as_text(item.get("id"))] = item
        elif kind == "item.completed" and item:
            self._running.pop(as_text(item.get("id")), None)
            self._item(item, report)
        elif kind == "item.completed":
            report.reject(line, "expected an item in item.completed")
        else:
            report.skip(kind or "without type")

    def _item(self, item: dict[str, Any], report: Report) -> None:
        kind = nonblank(item.get("type"), item.get("item_type"))
        if kind in ("agent_message", "assistant_message", "reasoning"):
            if "content" in self._reply:
                self._write([])
            if kind == "reasoning":
                self._reply.setdefault("thoughts", []).append(as_text(item.get("text")))
            else:
                self._reply["content"] = as_text(item.get("text"))
        elif call := _call(item):
            self._write([call])
            answer = _answer(item)
            if answer is not None:
                status = item.get("status")
                failed = status in ("failed", "declined") or item.get("exit_code") not in (None, 0)
                result = {"role": "tool", "tool_call_id": call["id"], "content": answer, "is_error": failed}
                self.messages.append(result)
        else:
            report.skip(f"item/{kind}")

    def _write(self, calls: list[dict[str, Any]]) -> None:
        if self._reply or calls:
            thoughts = join_thoughts(self._reply.get("thoughts", ()))
            reply = {"content": self._reply.get("content", ""), "thinking": thoughts, "tool_calls": calls}
            self.messages.append({"role": "assistant", **reply})
        self._reply = {}

    @property
    def has_acted(self) -> bool:
        """Whether the agent has written or called anything."""
        return bool(self.messages)

    def run(self, report: Report) -> Iterator[Run]:
        self._write([call for item in self._running.values() if (call := _call(item))])
        report.note(_NO_TASK)
        report.note("the log does not mark the end of a model reply: each call is a step of its own")
        usage = total_usage(self._spent)
        yield from build_session_run(
            self.messages,
            report,
            self.line,
            agent="codex",
            session=self.session,
            prompt="",
            outcome=Outcome(exit_status=self.failure and self.failure[:200]),
            extra={"usage": usage} if usage else {},
        )


def _call(item: dict[str, Any]) -> dict[str, Any] | None:
    kind = nonblank(item.get("type"), item.get("item_type"))
    if kind == "command_execution":
        name, arguments = "shell", {"command": as_text(item.get("command"))}
    elif kind == "file_change":
        name, arguments = "apply_patch", {"changes": item.get("changes")}
    elif kind == "mcp_tool_call":
        name = ".".join(filter(None, (as_text(item.get("server")), as_text(item.get("tool")))))
        arguments = item.get("arguments")
    elif kind == "web_search":
        name, arguments = "web_search", {"query": as_text(item.get("query"))}
    else:
        return None
    return {"id": item.get("id"), "name": name, "arguments": arguments}


def _answer(item: dict[str, Any]) -> Any:
    """Return the result of a call; None if the event has none."""
    if "aggregated_output" in item:
        return as_text(item["aggregated_output"])
    if item.get("error") is not None:
        return as_text(as_dict(item["error"]).get("message"))
    result = item.get("result")
    return visible_content(as_dict(result).get("content", result)) if result is not None else None
