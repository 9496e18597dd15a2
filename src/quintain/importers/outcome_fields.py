"""Derive outcomes from verdict columns, scores, exit statuses, and evaluators' reports beside a log.

Only a verdict makes a success or a failure. Without one, a limit gives `truncated`, an exception `error`, and all else
`unknown`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Report, Run
from quintain.importers.values import SHORT_CHARS, as_dict, as_list, as_number, nonblank
from quintain.records.trajectory import Outcome, OutcomeStatus, Trajectory
from quintain.records.wording import shown

COLUMNS = ("resolved", "verified", "success", "is_correct", "test_result", "outcome", "label")
"""Columns that state whether a run reached its goal; the first that is set wins. `reward` and `score` are numbers."""

NAMES = ("correct", "is_correct", "correct_answer", "solved", "resolved", "passed", "success")
"""Names of scores that state whether a task was solved: 1 is success, 0 is failure, other values are neither."""

_REWARDS = ("reward", "score", "correctness")
_WORDS = {
    **dict.fromkeys(("true", "success", "succeeded", "resolved", "passed", "pass", "correct", "1"), True),
    **dict.fromkeys(("false", "failure", "failed", "fail", "unresolved", "incorrect", "wrong", "0"), False),
}
_LIMIT = re.compile(
    r"\b(exit|submitted)[ _(]+(exit_)?(cost|context|total_execution_time)\b|\b(max|maximum)[ _-](steps?|turns?|iterations?)\b"
    r"|\b(step|turn|iteration|cost|token|time|budget)s?[ _-]?limit|LimitsExceeded|TimeExceeded|ContextWindowExceeded"
    r"|context[ _]window[ _]exceeded|\bmax_(input|output|total)_tokens\b|^(timeout|length)$",
    re.IGNORECASE,
)
"""Exit statuses of runs that a limit ended, in the words of SWE-agent, mini-swe-agent, OpenHands and others."""
_EXCEPTION = re.compile(r"\bexit_(api|error|environment_error)\b|^[\w.]*(Error|Exception)\b")
"""Exit statuses of runs that an exception ended: names of exception classes, and SWE-agent's own statuses."""
_SCALE = (
    "rewards go beyond 0..1, so that 1 and 0 are places on a scale: no success or failure is read from them; for sft, "
    "`outcomes=['unknown']` and `curation={'min_reward': ...}` take the better runs, and dpo and grpo compare them; higher counts as better"
)
_NAMED = 3
"""Most values of a column that a note names."""
_PASSED = ("resolved_ids", "resolved")
_FAILED = ("unresolved_ids", "unresolved", "empty_patch_ids", "no_generation", "applied", "no_apply")


def outcome_from(verdict: bool | float | None, ended: str | None) -> Outcome:
    """Return the outcome of a verdict, or without one of an exit status."""
    status = status_of(verdict)
    if status is OutcomeStatus.UNKNOWN and ended:
        status = OutcomeStatus.TRUNCATED if _LIMIT.search(ended) else status
        status = OutcomeStatus.ERROR if status is OutcomeStatus.UNKNOWN and _EXCEPTION.search(ended) else status
    return Outcome(status=status, exit_status=ended and ended[:200])


def status_of(verdict: bool | float | None) -> OutcomeStatus:
    """Return success or failure for a verdict or a score of exactly 1 or 0, else unknown."""
    if verdict is None or verdict not in (0, 1):
        return OutcomeStatus.UNKNOWN
    return OutcomeStatus.SUCCESS if verdict else OutcomeStatus.FAILURE


def as_verdict(value: Any) -> bool | None:
    """Return the verdict of a boolean, 1 or 0, a status word, or an object with a boolean column; else None."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower())
    if isinstance(value, Mapping):
        return next((known for key in COLUMNS if isinstance(known := value.get(key), bool)), None)
    known = as_number(value)
    return bool(known) if known in (0.0, 1.0) else None


def as_label(value: Any) -> bool | None:
    """Return whether a label marks an answer as good: a verdict, or -1 for bad; else None."""
    return False if as_number(value) == -1 else as_verdict(value)


def outcome_of(row: Mapping[str, Any]) -> Outcome:
    """Return the outcome stated by a row's columns: a verdict, a reward of exactly 1 or 0, a status in `outcome`, else unknown."""
    reward, score = row.get("reward"), row.get("score")
    # A label that is a number is a class, for all we know.
    verdicts = [row.get(key) for key in COLUMNS if key != "label" or not _is_number(row.get(key))]
    verdicts += [reward if as_number(reward) is not None else None, score if isinstance(score, bool) else None]
    stated = next(
        (known for verdict in verdicts if verdict is not None and (known := as_verdict(verdict)) is not None), None
    )
    ended = row.get("outcome")
    status = OutcomeStatus(ended) if stated is None and ended in list(OutcomeStatus) else status_of(stated)
    known_score = as_number(score)
    scores = {} if known_score is None else {"score": known_score}
    return Outcome(status=status, reward=as_number(reward), scores=scores)


