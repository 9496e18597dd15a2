"""Job kind `compare`: two agents play the same tasks in turn until their comparison is decided.

Both play a few tasks, then the results so far are tested; the test stays valid under such looks. Resumes: episodes in `outputs/`
are not played again, nor are those with a verdict of a job that this one resumes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from quintain.environments.registry import open_source
from quintain.evaluation.comparison import compare, decide
from quintain.evaluation.episodes import EpisodePlan, run_episodes
from quintain.evaluation.suites import Suite, plan_suite, suite_of
from quintain.evaluation.summary import summarize
from quintain.jobs.directory import STAGES, output_records, run_name
from quintain.records.evaluation import EpisodeResult, Evaluation, SequentialTest
from quintain.records.jobs.job import CompareSpec, EvaluateSpec, JobResult, TrajectorySet
from quintain.records.protocols import Policy, Reporter, TaskSource
from quintain.records.trajectory import Task
from quintain.worker.actors.playing import expert_policy
from quintain.worker.job_kinds.rollouts import episode_settings, with_result
from quintain.worker.policies.creation import policy_of_job
from quintain.worker.policies.request_ledger import spending_report
from quintain.worker.rollouts.acting_reports import TurnReports, report_errors
from quintain.worker.rollouts.earlier_episodes import (
    RESULT,
    EarlierEpisodes,
    settings_hash,
    taken_over_report,
    unplayed,
)


def run(spec: CompareSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Play until the comparison is decided, or all planned tasks are played; output both evaluations and the comparison."""
    reporter.phase("preparing")
    source = open_source(spec.a.environment)
    suite = plan_suite(
        source,
        split=spec.a.split,
        n_tasks=spec.a.n_tasks,
        repeats=1,
        seed=spec.a.seed,
        max_turns=spec.a.max_turns,
    )
    sides = [_Side(name, side, source, directory, reporter, suite) for name, side in (("a", spec.a), ("b", spec.b))]
    tasks = [plan.task for plan in suite.plans]
    test, played = None, 0
    while played < len(tasks) and (test is None or test.decision == "undecided"):
        look = tasks[played : played + spec.tasks_per_look]
        for side in sides:
            side.play(look, remaining=len(tasks) - played - len(look))
        if reporter.should_stop():
            return JobResult(report={"tasks": played, "planned": len(tasks)} | _taken_over(sides))
        played += len(look)
        order = [task.name for task in tasks[:played]]
        test = decide(sides[0].results, sides[1].results, order, spec.a.repeats, len(tasks))
        reporter.progress(played, len(tasks), _figures(test))
    assert test is not None
    suite = suite_of(source, tasks[:played], repeats=spec.a.repeats, max_turns=spec.a.max_turns)
    evaluations, report = list[Evaluation](), dict[str, object]()
    for side in sides:
        evaluations.append(side.evaluate(suite))
        if side.spec.endpoint is not None:
            report[f"spent_{side.name}"] = spending_report(side.folder, side.spec.endpoint)
    names = [side.spec.agent.id_or_name for side in sides]
    comparison = compare(evaluations, names, spec.comparison_id, None, sequential=test)
    reporter.output("comparison", comparison)
    report |= {"sequential": test.model_dump(mode="json"), "evaluations": [item.id for item in evaluations]}
    report |= _taken_over(sides)
    n = sum(len(side.results) for side in sides)
    runs = TrajectorySet(count=n, filter={"job_id": directory.name})
    return JobResult(comparison_id=comparison.id, trajectories=runs, report=report)


def _taken_over(sides: Sequence[_Side]) -> dict[str, object]:
    return taken_over_report(sum(side.taken_over for side in sides))


class _Side:
    """One of the two agents, with its results so far."""

    def __init__(
        self,
        name: str,
        spec: EvaluateSpec,
        source: TaskSource,
        directory: Path,
        reporter: Reporter,
        suite: Suite,
    ) -> None:
        self.name, self.spec = name, spec
        self.folder = directory / STAGES / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self._source, self._directory, self._reporter, self._suite = source, directory, reporter, suite
        self._policy: Policy | None = None
        self._settings = settings_hash(suite, spec)
        self.taken_over = 0
        """Episodes of the jobs that this one resumes."""
        self.results = list(self._finished())
        self._earlier = EarlierEpisodes(directory, self._settings, reporter, side=name)

    def play(self, tasks: list[Task], *, remaining: int) -> None:
        """Play the episodes of these tasks that have no result yet, neither here nor in a job that this one resumes."""
        spec, reporter = self.spec, self._reporter
        side = f"{run_name(self._directory)}/{self.name}"
        plans = [
            EpisodePlan(task, repeat, key=f"{side}/{task.name}/{repeat}")
            for repeat in range(spec.repeats)
            for task in tasks
        ]
        for _, result in self._earlier.take(unplayed(plans, self.results)):
            self.taken_over += 1
            self.results.append(result)
        plans = unplayed(plans, self.results)
        if not plans or reporter.should_stop():
            return
        policy = self._open()
        reporter.phase("acting")
        settings = episode_settings(spec, self._source, self._directory)
        turns = TurnReports(reporter, before=len(self.results), after=remaining * spec.repeats)
        for episode in run_episodes(self._source, policy, plans, settings, reporter.should_stop, on_turn=turns):
            reporter.output("trajectory", with_result(episode, getattr(policy, "precision", None), self._settings))
            self.results.append(episode.result)

    def evaluate(self, suite: Suite) -> Evaluation:
        """Output and return the evaluation of what was played."""
        report_errors(self.results, self.spec.environment, self._reporter)
        job = run_name(self._directory)
        evaluation = summarize(self.spec, suite, self.results, job_id=f"{job}-{self.name}")
        evaluation = evaluation.model_copy(update={"job_id": job})
        self._reporter.output("evaluation", evaluation)
        return evaluation

    def _open(self) -> Policy:
        if self._policy is None:
            self._reporter.phase("loading_model")
            self._policy = policy_of_job(
                self.spec,
                self.folder,
                self._reporter,
                lambda: expert_policy(self.spec.environment, self._source, self._suite.plans),
            )
        return self._policy

    def _finished(self) -> Iterator[EpisodeResult]:
        """Yield the results of the agent's episodes that an earlier attempt has written."""
        for _, fields in output_records(self._directory, "trajectory"):
            if fields["episode_key"].startswith(f"{fields['job_id']}/{self.name}/"):
                self.taken_over += fields["job_id"] != run_name(self._directory)
                yield EpisodeResult.model_validate(fields["extra"][RESULT])


def _figures(test: SequentialTest) -> dict[str, float | None]:
    """Return the points of the job's curves; the confidence sequence is drawn as the bounds of the difference."""
    return {
        "difference": test.difference,
        "difference_low": test.ci_low,
        "difference_high": test.ci_high,
        "e_value": test.e_value,
    }
