"""Weighted mixes of scorers. A part that cannot be scored makes the mix unscored: it is never taken as 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from quintain.errors import InvalidInput
from quintain.records.score import Component, Score
from quintain.records.seams import Scorer
from quintain.records.trajectory import Trajectory


class Weighted(NamedTuple):
    """A scorer and its share, before normalisation."""

    scorer: Scorer
    weight: float


class MixScorer:
    """value = sum(w_i v_i) / sum(w_i), in 0..1, higher is better."""

    def __init__(self, parts: Sequence[Weighted]) -> None:
        """Take the parts.

        Args:
            parts: At least one, weights finite and not negative, not all 0.

        Raises:
            InvalidInput: names the weight that is wrong.
        """
        for part in parts:
            if not (math.isfinite(part.weight) and part.weight >= 0):
                raise InvalidInput(
                    f"weight of {part.scorer.name!r} is {part.weight}; weights must be finite and >= 0; leave a scorer out "
                    "in place of a negative weight"
                )
        self._total = math.fsum(part.weight for part in parts)
        if self._total == 0:
            raise InvalidInput("a mix needs at least one weight above 0, for example {'outcome': 0.5, 'rules': 0.5}")
        self._parts = tuple(sorted(parts, key=lambda part: part.scorer.name))
        self.name = "mix(" + ", ".join(f"{part.scorer.name}={part.weight:g}" for part in self._parts) + ")"

    def score(self, trajectory: Trajectory) -> Score:
        """The weighted mean; unscored, with the reason, where a part with weight is unscored."""
        run = trajectory.identified().id or ""
        components, reasons, value = [], [], 0.0
        for scorer, weight in self._parts:
            part = scorer.score(trajectory)
            share = weight / self._total
            feedback = part.feedback or part.reason or ""
            components.append(Component(name=scorer.name, weight=share, value=part.value, feedback=feedback))
            if part.value is not None:
                value += share * part.value
            elif weight > 0:
                reasons.append(f"{scorer.name}: {part.reason}")
        shown = tuple(components)
        if reasons:
            reason = "; ".join(reasons)
            return Score(trajectory_id=run, scorer=self.name, status="unscored", reason=reason, components=shown)
        feedback = " ".join(part.feedback for part in shown if part.feedback)
        return Score(
            trajectory_id=run,
            scorer=self.name,
            status="scored",
            value=min(value, 1.0),  # rounding can put a sum of shares a hair above 1
            components=shown,
            feedback=feedback,
        )
