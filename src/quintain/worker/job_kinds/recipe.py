"""Job kind `recipe`: stages in order, each in its folder below `stages/`.

A finished stage has left its result there and is not run again. An unfinished one resumes from its checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from quintain.jobs.directory import STAGES
from quintain.records.agent import Agent
from quintain.records.jobs.job import EvaluateSpec, JobResult, RecipeSpec, TrainSpec, TrajectorySet
from quintain.records.jobs.recipe import Stage, TrainingInputs, TrainStage, ancestry, trained_by
from quintain.records.protocols import Reporter
from quintain.records.seeds import stable_seed
from quintain.worker.stages import Span, StageResult, run_stage


def run(spec: RecipeSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Run the remaining stages and output the agents."""
    Path(spec.output_dir).mkdir(parents=True, exist_ok=True)
    done: list[StageResult] = []
    for index, stage in enumerate(spec.stages):
        folder = directory / STAGES / f"{index:02d}-{stage.label}"
        before = sum(result.steps for result in done)
        after = sum(later.planned_steps for later in spec.stages[index + 1 :])
        finished = run_stage(
            _spec_of(spec, _with_earlier_agents(stage, spec, done), _start(stage, spec, done), folder.name, index),
            folder,
            reporter,
            Span(before, stage.planned_steps, after),
            named=partial(_stage_agent, spec=spec, index=index, folder=folder),
        )
        if finished is None:
            return JobResult(report={"stages": _report(spec, done)})
        done.append(finished)
        if finished.agent is not None and _is_kept(spec, index):
            reporter.output("agent", finished.agent)  # repeated on resume: the store identifies it by its stage
    return _conclude(spec, directory.name, done)


def _start(stage: Stage, spec: RecipeSpec, done: Sequence[StageResult]) -> Agent:
    """Return the agent that a stage begins with, or evaluates."""
    places = ancestry(spec.stages[: len(done)], stage.method if isinstance(stage, TrainStage) else stage.kind)
    return next((agent for place in reversed(places) if (agent := done[place].agent) is not None), spec.agent)


def _with_earlier_agents(stage: Stage, spec: RecipeSpec, done: Sequence[StageResult]) -> Stage:
    """Return the stage with the agents that earlier stages made where it names them."""
    trained = [
        (one, result.agent) for one, result in zip(spec.stages, done, strict=False) if isinstance(one, TrainStage)
    ]
    named = {before.agent: agent for before, agent in trained}

    def found(agent: Agent | None) -> Agent | None:
        return agent if agent is None or agent.id is not None else named.get(agent.name, agent)

    if not isinstance(stage, TrainStage):
        return stage.model_copy(update={"opponent": found(stage.opponent)})
    update: dict[str, Any] = {name: found(getattr(stage, name)) for name in ("reward_agent", "teacher_agent")}
    if stage.reward is not None:
        parts = tuple(part.model_copy(update={"agent": found(part.agent)}) for part in stage.reward.parts)
        update["reward"] = stage.reward.model_copy(update={"parts": parts})
    if stage.earlier is not None and stage.earlier.stage is not None:
        kept = {before.label: agent for before, agent in trained}[stage.earlier.stage]
        update["earlier"] = stage.earlier.model_copy(update={"agent": kept})
    return stage.model_copy(update=update)


def _seed(spec: RecipeSpec, index: int) -> int:
    """Return the seed of a training: another one where an earlier stage acts in its environment, so that it plays other tasks."""
    environments = [stage.environment for stage in spec.stages[: index + 1] if isinstance(stage, TrainStage)]
    before = 0 if environments[-1] is None else environments[:-1].count(environments[-1])
    return stable_seed(spec.seed, "stage", before) if before else spec.seed


def _spec_of(spec: RecipeSpec, stage: Stage, agent: Agent, name: str, index: int) -> TrainSpec | EvaluateSpec:
    """Return a stage as a job spec."""
    if isinstance(stage, TrainStage):
        return TrainSpec(
            **{field: getattr(stage, field) for field in TrainingInputs.model_fields},
            agent=agent,
            name=stage.agent or spec.name,
            output_dir=str(Path(spec.output_dir) / name),
            cache_dir=spec.cache_dir,
            seed=_seed(spec, index),
            actor_backend=spec.actor_backend,
            mirror=spec.mirror and f"{spec.mirror}/{name}",
        )
    return EvaluateSpec(
        agent=agent,
        endpoint=spec.endpoint,
        environment=stage.environment,
        split=stage.split,
        n_tasks=stage.n_tasks,
        repeats=stage.repeats,
        seed=stage.seed,
        sampling=stage.sampling or agent.sampling,
        max_turns=stage.max_turns,
        opponent=stage.opponent,
        opponent_endpoint=stage.opponent_endpoint,
    )


def _last_training(spec: RecipeSpec) -> int:
    return max((index for index, stage in enumerate(spec.stages) if isinstance(stage, TrainStage)), default=-1)


def _is_kept(spec: RecipeSpec, index: int) -> bool:
    stage = spec.stages[index]
    return isinstance(stage, TrainStage) and (stage.agent is not None or index == _last_training(spec))


def _stage_agent(agent: Agent, spec: RecipeSpec, index: int, folder: Path) -> Agent:
    """Return the stage's agent as it is stored. The last one is the recipe's result."""
    job_id = folder.parents[1].name
    stages = trained_by(spec.stages, index)
    steps = ", ".join(f"{stage.method} on {stage.dataset_id or stage.environment}" for stage in stages)
    is_last = index == _last_training(spec)
    measured = agent.description.partition("; ")[2]  # held-out accuracy of a reward model
    return agent.model_copy(
        update={
            "name": spec.name if is_last else stages[-1].agent or spec.name,
            "parent": spec.agent.id,
            "job_id": job_id if is_last else f"{job_id}/{folder.name}",
            "description": "; ".join(filter(None, (f"recipe of {spec.agent.id}: {steps}", measured)))[:2000],
        }
    )


def _conclude(spec: RecipeSpec, job_id: str, done: Sequence[StageResult]) -> JobResult:
    """Combine the last training, the last evaluation of its agent and a report of every stage."""
    results = [stage.result for stage in done]
    trained = [r for r, s in zip(results, spec.stages, strict=True) if isinstance(s, TrainStage)][-1:]
    measured = [result for result in results[_last_training(spec) + 1 :] if result.evaluation_id][-1:]
    facts: dict[str, Any] = {"report": {"stages": _report(spec, done)}}
    for result in trained:
        facts |= {"dataset_id": result.dataset_id, "final_loss": result.final_loss}
    for result in measured:
        facts |= result.model_dump(include={"evaluation_id", "success_rate", "n", "n_error", "n_unknown"})
    if count := sum(result.trajectories.count for result in results if result.trajectories):
        facts["trajectories"] = TrajectorySet(count=count, filter={"job_id": job_id})
    return JobResult(**facts)


def _report(spec: RecipeSpec, done: Sequence[StageResult]) -> list[dict[str, Any]]:
    return [
        {
            "stage": stage.label,
            "kind": stage.method if isinstance(stage, TrainStage) else stage.kind,
            "steps": finished.steps,
            "agent": finished.agent.name if finished.agent is not None and _is_kept(spec, index) else None,
            **finished.result.model_dump(mode="json", exclude_defaults=True, exclude={"trajectories"}),
        }
        for index, (stage, finished) in enumerate(zip(spec.stages, done, strict=False))
    ]
