"""Does a reward model that is trained on pairs order runs of tasks that it has not seen? Through the tools, with real jobs.

The embedded model plays training tasks of `quintain/inventory`; its own runs become pairs by outcome, and a reward model is
trained on them. Then it plays held-out tasks, and the reward model scores those runs without their outcome; what counts
is how many pairs of them it puts in the right order. A verdict of the environment is never part of what it reads: it reads
up to the agent's last token.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figures import report, rounded, say
from benchmarks.jobs import finished_job
from quintain.datasets.rows import read_rows
from quintain.evaluation.statistics.success_rates import clopper_pearson
from quintain.records.dataset import PairRow
from quintain.records.filters import TrajectoryFilter
from quintain.settings import Settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.evaluation.rollouts import collect_rollouts
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.results import JobView
from quintain.tools.services import Services, open_services
from quintain.tools.training.start import start_training

ENVIRONMENT = "quintain/inventory"
SETTINGS = {"epochs": 3, "learning_rate": 1e-3}
GOAL = 85.0
"""Percent of held-out pairs in the right order."""


class Ordered(NamedTuple):
    """What came of one seed."""

    right: int
    n: int
    training_pairs: int
    told: dict[str, Any] | None
    """What the training job itself said of its validation split."""
    seconds: float


def figures(quick: bool = False) -> None:
    """Three seeds (quick: one, with few tasks), each with its own rollouts, training and held-out pairs."""
    sizes = (60, 4, 40) if quick else (150, 6, 100)
    results = []
    for seed in range(1 if quick else 3):
        with tempfile.TemporaryDirectory() as folder:
            result = _ordered(Path(folder), seed, *sizes)
        say(f"seed {seed}: {result.right} of {result.n} held-out pairs, {result.training_pairs} pairs to learn from")
        results.append(result)
    whole = clopper_pearson(sum(result.right for result in results), sum(result.n for result in results))
    report(
        "reward_model_held_out_order",
        [100 * result.right / result.n for result in results],
        "% of pairs",
        None if quick else GOAL,
        right=whole.successes,
        n=whole.n,
        ci_low=rounded(100 * (whole.ci_low or 0)),
        ci_high=rounded(100 * (whole.ci_high or 0)),
        training_pairs=[result.training_pairs for result in results],
        told_by_the_jobs=[result.told for result in results],
        seconds=[rounded(result.seconds) for result in results],
    )


def _ordered(home: Path, seed: int, n_tasks: int, attempts: int, n_held_out: int) -> Ordered:
    services, began = open_services(Settings(home=home), trusted=True), time.perf_counter()
    try:
        acting: dict[str, Any] = {"agent": "starter", "environment": ENVIRONMENT, "attempts": attempts}
        played = finished_job(services, collect_rollouts(services, n_tasks=n_tasks, seed=seed, **acting).job_id)
        data = export_dataset(
            services, kind="reward", name="pairs", filter=_of(played), validation_share=0.15, seed=seed
        )
        started = start_training(
            services, "reward", "starter", dataset_id=data.dataset_id, name="judge", hyperparameters=SETTINGS, seed=seed
        )
        trained = finished_job(services, started.job_id)
        unseen = finished_job(
            services,
            collect_rollouts(services, n_tasks=n_held_out, seed=1000 + seed, split="held_out", **acting).job_id,
        )
        scored = score_trajectories(services, "agent:judge", _of(unseen))
        finished_job(services, scored.job_id or "")
        test = export_dataset(
            services, kind="reward", name="unseen", filter=_of(unseen), include_held_out=True, validation_share=0
        )
        rows = [row for row in read_rows(Path(test.path), "train", kind="reward") if isinstance(row, PairRow)]
        right = sum(_is_right(services, row) for row in rows)
        told = (trained.result.report if trained.result else {}).get("held_out_agreement")
        return Ordered(right, len(rows), data.splits["train"], told, time.perf_counter() - began)
    finally:
        services.close()


def _is_right(services: Services, row: PairRow) -> bool:
    """Is the chosen run's score above the other's? A run without a score, or a tie, is not right."""
    ids = [row.chosen.id or "", row.rejected.id or ""]
    found = services.store.scores.latest("agent:judge@1", ids)
    chosen, rejected = (found[run].value if run in found else None for run in ids)
    return chosen is not None and rejected is not None and chosen > rejected


def _of(view: JobView) -> TrajectoryFilter:
    return TrajectoryFilter(job_id=view.job_id)
