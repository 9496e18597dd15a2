"""Job specs of an evolution's stages, derived from the evolution's spec, the round and the agents."""

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
from quintain.records.hyperparameters.epochs import optimizer_steps
from quintain.records.jobs.job import EvaluateSpec, EvolveSpec, RolloutSpec, TrainSpec
from quintain.records.seeds import stable_seed


def curriculum_levels(spec: EvolveSpec) -> tuple[str, ...]:
    """Return the environments of the exploration, easiest first."""
    levels = spec.config.curriculum
    return (spec.environment,) if levels is None else levels.levels


def exploration_spec(spec: EvolveSpec, number: int, environment: str, agent: Agent) -> RolloutSpec:
    """Return the episodes of a round, tagged as training rollouts."""
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
        actors=config.actors,
        actor_backend=spec.actor_backend,
        tags=("rollout", "evolve", f"round:{number}"),
    )


def training_spec(spec: EvolveSpec, number: int, start: Agent, learns_from: Dataset | str, folder: Path) -> TrainSpec:
    """Return the training of a round, on a dataset or in an environment. Its agent has the round's name."""
    source: dict[str, Any] = {"environment": learns_from, "reward": spec.reward}
    if isinstance(learns_from, Dataset):
        source = {
            "dataset_id": learns_from.id,
            "dataset_path": learns_from.path,
            "dataset_files": learns_from.files,
        }
    return TrainSpec(
        method=spec.training.method,
        agent=start,
        **source,
        name=f"{spec.name[:80]}-round-{number}",
        output_dir=str(Path(spec.output_dir) / folder.name),
        cache_dir=spec.cache_dir,
        config=spec.training,
        reward_agent=spec.reward_agent,
        seed=_seed(spec, "train", number),
        actor_backend=spec.actor_backend,
        mirror=spec.mirror and f"{spec.mirror}/{folder.name}",
    )


def selection_spec(spec: EvolveSpec, agent: Agent) -> EvaluateSpec:
    """Return the evaluation of an agent on the suite by which rounds are selected."""
    suite = _suite(spec, spec.config.evaluation_tasks, "choose")
    return _evaluation(spec, agent, purpose="selection", **suite)


def final_spec(spec: EvolveSpec, agent: Agent, selection_ids: Sequence[str]) -> EvaluateSpec:
    """Return the evaluation of an agent on tasks that were not used for selection."""
    return _evaluation(spec, agent, excluded=tuple(selection_ids), **_suite(spec, spec.config.final_tasks, "final"))


def _evaluation(spec: EvolveSpec, agent: Agent, **fields: Any) -> EvaluateSpec:
    return EvaluateSpec(
        agent=agent,
        environment=spec.environment,
        sampling=agent.sampling,
        actors=spec.config.actors,
        actor_backend=spec.actor_backend,
        **fields,
    )


def selection_tasks(spec: EvolveSpec) -> tuple[str, ...]:
    """Return the ids of the tasks by which rounds are selected.

    Raises:
        InvalidInput: There are fewer held-out tasks than the selection and the final comparison need, or fewer training tasks
            than a round explores.
    """
    config = spec.config
    for environment in curriculum_levels(spec):
        try:
            open_source(environment).tasks("train", config.tasks_per_iteration, _seed(spec, "explore", 1))
        except InvalidInput as error:
            raise InvalidInput(
                f"expected {config.tasks_per_iteration} training tasks (tasks_per_iteration) in {environment}, got fewer; lower it "
                f"({error.message})",
                code="too_few_tasks",
            ) from None
    source = open_source(spec.environment)
    try:
        suite = plan_suite(source, **_suite(spec, config.evaluation_tasks, "choose") | {"repeats": 1})
        selection_ids = tuple(plan.task.id for plan in suite.plans if plan.task.id)
        plan_suite(source, **_suite(spec, config.final_tasks, "final"), excluded=selection_ids)
    except InvalidInput as error:
        raise InvalidInput(
            f"expected {config.evaluation_tasks} held-out tasks (evaluation_tasks) and {config.final_tasks} others (final_tasks) "
            f"in {spec.environment}, got fewer; lower them ({error.message})",
            code="too_few_tasks",
        ) from None
    return selection_ids


def planned_steps(spec: EvolveSpec) -> tuple[int, int, int]:
    """Return the steps of a round: exploration episodes, estimated optimizer steps, evaluation episodes."""
    config = spec.config
    episodes = config.tasks_per_iteration * config.attempts
    rows = config.tasks_per_iteration if config.train in {"dpo", "grpo"} else math.ceil(config.ratio * episodes)
    steps = optimizer_steps(spec.training, rows, acts=not config.explores)
    return episodes if config.explores else 0, steps, config.evaluation_tasks * config.repeats


def planned_steps_after(spec: EvolveSpec, number: int, stages: int) -> int:
    """Return the planned steps after the first `stages` stages of a round, including the final comparison."""
    one = planned_steps(spec)
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
