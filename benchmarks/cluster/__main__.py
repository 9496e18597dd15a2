"""What several processes, machines and databases give, each figure against its goal.

Run as `python -m benchmarks.cluster [--only NAME ...]`; prints one JSON line a figure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from benchmarks.figures import summarize

PARTS = {
    "actors": "cluster.actors.actors",
    "job_homes": "cluster.jobs.job_homes",
    "killed_actors": "cluster.actors.killed_actors",
    "killed_ranks": "cluster.killed_ranks.killed_ranks",
    "ray_heads": "cluster.jobs.ray_heads",
    "ray_jobs": "cluster.jobs.ray_jobs",
    "silent_database": "cluster.silent_network.silent_database",
    "silent_machine": "cluster.silent_network.silent_machine",
    "silent_sampler": "cluster.silent_network.silent_sampler",
    "store": "cluster_store.store",
    "training": "cluster.training.training",
}
"""Name -> module below `benchmarks`, and function."""

FAULTS = frozenset(
    {"killed_actors", "killed_ranks", "ray_heads", "ray_jobs", "silent_database", "silent_machine", "silent_sampler"}
)
"""Parts whose function takes a number of faults."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=sorted(PARTS), help="parts to measure")
    parser.add_argument(
        "--faults", type=int, help="number of faults on purpose in each part that makes any; default: 30"
    )
    asked = parser.parse_args(arguments)
    for name in asked.only:
        module, function = PARTS[name].rsplit(".", 1)
        counts = [asked.faults] if asked.faults is not None and name in FAULTS else []
        getattr(import_module(f"benchmarks.{module}"), function)(*counts)
    summarize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
