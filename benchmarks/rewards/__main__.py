"""What the rules cost, whether scoring streams, and which reward puts built runs of known merit in the right order.

Run as `python -m benchmarks.rewards [--only CASE,...] [--quick]`; prints one JSON line a figure, and the ranking as a table.
Costs are processor time. The formula of knowlyr runs beside ours on the same runs, in turns.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable

from benchmarks.figures import say, summarize
from benchmarks.rewards.cost import linearity, rules, stream
from benchmarks.rewards.ranking import ranking


def _other(module: str) -> Callable[..., None]:
    def run(*, quick: bool) -> None:
        importlib.import_module(f"benchmarks.{module}").figures(quick)

    return run


CASES: dict[str, Callable[..., None]] = {"rules": rules, "linearity": linearity, "stream": stream, "ranking": ranking}


OTHERS = {"calibration": _other("rewards.calibration"), "reward_model": _other("rewards.reward_model")}
"""Cases of their own modules; they load more, and run when they are asked for."""


def main() -> int:
    """Run the chosen cases."""
    known = CASES | OTHERS
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rewards", description="Rules, streaming and ranking.")
    parser.add_argument("--only", metavar="CASE,...", help=f"some of: {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="little data: for a look, not for a claim")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else list(CASES)
    if unknown := sorted(set(chosen) - set(known)):
        parser.error(f"no case is called {', '.join(unknown)}; there are {', '.join(known)}")
    for name in chosen:
        began = time.perf_counter()
        known[name](quick=arguments.quick)
        say(f"{name} took {time.perf_counter() - began:.0f} s\n")
    summarize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
