"""Descriptions of figures, which the process that draws pictures and the web page's charts both read.

A description is plain JSON: numbers, texts, and null where a line is broken.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import Any, Literal, NotRequired, TypedDict

from quintain.environments.references import short_reference
from quintain.records.evaluation import Comparison, PairedComparison
from quintain.records.wording import counted

MOST_POINTS = 600

_MIN_SMOOTHED = 8
"""Fewest points of a line that is smoothed."""

_LOG_RANGE = 30.0
"""Ratio of the largest to the smallest positive value from which an axis is logarithmic."""


class Mark(TypedDict):
    """A labelled place on the x axis, such as the start of a round."""

    x: float
    label: str


class Point(TypedDict):
    """One labelled value."""

    x: float
    y: float
    label: str


class Line(TypedDict):
    """Values over steps. `y` has null where the line is broken."""

    x: Sequence[float]
    y: Sequence[float | None]
    label: NotRequired[str]
    smooth: NotRequired[Sequence[float | None]]
    low: NotRequired[Sequence[float | None]]
    high: NotRequired[Sequence[float | None]]
    best: NotRequired[Point]
    style: NotRequired[Literal["line", "points", "measured"]]
    """points: markers with error bars, not joined; measured: the same, joined."""


class Bar(TypedDict):
    """A rate with its interval."""

    label: str
    value: float
    low: float
    high: float
    strong: NotRequired[bool]


class Panel(TypedDict):
    """One pair of axes."""

    title: str
    xlabel: NotRequired[str]
    ylabel: NotRequired[str]
    format: NotRequired[Literal["number", "percent"]]
    log: NotRequired[bool]
    floor: NotRequired[float]
    """Lowest value of the axis; values below it are outside of the picture."""
    lines: NotRequired[list[Line]]
    marks: NotRequired[list[Mark]]
    ticks: NotRequired[list[Mark]]
    bars: NotRequired[list[Bar]]
    forest: NotRequired[list[dict[str, Any]]]
    origin: NotRequired[float]
    graph: NotRequired[dict[str, Any]]


class Figure(TypedDict):
    """A titled row of panels."""

    title: str
    subtitle: NotRequired[str]
    panels: list[Panel]


def line(
    points: Mapping[int, float],
    label: str,
    *,
    smooth: bool = True,
    breaks: Sequence[int] = (),
    bounds: tuple[Mapping[int, float], Mapping[int, float]] | None = None,
    reported: Collection[int] = (),
) -> Line:
    """Return a line over steps, broken where nothing was reported for longer than usual between two values.

    Args:
        points: Step -> value.
        label: Entry of the legend.
        smooth: Whether to smooth a line of enough points; the raw values stay in `y`.
        breaks: Steps before which the line is broken besides.
        bounds: Interval of each value, lower and upper.
        reported: Steps that the run reported; some have no value where their rows give none.
    """
    steps = sorted(points)
    known = sorted({*points, *reported})
    averages = _averages([points[step] for step in steps], _segments(steps, breaks)) if smooth else None
    stride = -(-len(steps) // MOST_POINTS)
    kept = [*range(0, len(steps) - 1, stride), len(steps) - 1] if steps else []
    usual = median(b - a for a, b in itertools.pairwise(steps)) * stride if len(steps) > 1 else 0
    x: list[float] = []
    columns: dict[str, list[float | None]] = {"y": [], "smooth": [], "low": [], "high": []}
    before: int | None = None
    for index in kept:
        step = steps[index]
        is_apart = before is not None and (
            _longest_gap(known, before, step) > 1.5 * usual or any(before < place <= step for place in breaks)
        )
        if is_apart and before is not None:
            x.append((before + step) / 2)
            for column in columns.values():
                column.append(None)
        x.append(step)
        columns["y"].append(points[step])
        columns["smooth"].append(averages[index] if averages else None)
        for name, bound in zip(("low", "high"), bounds or (), strict=False):
            columns[name].append(bound.get(step))
        before = step
    found = Line(x=x, y=columns["y"], label=label)
    if averages:
        found["smooth"] = columns["smooth"]
    if bounds is not None:
        found["low"], found["high"] = columns["low"], columns["high"]
    return found


def _longest_gap(steps: Sequence[int], first: int, last: int) -> int:
    """Return the largest difference of neighbours from one step to another, both among the sorted `steps`."""
    between = steps[bisect_left(steps, first) : bisect_right(steps, last)]
    return max(b - a for a, b in itertools.pairwise(between))


def _segments(steps: Sequence[int], breaks: Sequence[int]) -> list[int]:
    """Return how many steps lie between two breaks, in order."""
    edges = [0, *sorted({bisect_left(steps, place) for place in breaks} - {0, len(steps)}), len(steps)]
    return [b - a for a, b in itertools.pairwise(edges)]


def _averages(values: Sequence[float], segments: Sequence[int]) -> list[float] | None:
    """Smooth each segment that has enough points; None if none has."""
    if max(segments, default=0) < _MIN_SMOOTHED:
        return None
    rest = iter(values)
    parts = [list(itertools.islice(rest, n)) for n in segments]
    return [value for part in parts for value in (moving_average(part) if len(part) >= _MIN_SMOOTHED else part)]


def moving_average(values: Sequence[float]) -> list[float]:
    """Return the exponential moving average of values, corrected for its start at zero (Kingma & Ba 2015, section 3)."""
    n = len(values)
    decay = 1 - 2 / (max(3.0, min(n / 3, 10), n / 10) + 1)
    average, weight, found = 0.0, 0.0, []
    for value in values:
        average, weight = decay * average + (1 - decay) * value, decay * weight + (1 - decay)
        found.append(average / weight)
    return found


def spans_decades(lines: Sequence[Line]) -> bool:
    """Whether all values are positive and so far apart that a logarithmic axis shows them better."""
    values = [value for one in lines for value in one["y"] if value is not None]
    return bool(values) and min(values) > 0 and max(values) / min(values) >= _LOG_RANGE


MOST_PAIRS = 30
"""Maximum number of pairs, those with the smallest p-values."""

MOST_CURVES = 6
"""Maximum number of learning curves, the longest."""
_APART = 0.012
"""Share of the width between the points of neighbouring curves, so that their intervals do not cover each other."""


def forest_plot(comparison: Comparison) -> Figure:
    """Return the description of a forest plot for the process that draws pictures."""
    pairs = sorted(comparison.comparisons, key=lambda pair: pair.p_corrected)[:MOST_PAIRS]
    differences = [
        {
            "label": f"{pair.b}\n- {pair.a}",
            "value": pair.difference,
            "low": pair.ci_low,
            "high": pair.ci_high,
            "wide": None if pair.simultaneous_low is None else [pair.simultaneous_low, pair.simultaneous_high],
            "strong": pair.significant,
            "note": _note(pair),
        }
        for pair in pairs
    ]
    rates = [
        {
            "label": f"{row.agent} ({row.group})" if row.group else row.agent,
            "value": row.success_rate,
            "low": row.ci_low,
            "high": row.ci_high,
            "strong": True,
            "note": f"{100 * row.success_rate:.1f} [{100 * row.ci_low:.1f}, {100 * row.ci_high:.1f}]  n {row.n}",
        }
        for row in comparison.leaderboard
        if row.success_rate is not None and row.ci_low is not None and row.ci_high is not None
    ]
    measures = {pair.measure for pair in pairs}
    title = f"Difference of {'losses in nats a token' if measures == {'loss'} else 'success rates'}, 95 % interval"
    if len(comparison.comparisons) > 1:
        title += f" of each pair (thin: of all pairs together), p corrected by {comparison.correction.replace('_', '-').title()}"
    panels = [
        Panel(title=title, forest=differences, origin=0.0),
    ]
    if rates:
        panels.append(
            Panel(title="Success, 95 % interval (agents that share a letter do not differ significantly)", forest=rates)
        )
    if comparison.curves:
        panels.append(_curves(comparison))
    agents = len(comparison.leaderboard)
    tasks = max((pair.n_tasks for pair in comparison.comparisons), default=0)
    headline = f"{agents} agents on {counted(tasks, 'task')} of {short_reference(comparison.environment)}"
    return Figure(title=headline, subtitle=comparison.id, panels=panels)


def _note(pair: PairedComparison) -> str:
    """Return the difference of a pair in points or nats, with its interval and corrected p-value."""
    found = pair.difference, pair.ci_low, pair.ci_high
    value, low, high = (f"{100 * x:+.1f}" if pair.measure == "success" else f"{x:+.3g}" for x in found)
    return f"{value} [{low}, {high}]  p {pair.p_corrected:.2g}"


def _curves(comparison: Comparison) -> Panel:
    """Return the panel of success rates along each training, their points side by side."""
    curves = comparison.curves[:MOST_CURVES]
    places = sorted({point.place for curve in curves for point in curve.points})
    ends = {places[0]: "before training"}
    if all(curve.points[-1].place == places[-1] for curve in curves):
        ends[places[-1]] = "after"
    apart = _APART * (places[-1] - places[0])
    lines = [
        Line(
            x=[round(point.place + apart * (number - (len(curves) - 1) / 2), 3) for point in curve.points],
            y=[point.success_rate for point in curve.points],
            low=[point.ci_low for point in curve.points],
            high=[point.ci_high for point in curve.points],
            label=curve.agent + f" (suite of {curve.n_tasks} tasks)" * (curve.suite_hash != comparison.suite_hash),
            style="measured",
        )
        for number, curve in enumerate(curves)
    ]
    return Panel(
        title="Success along the training, 95 % interval",
        xlabel="stages or rounds of training",
        ylabel="share of tasks solved",
        format="percent",
        lines=lines,
        ticks=[Mark(x=place, label=ends.get(place, str(place))) for place in places],
    )
