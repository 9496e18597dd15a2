"""Session traces of the Hugging Face Hub (STS: a header line, then one message a line) and the similar sessions of Pi.

Described at hf.co/docs/hub/session-traces-format. Pi's sessions are trees by `parentId`: the last branch is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import object_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.chat_messages import append_turn, parse_message
from quintain.importers.transcripts.field_values import first_text, nonblank
from quintain.importers.transcripts.transcript import Transcript, parse_time
from quintain.records.trajectory import AgentInfo


@dataclass(frozen=True)
class HfSts:
    """Reader of Hugging Face session traces."""

    name: str = "hf_sts"
    title: str = "Hugging Face session trace"

    def detect(self, probe: Probe) -> float:
        """Match a first line of type `session` with the id of a harness or of Pi."""
        head = probe.first
        if head.get("type") != "session" or probe.shape == "zip":
            return 0.0
        if isinstance(head.get("harness"), str):
            return 0.97
        bodies = [row for row in probe.rows if isinstance(row, dict) and row.get("type") == "message"]
        return 0.85 if "id" in head and any(isinstance(row.get("message"), dict) for row in bodies) else 0.0

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """Yield one run a header."""
        head: dict[str, Any] = {}
        lines: list[tuple[int, dict[str, Any]]] = []
        begin: int | None = None
        for line, row in object_rows(log, report):
            if row.get("type") == "session":
                if begin is not None:
                    yield from _run(begin, head, lines, report)
                head, lines, begin = row, [], line
            else:
                begin = begin if begin is not None else line
                lines.append((line, row))
        if begin is None:
            report.reject(None, "expected a session, got no line of one")
        else:
            yield from _run(begin, head, lines, report)


def _run(begin: int, head: dict[str, Any], lines: list[tuple[int, dict[str, Any]]], report: Report) -> Iterator[Run]:
    script = Transcript()
    for line, row in _branch(lines, report):
        if row.get("type") != "message":
            report.skip(first_text(row.get("type")) or "without type")
        elif not isinstance(row.get("message"), dict):
            report.reject(line, "expected a message object in a line of type message")
        else:
            _write(row["message"], row, script, report)
    session, harness = nonblank(head.get("id")), first_text(head.get("harness")) or "pi"
    title = {"title": head["name"]} if nonblank(head.get("name")) else {}
    yield from build_session_run(
        script,
        report,
        begin,
        format="hf_sts",
        key=f"hf_sts:{session}" if session else None,
        session_id=session,
        agent=AgentInfo(
            name=harness, version=nonblank(head.get("version")), model=script.model or nonblank(head.get("model"))
        ),
        extra=title,
    )


def _branch(lines: list[tuple[int, dict[str, Any]]], report: Report) -> list[tuple[int, dict[str, Any]]]:
    """Return the lines from the root to the last line if lines name their parents; else all lines."""
    known = {row["id"]: (line, row) for line, row in lines if nonblank(row.get("id"))}
    if not any(nonblank(row.get("parentId")) in known for _, row in lines):
        return lines
    chain, seen = [], set()
    at: tuple[int, dict[str, Any]] | None = lines[-1]
    while at is not None and at[0] not in seen:
        seen.add(at[0])
        chain.append(at)
        at = known.get(nonblank(at[1].get("parentId")) or "")
    if left := sum(row.get("type") == "message" and line not in seen for line, row in lines):
        report.note(f"only the branch with the last line is imported: {left} messages of others are left out")
    return chain[::-1]


def _write(message: dict[str, Any], row: dict[str, Any], script: Transcript, report: Report) -> None:
    calls = message.get("tool_calls", message.get("toolCalls"))
    known = {key: value for key, value in message.items() if key != "toolCalls"}
    turn = parse_message({**known, "tool_calls": calls}, "message", report.refuse)
    if turn is not None:
        turn.fields["timestamp"] = turn.fields.get("timestamp") or parse_time(row.get("timestamp"))
        append_turn(turn, script)
