"""The job kinds `rollout` and `evaluate`: an agent acts in an environment, episode by episode.

Both resume: episodes that stand in `outputs/` are not played again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from quintain.environments.registry import task_source
from quintain.evaluation.episodes import Episode, EpisodePlan, EpisodeSettings, run_episodes
from quintain.evaluation.suites import Suite, plan_suite
from quintain.evaluation.summary import summarize
from quintain.records.evaluation import EpisodeResult
from quintain.records.job import EvaluateSpec, JobResult, RolloutSpec, TrajectorySet
from quintain.records.seams import Reporter
from quintain.records.trajectory import AgentInfo, Trajectory

_RESULT = "episode_result"
"""Key of `Trajectory.extra` under which an episode's result travels, so that a resumed job can read it back."""


def run(spec: RolloutSpec | EvaluateSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Play the planned episodes and report them; an evaluation ends in a summary of its results."""
    reporter.phase("preparing")
    source = task_source(spec.environment)
    repeats = spec.attempts if isinstance(spec, RolloutSpec) else spec.repeats
    suite = plan_suite(
        source, split=spec.split, n_tasks=spec.n_tasks, repeats=repeats, seed=spec.seed, max_turns=spec.max_turns
    )
    results = list(_finished(directory))
    done = {(result.task_id, result.repeat) for result in results}
    left = [plan for plan in suite.plans if (plan.task.id, plan.attempt) not in done]
    if left:
        results += _play(spec, directory, reporter, left, results, len(suite.plans))
    if reporter.should_stop() and len(results) < len(suite.plans):
        return JobResult(report={"episodes": len(results), "planned": len(suite.plans)})
    return _conclude(spec, directory, reporter, suite, results)


def _play(
    spec: RolloutSpec | EvaluateSpec,
    directory: Path,
    reporter: Reporter,
    plans: list[EpisodePlan],
    before: list[EpisodeResult],
    total: int,
) -> list[EpisodeResult]:
    reporter.phase("loading_model")
    from quintain.trainers.policy import open_policy

    policy = open_policy(spec.agent, spec.sampling, seed=spec.seed)
    reporter.phase("acting")
    agent = spec.agent
    settings = EpisodeSettings(
        seed=spec.seed,
        max_turns=spec.max_turns,
        concurrency=spec.concurrency,
        agent=AgentInfo(name=agent.name, version=str(agent.version), model=agent.id),
        system_prompt=agent.system_prompt,
        job_id=directory.name,
        tags=spec.tags if isinstance(spec, RolloutSpec) else ("evaluation",),
    )
    fresh: list[EpisodeResult] = []
    for episode in run_episodes(task_source(spec.environment), policy, plans, settings, reporter.should_stop):
        reporter.output("trajectory", _carrying_result(episode))
        fresh.append(episode.result)
        reporter.progress(len(before) + len(fresh), total, _metrics([*before, *fresh]))
    return fresh


def _metrics(results: list[EpisodeResult]) -> dict[str, float | None]:
    verdicts = [result.success for result in results if result.success is not None]
    return {
        "success_rate": sum(verdicts) / len(verdicts) if verdicts else None,
        "mean_turns": sum(result.turns for result in results) / len(results),
        "errors": float(len(results) - len(verdicts)),
    }


def _carrying_result(episode: Episode) -> Trajectory:
    extra = {**episode.trajectory.extra, _RESULT: episode.result.model_dump(mode="json", exclude_defaults=True)}
    return episode.trajectory.model_copy(update={"extra": extra})


def _finished(directory: Path) -> Iterator[EpisodeResult]:
    """Results of the episodes that an earlier attempt has written."""
    path = directory / "outputs" / "trajectory.jsonl"
    if not path.exists():
        return
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield EpisodeResult.model_validate(json.loads(line)["record"]["extra"][_RESULT])


def _conclude(
    spec: RolloutSpec | EvaluateSpec, directory: Path, reporter: Reporter, suite: Suite, results: list[EpisodeResult]
) -> JobResult:
    errors = sum(result.success is None for result in results)
    made = TrajectorySet(count=len(results), filter={"job_id": directory.name})
    if isinstance(spec, RolloutSpec):
        verdicts = [result.success for result in results if result.success is not None]
        rate = sum(verdicts) / len(verdicts) if verdicts else None
        return JobResult(trajectories=made, success_rate=rate, n=len(verdicts), n_error=errors)
    evaluation = summarize(spec, suite, results, job_id=directory.name)
    reporter.output("evaluation", evaluation)
    return JobResult(
        evaluation_id=evaluation.id,
        trajectories=made,
        success_rate=evaluation.rate.value,
        n=evaluation.rate.n,
        n_error=errors,
    )
