"""Import, store, search and export on data made here: speed in processor time, and memory.

Run as `python -m benchmarks.data [--only CASE,...] [--quick]`; prints one JSON line a figure. Rates are MB of the logs' bytes
for each second of one core. Where two sides are compared they take turns in the same run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.data.imports import import_memory, import_speed, session_memory
from benchmarks.data.store import add_many, export, search_conditions, search_page
from benchmarks.figures import say, summarize

CASES = {
    "import": import_speed,
    "import_memory": import_memory,
    "session_memory": session_memory,
    "add_many": add_many,
    "search": search_page,
    "search_conditions": search_conditions,
    "export": export,
}


def main() -> int:
    """Run the chosen cases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data", description="Import, store, search and export.")
    parser.add_argument("--only", metavar="CASE,...", help=f"some of: {', '.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="little data: for a look, not for a claim")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else list(CASES)
    if unknown := sorted(set(chosen) - set(CASES)):
        parser.error(f"no case is called {', '.join(unknown)}; there are {', '.join(CASES)}")
    for name in chosen:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            CASES[name](Path(folder), quick=arguments.quick)
        say(f"{name} took {time.perf_counter() - began:.0f} s\n")
    summarize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
