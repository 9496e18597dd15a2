"""Does learning by acting pay? The embedded model learns in the warehouse, and is measured before and after on held-out tasks.

Trainings and evaluations are the worker's own jobs, carried out in this process one after the other, so that processor time
can be told beside the time on the clock, which other programs lengthen.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figures import report, say
from benchmarks.jobs import STARTER, carry_out, runs_of
from quintain.evaluation.statistics.significance import mcnemar_exact
from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters.methods import CONFIGS
from quintain.records.jobs.job import EvaluateSpec, TrainSpec
from quintain.records.trajectory import OutcomeStatus

ENVIRONMENT = "quintain/inventory"
SETTINGS: dict[str, dict[str, Any]] = {
    "grpo": {"rollouts": 15, "learning_rate": 3e-4, "max_new_tokens": 96},
    "dpo": {"rollouts": 15, "learning_rate": 3e-4, "max_new_tokens": 96},
    "ppo": {"rollouts": 15, "learning_rate": 3e-4, "max_new_tokens": 96},
}
SEEDS = 5
TASKS = 100
GAIN = 0.3
SECONDS = 300
CORES = 2
GOALS = {"grpo": 4, "dpo": None, "ppo": None}
"""Method -> on how many of the seeds it must gain so much in so many seconds."""


class Lift(NamedTuple):
    """What one training made of the model."""

    before: float
    after: float
    p: float
    wall_s: float
    cpu_s: float

    @property
    def is_enough(self) -> bool:
        """Did it gain what is asked for, in time?"""
        return round(self.after - self.before, 9) >= GAIN and self.wall_s <= SECONDS


def lift(method: str, seed: int, folder: Path) -> Lift:
    """Train the embedded model online and measure it before and after, greedily, on the same held-out tasks."""
    name = f"{method}-{seed}"
    learnt = STARTER.model_copy(update={"model": ModelRef(source="folder", path=str(folder / name))})
    config = CONFIGS[method](**SETTINGS[method])
    spec = TrainSpec(
        method=method,
        agent=STARTER,
        environment=ENVIRONMENT,
        name=name,
        output_dir=learnt.model.path,
        config=config,
        seed=seed,
    )
    wall, cpu = time.perf_counter(), time.process_time()
    carry_out(spec, folder / f"{name}-job")
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    solved = [_solved(agent, seed, folder / f"{name}-{i}") for i, agent in enumerate((STARTER, learnt))]
    only = [sum(a > b for a, b in zip(*sides, strict=True)) for sides in (solved, solved[::-1])]
    before, after = (sum(side) / TASKS for side in solved)
    return Lift(before, after, mcnemar_exact(*only), wall, cpu)


def _solved(agent: Agent, seed: int, folder: Path) -> list[bool]:
    """Whether the agent solved each task of the suite of this seed."""
    spec = EvaluateSpec(agent=agent, environment=ENVIRONMENT, n_tasks=TASKS, seed=seed)
    return [run.outcome.status is OutcomeStatus.SUCCESS for run in runs_of(carry_out(spec, folder))]


def cases(studies: int) -> None:
    """One line a training, and on how many seeds the gain was large enough and came in time."""
    import torch  # after the worker's imports, which limit how long its threads spin

    torch.set_num_threads(CORES)
    seeds = range(SEEDS if studies > 5000 else 1)
    with tempfile.TemporaryDirectory() as home:
        for method, goal in GOALS.items():
            lifts = []
            for seed in seeds:
                found = lift(method, seed, Path(home))
                lifts.append(found)
                report(
                    f"online {method}, seed {seed}: gain on {TASKS} held-out tasks",
                    [found.after - found.before],
                    "share",
                    None,
                    **{name: round(value, 4) for name, value in found._asdict().items()},
                )
            name = f"online {method}: seeds with {100 * GAIN:.0f} points in {SECONDS // 60} minutes"
            enough = sum(found.is_enough for found in lifts)
            if goal is not None and len(seeds) < SEEDS:
                say(f"{name}: {enough} of {len(seeds)}; the goal is {goal} of {SEEDS}")
                goal = None
            report(name, [enough], "seeds", goal, of=len(seeds))
