"""Job kind `influence`: how much training on each run would help a model on a set of target runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.errors import InvalidInput
from quintain.records.jobs.job import JobResult
from quintain.records.jobs.run_jobs import InfluenceSpec
from quintain.records.protocols import Reporter
from quintain.records.score import Component, Score
from quintain.records.trajectory import Trajectory
from quintain.scoring.rank_statistics import spearman
from quintain.scoring.recorded import INFLUENCE
from quintain.worker.job_inputs import open_run_inputs, read_scores, score_each

if TYPE_CHECKING:
    from quintain.trainers.influence import GradientModel, Targets


def run(spec: InfluenceSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Read the gradients of the targets, then output a score for each remaining run.

    Raises:
        InvalidInput: A file of runs has changed, or no target can be read.
    """
    reporter.phase("preparing")
    runs, wanted = open_run_inputs(spec.runs), open_run_inputs(spec.targets)
    reporter.phase("loading_model")
    from quintain.trainers.influence import GradientModel, Targets

    model = GradientModel.of(spec.agent, spec.dims, spec.seed)
    reporter.phase("reading_targets")
    targets = Targets()
    for n, one in enumerate(wanted.stream(), 1):
        targets.add(model, one)
        reporter.progress(n, wanted.n, {})
        if reporter.should_stop():
            return JobResult(report={"targets": n, "planned": runs.n})
    if not targets.features:
        raise InvalidInput(
            f"expected targets that can be trained on, got {wanted.n} others: {next(iter(targets.unread.values()))}; give another "
            "dataset as `target`",
            code="no_targets",
        )
    reporter.phase("scoring")
    scored = score_each(
        runs, directory, reporter, partial(map, partial(_score, spec=spec, model=model, targets=targets))
    )
    if not scored.is_whole:
        return JobResult(report={"scored": scored.valued, "planned": runs.n})
    parts = [score.components for score in read_scores(directory) if score.value is not None]
    by_gradient, by_text = ([part[k].value or 0.0 for part in parts] for k in (0, 1))
    read = len(targets.features) + scored.valued
    report = {
        "runs": runs.n,
        "scored": scored.valued,
        "unscored": scored.n - scored.valued,
        "targets": len(targets.features),
        "targets_unread": len(targets.unread),
        "dims": model.sketch.dims,
        "weights": sum(parameter.numel() for parameter in model.parameters),
        "text_spearman": spearman(by_gradient, by_text),
        "gradient_ms_per_run": round(1000 * model.gradient_s / read, 2) if read else None,
        "text_ms_per_run": round(1000 * model.text_s / read, 2) if read else None,
    }
    return JobResult(n=scored.valued, n_error=scored.n - scored.valued, report=report)


def _score(run: Trajectory, spec: InfluenceSpec, model: GradientModel, targets: Targets) -> Score:
    run_id, rater = run.id or run.identity, spec.agent.id_or_name
    features = model.read(run)
    similarity = None if isinstance(features, str) else targets.similarity(run_id, features)
    if similarity is None:
        reason = features if isinstance(features, str) else "it is the only target"
        return Score(trajectory_id=run_id, scorer=INFLUENCE, status="unscored", reason=reason, rater=rater)
    value, by_text = ((1 + cosine) / 2 for cosine in similarity)
    return Score(
        trajectory_id=run_id,
        scorer=INFLUENCE,
        status="scored",
        value=min(1.0, max(0.0, value)),
        components=(
            Component(name="gradient", weight=1.0, value=value),
            Component(name="text", weight=0.0, value=by_text, feedback="similarity of the texts: the cheap stand-in"),
        ),
        feedback=f"mean cosine {similarity.gradient:+.3f} to the gradients of {len(targets.features)} targets, "
        f"{similarity.text:+.3f} to their texts",
        rater=rater,
    )
