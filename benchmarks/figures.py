"""Figures as lines of JSON on stdout, words on stderr."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any

reported: list[dict[str, Any]] = []
"""Every figure of this process, for the summary."""


def report(
    name: str, values: Sequence[float], unit: str, goal: float | None, better: str = "higher", **more: Any
) -> None:
    """One figure: the median of its rounds, with the smallest and the largest where there are several."""
    figure: dict[str, Any] = {"name": name, "value": rounded(statistics.median(values)), "unit": unit, "goal": goal}
    figure["better"] = better
    if len(values) > 1:
        figure |= {"min": rounded(min(values)), "max": rounded(max(values)), "rounds": len(values)}
    figure |= more
    reported.append(figure)
    print(json.dumps(figure), flush=True)


def summarize() -> None:
    """The figures that have a goal, and whether they reach it."""
    for figure in reported:
        if figure["goal"] is not None:
            word = "met  " if is_met(figure) else "SHORT"
            say(f"{word} {figure['name']:44s} {figure['value']:>10} goal {figure['goal']}")


def is_met(figure: dict[str, Any]) -> bool:
    """Whether a figure reaches its goal, or has none."""
    value, goal = figure["value"], figure["goal"]
    if goal is None:
        return True
    return bool(value >= goal if figure["better"] == "higher" else value <= goal)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def rounded(value: float) -> float:
    """To four significant digits."""
    return float(f"{value:.4g}")
