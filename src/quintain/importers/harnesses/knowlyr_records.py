"""Read knowlyr's steps, tasks and outcomes under any of the names that its tools use."""

from __future__ import annotations

from typing import Any

from quintain.importers.harnesses.knowlyr_text import parse_call
from quintain.importers.outcome_fields import status_of
from quintain.importers.protocol import Report
from quintain.importers.row_reader import first_name
from quintain.importers.transcripts.field_values import as_count, as_dict, as_number, as_text, first_text, nonblank
from quintain.importers.transcripts.transcript import Transcript, make_call, parse_time
from quintain.records.trajectory import Outcome, OutcomeStatus, Task

_ENDED_ONLY = ("swe-agent", "sweagent", "crew")
"""Frameworks whose success flag means that the run ended, not that it reached its goal."""
_TASK_FIELDS = ("repo", "base_commit", "test_command", "language", "domain", "success_criteria")


def add_step(transcript: Transcript, step: dict[str, Any], reward: float | None) -> None:
    """Add a step under any of its names: tool_call and tool_result, tool and params, action and observation."""
    called, result = as_dict(step.get("tool_call")), as_dict(step.get("tool_result"))
    tool = first_text(called.get("name"), step.get("tool"), step.get("tool_name"))
    arguments = called.get("parameters") if called else step.get("params", step.get("parameters"))
    written = as_text(step.get("action")) if not tool else ""
    if written:
        tool, arguments = parse_call(written.strip())
    tokens = as_count(step.get("token_count"))
    reward = as_number(step.get("reward")) if reward is None else reward
    transcript.add_agent_turn(
        "" if tool else written,
        thought=as_text(step.get("thought")),
        actions=[make_call(tool, arguments)] if tool else [],
        reward=reward,
        timestamp=parse_time(step.get("timestamp")),
        extra=None if tokens is None else {"token_count": tokens},
    )
    seen = first_text(result.get("output"), step.get("output"), step.get("observation"))
    error = as_text(result.get("error"))
    failed = bool(error) or (result.get("exit_code", step.get("exit_code")) or 0) != 0
    if seen is not None or error or result:
        # A step without a call was answered all the same: no result is lost, and none is an orphan.
        known = transcript.add_result("\n".join(filter(None, [seen or "", error])), is_error=failed)
        transcript.orphans -= not known


def task_of(row: dict[str, Any], meta: dict[str, Any]) -> Task:
    """Return the task of a row, with its metadata or nested task."""
    return Task(
        id=first_name(meta, ("task_id",)) or first_name(row, ("task_id",)),
        prompt=first_text(meta.get("description"), meta.get("task_description"), row.get("instruction")) or "",
        type=nonblank(meta.get("type")),
        difficulty=nonblank(meta.get("difficulty")),
        environment=nonblank(meta.get("domain")),
        metadata={key: meta[key] for key in _TASK_FIELDS if isinstance(meta.get(key), str | list) and meta[key]},
    )


def outcome_of(row: dict[str, Any], framework: str, report: Report) -> Outcome:
    """Return the outcome if the row has a verdict: tests that ran, or the flag of a framework that checks results."""
    ended = as_dict(row.get("outcome"))
    success = ended.get("success", row.get("success"))
    passed, failed = ended.get("tests_passed"), ended.get("tests_failed")
    status = OutcomeStatus.UNKNOWN
    if "terminated" in ended or "truncated" in ended:
        status = OutcomeStatus.TRUNCATED if ended.get("truncated") is True else OutcomeStatus.UNKNOWN
    elif isinstance(passed, int) and isinstance(failed, int) and passed + failed > 0:
        status = status_of(not failed)
    elif isinstance(success, bool) and not framework.lower().startswith(_ENDED_ONLY):
        status = status_of(success)
    if status is OutcomeStatus.UNKNOWN and success is not None:
        report.note(
            "`success` of these runs means that they ended, not that they reached their goal: the outcome is unknown"
        )
    score = as_number(ended.get("score"))
    # A score of 0 is the recorder's default and carries no information.
    return Outcome(status=status, reward=as_number(row.get("reward")), scores={"score": score} if score else {})
