"""What the server costs and how long it takes under load, over stdio, with real workers.

Run as `python -m benchmarks.load [--quick] [--only NAME ...]`; prints one JSON line a figure. Beside the clock stands the
processor time of the server where both can be measured: other work on the machine slows the clock, and not the processor time.
"""

from __future__ import annotations

from benchmarks.figures import choose_cases, summarize
from benchmarks.load.parts import PARTS, measure

if __name__ == "__main__":
    chosen = choose_cases("load", __doc__, PARTS, quick="few rounds: for a look, not for a claim")
    measure(chosen.only, quick=chosen.quick)
    summarize()
