"""Job kinds `rollout` and `evaluate`: an agent acts in an environment, episode by episode.

Both resume: episodes in `outputs/` are not played again, nor are those with a verdict of a job that this one resumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quintain.environments.registry import open_source
from quintain.evaluation.episodes import Episode, EpisodePlan, EpisodeSettings, run_episodes
from quintain.evaluation.suites import Suite, plan_suite
from quintain.evaluation.summary import success_rate, summarize
from quintain.jobs.directory import output_records, run_name
from quintain.records.evaluation import EpisodeResult, Evaluation
from quintain.records.jobs.job import EvaluateSpec, JobResult, RolloutSpec, TrajectorySet
from quintain.records.protocols import Reply, Reporter, TaskSource, Turn
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.worker.actors.playing import ActingPlayer
from quintain.worker.actors.pool import ActorPool, actors_for
from quintain.worker.policies.creation import agent_info, as_games
from quintain.worker.policies.request_ledger import spending_report
from quintain.worker.rollouts.acting_reports import TurnReports, report_errors
from quintain.worker.rollouts.earlier_episodes import (
    RESULT,
    SETTINGS,
    EarlierEpisodes,
    settings_hash,
    taken_over_report,
    unplayed,
)
from quintain.worker.rollouts.exploration import Exploration

PRECISION = "precision"
"""Key of `Trajectory.extra` with the number format of a local model's weights while it acted."""

_KINDS = 20
"""Kinds of tasks in a job's report."""


