"""Labels of agent steps and parts of pairs, for training reward models, and the heads that learn them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from quintain.errors import InvalidInput
from quintain.records.dataset import PairRow, Row, StepLabelRow
from quintain.records.score import Score, StepScore
from quintain.records.trajectory import Trajectory
from quintain.records.wording import list_names


class StepLabels(NamedTuple):
    """Labels of the agent's steps of a run, in order."""

    labels: tuple[float | None, ...]
    parts: tuple[dict[str, float] | None, ...] = ()
    """Component of the verdict on a step -> value in 0..1; empty if no step has components."""


def recorded_labels(run: Trajectory) -> tuple[float | None, ...]:
    """Return the recorded reward of each agent step; None if missing or not trainable."""
    return tuple(None if step.is_masked else step.reward for step in run.agent_steps)


def outcome_labels(run: Trajectory, value: float) -> tuple[float | None, ...]:
    """Return the value of the whole run, 1 for success and 0 for failure, as the label of each agent step.

    The outcome is a weak label for steps: good steps of failed runs count as bad.
    """
    return tuple(None if step.is_masked else value for step in run.agent_steps)


def score_labels(run: Trajectory, scores: Sequence[Score]) -> StepLabels:
    """Return the mean verdict of the raters on each agent step, from each rater's newest score with steps."""
    newest: dict[str | None, Score] = {}
    for score in scores:
        if score.steps:
            newest.setdefault(score.rater, score)
    verdicts: defaultdict[int, list[StepScore]] = defaultdict(list)
    for score in newest.values():
        for verdict in score.steps:
            verdicts[verdict.step].append(verdict)
    labels, parts = list[float | None](), list[dict[str, float] | None]()
    for place, step in enumerate(run.agent_steps):
        scores_of_step = [] if step.is_masked else verdicts[place]
        values = [one.value for one in scores_of_step if one.value is not None]
        labels.append(fmean(values) if values else None)
        names = dict.fromkeys(name for one in scores_of_step for name in one.parts)
        parts.append(
            {name: fmean(one.parts[name] for one in scores_of_step if name in one.parts) for name in names} or None
        )
    return StepLabels(tuple(labels), tuple(parts) if any(parts) else ())


def step_values_of(run: Trajectory, values: Sequence[float | None]) -> list[float | None]:
    """Return the value of each agent step: those of a row, else the recorded rewards."""
    return list(values) if values else [step.reward for step in run.agent_steps]


def unweighted_reason(values: Sequence[float | None], *, positive: bool = False) -> str | None:
    """Return why the values of a run's steps rank none of them; None if they do.

    Args:
        values: One per agent step; None where unknown.
        positive: Whether their mean has to be above 0, as for weights.
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return "no_step_values"
    if len(known) < 2:
        return "one_step_value"
    if max(known) - min(known) <= 1e-9 * max(map(abs, known)):
        return "equal_step_values"
    return "step_values_not_positive" if positive and fmean(known) <= 0 else None


def labels_of(row: StepLabelRow) -> list[dict[str, float | None]]:
    """Return head -> label of each agent step: `value` is the label itself, the others are its parts."""
    parts = row.parts or (None,) * len(row.labels)
    return [{**(of_step or {}), "value": label} for label, of_step in zip(row.labels, parts, strict=True)]


def labelled_heads(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return what the rows have labels of, in alphabetical order: the heads of steps, `value` first, or the parts of pairs."""
    found = {name for row in rows for name in _labelled_by(row)}
    return tuple(sorted(found, key=lambda name: (name != "value", name)))


def require_labels(heads: Collection[str], rows: Iterable[Row]) -> None:
    """Refuse heads that would learn nothing.

    Raises:
        InvalidInput: No row has a label of one of them.
    """
    known, unknown = set[str](), set(heads)
    for row in rows:
        if not unknown:
            return
        known |= _labelled_by(row)
        unknown -= known
    if unknown:
        raise InvalidInput(
            f"expected rows with values of {list_names(sorted(unknown))}, as heads asks, got {list_names(sorted(known)) or 'none'}; "
            "name others, or leave heads out; pairs have parts by `curation={'parts_of': SCORER}`, and steps by a judge's scores",
            code="no_parts",
        )


def _labelled_by(row: Row) -> set[str]:
    if isinstance(row, PairRow):
        return {*row.chosen_parts, *row.rejected_parts}
    steps = labels_of(row) if isinstance(row, StepLabelRow) else []
    return {head for of_step in steps for head, label in of_step.items() if label is not None}


def reason_against(labels: tuple[float | None, ...]) -> str | None:
    """Return the reason why labels cannot be used; None if they can."""
    known = [label for label in labels if label is not None]
    if not known:
        return "no_step_labels"
    return None if all(0 <= label <= 1 for label in known) else "step_label_range"
