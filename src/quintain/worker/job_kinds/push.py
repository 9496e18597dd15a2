"""Job kind `push`: upload the folder of a dataset, which becomes visible as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from quintain.artifacts.faults import TransferStopped
from quintain.artifacts.pushing import push
from quintain.errors import NotFound
from quintain.records.artifacts import PushSpec
from quintain.records.job import JobResult
from quintain.records.protocols import Reporter

_MB = 2**20


@dataclass
class Transfer:
    """Reports a transfer in MiB, and ends it if the job is asked to stop."""

    reporter: Reporter
    reported: int = -1

    def __call__(self, done: int, total: int) -> None:
        """Report `done` of `total` bytes."""
        if self.reporter.should_stop():
            raise TransferStopped
        if done // _MB != self.reported:
            self.reported = done // _MB
            self.reporter.progress(self.reported, -(-total // _MB), {})


def run(spec: PushSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Upload the folder.

    Raises:
        NotFound: The folder is gone.
        Conflict, Refused, Unavailable: As `pushing.push`.
    """
    reporter.phase("uploading")
    folder = Path(spec.folder)
    if not folder.is_dir():
        raise NotFound(f"expected the folder {folder} of {spec.dataset_id}, got nothing there; export it again")
    try:
        location = push(folder, spec.destination, "dataset", Transfer(reporter))
    except TransferStopped:
        return JobResult(report={"stopped": True})
    return JobResult(dataset_id=spec.dataset_id, report={"destination": spec.destination, "pushed_to": location})
