"""Calibration: fit a scorer's values to people's labels, keep the map, and show how well it fits."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from quintain.datasets.selection import written_chars
from quintain.datasets.splits import task_key
from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.filters import TrajectoryFilter
from quintain.records.labels.calibration import Calibration, DomainFit
from quintain.records.wording import clip, shown
from quintain.scoring.calibration.fitting import ALL, FEW_LABELS, MIN_LABELS, FittedMaps, apply, fit_all, rater_warnings
from quintain.scoring.calibration.maps import method_of
from quintain.scoring.calibration.panel import JudgedRun, PanelChoice, choose_panel
from quintain.scoring.profiles import domain_of
from quintain.scoring.recorded import RecordedScorer, raw_value, source_of
from quintain.tools.jobs.plots import draw
from quintain.tools.labels.scorer_resolution import full_scorer_name, stored_scores_of
from quintain.tools.results import CalibrationResult
from quintain.tools.run_selection import RunFilter, select
from quintain.tools.services import Services

_CHUNK = 500
_CURVE_POINTS = 41
_MOST_PANELS = 4
_BAR = 20


class _Run(NamedTuple):
    """A run that has both."""

    score: float
    verdicts: dict[str, float]
    """Rater -> newest value."""
    domain: str
    task: str
    judges: dict[str, float]
    """Rater of the scorer -> newest value."""
    chars: int

    @property
    def label(self) -> float:
        return math.fsum(self.verdicts.values()) / len(self.verdicts)


def fit_calibration(
    services: Services,
    scorer: Annotated[str, Field(description="Whose scores to map.")],
    labels: Annotated[str, Field(description="Whose scores are true.")] = "people",
    filter: RunFilter = None,
    method: Annotated[Literal["auto", "isotonic", "platt"], Field(description="auto: cross-validated.")] = "auto",
    per_domain: Annotated[bool, Field(description="By domain too.")] = True,
) -> CalibrationResult:
    """Map a scorer's values to people's labels and report the held-out error. Default: every run with both."""
    mended, true = source_of(scorer), source_of(labels)
    if mended.scorer == true.scorer and (None in {mended.rater, true.rater} or mended.rater == true.rater):
        raise InvalidInput(
            f"expected a scorer and labels with verdicts of their own, got {shown(scorer)} and {shown(labels)}; give the scorer to "
            "mend and `labels='people'`, or two raters, such as people@NAME"
        )
    scorer, labels, cautions = _names(services, scorer, labels, filter)
    runs = list(_joined(services, scorer, labels, filter))
    _require_enough(services, runs, scorer, labels)
    chosen = choose_panel([JudgedRun(run.judges, run.label, run.chars, run.task) for run in runs])
    panel = chosen.panel if chosen is not None and chosen.better else None
    fitted = fit_all(
        [run.score for run in runs] if panel is None or chosen is None else chosen.held_out,
        [run.label for run in runs],
        [run.domain if per_domain else ALL for run in runs],
        method,
        groups=[run.task for run in runs],
    )
    if panel is not None:
        fitted = _from_plain_means(fitted, runs, per_domain=per_domain)
    raters = rater_warnings([run.verdicts for run in runs]) if source_of(labels).scorer == "people" else []
    warnings = (*cautions, *fitted.warnings, *raters)

    def make(version: int) -> Calibration:
        return Calibration(
            id=f"cal-{_slug(scorer)}-{version}",
            scorer=scorer,
            version=version,
            labels=labels,
            panel=panel,
            domains=fitted.domains,
            warnings=warnings,
        )

    calibration = services.store.calibrations.add(scorer, make, services.clock())
    return CalibrationResult(
        calibration_id=calibration.id,
        n_labels=len(runs),
        error_before=round(fitted.error_before, 6),
        error_after=round(fitted.error_after, 6),
        spearman=fitted.domains[ALL].spearman,
        domains={domain: _outline(found) for domain, found in calibration.domains.items()},
        panel={} if chosen is None else _panel_outline(chosen),
        warnings=warnings,
        resource_uri=f"calibration://{calibration.id}",
        next_step=_next(scorer, fitted),
    )


def calibration_of(services: Services, calibration_id: str) -> Calibration:
    """A stored calibration."""
    return services.store.calibrations.get(calibration_id)


def calibration_picture(services: Services, calibration_id: str) -> bytes:
    """The reliability diagram as PNG: mean label by mean score, the map, and the diagonal of a perfect scorer."""
    calibration = services.store.calibrations.get(calibration_id)
    panels = [_panel(calibration, domain, found) for domain, found in list(calibration.domains.items())[:_MOST_PANELS]]
    title = f"{calibration.scorer}: {calibration.labels} by score ({calibration.id})"
    return draw({"title": title, "panels": panels}, services.settings.home)


def calibration_table(services: Services, calibration_id: str) -> str:
    """The reliability diagram as text: mean score, mean label and mapped value for each range of scores."""
    calibration = services.store.calibrations.get(calibration_id)
    lines = []
    for domain, found in calibration.domains.items():
        name = "all domains" if domain == ALL else domain
        error = f"error {found.error_before:.4f} -> {found.error_after:.4f} held out"
        lines.append(f"{name}: {found.n_labels} labels, {method_of(found.map)}, {error}")
        for part in found.reliability:
            mapped = apply(calibration, part.mean_score, domain)
            bar = "".join("#" if i < round(part.mean_label * _BAR) else "." for i in range(_BAR))
            lines.append(
                f"  {part.low:.1f}-{part.high:.1f}  score {part.mean_score:.2f}  label {part.mean_label:.2f} {bar}  "
                f"map {mapped:.2f}  n {part.n}"
            )
    return "\n".join(lines)


def _joined(services: Services, scorer: str, labels: str, filter: TrajectoryFilter | None) -> Iterator[_Run]:
    """Every chosen run with a score and a label of its present content."""
    store = services.store
    both = store.scores.trajectories_scored_by((source_of(scorer).scorer, source_of(labels).scorer))
    chosen = store.trajectories.iterate(ids=both) if filter is None else select(services, filter, None)
    wanted = set(both)
    waiting = []
    for run in chosen:
        if run.id in wanted:
            waiting.append((run.id, domain_of(run), task_key(run), written_chars(run)))
        if len(waiting) == _CHUNK:
            yield from _paired(services, scorer, labels, waiting)
            waiting = []
    yield from _paired(services, scorer, labels, waiting)


def _paired(services: Services, scorer: str, labels: str, runs: Sequence[tuple[str, str, str, int]]) -> Iterator[_Run]:
    ids = [run_id for run_id, *_ in runs]
    values, true = stored_scores_of(services, scorer, ids), stored_scores_of(services, labels, ids)
    reader, raters = RecordedScorer(scorer, values), RecordedScorer(labels, true)
    for run_id, domain, task, chars in runs:
        value = reader.value(run_id)
        verdicts = {score.rater or labels: raw_value(score) for score in raters.newest(run_id)}
        if value is not None and verdicts:
            judges = {score.rater or scorer: raw_value(score) for score in reader.newest(run_id)}
            yield _Run(value, verdicts, domain, task, judges, chars)


def _names(
    services: Services, scorer: str, labels: str, filter: TrajectoryFilter | None
) -> tuple[str, str, tuple[str, ...]]:
    """Both by their full names, and what to know of the choice; labels by the rubric of the scores, where there are such."""
    if source_of(scorer).raw or source_of(labels).raw:
        raise InvalidInput("a calibration is always fitted to values before any calibration; leave 'raw:' out")
    mapped = full_scorer_name(services, scorer, filter)
    rubric = source_of(mapped.name).rubric
    same = source_of(labels).scorer
    if labels == same and rubric in services.store.scores.rubrics(same, filter) and rubric is not None:
        return mapped.name, f"{same}:{rubric}", mapped.warnings
    true = full_scorer_name(services, labels, filter)
    return mapped.name, true.name, (*mapped.warnings, *true.warnings)


def _require_enough(services: Services, runs: Sequence[_Run], scorer: str, labels: str) -> None:
    """Name the missing one of the two."""
    if len(runs) >= MIN_LABELS:
        return
    n_scored, n_labelled = (
        len(services.store.scores.trajectories_scored_by((source_of(name).scorer,))) for name in (scorer, labels)
    )
    remedy = Hint(
        "score more of the labelled runs: ",
        call("score_trajectories", scorer=clip(scorer), filter=...),
        f", or let people label runs that {clip(scorer)!r} has scored: ",
        call("get_judging_batch", limit=10, judge="person"),
    )
    missing = (
        f"{len(runs)} runs have both a score of {clip(scorer)!r} and a label of {clip(labels)!r}; a calibration needs at least "
        f"{MIN_LABELS}, better {FEW_LABELS}. In the store {n_scored:,} runs have scores and {n_labelled:,} have labels, of any "
        "rubric; "
    )
    raise InvalidInput(Hint(missing, remedy), code="too_few_labels")


def _outline(found: DomainFit) -> dict[str, Any]:
    return {
        "method": method_of(found.map),
        "n_labels": found.n_labels,
        "error_before": round(found.error_before, 6),
        "error_after": round(found.error_after, 6),
    }


def _from_plain_means(fitted: FittedMaps, runs: Sequence[_Run], *, per_domain: bool) -> FittedMaps:
    """Return the fit with the errors before it those of the raters' plain means, which the panel replaces."""

    def before(domain: str) -> float:
        own = [run for run in runs if domain == ALL or (per_domain and run.domain == domain)]
        return math.fsum((run.score - run.label) ** 2 for run in own) / len(own)

    domains = {
        domain: fit.model_copy(update={"error_before": before(domain)}) for domain, fit in fitted.domains.items()
    }
    return fitted._replace(domains=domains, error_before=before(ALL))


