"""How far a run got, by its outcome and the fields that its domain tells it by."""

from __future__ import annotations

from typing import NamedTuple

from quintain.records.profiles import OutcomeRule
from quintain.records.trajectory import OutcomeStatus, Trajectory


class Credit(NamedTuple):
    """What is known of a run's outcome."""

    success: bool | None
    """None: nobody knows."""
    share: float | None
    """What was reached of what could be, in 0..1, where the outcome holds the fields; None where it does not."""
    told: str
    """In words."""


def credit_of(run: Trajectory, rule: OutcomeRule) -> Credit:
    """The verdict where there is one; without one, all of it reached is success and less is failure.

    An errored run is none of the agent's doing and has no verdict; one that was cut short did not succeed.
    """
    status = run.outcome.status
    share = _share(run.outcome.scores, rule)
    reached = "" if share is None else f", {share:.0%} reached"
    if status is OutcomeStatus.ERROR or (status is OutcomeStatus.UNKNOWN and share is None):
        return Credit(None, None, f"the outcome is {status.value}, which is no verdict")
    success = share == 1.0 if status is OutcomeStatus.UNKNOWN else status is OutcomeStatus.SUCCESS
    return Credit(success, share, f"The outcome is {status.value}{reached}.")


def _share(scores: dict[str, float], rule: OutcomeRule) -> float | None:
    if rule.partial_credit in scores:
        return min(1.0, max(0.0, scores[rule.partial_credit]))
    score = scores.get(rule.score) if rule.score else None
    total = scores.get(rule.total) if rule.total else None
    if score is None or total is None or total <= 0:
        return None
    return min(1.0, max(0.0, score / total))
