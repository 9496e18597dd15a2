"""Job kind `fetch`: download an artifact into the cache, where the tool that needs it finds it."""

from __future__ import annotations

from pathlib import Path

from quintain.artifacts.faults import TransferStopped
from quintain.artifacts.transfers import fetch
from quintain.records.artifacts import FetchSpec
from quintain.records.jobs.job import JobResult
from quintain.records.protocols import Reporter
from quintain.worker.job_kinds.push import Transfer


def run(spec: FetchSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Download the artifact unless the cache has it.

    Raises:
        NotFound, InvalidInput, Refused, Unavailable: As `transfers.fetch`.
    """
    reporter.phase("downloading")
    try:
        path = fetch(spec.url, Path(spec.cache_dir), progress=Transfer(reporter))
    except TransferStopped:
        return JobResult(report={"stopped": True})
    return JobResult(report={"url": spec.url, "path": str(path)})
