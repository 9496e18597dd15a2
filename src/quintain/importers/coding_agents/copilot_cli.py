"""GitHub Copilot CLI sessions: `~/.copilot/session-state/<session>/events.jsonl`, and `copilot -p --output-format json`.

The output has the same events but for the start of the session, and ends with a result without data. An answer and the
start and end of its calls are events. The model gets a prompt as the program transformed it. Some versions name the model
where it is chosen, and not at the answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.run_builder import COMPACTED, build_session_run
from quintain.importers.transcripts.chat_messages import SEALED, read_turns
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, parse_time

_CHOSEN = {
    "session.start": "selectedModel",
    "session.resume": "selectedModel",
    "session.model_change": "newModel",
    "session.tools_updated": "model",
}
"""Event -> field with the model of the answers that follow."""
_SUBAGENTS = "the turns of subagents are left out: their result is that of the call that started them"


def _detect(probe: Probe) -> float:
    """Match events, of which one names the program or is an answer with its requests."""
    events = filter(_is_event, probe.objects)
    own = any("copilotVersion" in row["data"] or "toolRequests" in row["data"] for row in events)
    return if_most(0.96, probe, _is_event) if probe.shape == "lines" and own else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    writer, end = _Writer(report), dict[str, Any]()
    for line, row in object_rows(log, report):
        if _is_event(row):
            writer.write(row)
        elif row.get("type") == "result":
            end = row
            report.skip("result")
        else:
            report.reject(line, "expected an event with a type, data and a time")
    start = writer.start
    place = as_dict(start.get("context"))
    yield from build_session_run(
        writer.script,
        report,
        agent="copilot-cli",
        version=start.get("copilotVersion"),
        session=nonblank(start.get("sessionId"), end.get("sessionId")),
        prompt=writer.prompt,
        about={"cwd": place.get("cwd"), "git_branch": place.get("branch"), "git_commit": place.get("headCommit")},
    )


IMPORTER = Importer("copilot_cli", "GitHub Copilot CLI session", _detect, _read)


def _is_event(row: dict[str, Any]) -> bool:
    return isinstance(row.get("type"), str) and isinstance(row.get("data"), dict) and "timestamp" in row


class _Writer:
    """Writes events as turns."""

    def __init__(self, report: Report) -> None:
        self.script, self.report = Transcript(), report
        self.prompt: str | None = None
        self.start: dict[str, Any] = {}
        self._model: str | None = None
        self._usage: dict[str, Any] | None = None
        self._system: str | None = None
        self._started: dict[str, dict[str, Any]] = {}
        """Call id -> arguments of the calls that were started."""
        self._delegated: list[str] = []
        """Prompts of subagents that have started: their first message repeats one, and does not name the subagent."""

    def write(self, row: dict[str, Any]) -> None:
        kind, data, when = row["type"], row["data"], row["timestamp"]
        self._model = nonblank(data.get(_CHOSEN.get(kind, ""))) or self._model
        if nonblank(row.get("agentId")) or nonblank(data.get("parentToolCallId")):
            self.report.note(_SUBAGENTS)
            self.report.skip("event of a subagent")
        elif kind == "session.start":
            self.start = self.start or data
        elif kind == "system.message":
            self._system_message(as_text(data.get("content")))
        elif kind == "user.message" and data.get("content") in self._delegated:
            self._delegated.remove(data["content"])
            self.report.skip("event of a subagent")
        elif kind == "user.message":
            self.prompt = self.prompt or nonblank(data.get("content"))
            text = nonblank(data.get("transformedContent"), data.get("content")) or ""
            self.script.add_message("user", text, timestamp=parse_time(when))
        elif kind == "session.usage_record":
            self._usage = as_dict(data.get("usage"))
        elif kind == "assistant.message":
            self._answer(data, when)
        elif kind == "tool.execution_complete":
            self._result(data)
        else:
            if kind == "tool.execution_start":
                self._started[as_text(data.get("toolCallId"))] = as_dict(data.get("arguments"))
            elif kind == "subagent.started":
                arguments = self._started.get(as_text(data.get("toolCallId")), {})
                self._delegated += filter(None, [nonblank(arguments.get("prompt"))])
            if kind == "session.compaction_complete":
                self.report.note(COMPACTED)
            self.report.skip(kind)

    def _system_message(self, text: str) -> None:
        """Write a system prompt: the first one comes before the prompt, though its event comes after it."""
        if text and text != self._system:
            if self._system is None and not self.script.has_acted:
                self.script.prepend_system(text)
            else:
                self.script.add_message("system", text)
            self._system = text

    def _answer(self, data: dict[str, Any], when: Any) -> None:
        usage, self._usage = self._usage or {"output_tokens": data.get("outputTokens")}, None
        if not nonblank(data.get("reasoningText")) and nonblank(data.get("reasoningOpaque")):
            self.report.note(SEALED)
        message = {
            "role": "assistant",
            "content": as_text(data.get("content")),
            "thinking": data.get("reasoningText"),
            "tool_calls": dicts_in(data.get("toolRequests")),
            "model": nonblank(data.get("model"), self._model),
            "timestamp": when,
            "usage": usage,
        }
        if message["content"] or message["tool_calls"] or nonblank(message["thinking"]):
            read_turns([message], self.script, self.report.refuse)

    def _result(self, data: dict[str, Any]) -> None:
        failed = data.get("success") is False
        result = data.get("result")  # an object or, in some versions, the text alone
        texts = (as_dict(result).get("content") or nonblank(result), as_dict(data.get("error")).get("message"))
        text = nonblank(*(reversed(texts) if failed else texts)) or ""
        self.script.add_result(text, call_id=nonblank(data.get("toolCallId")), is_error=failed)
