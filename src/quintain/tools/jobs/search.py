"""Jobs by the words of their ids, labels and notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from quintain.records.jobs.job import Job
from quintain.tools.jobs.descriptions import dataset_of, job_labels
from quintain.tools.services import Services

READ = 2_000
"""Jobs in which one call looks for words."""


class FoundJobs(NamedTuple):
    """Jobs of a search."""

    jobs: list[Job]
    unreadable: list[str]
    """Ids of jobs among those looked at that this version cannot read."""
    next_cursor: str | None


def find_jobs(services: Services, text: str, most: int, cursor: str | None, **chosen: Any) -> FoundJobs:
    """Return the newest jobs behind a cursor whose id, label, note or dataset has all words of a text.

    With a text, one call reads about `READ` jobs; then the list may be empty and have a cursor.
    """
    words, found, unreadable, read = text.casefold().split(), list[Job](), list[str](), 0
    while True:
        page = services.store.jobs.page(**chosen, limit=most, cursor=cursor)
        labels = job_labels(services, page.items) if words else {}
        fitting = [job for job in page.items if all(word in _known(job, labels) for word in words)]
        if len(found) + len(fitting) > most:
            return FoundJobs(found, unreadable, cursor)
        found, cursor, read = found + fitting, page.next_cursor, read + most
        unreadable += page.unreadable
        if cursor is None or len(found) == most or read >= READ:
            return FoundJobs(found, unreadable, cursor)


def _known(job: Job, labels: Mapping[str, str]) -> str:
    return f"{job.id} {labels.get(job.id)} {job.note or ''} {dataset_of(job.spec) or ''}".casefold()
