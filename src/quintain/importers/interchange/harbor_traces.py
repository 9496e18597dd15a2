"""Harbor's `traces export` rows: the prompts and answers of one episode (one model call) of a trial.

The rows of a trial repeat each other: a later episode begins with the messages of the earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import status_of
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, build_chat_run, matching_share, object_rows, read_row
from quintain.importers.training_data.chat_records import is_chat
from quintain.importers.values import as_list, as_number, nonblank, transpose_columns
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus, Task


def _detect(probe: Probe) -> float:
    """Match rows of a conversation with the names of trial, episode and task."""
    return 0.95 * matching_share(probe, _is_trace, "trial_name")


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    held: tuple[int, dict[str, Any]] | None = None
    for line, row in object_rows(log, report):
        if held is not None:
            if _goes_on(held[1], row):
                report.note("a later episode of a trial repeats the earlier ones: they become one run")
            else:
                yield from read_row(held[1], held[0], report, _row)
        held = (line, row)
    if held is not None:
        yield from read_row(held[1], held[0], report, _row)


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    trial, episode = nonblank(row.get("trial_name")) or nonblank(row.get("run_id")), nonblank(row.get("episode"))
    task = nonblank(row.get("task"))
    yield from build_chat_run(
        as_list(transpose_columns(row.get("conversations"))),
        {"tools": row.get("tool_definitions")},
        line,
        report,
        task=Task(id=task),
        agent=AgentInfo(name=nonblank(row.get("agent")) or "unknown", model=_model(row)),
        outcome=_outcome(row.get("result")),
        episode_key="/".join(filter(None, [trial, episode])) or None,
        group_id=task,
    )


IMPORTER = Importer("harbor_traces", "Harbor traces", _detect, _read)


def _goes_on(row: dict[str, Any], later: Any) -> bool:
    """Whether the later row belongs to the same trial and begins with all messages of this one."""
    if not isinstance(later, dict) or row.get("trial_name") is None or row["trial_name"] != later.get("trial_name"):
        return False
    earlier, messages = (as_list(transpose_columns(each.get("conversations"))) for each in (row, later))
    return bool(earlier) and messages[: len(earlier)] == earlier


def _is_trace(row: dict[str, Any]) -> bool:
    return (
        is_chat(transpose_columns(row.get("conversations")))
        and "trial_name" in row
        and {"episode", "task"} & row.keys() != set()
    )


def _model(row: dict[str, Any]) -> str | None:
    model, provider = nonblank(row.get("model")), nonblank(row.get("model_provider"))
    return f"{provider}/{model}" if model and provider and "/" not in model else model


def _outcome(result: Any) -> Outcome:
    """Return the verifier's reward, or the name of the exception that ended the trial."""
    try:
        reward = float(result) if isinstance(result, str) else as_number(result)
    except ValueError:
        return Outcome(status=OutcomeStatus.ERROR, exit_status=result[:200])
    if reward is None or reward != reward or abs(reward) == float("inf"):
        return Outcome()
    return Outcome(status=status_of(reward), reward=reward)
