"""A user's own Python function as a scorer. Only trusted local callers can register one; no tool takes code."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from quintain.records.score import Component, Score
from quintain.records.trajectory import Trajectory

logger = logging.getLogger(__name__)

RewardFunction = Callable[[Trajectory], float | None]
"""From a trajectory to a score in 0..1, higher is better; None: it cannot be scored."""


@dataclass
class FunctionScorer:
    """Scores with a function; what it raises, or returns outside 0..1, is a reason and never a number."""

    name: str
    function: RewardFunction

    def score(self, trajectory: Trajectory) -> Score:
        """The function's verdict on the trajectory."""
        trajectory_id = trajectory.identified().id or ""
        try:
            value = self.function(trajectory)
            reason = f"{self.name} gave no score" if value is None else None
            if value is not None and not (math.isfinite(value) and 0 <= value <= 1):
                value, reason = None, f"{self.name} gave {value}; a score must be in 0..1"
        except Exception as error:  # other people's code: its fault costs one score
            logger.warning("the reward function %r failed", self.name, exc_info=error)
            value, reason = None, f"{self.name} raised {type(error).__name__}: {error}"
        if value is None:
            return Score(trajectory_id=trajectory_id, scorer=self.name, status="unscored", reason=reason)
        part = Component(name=self.name, weight=1.0, value=float(value))
        return Score(
            trajectory_id=trajectory_id, scorer=self.name, status="scored", value=float(value), components=(part,)
        )