def with_rewards_read(runs: Iterable[Run], log: LogFile, report: Report) -> Iterator[Run]:
    """Yield the runs of a file; where its rewards go beyond 0..1, 1 and 0 are places on a scale and no verdicts."""
    is_scale: bool | None = None
    for run in runs:
        if run.trajectory.outcome.reward in (0, 1):
            is_scale = _is_scale(log) if is_scale is None else is_scale
            if is_scale:
                report.note(_SCALE)
                run = run._replace(trajectory=_without_verdict(run.trajectory), rest=map(_without_verdict, run.rest))
        yield run


def _is_scale(log: LogFile) -> bool:
    """Whether a row of the file has a reward beyond 0..1."""
    if not log.reading.row:  # one run in all
        return False
    rows = LogFile(log.path, log.root).rows(Report())
    rewards = (as_number(row.get("reward")) for _, row in rows if isinstance(row, Mapping))
    return any(reward is not None and not 0 <= reward <= 1 for reward in rewards)


def _without_verdict(run: Trajectory) -> Trajectory:
    """Return a run without the success or failure that was read from its reward alone."""
    row = run.extra.get("row")
    if isinstance(row, Mapping) and outcome_of(row).status is not OutcomeStatus.UNKNOWN:
        return run
    return run.model_copy(update={"outcome": run.outcome.model_copy(update={"status": OutcomeStatus.UNKNOWN})})


def unread_verdicts(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that state how a run ended with their values, where none of these has a known meaning.

    A label may be a class, and a long text is prose.
    """
    if outcome_of(row).status is not OutcomeStatus.UNKNOWN:
        return {}
    stated = {column: row[column] for column in COLUMNS if column in row and column != "label"}
    texts = {column: str(value).strip() for column, value in stated.items() if isinstance(value, str | int | float)}
    return {
        column: text
        for column, text in texts.items()
        if text and text != OutcomeStatus.UNKNOWN and len(text) <= SHORT_CHARS
    }


def unread_note(column: str, values: Counter[str]) -> str:
    """Return a note on the values of a column that are not read as an outcome, with the remedy."""
    named = ", ".join(f"{shown(value)} ({n:,})" for value, n in values.most_common(_NAMED))
    more = ", ..." if len(values) > _NAMED else ""
    return (
        f"{column!r} has values that are not read as an outcome: {named}{more}; these runs are of unknown outcome. Write true or "
        "false there, or state which value is good: "
        f"export_dataset(kind='sft', name=..., path=..., columns={{'label': {column!r}, 'good': ...}})"
    )


def _is_number(value: Any) -> bool:
    return as_number(value) is not None or (isinstance(value, str) and value.strip().isdecimal())


def named_status(scores: Mapping[str, float]) -> OutcomeStatus:
    """Return success or failure if the scores listed in `NAMES` are all 1 or all 0, else unknown."""
    values = {scores[key] for key in NAMES if key in scores}
    return status_of(values.pop()) if len(values) == 1 else OutcomeStatus.UNKNOWN


def single_reward(scores: Mapping[str, float]) -> float | None:
    """Return the score named reward, score or correctness if there is exactly one."""
    found = [value for key, value in scores.items() if key.lower() in _REWARDS]
    return found[0] if len(found) == 1 else None


def exit_status(error: Any) -> str | None:
    """Return the first line of an error, cut to the length of an exit status."""
    return error.strip().splitlines()[0][:200] if nonblank(error) else None


def report_verdict(report: Any, instance: str | None) -> bool | None:
    """Return the verdict of a SWE-bench style report on an instance; None if the report lacks one.

    Args:
        report: Of one run (a flag) or of many (lists of ids, or an object per id).
        instance: Id of the instance, needed where the report is of many.
    """
    fields = as_dict(report)
    if isinstance(fields.get("resolved"), bool):
        return bool(fields["resolved"])
    if not instance:
        return None
    if isinstance(fields.get(instance), dict):
        return report_verdict(fields[instance], None)
    lists = [fields[name] for name in _PASSED if isinstance(fields.get(name), list)]
    if any(instance in passed for passed in lists):
        return True
    return False if lists and any(instance in as_list(fields.get(name)) for name in _FAILED) else None


def first_verdict(reports: Iterable[Any], instance: str | None) -> bool | None:
    """Return the verdict of the first report that covers the instance."""
    return next((verdict for report in reports if (verdict := report_verdict(report, instance)) is not None), None)


def reports_beside(log: LogFile, names: Iterable[str]) -> list[Any]:
    """Read reports by paths relative to the log; files that are not JSON are skipped."""
    return [report for name in names if (report := log.sibling_document(name)) is not None]
