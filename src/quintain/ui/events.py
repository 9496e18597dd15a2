"""Changes of jobs, as server-sent events for the open pages. The database is read only while a page listens."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import anyio
import anyio.to_thread

from quintain.errors import QuintainError, Unavailable
from quintain.records.jobs.job import UNFINISHED, Job
from quintain.server.app import QuintainServer
from quintain.store.jobs import JobState
from quintain.store.store import Store

MAX_LISTENERS = 64
_IDLE_S = 1.0
"""Seconds between looks at the jobs while none is unfinished: another process may start one."""
_KEEP_ALIVE_S = 15.0
"""Seconds after which a silent stream sends a comment, so that a dead connection is noticed."""
_NEWEST = 20
"""Newest jobs among which those that ended between two looks are found."""
_MAX_ENDED = 200
"""Ended jobs that are remembered for pages that have not been sent their end yet."""


def message(event: str, data: Mapping[str, Any]) -> str:
    """Return one server-sent event."""
    return f"event: {event}\ndata: {json.dumps(data, ensure_ascii=True, separators=(',', ':'))}\n\n"


class JobFeed:
    """The states of the jobs for any number of pages, by one look at the store for all of them.

    A page that is slow skips states and gets the newest: nothing is queued.
    """

    def __init__(self, server: QuintainServer) -> None:
        self._server = server
        self._lock = anyio.Lock()
        self._listeners = 0
        self._pause = 0.0
        self._next_look = 0.0
        self._states: dict[str, JobState] = {}
        """States of the unfinished jobs at the look before, of which only those that changed are read."""
        self._unfinished: dict[str, str] = {}
        self._ended: dict[str, str] = {}
        self._known: set[str] | None = None
        """Jobs of the look before. None: there was none."""

    def require_room(self) -> None:
        """Refuse one more page than `MAX_LISTENERS`.

        Raises:
            Unavailable: so many pages listen already.
        """
        if self._listeners >= MAX_LISTENERS:
            raise Unavailable(f"expected at most {MAX_LISTENERS} open pages, got one more; close one and reload")

    async def listen(self) -> AsyncIterator[str]:
        """Yield the unfinished jobs of now, then every change, until the page goes away."""
        self._listeners += 1
        try:
            sent = dict(self._ended)
            yield message("ready", {})
            quiet_since = time.monotonic()
            while True:
                await self._look()
                texts = self._ended | self._unfinished
                changed = {job: text for job, text in texts.items() if sent.get(job) != text}
                sent = texts
                for text in changed.values():
                    yield text
                if changed:
                    quiet_since = time.monotonic()
                elif time.monotonic() - quiet_since > _KEEP_ALIVE_S:
                    quiet_since = time.monotonic()
                    yield ": open\n\n"
                await anyio.sleep(self._pause)
        finally:
            self._listeners -= 1

    async def _look(self) -> None:
        """Read the jobs, unless another page's look is newer than the pause."""
        async with self._lock:
            if time.monotonic() < self._next_look:
                return
            try:
                services = await self._server.services()
                states, changed, newest = await anyio.to_thread.run_sync(_read, services.store, self._states)
                for job in changed:
                    self._unfinished.pop(job.id, None)
                    if job.id in states:
                        self._unfinished[job.id] = _text(job)
                    elif job.status not in UNFINISHED:
                        self._ended[job.id] = _text(job)
                if self._known is not None:  # a short job may begin and end between two looks
                    missed = [job for job in newest if job.id not in self._known and job.status not in UNFINISHED]
                    self._ended |= {job.id: _text(job) for job in missed}
                self._known = {*states, *(job.id for job in newest)}
                for job_id in list(self._ended)[:-_MAX_ENDED]:
                    del self._ended[job_id]
                self._states = states
                self._pause = services.settings.poll_s if states else _IDLE_S
            except QuintainError:
                self._pause = _IDLE_S  # the next look may succeed
            self._next_look = time.monotonic() + self._pause / 2


def _read(store: Store, before: Mapping[str, JobState]) -> tuple[dict[str, JobState], list[Job], tuple[Job, ...]]:
    """Return the states of the unfinished jobs, those that changed or left them since, and the newest jobs of all."""
    states = store.jobs.states()
    changed = [job_id for job_id in {**before, **states} if before.get(job_id) != states.get(job_id)]
    return states, store.jobs.get_many(changed), store.jobs.page(limit=_NEWEST).items


def _text(job: Job) -> str:
    """Return the event of a job's state."""
    names = ("kind", "status", "phase", "step", "total_steps", "metrics", "attempt", "eta_s", "started_at", "ended_at")
    state = job.model_dump(mode="json", include=set(names))
    metrics = {name: value for name, value in (state["metrics"] or {}).items() if value is None or value == value}
    return message("job", {"job_id": job.id, **state, "metrics": metrics})
