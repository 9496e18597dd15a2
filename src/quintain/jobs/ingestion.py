"""Ingestion of a job's directory into the store: events into the job's row, outputs into their tables.

Every step is idempotent: events are identified by (attempt, seq), records by their identity, and the offset of a file
advances only after its content is stored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from quintain.errors import InvalidInput, NotFound
from quintain.jobs.directory import OUTPUT_KINDS, JobDirectory, read_lines
from quintain.records.agent import Agent
from quintain.records.dataset import DatasetOutput
from quintain.records.evaluation import Comparison, Evaluation
from quintain.records.imports import FileStamp, RunLink
from quintain.records.job_events import Envelope, JobEvent
from quintain.records.preference import Preference
from quintain.records.record import explain
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.store.job_spans import Span
from quintain.store.store import Store


def ingest(store: Store, job_id: str, directory: JobDirectory, now: datetime) -> bool:
    """Store what the worker has written since the last call. Return whether there was anything."""
    offsets, changed = store.jobs.offsets(job_id), False
    while True:
        span = new_events(job_id, directory, offsets)
        changed |= ingest_outputs(store, job_id, directory, now, offsets)
        if span is None or not store.jobs.ingest_spans([span], now):
            return changed
        offsets[span.file], changed = span.end, True


def new_events(job_id: str, directory: JobDirectory, offsets: Mapping[str, int]) -> Span | None:
    """Return new events of a job, about `CHUNK_BYTES` at most; None if there are none.

    They are read before the outputs and stored after them, so that a reader who sees the `result` event finds the job's
    records too.
    """
    path = directory.events
    offset = offsets.get(path.name, 0)
    try:
        if path.stat().st_size == offset:
            return None
    except FileNotFoundError:
        return None
    read = read_lines(path, offset)
    return Span(job_id, path.name, offset, read.end, *_events(read.lines)) if read.lines else None


def ingest_outputs(store: Store, job_id: str, directory: JobDirectory, now: datetime, offsets: dict[str, int]) -> bool:
    """Store new outputs of a job, and advance `offsets`. Return whether there were any."""
    try:
        with os.scandir(directory.outputs) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries}
    except FileNotFoundError:
        return False
    folder, names = directory.outputs, (f"{kind}.jsonl" for kind in OUTPUT_KINDS)
    grown = [name for name in names if sizes.get(name, 0) != offsets.get(f"{folder.name}/{name}", 0)]
    changed = [_ingest_file(store, job_id, directory, folder / name, now, offsets) for name in grown]
    return any(changed)


def _ingest_file(
    store: Store, job_id: str, directory: JobDirectory, path: Path, now: datetime, offsets: dict[str, int]
) -> bool:
    """Ingest the new lines of an output file, and advance its offset in the store and in `offsets`."""
    name = path.relative_to(directory.path).as_posix()
    offset, changed = offsets.get(name, 0), False
    while (read := read_lines(path, offset)).lines:
        if path.stem in {"link", "score", "dataset"}:  # they refer to runs, including new ones
            _ingest_file(store, job_id, directory, path.with_stem("trajectory"), now, offsets)
        warnings = _store_outputs(store, directory, path.stem, read.lines, now)
        if not store.jobs.ingest_spans([Span(job_id, name, offset, read.end, warnings=warnings)], now):
            break
        offsets[name] = offset = read.end
        changed = True
    return changed


def agent_of_job(store: Store, directory: JobDirectory, now: datetime, name: str | None = None) -> str | None:
    """Return the id of the agent that a job produced last, optionally by name, or None."""
    lines = read_lines(directory.outputs / "agent.jsonl", 0).lines
    for line in reversed(lines):
        try:
            record = _record(line, "agent")
            if name in {None, record.get("name")}:
                return store.agents.add(_agent(store, directory, record, now), now).id
        except (ValueError, ValidationError):
            continue
    return None


def _events(lines: Sequence[bytes]) -> tuple[list[JobEvent], list[str]]:
    events: list[JobEvent] = []
    errors: list[str] = []
    for line in lines:
        try:
            events.append(JobEvent.model_validate_json(line))
        except ValidationError as error:
            errors.append(explain(error, "event"))
    return events, _warnings("event", errors)


def _store_outputs(
    store: Store, directory: JobDirectory, kind: str, lines: Sequence[bytes], now: datetime
) -> list[str]:
    """Store the records of these lines. An invalid record is counted and does not affect the others."""
    job_id = directory.path.name
    errors: list[str] = []
    trajectories: list[Trajectory] = []
    links: list[RunLink] = []
    stamps: list[FileStamp] = []
    scores: list[Score] = []
    preferences: list[Preference] = []
    for line in lines:
        try:
            record = _record(line, kind)
            if kind == "trajectory":
                trajectories.append(Trajectory.model_validate(record | {"job_id": job_id}))
            elif kind == "link":
                links.append(RunLink.model_validate(record))
            elif kind == "stamp":
                stamps.append(FileStamp.model_validate(record))
            elif kind == "score":
                scores.append(Score.model_validate(record))
            elif kind == "preference":
                preferences.append(Preference.model_validate(record))
            elif kind == "dataset":
                result = DatasetOutput.model_validate(record)
                store.datasets.add_from_job(result.dataset, result.trajectory_ids, now)
            elif kind == "agent":
                store.agents.add(_agent(store, directory, record, now), now)
            elif kind == "comparison":
                store.evaluations.add_comparison(Comparison.model_validate(record), now)
            else:
                evaluation = Evaluation.model_validate(record | {"job_id": job_id})
                agent_id = _agent_id(store, directory, evaluation.agent_id, now)
                store.evaluations.add(evaluation.model_copy(update={"agent_id": agent_id}), now)
        except ValidationError as error:
            errors.append(explain(error, kind))
        except ValueError as error:  # not JSON, or an InvalidInput of the store
            errors.append(str(error))
    errors += _add_valid(store.scores.add_many, scores, now)
    errors += _add_valid(store.preferences.add_many, preferences, now)
    if links:
        store.trajectories.link(links)
    errors += _add_valid(store.imports.add, stamps, now)
    errors += _add_valid(store.trajectories.add_many, trajectories, now)
    return _warnings(kind, errors)


def _add_valid(
    add_many: Callable[[Sequence[Any], datetime], object], records: Sequence[Any], now: datetime
) -> list[str]:
    """Store the valid records. Return the errors of the others."""
    if not records:
        return []
    try:
        add_many(records, now)
    except (InvalidInput, NotFound) as error:
        if len(records) == 1:
            return [str(error)]
        return [fault for record in records for fault in _add_valid(add_many, [record], now)]
    return []


def _record(line: bytes, kind: str) -> dict[str, object]:
    envelope = Envelope.model_validate(json.loads(line))
    if envelope.kind != kind:
        raise InvalidInput(f"expected kind {kind!r} in outputs/{kind}.jsonl, got {envelope.kind!r}")
    return envelope.record


def _agent(store: Store, directory: JobDirectory, record: dict[str, object], now: datetime) -> Agent:
    """Return the agent with its job id. For an agent of a stage it is JOB/STAGE, since a job has one agent."""
    agent = Agent.model_validate(record)
    if agent.parent is not None and agent.parent != agent.name:
        agent = agent.model_copy(update={"parent": _agent_id(store, directory, agent.parent, now)})
    return agent if "/" in (agent.job_id or "") else agent.model_copy(update={"job_id": directory.path.name})


def _agent_id(store: Store, directory: JobDirectory, agent: str, now: datetime) -> str:
    """Return the id of an agent. A job refers to its new agents by name; the store assigns their versions."""
    return agent if "@" in agent else agent_of_job(store, directory, now, agent) or agent


def _warnings(kind: str, errors: Sequence[str]) -> list[str]:
    if not errors:
        return []
    return [f"bad_output: {len(errors)} {kind} line(s) could not be stored; first error: {errors[0]}"]
