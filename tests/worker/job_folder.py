"""A job's folder as a worker leaves it: a reporter that stops or dies where a test says, files of runs, and what was reported."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from quintain.environments.inventory import Inventory
from quintain.environments.inventory.scripted_policy import Expert
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.jobs.directory import JobDirectory
from quintain.records.agent import Agent, ModelRef
from quintain.records.evaluation import Evaluation
from quintain.records.jobs.job import Job, JobSpec, JobStatus
from quintain.records.jobs.job_events import JobEvent
from quintain.records.jobs.run_jobs import RunsFile
from quintain.records.record import Record
from quintain.records.score import Score
from quintain.records.trajectory import AgentInfo, Trajectory
from quintain.worker.processes.reporter import FileReporter
from trainers.runs import Killed

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
STARTER = Agent(id="agent:starter@1", name="starter", model=ModelRef(source="starter", path="starter"))


class Stopping(FileReporter):
    """Requests a stop after `after` outputs of a kind or at a step, or dies there."""

    def __init__(
        self,
        folder: Path,
        kind: str = "",
        after: int = 0,
        *,
        stop_at: int | None = None,
        kill_at: int | None = None,
        kills: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(JobDirectory(folder), 1, lambda: MOMENT)
        self.kind, self.left, self.kills, self.stop_at, self.kill_at = kind, after, kills, stop_at, kill_at

    def progress(
        self,
        step: int,
        total_steps: int,
        metrics: dict[str, float | None],
        totals: dict[str, float | None] | None = None,
    ) -> None:
        super().progress(step, total_steps, metrics, totals)
        if step == self.kill_at:
            raise Killed
        if step == self.stop_at:
            self.request_stop()

    def output(self, kind: str, record: Record) -> None:
        super().output(kind, record)
        if kind != self.kind:
            return
        self.left -= 1
        if self.left == 0 and self.kills:
            raise Killed
        if self.left == 0:
            self.request_stop()


def resuming(folder: Path, spec: JobSpec, other: str) -> JobDirectory:
    """Prepare the folder of a new job that resumes another one beside it."""
    directory = JobDirectory(folder)
    state = {
        "kind": spec.kind,
        "status": JobStatus.QUEUED,
        "request_key": "k",
        "created_at": MOMENT,
        "updated_at": MOMENT,
    }
    directory.prepare(Job(id=folder.name, spec=spec, resumed_from=other, **state))
    return directory


def events(folder: Path) -> list[JobEvent]:
    return [JobEvent.model_validate_json(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]


def progress(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of each step."""
    return [dict(event.metrics or {}) for event in events(folder) if event.type == "progress"]


def warnings(folder: Path) -> list[tuple[str, str]]:
    """Return codes and messages."""
    return [(event.code or "", event.message or "") for event in events(folder) if event.type == "warning"]


def outputs(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the records of a kind that the job has handed over."""
    path = folder / "outputs" / f"{kind}.jsonl"
    return [json.loads(line)["record"] for line in path.read_bytes().splitlines()] if path.exists() else []


def scores(folder: Path) -> list[Score]:
    return [Score.model_validate(record) for record in outputs(folder, "score")]


def trajectories(folder: Path) -> list[Trajectory]:
    return [Trajectory.model_validate(record) for record in outputs(folder, "trajectory")]


def evaluation(folder: Path) -> Evaluation:
    (record,) = outputs(folder, "evaluation")
    return Evaluation.model_validate(record)


def runs_file(folder: Path, runs: Sequence[Trajectory]) -> RunsFile:
    """Write the runs that a job works on."""
    folder.mkdir(parents=True, exist_ok=True)
    data = b"".join(run.model_dump_json().encode() + b"\n" for run in runs)
    path = folder / f"{hashlib.sha256(data).hexdigest()}.jsonl"
    path.write_bytes(data)
    return RunsFile(path=str(path), sha256=path.stem, n=len(runs))


def expert_runs(n: int, split: str = "train", max_turns: int | None = None) -> list[Trajectory]:
    """Return runs of the scripted expert in the inventory."""
    settings = EpisodeSettings(seed=0, max_turns=max_turns, concurrency=8, agent=AgentInfo(name="expert"))
    plans = [EpisodePlan(task) for task in Inventory().tasks(split, n, 3)]
    return [episode.trajectory for episode in run_episodes(Inventory(), Expert(), plans, settings)]
