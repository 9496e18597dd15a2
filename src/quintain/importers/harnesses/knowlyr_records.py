"""What knowlyr's records of steps, tasks and outcomes say, by any of the names that its parts give them."""

from __future__ import annotations

from typing import Any

from quintain.importers.harnesses.step_text import call_in
from quintain.importers.harnesses.verdicts import status_of
from quintain.importers.protocol import Report
from quintain.importers.training_data.rows import name_of
from quintain.importers.transcripts.transcript import Transcript, action, moment
from quintain.importers.transcripts.values import count, first, label, number, record, text
from quintain.records.trajectory import Outcome, OutcomeStatus, Task

_ENDED_ONLY = ("swe-agent", "sweagent", "crew")
"""Frameworks whose success flag says that the run ended, not that it reached its goal."""
_TASK_FIELDS = ("repo", "base_commit", "test_command", "language", "domain", "success_criteria")


def add_step(transcript: Transcript, step: dict[str, Any], reward: float | None) -> None:
    """A step by any of its namings: tool_call and tool_result, tool and params, action and observation."""
    called, result = record(step.get("tool_call")), record(step.get("tool_result"))
    tool = first(called.get("name"), step.get("tool"), step.get("tool_name"))
    arguments = called.get("parameters") if called else step.get("params", step.get("parameters"))
    written = text(step.get("action")) if not tool else ""
    if written:
        tool, arguments = call_in(written.strip())
    tokens = count(step.get("token_count"))
    reward = number(step.get("reward")) if reward is None else reward
    transcript.act(
        "" if tool else written,
        thought=text(step.get("thought")),
        actions=[action(tool, arguments)] if tool else [],
        reward=reward,
        timestamp=moment(step.get("timestamp")),
        extra=None if tokens is None else {"token_count": tokens},
    )
    seen = first(result.get("output"), step.get("output"), step.get("observation"))
    error = text(result.get("error"))
    failed = bool(error) or (result.get("exit_code", step.get("exit_code")) or 0) != 0
    if seen is not None or error or result:
        # A step without a call was answered all the same: no result is lost, and none is an orphan.
        known = transcript.observe("\n".join(filter(None, [seen or "", error])), is_error=failed)
        transcript.orphans -= not known


def task_of(row: dict[str, Any], meta: dict[str, Any]) -> Task:
    """The task that a row names, with what is said of it beside (`metadata`, a nested task, or what a reader knows)."""
    return Task(
        id=name_of(meta, ("task_id",)) or name_of(row, ("task_id",)),
        prompt=first(meta.get("description"), meta.get("task_description"), row.get("instruction")) or "",
        type=label(meta.get("type")),
        difficulty=label(meta.get("difficulty")),
        environment=label(meta.get("domain")),
        metadata={key: meta[key] for key in _TASK_FIELDS if isinstance(meta.get(key), str | list) and meta[key]},
    )


def outcome_of(row: dict[str, Any], framework: str, report: Report) -> Outcome:
    """Its verdict, where it is one: tests that ran, or the flag of a framework that checks."""
    ended = record(row.get("outcome"))
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
            "`success` of these runs says that they ended, not that they reached their goal: the outcome is unknown"
        )
    score = number(ended.get("score"))
    # A score of 0 is the recorder's default, and says nothing.
    return Outcome(status=status, reward=number(row.get("reward")), scores={"score": score} if score else {})
