"""ATIF files: one document, an array, or lines of documents; subagents and continuations become linked runs.

A document names its continuation and its subagents' files by relative paths. A file finds the document that names it by
Harbor's file names: `trajectory.cont-1.json` and `trajectory.NAME.json` belong to `trajectory.json`. The verdict on a
trial is in Harbor's `result.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import status_of
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share
from quintain.importers.transcripts.atif_documents import is_atif, runs_of_document
from quintain.importers.values import as_dict, as_number, as_text, dicts_in, nonblank, score_fields
from quintain.records.trajectory import Outcome, OutcomeStatus, Trajectory

_CONTINUED = re.compile(r"(.+)\.cont-(\d{1,4})")
_RESULTS = ("result.json", "../result.json")
_MAX_CONTINUATIONS = 50
"""Continuations of a run that are searched for the caller of a subagent."""


class _Links(NamedTuple):
    line: int
    key: str
    parent: str | None = None
    continues: str | None = None


def _detect(probe: Probe) -> float:
    """Match documents whose `schema_version` is ATIF, or whose steps have ATIF's ids and sources."""
    return max(
        0.99 * matching_share(probe, is_atif, "schema_version"), 0.7 * matching_share(probe, _is_nameless, "steps")
    )


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    """Yield the runs of every document: its own, then those of its subagents."""
    # The first document of a file is known by the file, as others name it; the rest by their own names.
    first = _Links(1, _key(log), _parent(log), _continued(log))
    verdict, task_id = _trial(log) if first.parent is None else (None, None)
    for line, document in log.rows(report):
        if not isinstance(document, dict) or not isinstance(document.get("steps"), list):
            report.reject(line, "expected an ATIF document: an object with `schema_version`, `agent` and `steps`")
            continue
        name = nonblank(document.get("trajectory_id")) or str(line)
        own = first if line == 1 else _Links(line, f"{first.key}:{name}")
        for run in _runs(document, own, verdict, report):
            yield _of_task(run, task_id) if run.key == own.key else run


IMPORTER = Importer("atif", "ATIF trajectory (Harbor)", _detect, _read)


def _runs(document: dict[str, Any], own: _Links, verdict: Outcome | None, report: Report) -> Iterator[Run]:
    """Yield the runs of one document; `own` has the links of the first."""
    for place, held in enumerate(runs_of_document(document)):
        if isinstance(held.trajectory, InvalidInput):
            report.reject(own.line, ": ".join(filter(None, [held.name, held.trajectory.message])))
            continue
        run = _imported(held.trajectory, report)
        if place:
            inside = held.parent is not None and held.parent != document.get("trajectory_id")
            key = f"{own.key}#{held.name}" if held.name else None
            yield Run(run, own.line, key, f"{own.key}#{held.parent}" if inside else own.key)
        else:
            known = verdict is not None and run.outcome == Outcome()
            yield Run(run.model_copy(update={"outcome": verdict}) if known else run, *own)


def _imported(run: Trajectory, report: Report) -> Trajectory:
    """Return the run without ids of another store."""
    metrics = [as_dict(as_dict(step.extra.get("atif")).get("metrics")) for step in run.steps]
    if any("completion_token_ids" in each for each in metrics):
        report.note(
            "token ids are kept beside the steps and not used for training: the log does not name their tokenizer"
        )
    return run.model_copy(update={"id": None, "job_id": None, "subagents": (), "continues": None})


def _key(log: LogFile) -> str:
    return "atif:" + "/".join(log.parts)


def _is_nameless(row: dict[str, Any]) -> bool:
    steps = dicts_in(row.get("steps"))[:2]
    return bool(steps) and "agent" in row and all({"step_id", "source", "message"} <= step.keys() for step in steps)


def _document(log: LogFile, name: str) -> tuple[str, dict[str, Any]] | None:
    """Return a document beside this one, and its key."""
    document = log.sibling_document(name)
    return ("atif:" + "/".join([*log.parts[:-1], name]), document) if is_atif(document) else None


def _continued(log: LogFile) -> str | None:
    """Return the key of the run that this file continues: the preceding file by name, if it refers to this one."""
    found = _CONTINUED.fullmatch(log.path.name.removesuffix(".json"))
    if found is None:
        return None
    number = int(found[2])
    before = _document(log, f"{found[1]}.cont-{number - 1}.json" if number > 1 else f"{found[1]}.json")
    return before[0] if before and _is_named(log, before[1].get("continued_trajectory_ref")) else None


def _parent(log: LogFile) -> str | None:
    """Return the key of the run that called this subagent, from a file with a prefix of this name that refers to it."""
    stem = log.path.name.removesuffix(".json")
    if _CONTINUED.fullmatch(stem):
        return None
    while "." in stem:
        stem = stem.rpartition(".")[0]
        for n in range(_MAX_CONTINUATIONS):
            caller = _document(log, f"{stem}.cont-{n}.json" if n else f"{stem}.json")
            if caller is None:
                break
            if any(_is_named(log, ref.get("trajectory_path")) for ref in _references(caller[1])):
                return caller[0]
    return None


def _references(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for step in dicts_in(document.get("steps")):
        for result in dicts_in(as_dict(step.get("observation")).get("results")):
            references = result.get("subagent_trajectory_ref")
            yield from dicts_in(references if isinstance(references, list) else [references])


def _is_named(log: LogFile, reference: Any) -> bool:
    """Whether a reference names this file; a common prefix of all file names is ignored."""
    name = as_text(reference).rpartition("/")[2]
    return bool(name) and log.path.name.endswith(name)


def _of_task(run: Run, task_id: str | None) -> Run:
    """Return the run with the task's name if it lacks one."""
    task = run.trajectory.task
    if task_id is None or task.id is not None:
        return run
    return run._replace(trajectory=run.trajectory.model_copy(update={"task": task.model_copy(update={"id": task_id})}))


def _trial(log: LogFile) -> tuple[Outcome | None, str | None]:
    """Return the verifier's outcome and the task name from the result file beside or above the trajectory."""
    for name in _RESULTS:
        result = as_dict(log.sibling_document(name))
        if "verifier_result" in result or "exception_info" in result:
            return _outcome(result), nonblank(result.get("task_name"))
    return None, None


def _outcome(result: dict[str, Any]) -> Outcome:
    verified = as_dict(result.get("verifier_result"))
    rewards = score_fields(as_dict(verified.get("rewards")))
    reward = as_number(verified.get("reward"))
    reward = (
        rewards.get("reward", next(iter(rewards.values()), None) if len(rewards) == 1 else None)
        if reward is None
        else reward
    )
    failure = nonblank(as_dict(result.get("exception_info")).get("exception_type"))
    status = OutcomeStatus.ERROR if reward is None and failure else status_of(reward)
    return Outcome(status=status, reward=reward, scores=rewards, exit_status=failure)