def _panel_outline(chosen: PanelChoice) -> dict[str, Any]:
    outline = chosen.panel.model_dump(mode="json", exclude={"doublings"})
    raters = {
        rater: {name: round(value, 4) if isinstance(value, float) else value for name, value in fit.items()}
        for rater, fit in outline["raters"].items()
    }
    return outline | {"raters": raters, "used": chosen.better}


def _next(scorer: str, fitted: FittedMaps) -> Hint:
    if fitted.error_after < fitted.error_before:
        return Hint(
            f"From now on this map is applied to the values of {scorer!r} wherever they are read: ",
            call("score_trajectories", scorer={scorer: 1}, filter=...),
            f" shows them. Exports and mined preferences take them by `scorer={scorer!r}`, and uncalibrated by 'raw:{scorer}'.",
        )
    label = call("get_judging_batch", limit=10, judge="person")
    return Hint("No map helps so far: label more runs with ", label, " and fit again.")


def _panel(calibration: Calibration, domain: str, found: DomainFit) -> dict[str, Any]:
    grid = [i / (_CURVE_POINTS - 1) for i in range(_CURVE_POINTS)]
    bins = found.reliability
    return {
        "title": f"{'all' if domain == ALL else domain}: n={found.n_labels}, "
        f"error {found.error_before:.3f} to {found.error_after:.3f}",
        "xlabel": f"score of {calibration.scorer}",
        "ylabel": f"label of {calibration.labels}",
        "lines": [
            {"label": "perfect", "x": [0, 1], "y": [0, 1]},
            {"label": f"map ({method_of(found.map)})", "x": grid, "y": [apply(calibration, x, domain) for x in grid]},
            {"label": "labels", "x": [part.mean_score for part in bins], "y": [part.mean_label for part in bins]},
        ],
    }


def _slug(scorer: str) -> str:
    """A scorer's name as part of an id; where letters are lost, a fingerprint keeps names apart."""
    kept = re.sub(r"[^a-z0-9]+", "-", scorer.lower())[:30].strip("-")
    return kept if kept == scorer else f"{kept}-{hashlib.sha256(scorer.encode()).hexdigest()[:6]}".lstrip("-")
