"""Whether an attempt is alive: its heartbeats as this process observes them, and the word of its launcher.

A shim on another machine writes heartbeats into the job's folder, and ends its worker and itself when it could not for
the time of a lease, or when `launch.json` names another start. So an attempt that is silent for a lease is dead, even
if no back end knows it. No clocks of two machines are compared: silence is measured by this process's monotonic clock, and how
long a back end has not listed an attempt by a file in its folder, because commands that look once are short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from quintain.errors import Unavailable
from quintain.jobs.directory import JobDirectory
from quintain.jobs.exits import ends
from quintain.jobs.launchers.contract import Attempt, Launcher
from quintain.records.jobs.job import Job

FRESH_BEATS = 3
"""Heartbeats that may be missing before the launcher is asked."""


RETRY_S = 5.0
"""Seconds until a back end that did not answer is asked again."""


class Liveness(Enum):
    """Signs of life of an attempt."""

    ALIVE = auto()
    DEAD = auto()
    """It began and is over."""
    LOST = auto()
    """It has not begun, and no back end knows it: it has to be started again."""
    ENDED_EARLY = auto()
    """Its back end refused it, or ended it before it began."""
    UNKNOWN = auto()
    """Neither heartbeats nor an answer, for less than a lease; before it began, for any time."""


@dataclass
class _Observation:
    token: str
    beat: bytes
    since: float
    """Monotonic time of the first sight of this beat."""
    is_beating: bool = False
    """Whether it has changed under the eyes of this process."""
    asked_at: float = float("-inf")
    answer: bool | None = None
    is_reachable: bool = True


class Watch:
    """Heartbeats and answers of launchers, as one process has observed them."""

    def __init__(self, beat_s: float, lease_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._beat_s = beat_s
        self._lease_s = lease_s
        self._monotonic = monotonic
        self._seen: dict[str, _Observation] = {}
        self._unreachable_until: dict[Launcher, float] = {}

    def assess(self, job: Job, attempt: Attempt, launcher: Launcher, now: datetime) -> Liveness:
        """Return what is known of a running attempt whose lock is free; `now` is compared with the lease of its job alone."""
        directory = JobDirectory(attempt.folder)
        begun = directory.has_begun(attempt.number)
        if begun and directory.exit(attempt.number) is not None:
            return Liveness.DEAD
        if not begun and any(end.attempt == attempt.number for end in ends(directory)):
            return Liveness.ENDED_EARLY
        observation = self._observe(attempt, directory)
        silence = self._monotonic() - observation.since
        is_fresh = begun and observation.is_beating and silence < FRESH_BEATS * self._beat_s
        if launcher.poll_s == 0 or not is_fresh:
            self._ask(observation, attempt, launcher)
        answer = None if is_fresh and launcher.poll_s else observation.answer
        is_unlisted = observation.is_reachable and not is_fresh and answer is not True
        gone_s = directory.unlisted_s(attempt.token, is_unlisted=is_unlisted) if launcher.is_remote else silence
        if answer is False and gone_s >= launcher.settle_s:
            return Liveness.DEAD if begun else Liveness.ENDED_EARLY
        if is_fresh or answer is True:
            return Liveness.ALIVE
        if not begun and observation.is_reachable and (not launcher.is_remote or gone_s >= self._lease_s):
            return Liveness.LOST  # not sooner: a back end may need a moment to list what it has accepted
        lease_ended = job.lease_until is None or not now < job.lease_until <= now + timedelta(seconds=self._lease_s)
        if silence < self._lease_s or not lease_ended or (launcher.is_remote and not begun):  # it may wait in a queue
            return Liveness.UNKNOWN
        return Liveness.DEAD if begun else Liveness.LOST

    def forget_others(self, job_ids: Iterable[str]) -> None:
        """Keep the observations of these jobs only."""
        keep = set(job_ids)
        self._seen = {job_id: observation for job_id, observation in self._seen.items() if job_id in keep}

    def _observe(self, attempt: Attempt, directory: JobDirectory) -> _Observation:
        beat, now = directory.heartbeat(), self._monotonic()
        observation = self._seen.get(attempt.job_id)
        if observation is None or observation.token != attempt.token:
            observation = self._seen[attempt.job_id] = _Observation(attempt.token, beat, now)
        elif observation.beat != beat:
            observation.beat, observation.since, observation.is_beating = beat, now, True
        return observation

    def _ask(self, observation: _Observation, attempt: Attempt, launcher: Launcher) -> None:
        now = self._monotonic()
        if now - observation.asked_at < launcher.poll_s:
            return
        if now < self._unreachable_until.get(launcher, now):
            observation.answer, observation.is_reachable = None, False
            return
        try:
            observation.answer, observation.is_reachable = launcher.alive(attempt), True
        except Unavailable:
            observation.answer, observation.is_reachable = None, False
            if launcher.is_remote:  # each question to a silent back end may last until its time limit
                self._unreachable_until[launcher] = self._monotonic() + RETRY_S
        observation.asked_at = self._monotonic()
