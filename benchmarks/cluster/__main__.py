"""What several processes, machines and databases give, each figure against its goal.

Run as `python -m benchmarks.cluster [--only NAME ...]`; prints one JSON line a figure. What their faults cost is measured by
`benchmarks.faults`.
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.figures import choose_cases, summarize

PARTS = {
    "actors": "cluster.actors.actors",
    "job_homes": "cluster.jobs.job_homes",
    "store": "cluster_store.store",
    "training": "cluster.training.training",
}
"""Name -> module below `benchmarks`, and function."""

if __name__ == "__main__":
    for name in choose_cases("cluster", __doc__, PARTS).only:
        module, function = PARTS[name].rsplit(".", 1)
        getattr(import_module(f"benchmarks.{module}"), function)()
    summarize()
