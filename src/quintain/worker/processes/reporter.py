"""Reports of a running job, appended as complete lines to the job's directory (implements `Reporter`)."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError

from quintain.errors import Unavailable
from quintain.jobs.directory import OUTPUTS, JobDirectory, open_appending, write_line
from quintain.records.jobs.job import JobError, JobResult
from quintain.records.jobs.job_events import Activity, JobEvent
from quintain.records.record import Record

logger = logging.getLogger(__name__)


class FileReporter:
    """Appends to `events.jsonl` and `outputs/`, and logs each event. Only changes of state are synced to disk immediately.

    This process holds the job's lock, so there is no other writer.
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
        """Report the start of a phase."""
        logger.info("phase: %s", name)
        self._event("phase", name=name)

    def progress(
        self,
        step: int,
        total_steps: int,
        metrics: dict[str, float | None],
        totals: dict[str, float | None] | None = None,
    ) -> None:
        """Report a finished step. Non-finite metrics are stored as null, with one warning per metric."""
        figures = metrics | (totals or {})
        for name, value in figures.items():
            if value is not None and not math.isfinite(value) and name not in self._not_finite:
                self._not_finite.add(name)
                self.warn("not_finite", f"{name} was {value} at step {step}; non-finite values are reported as null")
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items() if value is not None)
        logger.info("step %d of %d%s", step, total_steps, shown and f": {shown}")
        self._event("progress", step=step, total_steps=total_steps, metrics=metrics, totals=totals)

    def acting(self, activity: Activity) -> None:
        """Report the turns of the episodes that are being played."""
        logger.info("acting: %s", activity)
        self._event("activity", activity=activity.model_dump())

    def checkpoint(self, step: int, path: Path) -> None:
        """Report a complete checkpoint. Earlier outputs are synced to disk first."""
        self._sync_outputs()
        logger.info("checkpoint at step %d", step)
        self._event("checkpoint", durable=True, step=step, path=str(path))

    def warn(self, code: str, message: str) -> None:
        """Report a problem that does not stop the run."""
        logger.warning("%s: %s", code, message.encode("utf-8", "backslashreplace").decode())
        self._event("warning", code=code, message=message)

    def output(self, kind: str, record: Record) -> None:
        """Output a record for the store as a line in the format `Envelope`."""
        if kind not in OUTPUTS:
            raise ValueError(f"expected an output kind out of {', '.join(OUTPUTS)}, got {kind!r}")
        try:
            document = record.model_dump_json()
        except PydanticSerializationError as error:
            self.warn("bad_output", f"cannot write a {kind}, which is left out: {error}")
            return
        if kind not in self._outputs:
            self._require_place()
            self._outputs[kind] = open_appending(self._directory.outputs / f"{kind}.jsonl")
        write_line(self._outputs[kind], f'{{"kind":"{kind}","record":{document}}}')

    def should_stop(self) -> bool:
        """Whether the job was asked to stop. Checked between steps."""
        self._told_to_stop = self._told_to_stop or self._stop.is_set()
        return self._told_to_stop

    @property
    def stop_acknowledged(self) -> bool:
        """Whether the run has noticed the request to stop."""
        return self._told_to_stop

    def request_stop(self) -> None:
        """Make `should_stop` return True."""
        self._stop.set()

    def result(self, result: JobResult) -> None:
        """Report success."""
        self._sync_outputs()
        logger.info("succeeded")
        self._event("result", durable=True, result=result.model_dump(mode="json"))

    def failed(self, error: JobError) -> None:
        """Report a failure."""
        self._sync_outputs()
        self._event("failed", durable=True, code=error.code, message=error.message, hint=error.hint)

    def cancelled(self) -> None:
        """Report that the job stopped on request."""
        self._sync_outputs()
        logger.info("stopped on request")
        self._event("cancelled", durable=True)

    def _event(self, type: str, *, durable: bool = False, **fields: Any) -> None:
        values = {"attempt": self._attempt, "seq": self._seq, "time": self._clock(), "type": type}
        event = JobEvent.model_validate(values | _storable(fields))
        self._seq += 1
        write_line(self._events, event.model_dump_json(exclude_none=True))
        if durable:
            os.fsync(self._events)

    def _require_place(self) -> None:
        """Check that the folder is where it was: what is open goes on in a moved one, and what is opened would begin another.

        Raises:
            Unavailable: It is not (`directory_moved`).
        """
        path = self._directory.events
        if not path.exists() or path.stat().st_ino != os.fstat(self._events).st_ino:
            raise Unavailable(
                f"expected the folder of this job at {path.parent}, got another or none: it was moved or unmounted while the job ran; "
                "put it back and resume the job, and move a home while no job runs in it",
                code="directory_moved",
            )

    def _sync_outputs(self) -> None:
        for descriptor in self._outputs.values():
            os.fsync(descriptor)


def _next_seq(path: Path, attempt: int) -> int:
    """Return the next event number of an attempt, which may have written events before."""
    with path.open("rb") as lines:
        mine = (event.seq for event in map(JobEvent.model_validate_json, lines) if event.attempt == attempt)
        return max(mine, default=-1) + 1


def _storable(value: Any) -> Any:
    """Replace lone surrogates and non-finite numbers, so that a message is not lost because of a quotation."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {_storable(key): _storable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_storable(inner) for inner in value]
    return value
