"""Contents of the page of a job beside the tools' answers: phases, settings, samples on fixed probes, checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from quintain.records.jobs.job import Job
from quintain.records.jobs.job_events import JobEvent
from quintain.tools.services import Services

_SAMPLES = 40
"""Newest samples that are shown."""
_SAMPLE_BYTES = 400_000
"""Bytes read from the end of a file of samples."""
_MOST_PHASES = 400


def job_page(services: Services, job_id: str) -> dict[str, Any]:
    """Return the phases, settings, checkpoints and samples of a job."""
    job = services.store.jobs.get(job_id)
    events = [
        event for event in services.store.jobs.events(job_id) if event.type in {"phase", "progress", "checkpoint"}
    ]
    reached = [event for event in events if event.type == "checkpoint" and event.step is not None]
    names = {name for event in events for name in event.metrics or ()}
    return {
        "phases": phases(events, job),
        "checkpoints": sorted({event.step for event in reached if event.step is not None}),
        "metrics": sorted(name for name in names if not name.endswith(("_low", "_high"))),
        "settings": settings(job),
        "samples": samples(services.jobs.directory(job_id)),
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
    }


def phases(events: Sequence[JobEvent], job: Job) -> list[dict[str, Any]]:
    """Return the phases in order with their beginning and end; equal neighbours of one attempt are one phase."""
    found: list[dict[str, Any]] = []
    for event in events:
        if event.type != "phase" or event.name is None:
            continue
        stage, separated, name = event.name.partition(" ")
        entry = {"stage": stage if separated else "", "name": name if separated else stage, "attempt": event.attempt}
        if found and all(found[-1][key] == value for key, value in entry.items()):
            continue
        time = event.time.isoformat()
        if found:
            found[-1]["ended_at"] = time
        found.append({**entry, "started_at": time, "ended_at": job.ended_at.isoformat() if job.ended_at else None})
    return found[-_MOST_PHASES:]


def settings(job: Job) -> dict[str, Any]:
    """Return the spec of a job without folders of this machine, as the tools name things."""
    spec = job.spec.model_dump(mode="json", exclude_none=True)
    return {name: shown for name, value in spec.items() if (shown := _without_paths(name, value)) not in (None, {}, [])}


def _without_paths(name: str, value: Any) -> Any:
    is_absolute = isinstance(value, str) and Path(value).is_absolute()
    if is_absolute or name.endswith(("_dir", "_path", "_files", "mirror")):
        return None
    if isinstance(value, dict):
        if "version" in value and "model" in value and "name" in value:
            return value.get("id") or value["name"]
        found = {key: shown for key, one in value.items() if (shown := _without_paths(key, one)) not in (None, {}, [])}
        return found or None
    if isinstance(value, list):
        return [shown for one in value if (shown := _without_paths(name, one)) is not None]
    return value


def samples(directory: Path) -> list[dict[str, Any]]:
    """Return the newest samples of a training, of its stages too, the newest first; lines that cannot be read are left out."""
    files = [directory / "samples.jsonl", *sorted(directory.glob("stages/*/samples.jsonl"))]
    found = [sample for file in files for sample in _lines(file, file.parent.name if file.parent != directory else "")]
    return found[::-1][:_SAMPLES]


def _lines(file: Path, stage: str) -> Iterator[dict[str, Any]]:
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _SAMPLE_BYTES))
            lines = stream.read().split(b"\n")
    except OSError:
        return
    for line in lines[1 if size > _SAMPLE_BYTES else 0 :]:
        try:
            sample = json.loads(line, parse_constant=lambda _: None)
        except ValueError:
            continue
        if isinstance(sample, dict):
            yield {**sample, "stage": stage}
