"""The worker's reporter, which stops or dies at a point of the test's choice; and recorded runs to work on."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from quintain.environments.inventory import Inventory
from quintain.environments.inventory.scripted_policy import Expert
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.jobs.directory import JobDirectory
from quintain.records.record import Record
from quintain.records.trajectory import AgentInfo, Trajectory
from quintain.worker.reporter import FileReporter
from trainers.runs import Killed

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)


class Stopping(FileReporter):
    """Requests a stop after `after` outputs of a kind or at a step, or dies at a step."""

    def __init__(
        self, folder: Path, kind: str = "", after: int = 0, *, stop_at: int | None = None, kill_at: int | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(JobDirectory(folder), 1, lambda: MOMENT)
        self.kind, self.left, self.stop_at, self.kill_at = kind, after, stop_at, kill_at

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
        self.left -= kind == self.kind
        if self.kind and self.left == 0:
            self.request_stop()


def expert_runs(n: int, split: str = "train") -> list[Trajectory]:
    """Return runs of the scripted expert in the inventory."""
    settings = EpisodeSettings(seed=0, max_turns=None, concurrency=8, agent=AgentInfo(name="expert"))
    plans = [EpisodePlan(task) for task in Inventory().tasks(split, n, 3)]
    return [episode.trajectory for episode in run_episodes(Inventory(), Expert(), plans, settings)]
