"""What plan_training says of a training against what the job then took: memory and duration, on two small models, on the CPU.

Run as `python -m benchmarks.planning [--runs N]`; prints one JSON line a figure. Each training is planned twice: on a home
folder in which no job has run (`cold`, by the model of cost) and again after it (`warm`, by what the first job took). A ratio
is the larger of estimate and fact over the smaller: 1 is exact.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

from benchmarks.figures import report, say, summarize
from benchmarks.jobs import finished_job
from quintain.environments.inventory import Inventory
from quintain.environments.inventory.scripted_policy import Expert
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.agent import Agent, ModelRef
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import UNFINISHED, Job
from quintain.records.trajectory import AgentInfo
from quintain.settings import Settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.preview import preview_dataset
from quintain.tools.services import Services, open_services
from quintain.tools.training.planning.plan import plan_training
from quintain.tools.training.start import start_training

_GOAL = 2.0
_CASES: tuple[tuple[str, dict[str, object]], ...] = (
    ("starter", {"epochs": 3.0}),
    ("starter_lora", {"epochs": 3.0, "lora": {"rank": 16}}),
    ("small", {"max_steps": 4}),
    ("small_lora", {"max_steps": 4, "lora": {"rank": 16}}),
)
"""The embedded model of 0.8M parameters, and one of 13M with random weights (`benchmarks.workload`, size s)."""


def main() -> int:
    """Plan, train, compare; 0: every ratio reaches its goal."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("--runs", type=int, default=60, help="recorded runs to train on")
    parser.add_argument("--only", help="some of: " + ", ".join(name for name, _ in _CASES))
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else [name for name, _ in _CASES]
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small"
        if any(name.startswith("small") for name in chosen):
            from benchmarks.workload import make_model, quieten

            quieten()
            make_model(small)
        for name, settings in _CASES:
            if name in chosen:
                worst = max(worst, _case(Path(folder) / f"home-{name}", name, small, settings, arguments.runs))
    summarize()
    return 0 if worst <= _GOAL else 1


def _case(home: Path, name: str, small: Path, settings: dict[str, object], runs: int) -> float:
    home.mkdir()
    services = open_services(Settings(home=home, poll_s=0.2), trusted=True)
    _store_runs(services, runs)
    export_dataset(services, "sft", "runs", filter=TrajectoryFilter(tags=("expert",)))
    model = "starter" if name.startswith("starter") else _registered(services, small)
    while preview_dataset(services, "runs", model).status in {str(status) for status in UNFINISHED}:
        time.sleep(0.2)
    worst = 0.0
    try:
        for stage in ("cold", "warm"):
            began = time.perf_counter()
            plan = plan_training(services, dataset_id="runs", model=model, hyperparameters=settings)
            planned_s, told = time.perf_counter() - began, plan.estimate
            if plan.method is None or plan.blockers or told.memory_mb is None or told.duration_s is None:
                raise RuntimeError(f"the plan is of no use: {plan.model_dump_json()}")
            asked: dict[str, Any] = {"method": plan.method, "hyperparameters": plan.hyperparameters, "name": stage}
            started = start_training(services, model=model, dataset_id="runs", **asked)
            job = _ended(services, started.job_id)
            assert job.started_at
            assert job.ended_at
            took = (job.ended_at - job.started_at).total_seconds()
            peak = job.metrics["peak_memory_mb"] or 0.0
            for figure, said, fact in (("duration_s", told.duration_s, took), ("memory_mb", told.memory_mb, peak)):
                ratio = max(said / fact, fact / said)
                worst = max(worst, ratio)
                report(f"{name}_{stage}_{figure}", [ratio], "ratio", _GOAL, "lower", estimate=said, fact=round(fact, 1))
            report(f"{name}_{stage}_planning_s", [planned_s], "s", None, "lower")
    finally:
        services.close()
    return worst


def _store_runs(services: Services, n: int) -> None:
    source = Inventory()
    plans = [EpisodePlan(task) for task in source.tasks("train", n, seed=5)]
    acting = EpisodeSettings(seed=5, max_turns=None, concurrency=n, agent=AgentInfo(name="expert"), tags=("expert",))
    runs = [episode.trajectory for episode in run_episodes(source, Expert(), plans, acting)]
    services.store.trajectories.add_many(runs, services.clock())


def _registered(services: Services, folder: Path) -> str:
    agent = Agent(name="small", model=ModelRef(source="folder", path=str(folder)))
    return services.store.agents.add(agent, services.clock()).id or ""


def _ended(services: Services, job_id: str) -> Job:
    finished_job(services, job_id)
    job = services.store.jobs.get(job_id)
    assert job.result is not None
    say(f"{job_id}: {job.result.report['tokens']} tokens, {job.result.report['steps']} steps")
    return job


if __name__ == "__main__":
    raise SystemExit(main())
