"""Agno runs: `RunOutput.to_dict()`, `AgentSession.to_dict()` with its `runs`, and the tables of runs and sessions of a `JsonDb`.

A stored run has its own messages and, where Agno was asked to keep it, the history before them. The runs of a team's
members name the run that started them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.chat_messages import Turn, parse_message
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, parse_time, parse_usage
from quintain.records.trajectory import Outcome, OutcomeStatus

_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")
_OUTCOMES = {"ERROR": OutcomeStatus.ERROR, "CANCELLED": OutcomeStatus.TRUNCATED}
_NO_HISTORY = (
    "a stored run of Agno leaves out the history: whether the model saw earlier runs of the session is unknown"
)


def _detect(probe: Probe) -> float:
    """Match runs, alone, in a session, or in the table of runs."""
    return 0.98 if matching_share(probe, lambda row: bool(_runs(row)), "messages", "runs", "run_data") > 0.5 else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    seen: set[str] = set()
    for line, row in log.rows(report):
        runs = _runs(as_dict(row))
        if not runs and not _is_session(as_dict(row)):
            report.reject(line, "expected a run with `run_id` and `messages`, or a session with `runs`")
        for run in runs:
            if run["run_id"] not in seen:
                seen.add(run["run_id"])
                yield from _run(run, report, line)


IMPORTER = Importer("agno", "Agno runs", _detect, _read)


def _is_run(value: Any) -> bool:
    run = as_dict(value)
    messages = dicts_in(run.get("messages"))
    named = isinstance(run.get("run_id"), str) and bool(run.keys() & {"agent_id", "team_id"})
    return named and bool(messages) and all({"role", "from_history"} <= message.keys() for message in messages[:3])


def _is_session(row: Mapping[str, Any]) -> bool:
    return "session_id" in row and {"session_data", "agent_data"} <= row.keys()


def _runs(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the runs of a row, and after each the runs of its members."""
    held = [row, row.get("run_data"), *(dicts_in(row.get("runs")) if _is_session(row) else [])]
    found = []
    for run in (as_dict(value) for value in held if _is_run(value)):
        found.append(run)
        found += [
            {"parent_run_id": run["run_id"], **member}
            for member in dicts_in(run.get("member_responses"))
            if _is_run(member)
        ]
    return found


def _run(run: dict[str, Any], report: Report, line: int) -> Iterator[Run]:
    turns = [turn for message in dicts_in(run["messages"]) if (turn := _turn(message, report)) is not None]
    if not any(message.get("from_history") is True for message in dicts_in(run["messages"])):
        report.note(_NO_HISTORY)
    status, parent = as_text(run.get("status")), nonblank(run.get("parent_run_id"))
    yield from build_session_run(
        turns,
        report,
        line,
        key=run["run_id"],
        parent=parent,
        prompt=nonblank(as_dict(run.get("input")).get("input_content")),
        session_id=nonblank(run.get("session_id")),
        episode_key=run["run_id"],
        agent=nonblank(*(run.get(key) for key in ("agent_name", "team_name", "agent_id", "team_id"))),
        model=run.get("model"),
        outcome=Outcome(status=_OUTCOMES.get(status, OutcomeStatus.UNKNOWN)),
    )


def _turn(message: dict[str, Any], report: Report) -> Turn | None:
    known = {key: message[key] for key in _FIELDS if message.get(key) is not None}
    known["is_error"] = message.get("tool_call_error") is True
    if message.get("role") != "tool":
        del known["is_error"]
    turn = parse_message(known, "message", report.refuse)
    if turn is None:
        return None
    is_copy = {"copied_context": True} if message.get("from_history") is True else {}
    turn.fields |= {"timestamp": parse_time(message.get("created_at")), **is_copy}
    if turn.actor == "agent":
        turn.fields["usage"] = parse_usage(message.get("metrics"))
    return turn
