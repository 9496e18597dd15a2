"""The next step after a training: measure the new agent beside the one that it began with, or train with another seed."""

from __future__ import annotations

from typing import Any

from quintain.next_step import Hint, ToolCall, call
from quintain.records.dataset import MEASURABLE_KINDS
from quintain.records.filters import TrajectoryFilter
from quintain.records.hyperparameters.methods import ROLES
from quintain.records.jobs.job import EvolveSpec, JobSpec, RecipeSpec, TrainSpec
from quintain.records.labels.reward import RewardSpec
from quintain.tools.services import Services, find
from quintain.tools.training.agents import sampling_like


def after_training(services: Services, spec: JobSpec, agent_id: str) -> Hint:
    """Return what to call next with a new agent."""
    methods = [spec.method] if isinstance(spec, TrainSpec) else []
    if isinstance(spec, RecipeSpec):
        methods = [stage.method for stage in spec.stages if stage.kind == "train"]
    role = ROLES.get(methods[-1]) if methods else None
    if role is None:
        start = spec.agent if isinstance(spec, TrainSpec | RecipeSpec) else None
        began = ... if start is None else start.id_or_name
        compare = call("compare_agents", agents=[began, agent_id])
        if isinstance(began, str) and _suites(services, began) & _suites(services, agent_id):
            return Hint("The new agent and the one that it began with did the same tasks: ", compare, ".")
        suite = _measured_on(services, spec)
        if suite.pop("opponent", None):
            game = call("evaluate_agent", agent=agent_id, **suite, opponent=began)
            return Hint("Let the new agent play against the one that it began with: ", game, ".")
        learned_in = ... if "split" in suite else suite.get("environment")
        if learned_in is not None and (known := _played_by(services, began, learned_in, agent_id)):
            return Hint(
                "Measure the new agent on the tasks that the one it began with was measured on: ",
                call("evaluate_agent", agent=agent_id, **known),
                ", then ",
                compare,
                ".",
            )
        where = ", on rows that it learned from, because none is held out" if "split" in suite else ""
        return Hint(
            f"Measure the new agent and the one that it began with{where}: ",
            call("evaluate_agent", agent=agent_id, **suite),
            " and ",
            call("evaluate_agent", agent=began, **suite),
            ", then ",
            compare,
            ".",
        )
    if role == "retriever":
        found = f"quintain/tools-1k?mode=retrieved&retriever={agent_id}"
        return Hint(
            "This agent finds tools and does not act. Measure how often the right tool is found, then the same with retriever=bm25: ",
            call("evaluate_agent", agent="expert", environment=found),
            ".",
        )
    return Hint(
        f"This agent scores {'steps' if role == 'step_model' else 'whole runs'} and does not act: ",
        call("score_trajectories", scorer=agent_id, filter=...),
        " scores runs in a job, ",
        call("fit_calibration", scorer=agent_id),
        " then fits the scores to people's labels, and ",
        call(
            "start_training",
            method="grpo",
            model="starter",
            environment=...,
            hyperparameters={"reward_model": agent_id},
        ),
        " trains with them as reward.",
    )


def with_another_seed(spec: TrainSpec) -> ToolCall:
    """Return the call that trains once more as a job did, by the next seed and under another name."""
    return call(
        "start_training",
        method=spec.method,
        model=spec.agent.id_or_name,
        dataset_id=spec.dataset_id,
        environment=spec.environment,
        reward=None if spec.reward is None else _stated(spec.reward),
        hyperparameters=spec.config.model_dump(mode="json", exclude_defaults=True, exclude={"method"}) or None,
        name=f"{spec.name[:88]}-{spec.seed + 1}",
        seed=spec.seed + 1,
    )


