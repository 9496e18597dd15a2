"""What the rules cost, whether scoring streams, and which reward puts built runs of known merit in the right order.

Run as `python -m benchmarks.rewards [--only CASE ...] [--quick]`; prints one JSON line a figure, and the ranking as a table.
Costs are processor time. The formula of knowlyr runs beside ours on the same runs, in turns.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable

from benchmarks.figures import QUICK, choose_cases, say, summarize
from benchmarks.rewards.cost import linearity, rules, stream
from benchmarks.rewards.ranking import ranking


def _other(module: str) -> Callable[..., None]:
    def run(*, quick: bool) -> None:
        importlib.import_module(f"benchmarks.{module}").figures(quick)

    return run


CASES: dict[str, Callable[..., None]] = {"rules": rules, "linearity": linearity, "stream": stream, "ranking": ranking}


OTHERS = {"calibration": _other("rewards.calibration"), "reward_model": _other("rewards.reward_model")}
"""Cases of their own modules; they load more, and run when they are asked for."""

if __name__ == "__main__":
    known = CASES | OTHERS
    chosen = choose_cases("rewards", __doc__, known, CASES, quick=QUICK)
    for name in chosen.only:
        began = time.perf_counter()
        known[name](quick=chosen.quick)
        say(f"{name} took {time.perf_counter() - began:.0f} s\n")
    summarize()
