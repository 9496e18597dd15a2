"""Figures as lines of JSON on stdout, words on stderr; and which cases of a benchmark to run."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from typing import Any

reported: list[dict[str, Any]] = []
"""Every figure of this process, for the summary."""

_TIMES = frozenset({"s", "ms"})
"""Units whose figures depend on the other work of the machine."""


def choose_cases(
    package: str, about: str | None, names: Iterable[str], usual: Iterable[str] | None = None, **flags: str
) -> argparse.Namespace:
    """Read from the command line which cases to run, as `only`, and flags.

    Args:
        package: The package with the cases, below `benchmarks`.
        about: Its description.
        names: All cases.
        usual: Cases that run where none are named. None: all.
        flags: Name -> meaning.
    """
    known = list(names)
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{package}", description=about)
    parser.add_argument("--only", nargs="+", choices=known, default=list(usual or known), help="cases to run")
    for name, meaning in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=meaning)
    return parser.parse_args()


QUICK = "little data: for a look, not for a claim"
"""Meaning of the flag `quick`."""


def report(
    name: str, values: Sequence[float], unit: str, goal: float | None, better: str = "higher", **more: Any
) -> None:
    """Print one figure: the median of its rounds, with the smallest and the largest where there are several.

    A time is printed with the load of the machine: the mean number of processes that were running or waiting in the last minute.
    """
    figure: dict[str, Any] = {"name": name, "value": rounded(statistics.median(values)), "unit": unit, "goal": goal}
    figure["better"] = better
    if len(values) > 1:
        figure |= {"min": rounded(min(values)), "max": rounded(max(values)), "rounds": len(values)}
    if unit in _TIMES:
        figure["load"] = rounded(os.getloadavg()[0])
    _print(figure | more)


def not_run(name: str, unit: str, goal: float | None, better: str, reason: str) -> None:
    """Print a figure that this machine cannot measure, with the reason."""
    _print({"name": name, "value": None, "unit": unit, "goal": goal, "better": better, "not_run": reason})


def _print(figure: dict[str, Any]) -> None:
    reported.append(figure)
    print(json.dumps(figure), flush=True)


def summarize() -> None:
    """Print the figures that have a goal, and whether they reach it; and those that were not run, with the reason."""
    for figure in reported:
        if reason := figure.get("not_run"):
            say(f"not run {figure['name']:44s} {reason}")
        elif figure["goal"] is not None:
            word = "met    " if is_met(figure) else "SHORT  "
            say(f"{word} {figure['name']:44s} {figure['value']:>10} goal {figure['goal']}")


def is_met(figure: dict[str, Any]) -> bool:
    """Whether a figure reaches its goal, or has none. One that was not run does not reach it."""
    value, goal = figure["value"], figure["goal"]
    if goal is None:
        return True
    return value is not None and bool(value >= goal if figure["better"] == "higher" else value <= goal)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def rounded(value: float) -> float:
    """To four significant digits."""
    return float(f"{value:.4g}")
