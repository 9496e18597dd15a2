"""`create_reward` of dict calls: HelloAgents' reward types with their parameters, as scorers that can be used by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from quintain.errors import InvalidInput
from quintain.records.protocols import Scorer
from quintain.records.record import shown
from quintain.scoring.outcomes.shaped_rewards import LengthPenaltyScorer, StepBonusScorer
from quintain.scoring.registry import register_scorer, scorer
from quintain.tools.invocation import refuse_unknown

_FIELDS = {"length_penalty": ("penalty_weight", "max_length"), "step": ("step_bonus",)}


def create_reward(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Make a reward usable as `scorer`; return its name and what it does.

    Args:
        parameters: `reward_type`: `accuracy` (the default), `length_penalty` with `penalty_weight` (0.001) and `max_length` (1024
            characters), `step` with `step_bonus` (0.1), or the name of any scorer.

    Raises:
        InvalidInput: a parameter that the type does not have, or out of its bounds.
        NotFound: no such type and no such scorer.
    """
    kind = parameters.get("reward_type", "accuracy")
    if not isinstance(kind, str):
        raise InvalidInput(
            f"reward_type is {shown(kind)}; valid: accuracy, length_penalty, step, or the name of a scorer"
        )
    refuse_unknown(
        f"create_reward of type {kind!r}", parameters, dict.fromkeys(("reward_type", *_FIELDS.get(kind, ())))
    )
    if kind in _FIELDS:
        reward = _scorer(kind, parameters)
        register_scorer(reward.name, lambda: reward)
        name = reward.name
    else:
        name = scorer("answer" if kind == "accuracy" else kind).name
    return {
        "status": "success",
        "reward_type": kind,
        "scorer": name,
        "parameters": {field: getattr(reward, field) for field in _FIELDS[kind]} if kind in _FIELDS else {},
        "next_step": f"Use it: action score with scorer={name!r}, then export with the same scorer.",
    }


def _scorer(kind: str, parameters: Mapping[str, Any]) -> Scorer:
    if kind == "length_penalty":
        weight = _number(parameters, "penalty_weight", 0.001, 0, 1000)
        length = _number(parameters, "max_length", 1024, 1, 10**9, whole=True)
        return LengthPenaltyScorer(weight, int(length))
    return StepBonusScorer(_number(parameters, "step_bonus", 0.1, 0, 1))


def _number(
    parameters: Mapping[str, Any], name: str, default: float, low: float, high: float, *, whole: bool = False
) -> float:
    value: Any = parameters.get(name, default)
    kinds: Any = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value) or not low <= value <= high:
        raise InvalidInput(
            f"{name} is {shown(value)}; it must be a {'whole ' if whole else ''}number from {low:g} to {high:g}"
        )
    return float(value)
