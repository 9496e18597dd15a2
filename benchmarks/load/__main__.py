"""What the server costs and how long it takes under load, over stdio, with real workers.

Run as `python -m benchmarks.load [--quick] [--only NAME ...]`; prints one JSON line a figure. Beside the clock stands the
processor time of the server where both can be measured: other work on the machine slows the clock, and not the processor time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.figures import summarize
from benchmarks.load.parts import PARTS, measure


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds: for a look, not for a claim")
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=list(PARTS), help="parts to measure")
    asked = parser.parse_args(arguments)
    measure(asked.only, quick=asked.quick)
    summarize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
