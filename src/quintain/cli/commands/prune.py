"""`quintain jobs prune`: free the disk space of jobs that ended."""

from __future__ import annotations

import json
import shlex
from datetime import timedelta
from typing import Annotated

import typer

from quintain.cli.commands.library import moment
from quintain.cli.layout import Column, print_table
from quintain.cli.main import HomeOption
from quintain.cli.session import Session, plain_console
from quintain.jobs.pruning import ENDED, Prunable, prunable, prune
from quintain.records.jobs.job import JobStatus
from quintain.records.wording import counted, size_text
from quintain.tools.jobs.descriptions import job_labels

_LISTED = 50
_DAYS = 30
"""Least days since the end of a job, where none are given."""


def prune_command(
    delete: Annotated[bool, typer.Option("--delete", help="Delete; without it nothing changes.")] = False,
    older_than: Annotated[int, typer.Option(min=0, help="Least days since the end of a job.")] = _DAYS,
    unsuccessful: Annotated[
        bool, typer.Option("--unsuccessful", help="Also failed and cancelled jobs, which then cannot be resumed.")
    ] = False,
    home: HomeOption = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show how many bytes the checkpoints and inputs of ended jobs take, and delete them with --delete.

    Results, curves, logs and trained agents stay.
    """
    with Session(home) as session:
        services = session.services()
        folder, now = services.settings.jobs_dir, services.clock()
        statuses = ENDED if unsuccessful else (JobStatus.SUCCEEDED,)
        found = prunable(services.store, folder, now, older_than=timedelta(days=older_than), statuses=statuses)
        freed = sum(prune(one, folder) for one in found) if delete else 0
        given = [
            *(["--older-than", str(older_than)] if older_than != _DAYS else []),
            *(["--unsuccessful"] if unsuccessful else []),
            *(["--home", str(home)] if home is not None else []),
        ]
        again = None if delete else shlex.join(["quintain", "jobs", "prune", *given, "--delete"])
        labels = list(job_labels(services, [one.job for one in found[:_LISTED]]).values())
        _show(found, labels, freed, again, older_than=older_than, json_out=json_out)


def _show(
    found: list[Prunable], labels: list[str], freed: int, again: str | None, *, older_than: int, json_out: bool
) -> None:
    """Print what is freed, of the first jobs with their `labels`; `again` is the command that deletes it, None: it was deleted."""
    console, total = plain_console(), sum(one.bytes for one in found)
    if json_out:
        items = [
            {
                "job_id": one.job.id,
                "status": one.job.status,
                "bytes": one.bytes,
                "folders": [str(path) for path in one.folders],
            }
            for one in found
        ]
        console.print(json.dumps({"dry_run": again is not None, "items": items, "bytes": total, "freed": freed}))
        return
    columns = ("job", "status", "ended (UTC)", Column("size", right=True), Column("work", cut=True))
    rows = [
        (one.job.id, one.job.status.value, moment(one.job.ended_at), size_text(one.bytes), label)
        for one, label in zip(found, labels, strict=False)
    ]
    if rows:
        print_table(console, columns, rows)
    if len(found) > _LISTED:
        console.print(f"and {len(found) - _LISTED} more; --json lists all")
    of_jobs = f"of {counted(len(found), 'job')} that ended at least {counted(older_than, 'day')} ago"
    if again is None:
        console.print(f"Freed {size_text(freed)} {of_jobs}.")
    elif found:
        console.print(f"Would free {size_text(total)} {of_jobs}; delete with {again}.")
    else:
        console.print(
            f"Nothing to free: no job that ended at least {counted(older_than, 'day')} ago has checkpoints or inputs."
        )
