"""Faults on purpose, each trial with an audit: what is lost, what runs twice, what is left over.

Run as `python -m benchmarks.faults [--full] [--only NAME ...]`, or `make faults [FULL=1]`; prints one JSON line a figure.
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.faults.parts import PARTS
from benchmarks.figures import choose_cases, say, summarize

if __name__ == "__main__":
    chosen = choose_cases("faults", __doc__, PARTS, full="the nightly numbers")
    for name in chosen.only:
        part = PARTS[name]
        if count := part.full if chosen.full else part.quick:
            say(f"{name}: {count}")
            module, function = part.function.rsplit(".", 1)
            getattr(import_module(f"benchmarks.{module}"), function)(count)
    summarize()
