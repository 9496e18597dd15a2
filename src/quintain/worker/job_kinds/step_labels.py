"""Job kind `step_labels`: the value of each step of a run, estimated by completing the run many times from it.

The value of a step is the success rate of completions that start directly after it (Wang et al. 2023, arXiv 2312.08935,
soft estimation). The step itself is included, so its value reflects what it makes possible, and the completing agent sees
the environment's response to it. The run is replayed in a new environment first. If this responds differently from the
recording, the run is unscored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from quintain.environments.registry import open_source
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, replay, run_episodes
from quintain.evaluation.replay_divergence import is_idle, turn_prefixes
from quintain.jobs.directory import run_name
from quintain.records.jobs.job import JobResult, StepLabelSpec
from quintain.records.protocols import Policy, Reporter, TaskSource
from quintain.records.score import Score, StepScore
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import AgentInfo, Step, Trajectory
from quintain.scoring.recorded import MONTECARLO
from quintain.worker.job_inputs import open_run_inputs, score_each
from quintain.worker.policies.request_ledger import spending_report
from quintain.worker.rollouts.acting_reports import TurnReports


def run(spec: StepLabelSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Estimate the step values of the remaining runs, and output a score with step scores for each."""
    reporter.phase("preparing")
    source = open_source(spec.environment)
    runs = open_run_inputs(spec.runs)
    reporter.phase("loading_model")
    from quintain.worker.policies.creation import policy_of_job

    labeler = _Labeler(spec, directory, reporter, source, policy_of_job(spec, directory, reporter))
    reporter.phase("playing_on")
    scored = score_each(runs, directory, reporter, partial(map, labeler.score))
    if not scored.is_whole:
        return JobResult(report={"valued": scored.valued, "planned": runs.n})
    unscored = scored.n - scored.valued
    report = {"runs": runs.n, "valued": scored.valued, "unscored": unscored, "completions": spec.completions}
    if spec.endpoint is not None:
        report |= spending_report(directory, spec.endpoint)
    return JobResult(n=scored.valued, n_error=unscored, report=report)


@dataclass(frozen=True)
class _Labeler:
    spec: StepLabelSpec
    directory: Path
    reporter: Reporter
    source: TaskSource
    policy: Policy

    def score(self, run: Trajectory) -> Score | None:
        """Return the score of a run, or None if the job was asked to stop."""
        spec = self.spec
        rater = spec.agent.id_or_name
        settings = EpisodeSettings(
            seed=stable_seed(spec.seed, "step_labels", run.id or run.identity),
            max_turns=spec.max_turns,
            concurrency=spec.concurrency,
            agent=AgentInfo(name=spec.agent.name, model=rater),
            system_prompt=spec.agent.system_prompt,
            job_id=run_name(self.directory),
        )
        about = {"trajectory_id": run.id or run.identity, "scorer": MONTECARLO, "rater": rater}
        prefixes = turn_prefixes(run)
        reason = _unfit(run, spec)
        if reason is None:
            whole = replay(self.source, EpisodePlan(run.task, prefix=prefixes[-1]), settings)
            reason = whole.error and f"cannot replay its steps in {self.source.id}: {whole.error}"
        if reason is not None:
            return Score(**about, status="unscored", reason=reason)
        last = whole.status.verdict if whole.status else None  # a finished run needs no completions
        counts = self._play_on(run, settings, prefixes if whole.status is None else prefixes[:-1])
        if counts is None:
            return None
        steps = [_step(place, *count) for place, count in enumerate(counts)]
        if whole.status is not None:
            ending = f"the run ends here: {whole.status.value}"
            steps.append(StepScore(step=len(steps), value=last, feedback=ending))
        known = [step.value for step in steps if step.value is not None]
        return Score(
            **about,
            status="scored" if known else "unscored",
            value=sum(known) / len(known) if known else None,
            reason=None if known else f"no completion has a verdict in {self.source.id}",
            feedback=f"mean over {len(known)} steps, {spec.completions} completions each",
            steps=tuple(steps) if known else (),
        )

    def _play_on(
        self, run: Trajectory, settings: EpisodeSettings, prefixes: list[tuple[Step, ...]]
    ) -> list[tuple[int, int]] | None:
        """Return (successes, verdicts) of the completions of each prefix, or None if the job was asked to stop."""
        n, reporter = self.spec.completions, self.reporter
        plans = [
            EpisodePlan(run.task, attempt, key=f"{place}/{attempt}", prefix=prefix)
            for place, prefix in enumerate(prefixes)
            for attempt in range(place * n, (place + 1) * n)
        ]
        played = run_episodes(
            self.source, self.policy, plans, settings, reporter.should_stop, on_turn=TurnReports(reporter)
        )
        verdicts = [episode.result.success for episode in played]
        if len(verdicts) < len(plans):
            return None
        of_step = [verdicts[place * n : (place + 1) * n] for place in range(len(prefixes))]
        return [(sum(v is True for v in step), sum(v is not None for v in step)) for step in of_step]


def _unfit(run: Trajectory, spec: StepLabelSpec) -> str | None:
    """Return why a run cannot be completed, or None."""
    if run.task.environment != spec.environment:
        return (
            f"it was recorded in {run.task.environment or 'no environment'}, but completions run in {spec.environment}"
        )
    return "the agent never acted in this run" if is_idle(run) else None


def _step(place: int, successes: int, n: int) -> StepScore:
    if not n:
        return StepScore(step=place, feedback="no completion has a verdict")
    return StepScore(step=place, value=successes / n, feedback=f"{successes} of {n} completions succeeded")
