"""Calibration: a map from a scorer's values to people's labels, with the held-out error.

Held-out errors are of cross-validation by task: the runs of a task are never on both sides. Where the method is chosen by
the data, it is chosen anew inside of each fold (nested cross-validation), so that the choice does not flatter the error.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.labels.calibration import Calibration, CalibrationMap, DomainFit, ReliabilityBin
from quintain.records.seeds import stable_seed
from quintain.records.wording import list_names
from quintain.scoring.calibration.maps import UNCHANGED, fit_isotonic, fit_platt, value_of
from quintain.scoring.rank_statistics import spearman, variance

Method = Literal["auto", "isotonic", "platt"]

ALL = "*"
"""The domain of the map for every domain without its own."""
MIN_LABELS = 10
"""With fewer labels nothing is fitted."""
FEW_LABELS = 50
"""With fewer, a warning; and `auto` does not try isotonic regression, which needs more labels than a sigmoid
(Niculescu-Mizil and Caruana 2005)."""
MIN_DOMAIN_LABELS = 30
"""Labels that a domain needs for its own map."""
MAX_RATER_SPREAD = 0.25
"""Standard deviation of the raters of one run above which they count as disagreeing."""

_BINS = 10
_FOLDS = 5
"""Parts of the cross-validation; with few tasks each task is left out in turn."""
_LEAVE_ONE_OUT = 30
_TIE = 0.01
"""By how much, relatively, isotonic regression must beat the sigmoid."""
_FITS: dict[str, Callable[[Sequence[float], Sequence[float]], CalibrationMap]] = {
    "isotonic": fit_isotonic,
    "platt": fit_platt,
}


class FittedMaps(NamedTuple):
    """The maps, and what they do over all labels together."""

    domains: dict[str, DomainFit]
    error_before: float
    error_after: float
    warnings: tuple[str, ...]


class _Labelled(NamedTuple):
    """Scores and labels of runs, and the task of each."""

    x: list[float]
    y: list[float]
    group: list[str]

    def take(self, places: Sequence[int]) -> _Labelled:
        return _Labelled(*([values[i] for i in places] for values in self))  # type: ignore[arg-type]


def fit_all(
    scores: Sequence[float],
    labels: Sequence[float],
    domains: Sequence[str],
    method: Method = "auto",
    *,
    groups: Sequence[str] | None = None,
) -> FittedMaps:
    """Fit a map for each domain with labels enough, and one (`*`) for all others.

    A domain gets its own map where it has `MIN_DOMAIN_LABELS` labels and its held-out error is below that of the
    common map on the same runs. A map that does not lower the held-out error is not used: the scores stay as they are.

    Args:
        scores: The scorer's value of each run, in 0..1.
        labels: People's label of each run, in 0..1.
        domains: The domain of each run; all `*`: no maps by domain.
        method: auto: of sigmoid, isotonic regression and no change, the one with the least error in cross-validation.
        groups: The task of each run, whose runs stay in one fold; None: every run by itself.

    Raises:
        InvalidInput: fewer than `MIN_LABELS` labels, values outside of 0..1, or an unknown method.
    """
    data = _checked(scores, labels, groups or [str(i) for i in range(len(scores))])
    if len(domains) != len(data.x) or method not in {"auto", *_FITS}:
        raise InvalidInput(
            f"expected a domain for each of {len(data.x)} scores and method auto, {' or '.join(_FITS)}, got {len(domains)} "
            f"domains and method {method!r}; correct the call"
        )
    warnings = _cautions(data)
    common, predicted = _fit(data, method)
    fitted, shared = {ALL: common}, {}
    for domain, n in sorted(Counter(domains).items()):
        if domain == ALL:
            continue
        places = [i for i, name in enumerate(domains) if name == domain]
        if n < MIN_DOMAIN_LABELS:
            shared[domain] = f"{n} labels of {MIN_DOMAIN_LABELS}"
            continue
        part = data.take(places)
        own, own_predicted = _fit(part, method)
        by_common = squared_error([predicted[i] for i in places], part.y)
        if own.error_after >= by_common:
            shared[domain] = f"held-out error {own.error_after:.4f}, {by_common:.4f} with the common map"
            continue
        fitted[domain] = own
        for i, value in zip(places, own_predicted, strict=True):
            predicted[i] = value
    if shared:
        reasons = [f"{domain} ({why})" for domain, why in shared.items()]
        warnings.append(f"No map of their own, the common one serves: {list_names(reasons, 8)}.")
    before, after = squared_error(data.x, data.y), squared_error(predicted, data.y)
    if all(found.map == UNCHANGED for found in fitted.values()):
        warnings.append(
            f"No map lowers the held-out error of {before:.4f}, so scores stay as they are; label more runs, or mend the scorer."
        )
    return FittedMaps(fitted, before, after, tuple(warnings))


def apply(calibration: Calibration, value: float, domain: str) -> float:
    """Return the calibrated value of a score in a domain, in 0..1.

    Raises:
        InvalidInput: a value that is not in 0..1.
    """
    if not 0 <= value <= 1:
        raise InvalidInput(f"the score is {value!r}; calibration {calibration.id} maps values in 0..1")
    return value_of(calibration.domains.get(domain, calibration.domains[ALL]).map, value)


def rater_warnings(verdicts: Sequence[Mapping[str, float]]) -> list[str]:
    """Return what to know of the people behind the labels, from each run's values by rater."""
    raters = {rater for run in verdicts for rater in run}
    if len(raters) < 2:
        (one,) = raters or {"nobody"}
        return [
            f"All labels are {one}'s: the map learns one person's taste; let another rater judge some of the runs too."
        ]
    spreads = [variance(list(run.values())) for run in verdicts if len(run) > 1]
    if not spreads:
        return [f"No run was judged by two of the {len(raters)} raters, so their agreement is unknown."]
    spread = math.sqrt(math.fsum(spreads) / len(spreads))
    if spread > MAX_RATER_SPREAD:
        return [
            f"Raters disagree: the standard deviation within a run is {spread:.2f} over {len(spreads)} runs (at most "
            f"{MAX_RATER_SPREAD} is usual), and no map can be closer to them; sharpen the rubric."
        ]
    return []


