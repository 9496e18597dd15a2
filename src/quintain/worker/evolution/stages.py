"""The stages of an evolution as jobs of their own: all that they are follows from the spec, the round and who takes part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quintain.environments.registry import open_source
from quintain.errors import InvalidInput
from quintain.evaluation.suites import plan_suite
from quintain.records.agent import Agent
from quintain.records.dataset import Dataset
from quintain.records.job import EvaluateSpec, EvolveSpec, RolloutSpec, TrainSpec
from quintain.records.seeds import stable_seed


def levels_of(spec: EvolveSpec) -> tuple[str, ...]:
    """The environments to explore in, easiest first."""
    levels = spec.config.curriculum
    return (spec.environment,) if levels is None else levels.levels


def exploring(spec: EvolveSpec, number: int, environment: str, agent: Agent) -> RolloutSpec:
    """The episodes of a round, which are tagged as what an agent learns from."""
    config = spec.config
    low, high = config.temperatures
    return RolloutSpec(
        agent=agent,
        environment=environment,
        n_tasks=config.tasks_per_iteration,
        attempts=config.attempts,
        seed=_seed(spec, "explore", number),
        sampling=agent.sampling.model_copy(update={"temperature": low}),
        temperatures=(low, high) if low != high else None,
        max_turns=config.max_turns,
        tags=("rollout", "evolve", f"round:{number}"),
    )


def training(spec: EvolveSpec, number: int, start: Agent, dataset: Dataset, folder: Path) -> TrainSpec:
    """The training of a round; its agent has the round's name."""
    return TrainSpec(
        method=spec.training.method,
        agent=start,
        dataset_id=dataset.id,
        dataset_path=dataset.path,
        dataset_files=dataset.files,
        name=f"{spec.name[:80]}-round-{number}",
        output_dir=str(Path(spec.output_dir) / folder.name),
        config=spec.training,
        reward_agent=spec.reward_agent,
        seed=_seed(spec, "train", number),
    )


def choosing(spec: EvolveSpec, agent: Agent) -> EvaluateSpec:
    """An agent on the suite that rounds are chosen by."""
    return EvaluateSpec(
        agent=agent,
        environment=spec.environment,
        sampling=agent.sampling,
        **_suite(spec, spec.config.evaluation_tasks, "choose"),
    )


def comparing(spec: EvolveSpec, agent: Agent, seen: Sequence[str]) -> EvaluateSpec:
    """An agent on other tasks than those that rounds were chosen by."""
    return EvaluateSpec(
        agent=agent,
        environment=spec.environment,
        sampling=agent.sampling,
        excluded=tuple(seen),
        **_suite(spec, spec.config.final_tasks, "final"),
    )


def tasks_to_choose_by(spec: EvolveSpec) -> tuple[str, ...]:
    """Ids of the tasks that rounds are chosen by.

    Raises:
        InvalidInput: there are fewer held-out tasks than these and those of the last comparison, or fewer training tasks than a
            round explores.
    """
    config = spec.config
    for environment in levels_of(spec):
        try:
            open_source(environment).tasks("train", config.tasks_per_iteration, _seed(spec, "explore", 1))
        except InvalidInput as error:
            raise InvalidInput(
                f"{environment} has too few training tasks for tasks_per_iteration {config.tasks_per_iteration}; lower it "
                f"({error.message})",
                code="too_few_tasks",
            ) from None
    source = open_source(spec.environment)
    try:
        suite = plan_suite(source, **_suite(spec, config.evaluation_tasks, "choose") | {"repeats": 1})
        seen = tuple(plan.task.id for plan in suite.plans if plan.task.id)
        plan_suite(source, **_suite(spec, config.final_tasks, "final"), excluded=seen)
    except InvalidInput as error:
        raise InvalidInput(
            f"{spec.environment} has too few held-out tasks for evaluation_tasks {config.evaluation_tasks} and, as others, "
            f"final_tasks {config.final_tasks}; lower them ({error.message})",
            code="too_few_tasks",
        ) from None
    return seen


def planned(spec: EvolveSpec) -> tuple[int, int, int]:
    """Steps of a round: episodes of exploring, optimizer steps as far as they can be told, episodes of measuring."""
    config, method = spec.config, spec.training
    episodes = config.tasks_per_iteration * config.attempts
    rows = config.tasks_per_iteration if config.train in {"dpo", "grpo"} else math.ceil(config.ratio * episodes)
    steps = math.ceil(method.epochs * math.ceil(rows / method.batch_size))
    return episodes, min(steps, method.max_steps or steps), config.evaluation_tasks * config.repeats


def planned_after(spec: EvolveSpec, number: int, stages: int) -> int:
    """Steps behind so many stages of a round, the last comparison included."""
    one = planned(spec)
    final = 2 * spec.config.final_tasks * spec.config.repeats
    return sum(one[stages:]) + (spec.config.iterations - number) * sum(one) + final


def _suite(spec: EvolveSpec, n_tasks: int, purpose: str) -> dict[str, Any]:
    return {
        "split": "held_out",
        "n_tasks": n_tasks,
        "repeats": spec.config.repeats,
        "seed": _seed(spec, purpose),
        "max_turns": spec.config.max_turns,
    }


def _seed(spec: EvolveSpec, *purpose: str | int) -> int:
    return stable_seed(spec.seed, "evolve", *purpose) % 2**31
