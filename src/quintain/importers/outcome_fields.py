"""Verdicts on runs: columns and scores that say whether the task was done, and the reports of evaluators beside a log.

Only a verdict makes a success or a failure. Without one, a run that a limit ended is truncated, one that an exception ended is
an error, and whatever was submitted or completed is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.transcripts.field_values import as_dict, as_list, as_number, nonblank
from quintain.records.trajectory import Outcome, OutcomeStatus

COLUMNS = ("resolved", "verified", "success", "is_correct", "test_result", "label")
"""Side columns that say whether a run reached its goal; the first that does is believed. `reward` and `score` are numbers."""

NAMES = ("correct", "is_correct", "correct_answer", "solved", "resolved", "passed", "success")
"""Names of scores that say whether a task was done; their 1 and 0 are success and failure, anything between is not."""

_REWARDS = ("reward", "score", "correctness")
_WORDS = {
    **dict.fromkeys(("true", "success", "succeeded", "resolved", "passed", "pass", "correct"), True),
    **dict.fromkeys(("false", "failure", "failed", "fail", "unresolved", "incorrect", "wrong"), False),
}
_LIMIT = re.compile(
    r"\b(exit|submitted)[ _(]+(exit_)?(cost|context|total_execution_time)\b|\b(max|maximum)[ _-](steps?|turns?|iterations?)\b"
    r"|\b(step|turn|iteration|cost|token|time|budget)s?[ _-]?limit|LimitsExceeded|TimeExceeded|ContextWindowExceeded"
    r"|context[ _]window[ _]exceeded|\bmax_(input|output|total)_tokens\b|^(timeout|length)$",
    re.IGNORECASE,
)
"""Limits by which a run was ended: SWE-agent's `exit_cost`, `exit_context` and `exit_total_execution_time` (also of what was
submitted then), mini-swe-agent's `LimitsExceeded` and `TimeExceeded`, OpenHands' maximum iteration, `max_steps` and its kin."""
_EXCEPTION = re.compile(r"\bexit_(api|error|environment_error)\b|^[\w.]*(Error|Exception)\b")
"""Exceptions by which a run was ended, by the name of their class, and SWE-agent's words for them."""
_PASSED = ("resolved_ids", "resolved")
_FAILED = ("unresolved_ids", "unresolved", "empty_patch_ids", "no_generation", "applied", "no_apply")


def outcome_from(verdict: bool | float | None, ended: str | None) -> Outcome:
    """The outcome of a verdict; without one, of how the run ended.

    Args:
        verdict: As `status_of` takes it.
        ended: The exit status that the agent's program gave, or the exception that ended it.
    """
    status = status_of(verdict)
    if status is OutcomeStatus.UNKNOWN and ended:
        status = OutcomeStatus.TRUNCATED if _LIMIT.search(ended) else status
        status = OutcomeStatus.ERROR if status is OutcomeStatus.UNKNOWN and _EXCEPTION.search(ended) else status
    return Outcome(status=status, exit_status=ended and ended[:200])


def status_of(verdict: bool | float | None) -> OutcomeStatus:
    """The outcome of a verdict, or of a score that is exactly 1 or 0; without one it is unknown."""
    if verdict is None or verdict not in (0, 1):
        return OutcomeStatus.UNKNOWN
    return OutcomeStatus.SUCCESS if verdict else OutcomeStatus.FAILURE


def as_verdict(value: Any) -> bool | None:
    """Whether a verdict says yes: a truth value, 1 or 0, a word for them, or an object with one; None for anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower())
    if isinstance(value, Mapping):
        return next((known for key in COLUMNS if isinstance(known := value.get(key), bool)), None)
    known = as_number(value)
    return bool(known) if known in (0.0, 1.0) else None


def outcome_of(row: Mapping[str, Any]) -> Outcome:
    """How a run ended, as the columns beside it say: a verdict, else a reward of exactly 1 or 0; unknown otherwise."""
    reward, score = row.get("reward"), row.get("score")
    # A label that is a number is a class, for all we know.
    verdicts = [row.get(key) for key in COLUMNS if key != "label" or as_number(row.get(key)) is None]
    verdicts += [reward if as_number(reward) is not None else None, score if isinstance(score, bool) else None]
    said = next(
        (known for verdict in verdicts if verdict is not None and (known := as_verdict(verdict)) is not None), None
    )
    known_score = as_number(score)
    scores = {} if known_score is None else {"score": known_score}
    return Outcome(status=status_of(said), reward=as_number(reward), scores=scores)


def named_status(scores: Mapping[str, float]) -> OutcomeStatus:
    """Success or failure where the scores with names of `NAMES` are all 1 or all 0, else unknown."""
    told = {scores[key] for key in NAMES if key in scores}
    return status_of(told.pop()) if len(told) == 1 else OutcomeStatus.UNKNOWN


def single_reward(scores: Mapping[str, float]) -> float | None:
    """The score that is named reward, score or correctness, where there is exactly one."""
    found = [value for key, value in scores.items() if key.lower() in _REWARDS]
    return found[0] if len(found) == 1 else None


def exit_status(error: Any) -> str | None:
    """The first line of an error's text, as far as an exit status may be long."""
    return error.strip().splitlines()[0][:200] if nonblank(error) else None


def report_verdict(report: Any, instance: str | None) -> bool | None:
    """What a report of SWE-bench or its kin says about an instance; None where it says nothing.

    Args:
        report: Of one run (a flag) or of many (lists of ids, or an object per id).
        instance: Id of the instance, needed where the report is of many.
    """
    said = as_dict(report)
    if isinstance(said.get("resolved"), bool):
        return bool(said["resolved"])
    if not instance:
        return None
    if isinstance(said.get(instance), dict):
        return report_verdict(said[instance], None)
    lists = [said[name] for name in _PASSED if isinstance(said.get(name), list)]
    if any(instance in passed for passed in lists):
        return True
    return False if lists and any(instance in as_list(said.get(name)) for name in _FAILED) else None


def first_verdict(reports: Iterable[Any], instance: str | None) -> bool | None:
    """What the first report that knows the instance says about it."""
    return next((said for report in reports if (said := report_verdict(report, instance)) is not None), None)


def reports_beside(log: LogFile, names: Iterable[str]) -> list[Any]:
    """The reports beside a log, by their paths relative to it; those that are no JSON say nothing and are left out."""
    found = []
    for name in names:
        if (report := log.sibling(name)) is not None:
            with suppress(InvalidInput):
                found.append(report.document())
    return found