def reliability(scores: Sequence[float], labels: Sequence[float]) -> tuple[ReliabilityBin, ...]:
    """Mean score and mean label in ten equal ranges of the score; empty ranges are left out."""
    members: dict[int, list[int]] = defaultdict(list)
    for i, score in enumerate(scores):
        members[min(_BINS - 1, int(score * _BINS))].append(i)
    return tuple(
        ReliabilityBin(
            low=b / _BINS,
            high=(b + 1) / _BINS,
            n=len(places),
            mean_score=math.fsum(scores[i] for i in places) / len(places),
            mean_label=math.fsum(labels[i] for i in places) / len(places),
        )
        for b, places in sorted(members.items())
    )


def _checked(scores: Sequence[float], labels: Sequence[float], groups: Sequence[str]) -> _Labelled:
    if not len(scores) == len(labels) == len(groups):
        raise InvalidInput(
            f"{len(scores)} scores, {len(labels)} labels, {len(groups)} groups; give one of each for every run"
        )
    if len(scores) < MIN_LABELS:
        raise InvalidInput(
            Hint(
                f"{len(scores)} runs have both a score and a label; a calibration needs at least {MIN_LABELS}, better "
                f"{FEW_LABELS}; get more labels with ",
                call("get_judging_batch", limit=5, judge="person"),
            ),
            code="too_few_labels",
        )
    for name, values in (("score", scores), ("label", labels)):
        for value in values:
            if not 0 <= value <= 1:
                raise InvalidInput(f"a {name} is {value!r}; every {name} must be in 0..1")
    return _Labelled(list(map(float, scores)), list(map(float, labels)), list(groups))


def _cautions(data: _Labelled) -> list[str]:
    n, warnings = len(data.x), []
    if n < FEW_LABELS:
        warnings.append(f"Only {n} labels: the held-out error is uncertain; {FEW_LABELS} or more are better.")
    for name, values in (("score", data.x), ("label", data.y)):
        if min(values) == max(values):
            warnings.append(f"Every {name} is {values[0]:g}: there is nothing to fit; take runs that differ.")
    relation = spearman(data.x, data.y)
    if relation is not None and relation < 0:
        warnings.append(f"Labels fall where scores rise (Spearman {relation:.2f}): the scorer points the wrong way.")
    if n > len(set(data.group)) == 1:
        warnings.append("All runs are of one task: the held-out error does not cover other tasks.")
    return warnings


def _fit(data: _Labelled, method: Method) -> tuple[DomainFit, list[float]]:
    """The fit of one domain, and the value of each run by maps that were not fitted to its task."""
    found, predicted = UNCHANGED, data.x
    if min(data.x) < max(data.x) and min(data.y) < max(data.y):
        candidate = _map(data, method)
        held_out = _held_out(data, method)
        if squared_error(held_out, data.y) < squared_error(data.x, data.y):
            found, predicted = candidate, held_out
    return (
        DomainFit(
            map=found,
            n_labels=len(data.x),
            error_before=squared_error(data.x, data.y),
            error_after=squared_error(predicted, data.y),
            spearman=spearman(data.x, data.y),
            reliability=reliability(data.x, data.y),
        ),
        list(predicted),
    )


def _map(data: _Labelled, method: Method) -> CalibrationMap:
    if method != "auto":
        return _FITS[method](data.x, data.y)
    tried = ("platt",) if len(data.x) < FEW_LABELS else ("platt", "isotonic")
    best, least = None, squared_error(data.x, data.y)
    for name in tried:
        error = squared_error(_held_out(data, name), data.y)  # type: ignore[arg-type]
        if error < least * (1 - _TIE * (best is not None)):
            best, least = name, error
    return _FITS[best](data.x, data.y) if best else UNCHANGED


def _held_out(data: _Labelled, method: Method) -> list[float]:
    """The value of each run by a map that was fitted to the other folds."""
    predicted = [0.0] * len(data.x)
    for fold in task_folds(data.group):
        left_out = set(fold)
        trained = _map(data.take([i for i in range(len(data.x)) if i not in left_out]), method)
        for i in fold:
            predicted[i] = value_of(trained, data.x[i])
    return predicted


def task_folds(groups: Sequence[str]) -> list[list[int]]:
    """Return places by fold in a stable random order, groups whole; each group by itself where there are few."""
    members: dict[str, list[int]] = defaultdict(list)
    for i, group in enumerate(groups):
        members[group].append(i)
    if len(members) == 1:
        members = {str(i): [i] for i in range(len(groups))}
    if len(members) < _LEAVE_ONE_OUT:
        return list(members.values())
    order = sorted(members, key=lambda group: stable_seed(0, group))
    parts: list[list[int]] = [[] for _ in range(_FOLDS)]
    for place, group in enumerate(order):
        parts[place % _FOLDS] += members[group]
    return parts


def squared_error(predicted: Sequence[float], labels: Sequence[float]) -> float:
    """Return the mean squared difference of predictions and labels (Brier 1950)."""
    return math.fsum((p - y) ** 2 for p, y in zip(predicted, labels, strict=True)) / len(labels)
