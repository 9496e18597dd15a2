"""Scorers by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from quintain.errors import Conflict, InvalidInput, NotFound
from quintain.records.seams import Scorer
from quintain.rewards.custom import FunctionScorer, RewardFunction
from quintain.rewards.mix import MixScorer, Weighted
from quintain.rewards.outcome import OutcomeScorer
from quintain.rewards.rules import RulesScorer

_SCORERS: dict[str, Callable[[], Scorer]] = {scorer.name: scorer for scorer in (OutcomeScorer, RulesScorer)}
_BUILT_IN = frozenset(_SCORERS)
_MAX_WEIGHT = 1e6


def register(name: str, function: RewardFunction) -> None:
    """Make a function a scorer of this process, under a name of its own.

    Raises:
        InvalidInput: a name that cannot be one, or something that cannot be called.
        Conflict: a built-in scorer has the name.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise InvalidInput(f"scorer name {name!r} must be letters, digits, '.', '_' or '-', at most 100 of them")
    if name in _BUILT_IN:
        raise Conflict(f"{name!r} is a built-in scorer; give yours another name")
    if not callable(function):
        raise InvalidInput(f"the reward function {name!r} is {type(function).__name__}; it must be callable")
    _SCORERS[name] = lambda: FunctionScorer(name, function)


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
        if weight > _MAX_WEIGHT:
            raise InvalidInput(f"weight of {name!r} is {weight!r}; only ratios matter: valid: 0..{_MAX_WEIGHT:g}")
        parts.append(Weighted(_named(name), float(weight)))
    return MixScorer(parts)


def _named(name: str) -> Scorer:
    make = _SCORERS.get(name)
    if make is None:
        raise NotFound(f"no scorer {name!r}; {_known()}")
    return make()


def _known() -> str:
    return f"known scorers: {', '.join(scorer_names())}; or a mix such as {{'outcome': 0.5, 'rules': 0.5}}"
