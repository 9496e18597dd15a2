"""Import, store, search and export on data made here: speed in processor time, and memory.

Run as `python -m benchmarks.data [--only CASE ...] [--quick]`; prints one JSON line a figure. Rates are MB of the logs' bytes
for each second of one core. Where two sides are compared they take turns in the same run.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.data.imports import import_memory, import_speed, record_memory, session_memory
from benchmarks.data.store import add_many, export, search_conditions, search_page
from benchmarks.figures import QUICK, choose_cases, say, summarize

CASES = {
    "import": import_speed,
    "import_memory": import_memory,
    "session_memory": session_memory,
    "record_memory": record_memory,
    "add_many": add_many,
    "search": search_page,
    "search_conditions": search_conditions,
    "export": export,
}

if __name__ == "__main__":
    chosen = choose_cases("data", __doc__, CASES, quick=QUICK)
    for name in chosen.only:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            CASES[name](Path(folder), quick=chosen.quick)
        say(f"{name} took {time.perf_counter() - began:.0f} s\n")
    summarize()
