"""Jobs that a benchmark carries out in its own process, their runs, and jobs of a home that it waits for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from quintain.jobs.directory import JobDirectory
from quintain.records.agent import Agent, ModelRef
from quintain.records.jobs.job import TERMINAL, JobSpec
from quintain.records.trajectory import Trajectory
from quintain.tools.jobs.jobs import get_job
from quintain.tools.results import JobView
from quintain.tools.services import Services
from quintain.worker import job_kinds
from quintain.worker.processes.reporter import FileReporter

STARTER = Agent(id="agent:starter@1", name="starter", model=ModelRef(source="starter", path="starter"))


def reporter_of(folder: Path) -> FileReporter:
    """Return the reporter of a job in a new folder."""
    (folder / "outputs").mkdir(parents=True)
    (folder / "events.jsonl").touch()
    return FileReporter(JobDirectory(folder), 1, lambda: datetime.now(UTC))


def carry_out(spec: JobSpec, folder: Path) -> Path:
    """Carry out a job in this process, in a new folder; return it."""
    job_kinds.run(spec, folder, reporter_of(folder))
    return folder


def runs_of(folder: Path) -> list[Trajectory]:
    """Return the runs that a job has output."""
    lines = (folder / "outputs" / "trajectory.jsonl").read_bytes().splitlines()
    return [Trajectory.model_validate_json(line[line.index(b'"record":') + 9 : -1]) for line in lines]


def finished_job(services: Services, job_id: str) -> JobView:
    """Wait until a job has succeeded."""
    while True:
        view = get_job(services, job_id, wait_s=20)
        if view.status in TERMINAL:
            assert view.status == "succeeded", view
            return view
