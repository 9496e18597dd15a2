"""How a running job tells what happens: whole lines, appended to the job's directory (implements `Reporter`)."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError

from quintain.jobs.directory import OUTPUT_KINDS, JobDirectory, open_appending
from quintain.records.job import JobError, JobEvent, JobResult
from quintain.records.record import Record


class FileReporter:
    """Appends to `events.jsonl` and `outputs/`. Only what changes the job's state is forced to the disk at once.

    The job's lock is held by this process, so it is the only writer.
    """

    def __init__(self, directory: JobDirectory, attempt: int, clock: Callable[[], datetime]) -> None:
        self._directory = directory
        self._attempt = attempt
        self._clock = clock
        self._stop = threading.Event()
        self._told_to_stop = False
        self._events = open_appending(directory.events)
        self._outputs = {path.stem: open_appending(path) for path in directory.outputs.glob("*.jsonl")}
        self._seq = _next_seq(directory.events, attempt)
        self._not_finite: set[str] = set()

    def phase(self, name: str) -> None:
        """A new phase begins."""
        self._event("phase", name=name)

    def progress(self, step: int, total_steps: int, metrics: dict[str, float | None]) -> None:
        """Step `step` of `total_steps` is done; a metric that is not finite goes in as null, with one warning a metric."""
        known = {name: value if value is not None and math.isfinite(value) else None for name, value in metrics.items()}
        for name, value in metrics.items():
            if value is not None and known[name] is None and name not in self._not_finite:
                self._not_finite.add(name)
                self.warn(
                    "not_finite", f"{name} was {value} at step {step}; it is reported as null wherever it is not finite"
                )
        self._event("progress", step=step, total_steps=total_steps, metrics=known)

    def checkpoint(self, step: int, path: Path) -> None:
        """A complete checkpoint stands at `path`; outputs up to here are as durable as it is."""
        self._sync_outputs()
        self._event("checkpoint", durable=True, step=step, path=str(path))

    def warn(self, code: str, message: str) -> None:
        """Something that the user should know and that does not stop the run."""
        self._event("warning", code=code, message=message)

    def output(self, kind: str, record: Record) -> None:
        """Hand over a record for the store, as a line that reads as an `Envelope`."""
        if kind not in OUTPUT_KINDS:
            raise ValueError(f"{kind!r} is no kind of output; the kinds are {', '.join(OUTPUT_KINDS)}")
        try:
            document = record.model_dump_json()
        except PydanticSerializationError as error:
            self.warn("bad_output", f"a {kind} could not be written and is left out: {error}")
            return
        if kind not in self._outputs:
            self._outputs[kind] = open_appending(self._directory.outputs / f"{kind}.jsonl")
        _append(self._outputs[kind], f'{{"kind":"{kind}","record":{document}}}')

    def should_stop(self) -> bool:
        """Was the job asked to stop? Looked at between steps."""
        self._told_to_stop = self._told_to_stop or self._stop.is_set()
        return self._told_to_stop

    @property
    def told_to_stop(self) -> bool:
        """Has the run seen that it shall stop?"""
        return self._told_to_stop

    def request_stop(self) -> None:
        """Make `should_stop` answer yes."""
        self._stop.set()

    def result(self, result: JobResult) -> None:
        """The job has succeeded."""
        self._sync_outputs()
        self._event("result", durable=True, result=result.model_dump(mode="json"))

    def failed(self, error: JobError) -> None:
        """The job cannot succeed."""
        self._sync_outputs()
        self._event("failed", durable=True, code=error.code, message=error.message, hint=error.hint)

    def cancelled(self) -> None:
        """The job has stopped because it was asked to."""
        self._sync_outputs()
        self._event("cancelled", durable=True)

    def _event(self, type: str, *, durable: bool = False, **fields: Any) -> None:
        values = {"attempt": self._attempt, "seq": self._seq, "time": self._clock(), "type": type}
        event = JobEvent.model_validate(values | _storable(fields))
        self._seq += 1
        _append(self._events, event.model_dump_json(exclude_none=True))
        if durable:
            os.fsync(self._events)

    def _sync_outputs(self) -> None:
        for descriptor in self._outputs.values():
            os.fsync(descriptor)


def _append(descriptor: int, line: str) -> None:
    data = memoryview(line.encode() + b"\n")
    while data:
        data = data[os.write(descriptor, data) :]


def _next_seq(path: Path, attempt: int) -> int:
    """Where the numbers of an attempt go on, should it have written before."""
    with path.open("rb") as lines:
        mine = (event.seq for event in map(JobEvent.model_validate_json, lines) if event.attempt == attempt)
        return max(mine, default=-1) + 1


def _storable(value: Any) -> Any:
    """Text that is Unicode and numbers that JSON can hold: a message must not be lost for what it quotes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {_storable(key): _storable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_storable(inner) for inner in value]
    return value
