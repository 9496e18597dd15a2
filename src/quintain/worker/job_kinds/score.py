"""Job kind `score`: a reward model or step model values runs, or a local model judges them by a rubric."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from quintain.endpoints.completion import Spent
from quintain.records.jobs.job import JobResult
from quintain.records.jobs.run_jobs import ScoreSpec
from quintain.records.protocols import Reporter
from quintain.records.trajectory import Trajectory
from quintain.worker.job_inputs import open_run_inputs, score_each
from quintain.worker.judging.asking import Verdicts
from quintain.worker.judging.judgements import run_judging
from quintain.worker.judging.reward_judges import BATCH, local_judging


def run(spec: ScoreSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Score the runs that are left, and write scores or preferences."""
    reporter.phase("preparing")
    return _by_head(spec, directory, reporter) if spec.rubric is None else _by_rubric(spec, directory, reporter)


def _by_head(spec: ScoreSpec, directory: Path, reporter: Reporter) -> JobResult:
    runs = open_run_inputs(spec.runs)
    reporter.phase("loading_model")
    from quintain.trainers.reward_models import score_runs

    reporter.phase("scoring")
    n, valued, is_whole = score_each(runs, directory, reporter, partial(score_runs, spec.agent))
    if not is_whole:
        return JobResult(report={"scored": valued, "planned": runs.n})
    return JobResult(n=valued, n_error=n - valued, report={"runs": runs.n, "scored": valued, "unscored": n - valued})


def _by_rubric(spec: ScoreSpec, directory: Path, reporter: Reporter) -> JobResult:
    reporter.phase("loading_model")
    judging = local_judging(spec.agent, spec, spec.seed)

    def verdicts(items: Iterator[tuple[Trajectory, ...]]) -> Iterator[Verdicts]:
        while not reporter.should_stop() and (batch := list(islice(items, BATCH))):
            yield from judging.judge(batch)

    return run_judging(spec, directory, reporter, verdicts, Spent, lambda _: None)
