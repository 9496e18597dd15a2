"""Faults on purpose, each trial with an audit: what is lost, what runs twice, what is left over.

Run as `python -m benchmarks.faults [--full] [--only NAME ...]`, or `make faults [FULL=1]`; prints one JSON line a figure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from benchmarks.faults.parts import PARTS
from benchmarks.figures import say, summarize


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the trials."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the nightly numbers")
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=list(PARTS), help="trials to make")
    asked = parser.parse_args(arguments)
    for name in asked.only:
        part = PARTS[name]
        if count := part.full if asked.full else part.quick:
            say(f"{name}: {count}")
            module, function = part.function.rsplit(".", 1)
            getattr(import_module(f"benchmarks.{module}"), function)(count)
    summarize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
