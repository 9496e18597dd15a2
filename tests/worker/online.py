"""Jobs that learn online with tiny models, whole or in parts, and what they played."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quintain.records.agent import Agent, Sampling
from quintain.records.hyperparameters.methods import CONFIGS
from quintain.records.jobs.evolve import EvolveConfig
from quintain.records.jobs.job import EvolveSpec, TrainSpec
from quintain.records.labels.reward import LengthReward, RewardPart, RewardSpec
from quintain.worker.job_kinds import train as training
from trainers.runs import same
from worker.job_folder import STARTER, Stopping, progress, trajectories

BREVITY = RewardSpec(
    parts=(
        RewardPart(scorer="short", declared=LengthReward(name="short", unit="tokens", of="all", full_at=0, zero_at=24)),
    )
)
"""The tiny model solves nothing, but its runs differ in length."""


def tasks_file(folder: Path, n: int) -> Path:
    """Write training tasks of one turn, solved where the random text of the tiny model has an `e`."""
    checker = {"type": "regex", "pattern": "e"}
    rows = [{"id": f"t{i}", "prompt": f"Say {i}.", "checker": checker, "split": "train"} for i in range(n)]
    path = folder / "tasks.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def online(
    agent: Agent = STARTER,
    method: str = "grpo",
    environment: str = "quintain/inventory",
    *,
    output: Path | str = "unused",
    reward: RewardSpec | None = None,
    teacher_agent: Agent | None = None,
    seed: int = 5,
    **config: Any,
) -> TrainSpec:
    return TrainSpec(
        method=method,  # type: ignore[arg-type]
        agent=agent,
        environment=environment,
        name="learner",
        output_dir=str(output),
        config=CONFIGS[method](**config),  # type: ignore[arg-type]
        reward=reward,
        teacher_agent=teacher_agent,
        seed=seed,
    )


def evolution(
    agent: Agent,
    folder: Path,
    environment: str = "quintain/inventory",
    training: dict[str, Any] | None = None,
    *,
    max_new_tokens: int,
    **settings: Any,
) -> EvolveSpec:
    config = EvolveConfig(**settings)
    return EvolveSpec(
        name="pupil",
        agent=agent.model_copy(update={"sampling": Sampling(max_new_tokens=max_new_tokens)}),
        environment=environment,
        config=config,
        training=CONFIGS[config.train](**{"max_steps": 2, "batch_size": 4, **(training or {})}),  # type: ignore[arg-type]
        output_dir=str(folder / "models"),
        datasets_dir=str(folder / "datasets"),
        seed=7,
    )


def played(folder: Path) -> list[dict[str, Any]]:
    """Return the runs of a job without the seconds that they took, and the hash of settings that name its folder."""
    runs = trajectories(folder)
    for run in runs:
        run.extra.get("episode_result", {}).pop("duration_s", None)
        run.extra.pop("settings_hash", None)
    return [run.model_dump(mode="json") for run in runs]


def versions(folder: Path) -> list[tuple[str, set[int | None]]]:
    """Return the rollout of each run, and the versions of the weights that wrote it."""
    return [
        (run.tags[1], {step.sampled.weight_version for step in run.agent_steps if step.sampled})
        for run in trajectories(folder)
    ]


def stopped_as_whole(job: TrainSpec, folder: Path, after: int, curve: str) -> tuple[Path, list[Any], list[int | None]]:
    """Run a job whole, and another one stopped after its first step and again after `after` episodes; both must learn the same.

    Returns:
        The folder of the weights, the values of a metric at each step, and the steps that the parts resumed from.
    """
    stops: list[dict[str, Any]] = [{"stop_at": 1}, {"kind": "trajectory", "after": after}, {}]
    resumed, curves = list[int | None](), list[list[Any]]()
    for name, runs in (("whole", [{}]), ("parts", stops)):
        job_folder = folder / name / "job-1"
        for when in runs:
            run = job.model_copy(update={"output_dir": str(folder / name / "model")})
            resumed.append(training.run(run, job_folder, Stopping(job_folder, **when)).report["resumed_from_step"])
        curves.append([metrics.get(curve) for metrics in progress(job_folder)])
    assert same(folder / "whole" / "model", folder / "parts" / "model")
    assert curves[0] == curves[1]
    return folder / "whole" / "model", curves[0], resumed[1:]
