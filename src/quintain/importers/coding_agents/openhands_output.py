"""OpenHands evaluation output: `output.jsonl`, one instance a line, its events in `history`.

The events are of either generation, or in the pairs of action and observation of old ones. The verdict is in the row
where the evaluator wrote it there, else in a report beside the file. The resolver writes the same file with an `issue` in
place of `instance_id`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.coding_agents import openhands_v0, openhands_v1
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import first_verdict, outcome_from, reports_beside
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, read_rows
from quintain.importers.transcripts.message_parts import plain_text, visible_content
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank
from quintain.records.trajectory import Outcome, OutcomeStatus, Task

_REPORTS = ("report.json", "output.report.json", "output.swebench_eval.report.json", "results.json")


def _detect(probe: Probe) -> float:
    """Match rows with an instance or issue and a history of events."""
    best = 0.0
    if probe.fields.isdisjoint(("instance_id", "issue", "task_id")):
        return best
    for row in map(as_dict, [*probe.rows, probe.document]):
        events = _events(row)
        named = "instance_id" in row or "issue" in row or "task_id" in row
        if named and any(openhands_v0.is_event(event) or openhands_v1.is_event(event) for event in events):
            return if_most(0.97, probe, lambda row: "history" in row)
        if named and isinstance(row.get("history"), list) and {"test_result", "git_patch"} & set(row):
            best = 0.8
    return best


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    return read_rows(log, report, partial(_run, reports=reports_beside(log, _REPORTS)))


IMPORTER = Importer("openhands_output", "OpenHands evaluation output", _detect, _read)


def _events(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a row, with pairs flattened."""
    found: list[dict[str, Any]] = []
    for item in as_list(row.get("history")):
        found.extend(dicts_in(item) if isinstance(item, list) else dicts_in([item]))
    return found


def _run(row: dict[str, Any], line: int, report: Report, reports: list[Any]) -> Iterator[Run]:
    events = _events(row)
    if not events:
        why = nonblank(row.get("error")) or "its history is empty"
        raise InvalidInput(f"expected events, got none: {why[:80]}")
    settings = as_dict(row.get("metadata"))
    model = nonblank(as_dict(settings.get("llm_config")).get("model"), as_dict(settings.get("llm")).get("model"))
    is_new = any(map(openhands_v1.is_event, events))
    stream = openhands_v1.V1Stream(report, model) if is_new else openhands_v0.V0Stream(report, model)
    issue = as_dict(row.get("issue"))
    place = "/".join(filter(None, (as_text(issue.get("owner")), as_text(issue.get("repo")))))
    number = f"#{issue['number']}" if isinstance(issue.get("number"), int) else ""
    instance = nonblank(row.get("instance_id"), row.get("task_id"), place + number)
    attempt = row.get("attempt")
    kept = {
        "cost": as_dict(row.get("metrics")).get("accumulated_cost"),
        "claimed_success": row.get("success") if issue else None,
        "base_commit": nonblank(row.get("base_commit"), as_dict(row.get("instance")).get("base_commit")),
    }
    yield from stream.run(
        events,
        line,
        prompt=nonblank(plain_text(visible_content(row.get("instruction")))),
        task=Task(id=instance),
        agent=nonblank(settings.get("agent_class"), settings.get("agent")),
        outcome=_outcome(row, instance, reports),
        episode_key=f"attempt-{attempt}" if isinstance(attempt, int) else None,
        extra={name: value for name, value in kept.items() if isinstance(value, str | bool | int | float)},
    )


def _outcome(row: dict[str, Any], instance: str | None, reports: list[Any]) -> Outcome:
    """Return the verdict of the tests; the resolver's own guess (`success`) is not a verdict."""
    tested = as_dict(row.get("test_result"))
    own = (row.get("report"), tested.get("report"), tested, {"resolved": row.get("resolved")})
    resolved = first_verdict([*own, *reports], instance)
    error = nonblank(row.get("error"))
    known = outcome_from(resolved, error)
    is_failed = error and known.status is OutcomeStatus.UNKNOWN
    return known.model_copy(update={"status": OutcomeStatus.ERROR}) if is_failed else known
