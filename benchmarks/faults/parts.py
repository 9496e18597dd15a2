"""The parts of `python -m benchmarks.faults`: each by its function and its number of trials."""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """A function below `benchmarks` that takes a number of trials, and that number; 0 leaves it out."""

    function: str
    quick: int
    full: int


PARTS = {
    "kills": Part("faults.jobs.kills", 20, 400),
    "server_kills": Part("faults.jobs.server_kills", 10, 200),
    "killed_ranks": Part("cluster.killed_ranks.killed_ranks", 0, 30),
    "killed_sharded_ranks": Part("cluster.killed_ranks.killed_sharded_ranks", 0, 30),
    "killed_actors": Part("cluster.actors.killed_actors", 0, 30),
    "ray_jobs": Part("cluster.jobs.ray_jobs", 0, 30),
    "ray_heads": Part("cluster.jobs.ray_heads", 0, 30),
    "silent_database": Part("cluster.silent_network.silent_database", 0, 30),
    "silent_machine": Part("cluster.silent_network.silent_machine", 0, 30),
    "silent_sampler": Part("cluster.silent_network.silent_sampler", 0, 30),
    "save_kills": Part("faults.files.save_kills", 3, 100),
    "corrupt_checkpoints": Part("faults.files.corrupt_checkpoints", 3, 100),
    "corrupt_datasets": Part("faults.files.corrupt_datasets", 3, 100),
    "corrupt_agents": Part("faults.files.corrupt_agents", 3, 100),
    "duplicate_starts": Part("faults.jobs.duplicate_starts", 2, 50),
    "cancelled_calls": Part("faults.jobs.cancelled_calls", 5, 50),
    "deaf_workers": Part("faults.jobs.deaf_workers", 2, 20),
    "suspended": Part("faults.jobs.suspended", 1, 20),
    "clock_jumps": Part("faults.machine.clock_jumps", 2, 20),
    "machine_sleep": Part("faults.machine.machine_sleep", 1, 20),
    "out_of_memory": Part("faults.machine.out_of_memory", 2, 20),
    "log_flood": Part("faults.jobs.log_flood", 30, 1000),
    "slots": Part("faults.jobs.slots", 25, 200),
    "disk_full": Part("faults.disk.disk_full", 1, 30),
    "disk_full_at_checkpoint": Part("faults.disk.disk_full_at_checkpoint", 1, 10),
    "read_only": Part("faults.disk.read_only", 1, 20),
    "locked": Part("faults.store.locked", 3, 40),
    "damaged_databases": Part("faults.store.damaged_databases", 1, 20),
    "migrations": Part("faults.store.migrations", 3, 50),
    "postgresql": Part("faults.postgresql.postgresql", 2, 30),
    "postgresql_migrations": Part("faults.postgresql.postgresql_migrations", 2, 50),
    "safeties": Part("faults.safeties.safeties", 1, 5),
    "hostile_logs": Part("faults.worker_inputs.hostile_logs", 100, 100),
    "hostile_models": Part("faults.worker_inputs.hostile_models", 2, 100),
    "hostile_rows": Part("faults.worker_inputs.hostile_rows", 1, 1),
    "ray_arguments": Part("faults.worker_inputs.ray_arguments", 2, 100),
    "hostile_inputs": Part("hostile.trials.hostile_inputs", 0, 5000),
    "tested_goals": Part("faults.tested_goals.tested_goals", 0, 100),
    "load": Part("load.parts.load_goals", 0, 1),
    "soak": Part("faults.soak.soak", 20, 3600),
    "absent_machines": Part("faults.machine.absent_machines", 0, 100),
}
"""Name -> part, in the order in which they are made."""
