"""Scorers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from quintain.errors import InvalidInput, NotFound
from quintain.records.seams import Scorer
from quintain.rewards.mix import MixScorer, Weighted
from quintain.rewards.outcome import OutcomeScorer
from quintain.rewards.rules import RulesScorer

_SCORERS: dict[str, Callable[[], Scorer]] = {scorer.name: scorer for scorer in (OutcomeScorer, RulesScorer)}


def scorer_names() -> list[str]:
    """The names that `scorer` knows, sorted."""
    return sorted(_SCORERS)


def scorer(spec: str | Mapping[str, float]) -> Scorer:
    """The scorer of a name, or the weighted mix of several, such as `{"outcome": 0.4, "rules": 0.6}`.

    Raises:
        NotFound: a name that is not known; lists those that are.
        InvalidInput: an empty mix or a weight that is not a number >= 0.
    """
    if isinstance(spec, str):
        return _named(spec)
    if not isinstance(spec, Mapping) or not spec:
        raise InvalidInput(f"scorer is {spec!r}; it must be a name or a mix of names and weights: {_known()}")
    parts = []
    for name, weight in spec.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise InvalidInput(f"weight of {name!r} is {weight!r}; it must be a number >= 0")
        parts.append(Weighted(_named(name), float(weight)))
    return MixScorer(parts)


def _named(name: str) -> Scorer:
    make = _SCORERS.get(name)
    if make is None:
        raise NotFound(f"no scorer {name!r}; {_known()}")
    return make()


def _known() -> str:
    return f"known scorers: {', '.join(scorer_names())}; or a mix such as {{'outcome': 0.5, 'rules': 0.5}}"
