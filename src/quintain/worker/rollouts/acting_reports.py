"""Reports of a job's acting: its turns while episodes are played, and episodes that ended in errors."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable

from quintain.errors import Unavailable
from quintain.evaluation.turn_counts import TurnCount
from quintain.records.evaluation import EpisodeResult
from quintain.records.jobs.job_events import Activity
from quintain.records.protocols import Reporter
from quintain.records.trajectory import OutcomeStatus

_EVERY_S = 1.0
"""Seconds between two reports of turns."""


class TurnReports:
    """Reports the turns of one call of `run_episodes`: at its start, then at most once a second, with the seconds left."""

    def __init__(
        self,
        reporter: Reporter,
        *,
        before: int = 0,
        after: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the clock.

        Args:
            reporter: Receives the reports.
            before: Episodes that the job finished before this call.
            after: Episodes that the job plays after this call.
            clock: Returns seconds.
        """
        self._reporter, self._before, self._after, self._clock = reporter, before, after, clock
        self._began, self._reported = clock(), -math.inf
        self._newest: TurnCount | None = None

    def __call__(self, count: TurnCount) -> None:
        """Report the count, unless it is the newest one, or another one was reported within the last second.

        Equal counts are not progress: a hanging actor would look busy.
        """
        now = self._clock()
        if now - self._reported < _EVERY_S or count == self._newest:
            return
        self._reported, self._newest = now, count
        each = count.expected_turns / count.planned
        expected = count.expected_turns + each * self._after
        done = count.turns + count.share * count.running
        # Within the first turns, most of the time went into reading the prompts: it does not measure what is left.
        left_s = max(expected - done, 0.0) * (now - self._began) / done if count.turns else None
        self._reporter.acting(
            Activity(
                episodes=self._before + count.finished,
                planned=self._before + count.planned + self._after,
                turns=count.turns,
                expected_turns=round(expected),
                current_turn=round(count.share, 2) if count.share else None,
                tokens=count.tokens or None,
                left_s=None if left_s is None else round(left_s, 1),
            )
        )


def report_errors(results: Iterable[EpisodeResult], where: str, reporter: Reporter) -> None:
    """Warn of the episodes that ended in errors, with their causes.

    Args:
        results: All results of the job, in the order in which they were played.
        where: The environment.
        reporter: Receives the warning.

    Raises:
        Unavailable: Every episode ended in an error (`episodes_failed`).
    """
    results = list(results)
    errors = [result for result in results if result.status is OutcomeStatus.ERROR]
    if not errors:
        return
    first = dict[str, str]()
    for result in errors:
        first.setdefault(result.failure or "error", result.error or "no reason given")
    kinds = Counter(result.failure or "error" for result in errors)
    causes = "; ".join(f"{kind} {n}, first: {first[kind]}" for kind, n in kinds.most_common())
    if len(errors) == len(results):
        raise Unavailable(
            f"expected episodes in {where} that end with a verdict, got errors in all {len(errors)} ({causes}); correct the "
            "cause, then start again",
            code="episodes_failed",
        )
    reporter.warn(
        "episodes_failed",
        f"{len(errors)} of {len(results)} episodes in {where} ended in errors and count neither as solved nor as failed "
        f"({causes})",
    )
