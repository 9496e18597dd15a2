"""Weighted mixes and products of scorers. A part that cannot be scored is never taken as 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from quintain.errors import InvalidInput
from quintain.next_step import Hint, join_hints
from quintain.records.labels.reward import Combine
from quintain.records.protocols import Scorer
from quintain.records.score import Component, Score, StepScore
from quintain.records.trajectory import Trajectory
from quintain.records.wording import exact, shown
from quintain.scoring.outcomes.whole_run_scores import scored, unscored

MAX_EXPONENT = 10.0
"""Highest weight of a factor in a product."""
SPREADS = 1.0
"""Distance of the lower bound below the mean, in standard deviations of the parts."""


class WeightedScorer(NamedTuple):
    """A scorer and its share, before normalisation."""

    scorer: Scorer
    weight: float
    identity: str | None = None
    """Its name in the name of the mix; None: the scorer's name. Parts of one name with other settings differ here."""


class MixScorer:
    """One value of several, in 0..1, higher is better.

    With shares s_i = w_i / sum(w) and values v_i of the parts:

        mean         m = sum(s_i v_i)
        lower_bound  max(0, m - k sqrt(sum(s_i (v_i - m)^2))), k = SPREADS
        product      prod(v_i^w_i)

    The lower bound is for rewards that a policy learns from: where parts disagree, one of them was probably exploited. It is the
    uncertainty-weighted objective (UWO) of Coste et al. 2023 (arXiv 2310.02743), which subtracts the variance over an
    ensemble; the standard deviation in its place has the unit of the score, so k does not depend on its scale.

    The product is for conditions: a run earns nothing where a factor is 0, whatever the others are. So a factor of 0 gives
    0 even where another factor is unscored. Parts of weight 0 are logged and never count.
    """

    def __init__(self, parts: Sequence[WeightedScorer], combine: Combine = "mean") -> None:
        """Combine the parts.

        Raises:
            InvalidInput: A weight is negative or not finite, all are 0, a lower bound or a product has one part, or an
                exponent is above `MAX_EXPONENT`.
        """
        self.require_weights([(part.scorer.name, part.weight) for part in parts], combine)
        self._total = 1.0 if combine == "product" else math.fsum(part.weight for part in parts)
        self._combine = combine
        self._parts = tuple(sorted(parts, key=lambda part: part.scorer.name))
        named = [f"{part.identity or part.scorer.name}={exact(part.weight)}" for part in self._parts]
        self.name = f"mix({', '.join(named if combine == 'mean' else [*named, combine])})"

    @staticmethod
    def require_weights(weights: Sequence[tuple[str, float]], combine: Combine) -> None:
        """Check names and weights of a mix.

        Raises:
            InvalidInput: As of the constructor.
        """
        for name, weight in weights:
            if not (math.isfinite(weight) and weight >= 0):
                raise InvalidInput(
                    f"weight of {shown(name)} is {weight}; weights must be finite and >= 0; leave a scorer out "
                    "in place of a negative weight"
                )
        if not any(weight for _, weight in weights):
            raise InvalidInput("a mix needs at least one weight above 0, for example {'outcome': 0.5, 'rules': 0.5}")
        if combine != "mean" and sum(weight > 0 for _, weight in weights) < 2:
            raise InvalidInput(
                f"`combine={combine!r}` needs at least two parts with weight; give a mix such as "
                "{'outcome': 1, 'length': 1}, or `combine='mean'`"
            )
        for name, weight in weights if combine == "product" else ():
            if weight > MAX_EXPONENT:
                raise InvalidInput(
                    f"expected an exponent of at most {MAX_EXPONENT:g} for {shown(name)} in a product, got {weight:g}; 1 multiplies "
                    "by the value itself"
                )

    def score(self, trajectory: Trajectory) -> Score:
        """Return the combined value; unscored, with the reason, where a part with weight is unscored."""
        run = trajectory.identified()
        components, reasons, verdicts = list[Component](), list[Hint](), list[tuple[Score, float]]()
        for scorer, weight, _ in self._parts:
            part = scorer.score(run)
            feedback = part.feedback or part.reason or ""
            share = weight / self._total
            components.append(Component(name=scorer.name, weight=share, value=part.value, feedback=feedback))
            if part.value is None and weight > 0:
                reasons.append(Hint(f"{scorer.name}: ", part.reason or "no reason stated"))
            verdicts.append((part, weight))
        steps = _mixed_steps(verdicts)
        is_settled = self._combine == "product" and any(part.value == 0 and part.weight > 0 for part in components)
        if reasons and not is_settled:
            return unscored(run, self.name, join_hints("; ", reasons), components, steps)
        feedback = " ".join(part.feedback for part in components if part.feedback)
        return scored(run, self.name, self._value(components), feedback, components, steps)

    def _value(self, parts: Sequence[Component]) -> float:
        known = [(part.weight, part.value) for part in parts if part.value is not None and part.weight > 0]
        if self._combine == "product":
            return math.prod(math.pow(value, exponent) for exponent, value in known)
        mean = math.fsum(share * value for share, value in known)
        if self._combine == "lower_bound":
            mean -= SPREADS * math.sqrt(math.fsum(share * (value - mean) ** 2 for share, value in known))
        return min(1.0, max(0.0, mean))  # rounding can put a sum of shares a hair outside


def _mixed_steps(verdicts: Sequence[tuple[Score, float]]) -> tuple[StepScore, ...]:
    """Return the weighted mean of the values of each step over the parts that value it; of a single part its own scores."""
    valuing = [(score.steps, weight) for score, weight in verdicts if score.steps and weight > 0]
    if len(valuing) < 2:
        return valuing[0][0] if valuing else ()
    values: dict[int, list[tuple[float, float]]] = {step.step: [] for steps, _ in valuing for step in steps}
    for steps, weight in valuing:
        for step in steps:
            if step.value is not None:
                values[step.step].append((weight, step.value))
    means = {step: math.fsum(w * v for w, v in of) / math.fsum(w for w, _ in of) for step, of in values.items() if of}
    return tuple(StepScore(step=step, value=means.get(step)) for step in sorted(values))


def capped_name(name: str, cap: float) -> str:
    """Return the name of a scorer whose values are at most `cap`."""
    return f"{name[:-1]}, cap={exact(cap)})" if name.startswith("mix(") else f"mix({name}=1, cap={exact(cap)})"


def cap_score(score: Score, cap: float) -> Score:
    """Return a score with its value at most `cap`, above 0 and at most 1, so that exploiting the scorer gains nothing beyond it.

    The capped score has another name than the scorer's, and no `raw` value to calibrate.
    """
    update: dict[str, object] = {"raw": None, "calibration": None, "scorer": capped_name(score.scorer, cap)}
    if score.value is None or score.value <= cap:
        return score.model_copy(update=update)
    feedback = f"Capped at {cap:g} from {score.value:.4g}. {score.feedback}".strip()
    return score.model_copy(update={**update, "value": cap, "feedback": feedback})
