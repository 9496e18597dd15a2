"""Does influence find the stored runs that help? Through the tools, with real jobs on the embedded model.

The targets are demonstrations of `quintain/inventory`. The pool has other demonstrations of it, and as many runs that do not help:
of another environment (`unrelated`), or of inventory with the agent's steps of another task (`mismatched`), whose texts look alike.
A figure is the AUC: the share of pairs in which the helpful run is above the other.
With `--train` the embedded model also learns from helpful and mismatched runs together, and from the half of them that each value puts
first, and its success on 100 held-out tasks is measured.
Run as `python -m benchmarks.influence [--quick] [--train]`; one JSON line a figure.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import report, rounded, say, summarize
from benchmarks.jobs import finished_job
from quintain.records.filters import TrajectoryFilter
from quintain.records.trajectory import Actor, Trajectory
from quintain.scoring.rank_statistics import separation
from quintain.settings import Settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import Services, open_services
from quintain.tools.training.start import start_training

INVENTORY, OTHER = "quintain/inventory", "quintain/math"
ARMS = ("all", "random", "text", "gradient")
"""What is trained on: all of the pool, or a half of it."""
Values = dict[str, list[float]]
"""Component -> values of runs in their order."""


def figures(quick: bool = False, train: bool = False) -> None:
    """Three seeds (quick: one), each with its own demonstrations."""
    trained: dict[str, list[float]] | None = {} if train else None
    n, seeds = (10, 1) if quick else (40, 3)
    found: dict[tuple[str, str], list[float]] = {}
    costs: dict[str, list[float]] = {"gradient_ms_per_run": [], "text_ms_per_run": []}
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            for key, auc in _measured(Path(folder), seed, n, costs, trained).items():
                found.setdefault(key, []).append(auc)
        say(f"seed {seed}: { {' '.join(key): rounded(values[-1]) for key, values in found.items()} }")
    for (kind, part), aucs in found.items():
        goal = 0.9 if part == "gradient" else None
        report(f"influence_auc_{kind}_{part}", aucs, "AUC", goal, pool=2 * n, targets=n)
    for name, values in costs.items():
        report(f"influence_{name}", values, "ms", None, "lower")
    for arm, rates in (trained or {}).items():
        report(f"influence_success_after_{arm}", rates, "success rate", None, tasks=100)


def _measured(
    home: Path, seed: int, n: int, costs: dict[str, list[float]], trained: dict[str, list[float]] | None
) -> dict[tuple[str, str], float]:
    services = open_services(Settings(home=home), trusted=True)
    try:
        first, unrelated = (
            _runs(services, environment, count, seed) for environment, count in ((INVENTORY, 2 * n), (OTHER, n))
        )
        targets, helpful = first[:n], first[n:]
        mismatched = [
            _with_steps_of(run, other) for run, other in zip(helpful, [*helpful[1:], helpful[0]], strict=True)
        ]
        export_dataset(services, "sft", "target", trajectory_ids=[run.id or "" for run in targets])
        by_kind = {"helpful": helpful, "unrelated": unrelated, "mismatched": mismatched}
        ids = {
            kind: [added.id for added in services.store.trajectories.add_many(runs, services.clock())]
            for kind, runs in by_kind.items()
        }
        every = [run for runs in ids.values() for run in runs]
        job = score_trajectories(services, "influence", judge="starter", target="target", trajectory_ids=every)
        ended = finished_job(services, str(job.job_id))
        assert ended.result is not None
        for name, values in costs.items():
            values.append(ended.result.report[name])
        values_of = {kind: _values(services, runs) for kind, runs in ids.items()}
        if trained is not None:
            _train(services, [*ids["helpful"], *ids["mismatched"]], seed, trained)
        return {
            (kind, part): separation(values_of["helpful"][part], values_of[kind][part]).auc
            for kind in ("unrelated", "mismatched")
            for part in ("gradient", "text")
        }
    finally:
        services.close()


def _train(services: Services, pool: Sequence[str], seed: int, trained: dict[str, list[float]]) -> None:
    """Train on all of the pool and on halves of it, and note the success on held-out tasks; `start` is before training."""
    values, half = _values(services, pool), len(pool) // 2
    halves = {
        part: [pool[i] for i in sorted(range(len(pool)), key=lambda i: -values[part][i])[:half]] for part in values
    }
    halves |= {"all": list(pool), "random": random.Random(seed).sample(list(pool), half)}
    agents = {"start": "starter"}
    for arm in ARMS:
        data = export_dataset(services, "sft", arm, trajectory_ids=halves[arm], validation_share=0)
        started = start_training(services, "sft", "starter", dataset_id=data.dataset_id, name=arm, seed=seed)
        finished_job(services, started.job_id)
        agents[arm] = arm
    for arm, agent in agents.items():
        measured = finished_job(services, evaluate_agent(services, agent, environment=INVENTORY, n_tasks=100).job_id)
        assert measured.result is not None
        trained.setdefault(arm, []).append(measured.result.success_rate or 0.0)
        say(f"seed {seed}, {arm}: {trained[arm][-1]:.3f}")


def _runs(services: Services, environment: str, n: int, seed: int) -> list[Trajectory]:
    played = collect_rollouts(services, agent="expert", environment=environment, n_tasks=n, seed=seed)
    view = finished_job(services, played.job_id)
    return list(services.store.trajectories.iterate(TrajectoryFilter(job_id=view.job_id)))[:n]


def _with_steps_of(run: Trajectory, other: Trajectory) -> Trajectory:
    """Return a run's question with what another one's agent did."""
    asked = [step for step in run.steps if step.actor is not Actor.AGENT]
    acted = [step for step in other.steps if step.actor is Actor.AGENT]
    return run.model_copy(update={"id": None, "steps": (*asked, *acted), "episode_key": ""})


def _values(services: Services, runs: Sequence[str]) -> Values:
    scores = services.store.scores.latest("influence", runs)
    parts = [{part.name: part.value or 0.0 for part in scores[run].components} for run in runs]
    return {name: [part[name] for part in parts] for name in ("gradient", "text")}


if __name__ == "__main__":
    figures("--quick" in sys.argv, "--train" in sys.argv)
    summarize()
