"""Ingestion of a job's directory into the store: events into the job's row, outputs into their tables.

The offset of a file advances in the transaction that stores its content, so nothing is stored twice. Events are identified
by (attempt, seq) and records by their identity besides, for a worker may repeat them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from pydantic import ValidationError

from quintain.errors import Conflict, InvalidInput, NotFound
from quintain.jobs.directory import OUTPUTS, JobDirectory, read_lines
from quintain.records.agent import Agent
from quintain.records.dataset import DatasetOutput
from quintain.records.evaluation import Comparison
from quintain.records.jobs.job_events import Envelope, JobEvent
from quintain.records.trajectory import Trajectory
from quintain.records.wording import explain
from quintain.store.job_spans import Span
from quintain.store.store import Store
from quintain.store.trajectories.rows import encode_run


def ingest(store: Store, job_id: str, directory: JobDirectory, now: datetime) -> bool:
    """Store what the worker has written since the last call. Return whether there was anything."""
    offsets, changed = store.jobs.offsets(job_id), False
    while True:
        events = new_events(job_id, directory, offsets)
        changed |= ingest_outputs(store, job_id, directory, now, offsets, events)
        if events is None:
            return changed
        if offsets.get(events.file) != events.end:
            if not store.jobs.ingest_spans([events], now):
                return changed
            offsets[events.file] = events.end
        changed = True


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


def ingest_outputs(
    store: Store,
    job_id: str,
    directory: JobDirectory,
    now: datetime,
    offsets: dict[str, int],
    events: Span | None = None,
) -> bool:
    """Store new outputs of a job, and with the last of them the events, in one transaction; longer files in several.

    The offsets, file name -> number of its bytes that were ingested, are advanced here. The events were read before the outputs, and
    are left to the caller where there are no new outputs. Return whether there were any.
    """
    changed = has_more = False
    while parts := _new_outputs(job_id, directory, offsets):
        has_more = any(part.has_more for part in parts)
        spans = [events] if events is not None and not has_more else []
        try:
            with store.transaction():
                spans += [part.span._replace(warnings=_store_part(store, directory, part, now)) for part in parts]
                if not store.jobs.ingest_spans(spans, now):
                    raise _IngestedElsewhere
        except _IngestedElsewhere:
            break
        offsets |= {span.file: span.end for span in spans}
        changed = True
        if not has_more:
            break
    return changed


class _IngestedElsewhere(Exception):
    """Another process has ingested the same files meanwhile."""


class _NewOutputs(NamedTuple):
    """New records of one output file, read and checked before the database is locked."""

    kind: str
    records: list[Any]
    errors: list[str]
    """Of lines that are not valid records."""
    span: Span
    has_more: bool
    """Whether the file goes on."""


def _new_outputs(job_id: str, directory: JobDirectory, offsets: Mapping[str, int]) -> list[_NewOutputs]:
    """Return new records of a job, in the order in which to store them, about `CHUNK_BYTES` a file at most.

    The runs are read last and stored first, because other records refer to them. Where they go on, they come alone.
    """
    folder = directory.outputs
    try:
        with os.scandir(folder) as entries:
            sizes = {entry.name: entry.stat().st_size for entry in entries}
    except FileNotFoundError:
        return []
    names = {kind: f"{folder.name}/{kind}.jsonl" for kind in OUTPUTS}
    grown = [kind for kind, name in names.items() if sizes.get(f"{kind}.jsonl", 0) != offsets.get(name, 0)]
    found = []
    for kind in [*(kind for kind in grown if kind != "trajectory"), *(["trajectory"] if grown else [])]:
        start = offsets.get(names[kind], 0)
        read = read_lines(directory.path / names[kind], start)
        if read.lines:
            span, has_more = Span(job_id, names[kind], start, read.end), read.end < sizes.get(f"{kind}.jsonl", 0)
            found.append(_NewOutputs(kind, *_records(kind, job_id, read.lines), span, has_more))
    if found and found[-1].kind == "trajectory":
        runs = found.pop()
        found = [runs] if runs.has_more else [runs, *found]
    return found


def _records(kind: str, job_id: str, lines: Sequence[bytes]) -> tuple[list[Any], list[str]]:
    """Return the valid records of lines, runs as rows, and the errors of the other lines."""
    records: list[Any] = []
    errors: list[str] = []
    for line in lines:
        try:
            fields = _record(line, kind) | ({"job_id": job_id} if kind in {"trajectory", "evaluation"} else {})
            record = OUTPUTS[kind].model_validate(fields)
            records.append(encode_run(record) if isinstance(record, Trajectory) else record)
        except ValidationError as error:
            errors.append(_fault(error, kind))
        except ValueError as error:  # not JSON, or an InvalidInput
            errors.append(str(error))
    return records, errors


def agent_of_job(store: Store, directory: JobDirectory, now: datetime, name: str | None = None) -> str | None:
    """Return the id of the agent that a job produced last, optionally by name, or None."""
    lines = read_lines(directory.outputs / "agent.jsonl", 0).lines
    for line in reversed(lines):
        try:
            record = _record(line, "agent")
            if name in {None, record.get("name")}:
                return store.agents.add(_agent(store, directory, Agent.model_validate(record), now), now).id
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
            errors.append(_fault(error, "event"))
    return events, _warnings("event", errors)


def _fault(error: ValidationError, kind: str) -> str:
    """Return what is wrong with a line that can be left out.

    Raises:
        Conflict: It has a field that this version does not know. A worker of a version that was installed meanwhile wrote it, and
            a server of that version will store it.
    """
    faults = error.errors(include_url=False, include_input=False)
    unknown = next((fault["loc"] for fault in faults if fault["type"] == "extra_forbidden"), None)
    if unknown is not None:
        raise Conflict(
            f"expected fields that this server knows, got {'.'.join(map(str, (kind, *unknown)))} of a newer version, which was installed "
            "meanwhile; restart the server, so that it is of that version too",
            code="record_unreadable",
        ) from error
    return explain(error, kind)


def _store_part(store: Store, directory: JobDirectory, part: _NewOutputs, now: datetime) -> list[str]:
    """Store records, and return warnings about those that could not be. They do not affect the others."""
    in_batches: dict[str, Callable[[Sequence[Any], datetime], object]] = {
        "preference": store.preferences.add_many,
        "score": store.scores.add_many,
        "stamp": store.imports.add,
        "trajectory": store.trajectories.add_encoded,
    }
    errors: list[str] = []
    if part.kind == "link":
        store.trajectories.link(part.records)
    elif part.kind == "taken_over":
        store.trajectories.take_over(directory.path.name, part.records)
    elif part.kind in in_batches:
        errors = _add_valid(in_batches[part.kind], part.records, now)
    else:
        add = partial(_add_alone, store, directory)
        errors = [error for record in part.records for error in _add_valid(add, [record], now)]
    return _warnings(part.kind, part.errors + errors)


def _add_alone(store: Store, directory: JobDirectory, records: Sequence[Any], now: datetime) -> None:
    """Store one record of a kind that refers to others by name."""
    (record,) = records
    if isinstance(record, DatasetOutput):
        store.datasets.add_from_job(record.dataset, record.trajectory_ids, now)
    elif isinstance(record, Agent):
        store.agents.add(_agent(store, directory, record, now), now)
    elif isinstance(record, Comparison):
        store.evaluations.add_comparison(record, now)
    else:
        agent_id = _agent_id(store, directory, record.agent_id, now)
        store.evaluations.add(record.model_copy(update={"agent_id": agent_id}), now)


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


def _agent(store: Store, directory: JobDirectory, agent: Agent, now: datetime) -> Agent:
    """Return the agent with its job id. For an agent of a stage it is JOB/STAGE, since a job has one agent."""
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
