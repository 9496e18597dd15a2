"""Hostile inputs for every tool, method and page: on stdio and HTTP, in both protocol eras, one server for thousands.

Run as `python -m benchmarks.hostile [--full] [--seed N] [--generated N]`; prints one JSON line a finding and a figure. Jobs
are stored and never begin: this process holds the lock of the reconciler.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.figures import say, summarize
from benchmarks.hostile.trials import FULL, QUICK, hostile_inputs


def main(arguments: Sequence[str] | None = None) -> int:
    """Send the inputs and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--full", action="store_true", help=f"{FULL} generated inputs instead of {QUICK}")
    parser.add_argument("--generated", type=int, help="number of generated inputs")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    most = FULL if asked.full else QUICK
    findings = hostile_inputs(most if asked.generated is None else asked.generated, asked.seed)
    summarize()
    return 1 if findings else 0


if __name__ == "__main__":
    say("hostile inputs")
    sys.exit(main())
