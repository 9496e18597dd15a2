"""Faults on purpose, each trial with an audit: what is lost, what runs twice, what is left over.

Run as `python -m benchmarks.faults [--full] [--only NAME ...]`, or `make faults [FULL=1]`; prints one JSON line a figure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from benchmarks.figures import say, summarize


class Part(NamedTuple):
    """A function that takes how many trials to make; 0: it is left out."""

    function: str
    quick: int
    full: int


PARTS = {
    "kills": Part("fault_jobs.kills", 20, 400),
    "server_kills": Part("fault_jobs.server_kills", 10, 200),
    "killed_ranks": Part("cluster_faults.killed_ranks", 0, 30),
    "killed_actors": Part("cluster_rollouts.killed_actors", 0, 30),
    "silent_database": Part("cluster_network.silent_database", 0, 30),
    "silent_machine": Part("cluster_network.silent_machine", 0, 30),
    "silent_sampler": Part("cluster_network.silent_sampler", 0, 30),
    "save_kills": Part("fault_files.save_kills", 3, 100),
    "corrupt_checkpoints": Part("fault_files.corrupt_checkpoints", 3, 100),
    "corrupt_datasets": Part("fault_files.corrupt_datasets", 3, 100),
    "corrupt_agents": Part("fault_files.corrupt_agents", 3, 100),
    "duplicate_starts": Part("fault_jobs.duplicate_starts", 2, 50),
    "cancelled_calls": Part("fault_jobs.cancelled_calls", 5, 50),
    "deaf_workers": Part("fault_jobs.deaf_workers", 2, 20),
    "suspended": Part("fault_jobs.suspended", 1, 20),
    "clock_jumps": Part("fault_jobs.clock_jumps", 2, 20),
    "machine_sleep": Part("fault_machine.machine_sleep", 1, 20),
    "out_of_memory": Part("fault_machine.out_of_memory", 2, 20),
    "log_flood": Part("fault_jobs.log_flood", 30, 1000),
    "slots": Part("fault_jobs.slots", 25, 200),
    "disk_full": Part("fault_disk.disk_full", 1, 30),
    "disk_full_at_checkpoint": Part("fault_disk.disk_full_at_checkpoint", 1, 10),
    "read_only": Part("fault_disk.read_only", 1, 20),
    "locked": Part("fault_store.locked", 3, 40),
    "damaged_databases": Part("fault_store.damaged_databases", 1, 20),
    "migrations": Part("fault_store.migrations", 3, 50),
    "postgresql": Part("fault_store.postgresql", 2, 30),
    "safeties": Part("fault_safeties.safeties", 1, 5),
    "hostile_logs": Part("fault_hostile.hostile_logs", 100, 100),
    "hostile_models": Part("fault_hostile.hostile_models", 2, 100),
    "hostile_rows": Part("fault_hostile.hostile_rows", 1, 1),
    "ray_arguments": Part("fault_hostile.ray_arguments", 2, 100),
    "hostile_inputs": Part("hostile.hostile_inputs", 0, 5000),
    "tested_goals": Part("fault_tests.tested_goals", 0, 100),
    "load": Part("load.load_goals", 0, 1),
    "soak": Part("fault_soak.soak", 20, 3600),
    "absent_machines": Part("fault_machine.absent_machines", 0, 100),
}
"""Name -> part, in the order in which they are made."""


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
            module, function = part.function.split(".")
            getattr(import_module(f"benchmarks.{module}"), function)(count)
    summarize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