def _stated(reward: RewardSpec) -> Any:
    """Return a reward as an argument; `...` where models judge or a program's own function does, which only their caller has."""
    if any(part.judges or part.function for part in reward.parts):
        return ...
    parts: dict[str, Any] = {}
    for part in reward.parts:
        if (declared := part.declared) is None:
            parts[part.scorer] = part.weight
            continue
        name = declared.name or declared.type
        own = declared.model_dump(mode="json", exclude_defaults=True)
        parts[f"{name}-{len(parts)}" if name in parts else name] = {
            "type": declared.type,
            "weight": part.weight,
            **own,
        }
    return {"parts": parts, **reward.model_dump(exclude_defaults=True, exclude={"parts"})}


def _measured_on(services: Services, spec: JobSpec) -> dict[str, Any]:
    """Return the suite for a trained agent: where it learned or was measured, else where runs of its dataset were played, else the dataset.

    In a game it has an `opponent`; the environment is `...` where nothing is known of it.
    """
    if environment := getattr(spec, "environment", None):
        plays = getattr(getattr(spec, "config", None), "self_play", None) is not None
        return {"environment": str(environment)} | ({"opponent": "self"} if plays else {})
    if measured := getattr(getattr(spec, "config", None), "evaluate_environment", None):
        return {"environment": measured}
    dataset_id = getattr(spec, "dataset_id", None)
    if dataset_id is None:
        return {"environment": "quintain/inventory"}
    # With all readers of tasks, which most looks at jobs do not need.
    from quintain.environments.references import Reference, parse_reference, parts_of
    from quintain.environments.registry import knows

    played = services.store.trajectories.search(TrajectoryFilter(dataset_id=dataset_id), limit=1).items
    rollout = find(services.store.jobs.get, played[0].job_id) if played and played[0].job_id else None
    reference = getattr(rollout.spec, "environment", None) if rollout is not None else None
    one = parse_reference(reference) if reference and parts_of(reference) is None else Reference("", {})
    if "file" in one.options:
        return {"environment": reference}  # without its file it has no tasks
    if played and (where := played[0].environment) and knows(where):
        opponent = getattr(rollout.spec, "opponent", None) if rollout is not None else None
        # With its options, as a difficulty; of its own tasks all were learned from.
        suite = {"environment": reference if one.id == where and "tasks" not in one.options else where}
        return suite | ({"opponent": "self"} if opponent else {})
    dataset = find(services.store.datasets.get, dataset_id)
    if dataset is None or dataset.kind not in MEASURABLE_KINDS:
        return {"environment": ...}  # pairs and groups of elsewhere: the caller knows where such tasks are played
    split = {} if {"validation", "test"} & {name for name, n in dataset.splits.items() if n} else {"split": "train"}
    return {"dataset_id": dataset.id} | split  # a name may be that of a newer dataset


def _suites(services: Services, agent_id: str) -> set[str]:
    """Return the suites on which an agent was evaluated."""
    return {one.suite_hash for one in services.store.evaluations.of_agent(agent_id)}


def _played_by(services: Services, agent_id: Any, environment: Any, other: str) -> dict[str, Any] | None:
    """Return the suite of the newest measurement of an agent in an environment, or in any (`...`), alone; None if there is none.

    It has the sampling, where the other agent would sample in another way. An evolution measures on what is left of the
    tasks that it chose by, which no call asks for again.
    """
    found = services.store.evaluations.of_agent(agent_id) if isinstance(agent_id, str) else []
    for one in found:
        if environment not in (..., one.environment):
            continue
        job = find(services.store.jobs.get, one.job_id or "")
        by_evolution = job is not None and isinstance(job.spec, EvolveSpec)
        if one.purpose == "measurement" and one.dataset_id is None and one.opponent_id is None and not by_evolution:
            given = {"repeats": one.repeats, "split": one.split, "seed": one.seed, "max_turns": one.max_turns}
            usual = {"repeats": 1, "split": "held_out", "seed": 0, "max_turns": None}
            changed = {name: value for name, value in given.items() if value != usual[name]}
            sampling = sampling_like(services, other, one.sampling)
            return {"environment": one.environment, "n_tasks": one.n_tasks, **changed, **sampling}
    return None
