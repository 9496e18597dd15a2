"""Named mixes of outcome, process and efficiency: ours, and corrected versions of published ones.

docs/explanation/process-rewards.md lists the changes and their reasons. All presets leave a run of unknown outcome unscored: a value
without its main part cannot be compared with values that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from quintain.records.labels.profiles import DomainProfile, Part
from quintain.records.protocols import Scorer
from quintain.records.score import Component, Score
from quintain.records.trajectory import Trajectory
from quintain.scoring.outcomes.whole_run_scores import scored, unscored
from quintain.scoring.profiles import Credit, credit_of, profile_for, unknown_outcome
from quintain.scoring.published import HelloAgentsScorer, KnowlyrScorer, SageScorer
from quintain.scoring.rules.references import reference_steps, steps_taken
from quintain.scoring.rules.scorer import RulesScorer

MIX: Mapping[Part, float] = MappingProxyType({"outcome": 0.6, "process": 0.3, "efficiency": 0.1})
"""Default weights of the composite."""


class CompositeScorer:
    """Outcome first, then process and efficiency.

        value = sum over the parts that are known of w value / sum of their w

    outcome     1 for success. For failure the share that was reached, times c = max(0, (2 w - 1) / w) with w the outcome's share
                of all weights: then no failed run scores above a successful one. A profile's mix that gives the outcome less
                than half of all weights is refused, because it cannot guarantee that.
    process     `rules` without efficiency.
    efficiency  process times min(1, reference / steps) of a successful run: steps saved by leaving out work do
                not count. 0 for a failed one: giving up at once is not efficient.

    An unknown part (no calls, no reference) is left out. An unknown outcome leaves the run unscored, unless the profile gives the
    outcome no weight.
    """

    name = "composite"

    def __init__(self, profile: DomainProfile | None = None) -> None:
        """Configure the profile; None: the one that fits each run."""
        self._profile = profile
        self._rules = RulesScorer(profile, off=("efficiency",))

    def score(self, trajectory: Trajectory) -> Score:
        """Return the weighted mean of the known parts."""
        run = trajectory.identified()
        profile = self._profile or profile_for(run)
        mix: Mapping[Part, float] = profile.mix or MIX
        weight = mix.get("outcome", 0.0) / sum(mix.values())
        credit = credit_of(run, profile.outcome)
        process = self._rules.score(run)
        values: dict[Part, _Value] = {
            "outcome": _Value(_outcome(credit, weight), credit.description),
            "process": _Value(process.value, process.feedback or process.reason or ""),
            "efficiency": _efficiency(run, credit, process.value),
        }
        total = sum(mix.get(part, 0.0) for part, found in values.items() if found.value is not None)
        parts = _components(mix, values, total or 1.0)
        if (credit.success is None and weight) or not total:
            reason: str = unknown_outcome(credit.description)
            if not weight:
                reason = f"nothing is known of what the profile {profile.name!r} weighs: {', '.join(sorted(mix))}"
            return unscored(run, self.name, reason, parts, process.steps)
        value = min(1.0, sum(part.weight * part.value for part in parts if part.value is not None))
        feedback = f"{credit.description} {values['process'].description}".strip()
        return scored(run, self.name, value, feedback, parts, process.steps)


class _Value(NamedTuple):
    value: float | None
    description: str


def _outcome(credit: Credit, weight: float) -> float | None:
    if credit.success is None or credit.success:
        return credit.success and 1.0
    return (credit.share or 0.0) * max(0.0, (2 * weight - 1) / weight) if weight else 0.0


def _efficiency(run: Trajectory, credit: Credit, process: float | None) -> _Value:
    reference, why = reference_steps(run.task.metadata)
    if reference is None:
        return _Value(None, why)
    if credit.success is None:
        return _Value(None, credit.description)
    taken = steps_taken(run)
    description = f"{taken} steps where {reference:g} are enough."
    if not credit.success or not taken:
        return _Value(0.0, description)
    return _Value(min(1.0, reference / taken) * (1.0 if process is None else process), description)


def _components(mix: Mapping[Part, float], values: Mapping[Part, _Value], total: float) -> tuple[Component, ...]:
    """Return the parts with their shares; a part that is left out keeps its share and has no value."""
    return tuple(
        Component(name=part, weight=mix.get(part, 0.0) / total, value=found.value, feedback=found.description)
        for part, found in values.items()
    )


PRESETS: Mapping[str, Callable[..., Scorer]] = MappingProxyType(
    {
        "composite": CompositeScorer,
        "knowlyr": KnowlyrScorer,
        "sage": SageScorer,
        "helloagents": HelloAgentsScorer,
    }
)
"""Name -> factory of the scorer; its argument is a profile, or None for the one that fits each run."""
