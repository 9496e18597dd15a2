"""Named mixes of outcome, process and efficiency: ours, and those that other systems published, with their defects mended.

What each one changes of the published formula, and why, stands in docs/scoring.md. All of them leave a run of unknown outcome
unscored: a value without its main part cannot be compared with values that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from quintain.records.profiles import DomainProfile, Part
from quintain.records.score import Component, Score
from quintain.records.seams import Scorer
from quintain.records.trajectory import Trajectory
from quintain.scoring.profiles import profile_for
from quintain.scoring.progress import Credit, credit_of
from quintain.scoring.published import HelloAgentsScorer, KnowlyrScorer, SageScorer
from quintain.scoring.rules.references import reference_steps, steps_taken
from quintain.scoring.rules.scorer import RulesScorer

MIX: Mapping[Part, float] = MappingProxyType({"outcome": 0.6, "process": 0.3, "efficiency": 0.1})
"""Weights of the composite where the profile gives none."""


class CompositeScorer:
    """Outcome first, then how it was reached.

        value = sum over the parts that are known of w value / sum of their w

    outcome     1 for success. For failure the share that was reached, times c = max(0, (2 w - 1) / w) with w the outcome's share
                of all weights: then no failed run comes above a successful one, whatever is known of the rest. A profile's
                mix that gives the outcome less than half of all weights is refused, for it could not hold that.
    process     `rules` without efficiency.
    efficiency  process times min(1, reference / steps) of a successful run: steps that are saved by leaving out the work are no
                gain. 0 of a failed one: else giving up at once were efficient.

    A part that cannot be told (no calls to judge, no reference) is left out. An unknown outcome leaves the run unscored, unless
    the profile gives the outcome no weight: then the value says nothing of success.
    """

    name = "composite"

    def __init__(self, profile: DomainProfile | None = None) -> None:
        """Take the profile; None: the one that fits each run."""
        self._profile = profile
        self._rules = RulesScorer(profile, off=("efficiency",))

    def score(self, trajectory: Trajectory) -> Score:
        """The weighted mean of what is known."""
        run = trajectory.identified()
        profile = self._profile or profile_for(run)
        mix: Mapping[Part, float] = profile.mix or MIX
        weight = mix.get("outcome", 0.0) / sum(mix.values())
        credit = credit_of(run, profile.outcome)
        process = self._rules.score(run)
        values: dict[Part, _Value] = {
            "outcome": _Value(_outcome(credit, weight), credit.told),
            "process": _Value(process.value, process.feedback or process.reason or ""),
            "efficiency": _efficiency(run, credit, process.value),
        }
        total = sum(mix.get(part, 0.0) for part, found in values.items() if found.value is not None)
        parts = _components(mix, values, total or 1.0)
        if (credit.success is None and weight) or not total:
            reason = f"{credit.told}; score the run by rules alone (scorer='rules'), or let its outcome be judged first"
            if not weight:
                reason = f"nothing is known of what the profile {profile.name!r} weighs: {', '.join(sorted(mix))}"
            value, feedback = None, ""
        else:
            reason = None
            value = min(1.0, sum(part.weight * part.value for part in parts if part.value is not None))
            feedback = f"{credit.told} {values['process'].told}".strip()
        return Score(
            trajectory_id=run.id or "",
            scorer=self.name,
            status="unscored" if value is None else "scored",
            value=value,
            reason=reason,
            components=parts,
            steps=process.steps,
            feedback=feedback,
        )


class _Value(NamedTuple):
    value: float | None
    told: str


def _outcome(credit: Credit, weight: float) -> float | None:
    if credit.success is None or credit.success:
        return credit.success and 1.0
    return (credit.share or 0.0) * max(0.0, (2 * weight - 1) / weight) if weight else 0.0


def _efficiency(run: Trajectory, credit: Credit, process: float | None) -> _Value:
    reference, why = reference_steps(run.task.metadata)
    if reference is None:
        return _Value(None, why)
    if credit.success is None:
        return _Value(None, credit.told)
    taken = steps_taken(run)
    told = f"{taken} steps where {reference:g} are enough."
    if not credit.success or not taken:
        return _Value(0.0, told)
    return _Value(min(1.0, reference / taken) * (1.0 if process is None else process), told)


def _components(mix: Mapping[Part, float], values: Mapping[Part, _Value], total: float) -> tuple[Component, ...]:
    """The parts that count, with their shares; one that is left out keeps its share for the eye and has no value."""
    return tuple(
        Component(name=part, weight=mix.get(part, 0.0) / total, value=found.value, feedback=found.told)
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
"""Name -> what makes the scorer; it takes a profile, or none for the one that fits each run."""