def run(spec: RolloutSpec | EvaluateSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Play the planned episodes and output them. An evaluation ends with a summary of its results."""
    reporter.phase("preparing")
    return _Acting(spec, directory, reporter, open_source(spec.environment)).run()


@dataclass
class _Acting:
    spec: RolloutSpec | EvaluateSpec
    directory: Path
    reporter: Reporter
    source: TaskSource
    exploration: Exploration | None = None
    settings_hash: str = ""
    taken_over: int = 0
    """Episodes of the jobs that this one resumes."""

    def run(self) -> JobResult:
        spec, reporter = self.spec, self.reporter
        suite = plan_suite(
            self.source,
            split=spec.split,
            n_tasks=spec.n_tasks,
            repeats=spec.attempts if isinstance(spec, RolloutSpec) else spec.repeats,
            seed=spec.seed,
            max_turns=spec.max_turns,
            excluded=spec.excluded if isinstance(spec, EvaluateSpec) else (),
            opponent=None if spec.opponent is None else spec.opponent.id_or_name,
        )
        self.settings_hash = settings_hash(suite, spec)
        idle = self._solved_idly(suite.plans)
        suite = suite._replace(plans=tuple(plan for plan in suite.plans if plan.task.name not in idle))
        if spec.opponent is not None:
            suite = suite._replace(plans=tuple(as_games(spec, suite.plans, self.source)))
        if isinstance(spec, RolloutSpec):
            self.exploration = Exploration(spec, suite.plans, self.directory, reporter)
        results = list(self._finished_results())
        if left := unplayed(suite.plans, results):
            results += self._take_over(left, results, len(suite.plans))
        if left := unplayed(suite.plans, results):
            results += self._play(left, results, len(suite.plans))
        partly = {"episodes": len(results), "planned": len(suite.plans)} | taken_over_report(self.taken_over)
        if reporter.should_stop() and len(results) < len(suite.plans):
            return JobResult(report=partly)
        if self.exploration is not None and not self.exploration.finish():
            return JobResult(report=partly | {"stopped": "while scoring"})
        result = self._conclude(suite, results)
        return result.model_copy(update={"report": result.report | {"solved_without_a_call": idle}}) if idle else result

    def _solved_idly(self, plans: Sequence[EpisodePlan]) -> list[str]:
        """Return the ids of written tasks whose checks pass although nothing was done: they would reward any agent."""
        if not isinstance(self.spec, RolloutSpec) or not self.spec.written:
            return []
        self.reporter.phase("checking_tasks")
        once = [plan for plan in plans if plan.attempt == 0]
        settings = replace(episode_settings(self.spec, self.source, self.directory), max_turns=1)
        return [
            episode.result.task_id
            for episode in run_episodes(self.source, _IdlePolicy(), once, settings, self.reporter.should_stop)
            if episode.result.status is OutcomeStatus.SUCCESS
        ]

    def _play(self, plans: list[EpisodePlan], before: list[EpisodeResult], total: int) -> list[EpisodeResult]:
        settings = episode_settings(self.spec, self.source, self.directory)
        n = actors_for(self.source, self.spec.actors, settings.concurrency, len(plans), self.reporter)
        tally, fresh = tally_of(before), list[EpisodeResult]()
        with closing(self._player(plans, n)) as player:
            self.reporter.phase("acting")
            for wave in self.exploration.waves(plans) if self.exploration else [plans]:
                turns = TurnReports(self.reporter, before=tally.episodes, after=total - tally.episodes - len(wave))
                for played in player.play(wave, settings, turns):
                    episode = _checked_script(played) if self._plays_scripts else played
                    if episode.policy:
                        self.reporter.output("trajectory", episode.trajectory)
                        continue
                    self.reporter.output("trajectory", with_result(episode, player.precision, self.settings_hash))
                    if self.exploration:
                        self.exploration.record(episode.trajectory, episode.result.repeat)
                    fresh.append(episode.result)
                    tally.add(episode.result)
                    self.reporter.progress(tally.episodes, total, {}, tally.totals())
                if self.reporter.should_stop():
                    break
        return fresh

    @property
    def _plays_scripts(self) -> bool:
        return isinstance(self.spec, RolloutSpec) and self.spec.written and self.spec.agent.model.source == "expert"

    def _player(self, plans: list[EpisodePlan], n: int) -> ActingPlayer | ActorPool:
        """Return what plays: this process with the agent loaded, or `n` actors."""
        if n > 1:
            return ActorPool(self.spec, self.directory, self.reporter, n, self.spec.actor_backend)
        self.reporter.phase("loading_model")
        player = ActingPlayer(self.spec, self.directory, self.reporter, self.source)
        player.open(plans)
        return player

    def _take_over(self, plans: list[EpisodePlan], before: list[EpisodeResult], total: int) -> list[EpisodeResult]:
        """Return the results of those of these episodes that a job which this one resumes has played."""
        players = 1 if self.spec.opponent is None else 2
        earlier = EarlierEpisodes(self.directory, self.settings_hash, self.reporter, players=players)
        taken = list[EpisodeResult]()
        for run, result in earlier.take(plans):
            if self.exploration:
                self.exploration.record(run, result.repeat)
            taken.append(result)
        if taken:
            self.taken_over += len(taken)
            tally = tally_of([*before, *taken])
            self.reporter.progress(tally.episodes, total, {}, tally.totals())
        return taken

    def _finished_results(self) -> Iterator[EpisodeResult]:
        """Yield the results of episodes that an earlier attempt has written."""
        for _, fields in output_records(self.directory, "trajectory"):
            if RESULT not in fields["extra"]:  # of an opponent
                continue
            self.taken_over += fields["job_id"] != run_name(self.directory)
            result = EpisodeResult.model_validate(fields["extra"][RESULT])
            if self.exploration:
                self.exploration.record(Trajectory.model_validate(fields), result.repeat)
            yield result

    def _conclude(self, suite: Suite, results: list[EpisodeResult]) -> JobResult:
        spec = self.spec
        report_errors(results, spec.environment, self.reporter)
        counts = tally_of(results).counts
        players = 1 if spec.opponent is None else 2
        runs = TrajectorySet(count=len(results) * players, filter={"job_id": self.directory.name})
        report = spending_report(self.directory, spec.endpoint) if spec.endpoint is not None else {}
        report |= taken_over_report(self.taken_over)
        if isinstance(spec, RolloutSpec):
            report |= self.exploration.report() if self.exploration else {}
            report["rate"] = success_rate(results).model_dump(mode="json")
            return JobResult(trajectories=runs, report=report, **counts)
        evaluation = summarize(spec, suite, results, job_id=run_name(self.directory))
        self.reporter.output("evaluation", evaluation)
        report |= _report(evaluation)
        return JobResult(evaluation_id=evaluation.id, trajectories=runs, report=report, **counts)


class _IdlePolicy:
    """A policy that never calls a tool."""

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        return [Reply(text="I did nothing.", thought="I did nothing.") for _ in turns]

    def close(self, episode_id: str) -> None:
        pass


def episode_settings(spec: RolloutSpec | EvaluateSpec, source: TaskSource, directory: Path) -> EpisodeSettings:
    """Return the settings shared by all episodes of a job."""
    agent = spec.agent
    players = [spec.sampling, *([spec.opponent.sampling] if spec.opponent is not None else [])]
    return EpisodeSettings(
        seed=spec.seed,
        max_turns=spec.max_turns,
        concurrency=min(spec.concurrency, getattr(source, "at_once", None) or spec.concurrency),
        agent=agent_info(agent),
        system_prompt=agent.system_prompt,
        job_id=run_name(directory),
        tags=spec.tags if isinstance(spec, RolloutSpec) else ("evaluation",),
        forbidden=() if isinstance(spec, RolloutSpec) else spec.forbidden,
        greedy=isinstance(spec, EvaluateSpec) and not any(sampling.temperature for sampling in players),
    )


@dataclass
class Tally:
    """Running counts of the episodes, so that the cost of a progress report is constant."""

    episodes: int = 0
    errors: int = 0
    verdicts: int = 0
    successes: int = 0
    turns: int = 0

    def add(self, result: EpisodeResult) -> None:
        """Count an episode."""
        self.episodes += 1
        self.turns += result.turns
        self.errors += result.status is OutcomeStatus.ERROR
        if result.success is not None:
            self.verdicts += 1
            self.successes += result.success

    @property
    def success_rate(self) -> float | None:
        """Successes divided by verdicts; None without a verdict."""
        return self.successes / self.verdicts if self.verdicts else None

    @property
    def counts(self) -> dict[str, Any]:
        """Fields of a `JobResult`."""
        unknown = self.episodes - self.verdicts - self.errors
        return {"success_rate": self.success_rate, "n": self.verdicts, "n_error": self.errors, "n_unknown": unknown}

    def totals(self) -> dict[str, float | None]:
        """Return the figures of a progress report."""
        return {
            "success_rate": self.success_rate,
            "mean_turns": self.turns / self.episodes,
            "errors": float(self.errors),
            "unknown": float(self.episodes - self.verdicts - self.errors),
        }


def tally_of(results: Iterable[EpisodeResult]) -> Tally:
    """Count episodes."""
    tally = Tally()
    for result in results:
        tally.add(result)
    return tally


def _checked_script(episode: Episode) -> Episode:
    """Return the episode of a written script: without success where a call failed, whatever answer the script states then."""
    run = episode.trajectory
    failed = any(observation.is_error for step in run.steps for observation in step.observations)
    if not failed or episode.result.status is not OutcomeStatus.SUCCESS:
        return episode
    changed = {"status": OutcomeStatus.FAILURE, "reward": 0.0}
    outcome = run.outcome.model_copy(update=changed | {"exit_status": "script_error"})
    result = episode.result.model_copy(update=changed | {"failure": "bad_arguments"})
    return episode._replace(trajectory=run.model_copy(update={"outcome": outcome}), result=result)


def with_result(episode: Episode, precision: str | None = None, settings: str | None = None) -> Trajectory:
    """Return the episode's trajectory with its result in `extra`, the number format of a local model's weights, and the settings."""
    extra = {**episode.trajectory.extra, RESULT: episode.result.model_dump(mode="json", exclude_defaults=True)}
    if settings is not None:
        extra[SETTINGS] = settings
    if precision is not None:
        extra[PRECISION] = precision
    return episode.trajectory.model_copy(update={"extra": extra})


_GROUPED = {"by_type", "by_difficulty", "by_environment"}
_FIGURES = _GROUPED | {"rate", "failures", "pass_at_k", "pass_hat_k", "forbidden", "metrics"}


def _report(evaluation: Evaluation) -> dict[str, object]:
    """Return the figures of an evaluation that are known.

    Of many kinds of tasks, the most frequent are included; the evaluation contains all.
    """
    whole = evaluation.model_dump(mode="json", include=_FIGURES)
    for name in _GROUPED:
        frequent = sorted(whole[name].items(), key=lambda group: -group[1]["n"])[:_KINDS]
        whole[name] = dict(sorted(frequent))
    return {name: part for name, part in whole.items() if part}
