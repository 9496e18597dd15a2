"""Jobs on this machine, with a list of all starts in `starts.jsonl` beside the job folders."""

from __future__ import annotations

import json

from quintain.jobs.launchers.contract import Attempt, ClusterOptions
from quintain.jobs.launchers.local import LocalLauncher


class AuditedLauncher(LocalLauncher):
    """The launcher of this machine, which records each attempt before it starts its command.

    A launcher for another scheduler implements all of `Launcher` and submits `attempt.command`, which supervises the worker.
    """

    def __init__(self, options: ClusterOptions) -> None:
        super().__init__(options)

    def start(self, attempt: Attempt) -> None:
        """Start the command."""
        record = {"job": attempt.job_id, "attempt": attempt.number, "machine": attempt.machine}
        with (attempt.folder.parent / "starts.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        super().start(attempt)
