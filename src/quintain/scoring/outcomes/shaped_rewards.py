"""Accuracy with a penalty for length, or with a bonus for steps: HelloAgents' two other rewards, with their parameters.

    length_penalty  max(0, a - w max(0, n - m) / m)      a: `answer`, n: characters of the agent's messages, w: weight, m: free
    step            (a + min(b s, 0.5)) / 1.5 where a > 0, else 0      s: distinct step marks (`Step 2`, `第2步`, `2.`), b: bonus

Theirs paid the bonus for wrong answers too, counted line breaks as steps, and left 0..1; here the most is 1.
"""

from __future__ import annotations

from quintain.records.score import Component, Score
from quintain.records.trajectory import Trajectory
from quintain.scoring.outcomes.answer_scorers import TextScorer
from quintain.scoring.outcomes.final_message import agent_text
from quintain.scoring.outcomes.whole_run_scores import scored, unscored
from quintain.scoring.published import STEP_MARKS

_MOST_BONUS = 0.5


def length_penalty(trajectory: Trajectory, name: str, penalty_weight: float, max_length: int) -> Score:
    """Return the accuracy less a penalty for every character past `max_length`; unscored where `answer` is."""
    verdict = TextScorer("answer").score(trajectory)
    if verdict.value is None:
        return unscored(trajectory, name, verdict.reason or "")
    n = len(agent_text(trajectory))
    penalty = penalty_weight * max(0, n - max_length) / max_length
    value = max(0.0, verdict.value - penalty)
    parts = (
        Component(name="accuracy", weight=1.0, value=verdict.value, feedback=verdict.feedback),
        Component(name="length", weight=0.0, value=max(0.0, 1.0 - penalty), feedback=f"{n:,} characters."),
    )
    return scored(trajectory, name, value, f"{verdict.feedback} {n:,} characters cost {penalty:.3g}.", parts)


def step_bonus(trajectory: Trajectory, name: str, bonus_per_step: float) -> Score:
    """Return the accuracy plus a bonus for the steps of a right answer; unscored where `answer` is."""
    verdict = TextScorer("answer").score(trajectory)
    if verdict.value is None:
        return unscored(trajectory, name, verdict.reason or "")
    steps = len(set(STEP_MARKS.findall(agent_text(trajectory))))
    bonus = min(bonus_per_step * steps, _MOST_BONUS) if verdict.value > 0 else 0.0
    value = (verdict.value + bonus) / (1.0 + _MOST_BONUS)
    parts = (
        Component(name="accuracy", weight=1 / 1.5, value=verdict.value, feedback=verdict.feedback),
        Component(name="steps", weight=0.5 / 1.5, value=bonus / _MOST_BONUS, feedback=f"{steps} steps."),
    )
    return scored(trajectory, name, value, f"{verdict.feedback} {steps} steps.", parts)
