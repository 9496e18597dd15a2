"""Parts of the view of one run: texts cut to a length, stored scores, and steps that are not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quintain.records.score import Score
from quintain.records.trajectory import Actor, Trajectory
from quintain.tools.services import Services


class TextCut:
    """Shortens every text of a JSON value and records whether it had to."""

    def __init__(self, max_chars: int) -> None:
        self.max_chars = max_chars
        self.happened = False

    def apply(self, value: Any) -> Any:
        """Return the value with each text cut at `max_chars`."""
        if isinstance(value, str) and len(value) > self.max_chars:
            self.happened = True
            return f"{value[: self.max_chars]}... [{len(value) - self.max_chars} more characters]"
        if isinstance(value, dict):
            return {key: self.apply(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.apply(inner) for inner in value]
        return value


def masked_steps(run: Trajectory, shown: range) -> tuple[int, ...]:
    """Return the indices of the agent's steps that no training uses: marked so, or copied context."""
    steps = run.steps
    return tuple(
        place
        for place in shown
        if steps[place].actor is Actor.AGENT and (steps[place].train is False or steps[place].copied_context)
    )


def stored_scores(services: Services, run: Trajectory, shown: range) -> list[dict[str, Any]]:
    """Return the current scores of a run, newest first, with the values of the shown steps alone.

    `steps` of an entry has the index in the run's steps, not among the agent's.
    """
    places = [place for place, step in enumerate(run.steps) if step.actor is Actor.AGENT]
    return [_entry(score, places, shown) for score in services.store.scores.current_of(run.id or "")]


def _entry(score: Score, places: Sequence[int], shown: range) -> dict[str, Any]:
    entry: dict[str, Any] = score.model_dump(
        mode="json", exclude_none=True, include={"scorer", "rater", "rubric", "value", "reason", "created_at"}
    )
    if score.feedback:
        entry["feedback"] = score.feedback
    if parts := {one.name: one.value for one in score.components if one.value is not None}:
        entry["parts"] = {name: round(value, 4) for name, value in parts.items()}
    steps = [
        {"step": places[one.step], "value": one.value} | ({"feedback": one.feedback} if one.feedback else {})
        for one in score.steps
        if one.step < len(places) and places[one.step] in shown
    ]
    return {**entry, "steps": steps} if steps else entry
