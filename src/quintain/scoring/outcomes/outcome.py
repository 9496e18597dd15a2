"""The scorer `outcome`: the outcome that the environment or the recorder stated."""

from __future__ import annotations

from quintain.records.score import Score
from quintain.records.trajectory import OutcomeStatus, Trajectory

_VALUES = {OutcomeStatus.SUCCESS: 1.0, OutcomeStatus.FAILURE: 0.0, OutcomeStatus.TRUNCATED: 0.0}


class OutcomeScorer:
    """1 for success, 0 for failure and for a run cut short; an unknown or errored outcome is unscored, never 0."""

    name = "outcome"

    def score(self, trajectory: Trajectory) -> Score:
        """Return the verdict as a number in 0..1, higher is better."""
        run = trajectory.identified().id or ""
        status = trajectory.outcome.status
        value = _VALUES.get(status)
        if value is None:
            reason = f"the outcome is {status.value}, which is no verdict"
            return Score(trajectory_id=run, scorer=self.name, status="unscored", reason=reason)
        feedback = f"The outcome is {status.value}."
        return Score(trajectory_id=run, scorer=self.name, status="scored", value=value, feedback=feedback)
