"""Session logs of knowlyr-crew: lines of events, one run a file. Status `completed` only means that the run ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer
from quintain.importers.run_builder import build_run
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_dict, as_text, nonblank, parse_time, parse_usage
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus, Task


def _detect(probe: Probe) -> float:
    """Match a first line that is a start event with a session type."""
    started = probe.first.get("event") == "start" and isinstance(probe.first.get("session_type"), str)
    return 0.97 if started and probe.shape in {"lines", "object"} else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    transcript = Transcript()
    start: dict[str, Any] = {}
    status, begins = None, None
    for line, value in log.rows(report):
        event = as_dict(value)
        kind = as_text(event.get("event"))
        if kind == "start":
            start, begins = event, begins or line
        elif kind == "end":
            status = nonblank(event.get("status"))
        elif kind != "message" or not _add_message(transcript, event):
            report.skip(f"event:{kind}" if kind != "message" else f"role:{event.get('role')}")
    meta = as_dict(start.get("metadata"))
    args = as_dict(meta.get("args")) or as_dict(meta.get("initial_args"))
    subject, pipeline = as_text(start.get("subject")), start.get("session_type") == "pipeline"
    failed = status in {"failed", "error"}
    yield from build_run(
        transcript,
        report,
        begins,
        session_id=log.path.stem,
        task=Task(prompt=nonblank(args.get("target"), args.get("goal")) or "", metadata={"args": args} if args else {}),
        agent=AgentInfo(name="/".join(filter(None, ["crew", "pipeline" if pipeline else "", subject]))),
        outcome=Outcome(status=OutcomeStatus.ERROR if failed else OutcomeStatus.UNKNOWN, exit_status=status),
    )


IMPORTER = Importer("crew", "knowlyr-crew session", _detect, _read)


def _add_message(transcript: Transcript, event: dict[str, Any]) -> bool:
    """Add a message; return False if its role is unknown."""
    role, content, meta = event.get("role"), as_text(event.get("content")), as_dict(event.get("metadata"))
    when = parse_time(event.get("timestamp"))
    if role == "assistant":
        transcript.add_agent_turn(content, model=nonblank(meta.get("model")), usage=parse_usage(meta), timestamp=when)
    elif role in ("prompt", "step"):
        employee = nonblank(meta.get("employee"))
        transcript.add_message("user", content, timestamp=when, extra={"employee": employee} if employee else None)
    else:
        return False
    return True
