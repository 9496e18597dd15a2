"""Reading a job's directory into the store: events to its row, outputs to the nouns that they are.

Every step can be repeated: events are known by (attempt, seq), records by their identity, and a file's offset moves only
after what stands before it is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from quintain.errors import InvalidInput, NotFound
from quintain.jobs.directory import OUTPUT_KINDS, JobDirectory, read_lines
from quintain.records.agent import Agent
from quintain.records.dataset import MadeDataset
from quintain.records.evaluation import Evaluation
from quintain.records.imports import FileStamp, RunLink
from quintain.records.job import Envelope, JobEvent
from quintain.records.preference import Preference
from quintain.records.record import explain
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.store.store import Store


def ingest(store: Store, job_id: str, directory: JobDirectory, now: datetime) -> bool:
    """Store what the worker has written since the last time; true where there was something.

    Outputs first: who sees the `result` event in the store finds the records of the job there too.
    """
    paths = [*(directory.outputs / f"{kind}.jsonl" for kind in OUTPUT_KINDS), directory.events]
    changed = [_ingest_file(store, job_id, directory, path, now) for path in paths]
    return any(changed)


def _ingest_file(store: Store, job_id: str, directory: JobDirectory, path: Path, now: datetime) -> bool:
    name = path.relative_to(directory.path).as_posix()
    offset, changed = store.jobs.offsets(job_id).get(name, 0), False
    while (read := read_lines(path, offset)).lines:
        if path == directory.events:
            events, warnings = _events(read.lines)
        else:
            if path.stem in {"link", "score", "dataset"}:  # they name runs, some of them written just now
                _ingest_file(store, job_id, directory, path.with_stem("trajectory"), now)
            events, warnings = [], _store_outputs(store, directory, path.stem, read.lines, now)
        if not store.jobs.ingest(job_id, name, (offset, read.end), now, events=events, warnings=warnings):
            break
        offset, changed = read.end, True
    return changed


def made_agent(store: Store, directory: JobDirectory, now: datetime, name: str | None = None) -> str | None:
    """The id that the store gave to the agent that a job made last, or last under a name; None where it made none."""
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
    faults: list[str] = []
    for line in lines:
        try:
            events.append(JobEvent.model_validate_json(line))
        except ValidationError as error:
            faults.append(explain(error, "event"))
    return events, _warnings("event", faults)


def _store_outputs(
    store: Store, directory: JobDirectory, kind: str, lines: Sequence[bytes], now: datetime
) -> list[str]:
    """Store the records of these lines; a bad one is counted and never stops the others."""
    job_id = directory.path.name
    faults: list[str] = []
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
                made = MadeDataset.model_validate(record)
                store.datasets.add_from_job(made.dataset, made.trajectory_ids, now)
            elif kind == "agent":
                store.agents.add(_agent(store, directory, record, now), now)
            else:
                evaluation = Evaluation.model_validate(record | {"job_id": job_id})
                agent_id = _by_id(store, directory, evaluation.agent_id, now)
                store.evaluations.add(evaluation.model_copy(update={"agent_id": agent_id}), now)
        except ValidationError as error:
            faults.append(explain(error, kind))
        except ValueError as error:  # not JSON, or an InvalidInput of the store
            faults.append(str(error))
    faults += _each(store.scores.add_many, scores, now)
    faults += _each(store.preferences.add_many, preferences, now)
    if links:
        store.trajectories.link(links)
    if stamps:
        store.imports.add(stamps, now)
    faults += _each(store.trajectories.add_many, trajectories, now)
    return _warnings(kind, faults)


def _each(add_many: Callable[[Sequence[Any], datetime], object], records: Sequence[Any], now: datetime) -> list[str]:
    """Store what can be stored; says what was wrong with the rest."""
    if not records:
        return []
    try:
        add_many(records, now)
    except (InvalidInput, NotFound) as error:
        if len(records) == 1:
            return [str(error)]
        return [fault for record in records for fault in _each(add_many, [record], now)]
    return []


def _record(line: bytes, kind: str) -> dict[str, object]:
    envelope = Envelope.model_validate(json.loads(line))
    if envelope.kind != kind:
        raise InvalidInput(f"a line of outputs/{kind}.jsonl holds kind {envelope.kind!r}")
    return envelope.record


def _agent(store: Store, directory: JobDirectory, record: dict[str, object], now: datetime) -> Agent:
    """The agent as this job's; one of a stage keeps the stage in it (JOB/STAGE), for a job makes one agent."""
    agent = Agent.model_validate(record)
    if agent.parent is not None and agent.parent != agent.name:
        agent = agent.model_copy(update={"parent": _by_id(store, directory, agent.parent, now)})
    return agent if "/" in (agent.job_id or "") else agent.model_copy(update={"job_id": directory.path.name})


def _by_id(store: Store, directory: JobDirectory, agent: str, now: datetime) -> str:
    """The id of an agent; a job knows those that it has just made by name, and the store their versions."""
    return agent if "@" in agent else made_agent(store, directory, now, agent) or agent


def _warnings(kind: str, faults: Sequence[str]) -> list[str]:
    if not faults:
        return []
    return [f"bad_output: {len(faults)} {kind} line(s) could not be stored; the first: {faults[0]}"]
