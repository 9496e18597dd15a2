"""`create_reward` of dict calls: declared scorers by the names of HelloAgents' reward types, usable by name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from quintain.errors import InvalidInput, NotFound
from quintain.records.labels.reward import DECLARED, Declared
from quintain.records.record import nearest, shown
from quintain.scoring.declared import DeclaredScorer, read_declared
from quintain.scoring.registry import is_scorer_name, register_scorer, scorer
from quintain.tools.invocation import refuse_unknown

_TYPES = {"step": "step_bonus"}
"""Name of HelloAgents -> type of declared scorer, where they differ."""


def create_reward(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Make a reward usable as `scorer` or `reward`; return its name and its settings.

    Args:
        parameters: `reward_type`: `accuracy` (the default), `length_penalty` with `penalty_weight` (0.001) and `max_length` (1024
            characters), `step` with `step_bonus` (0.1), a type of declared scorer with its settings and optionally `name`, or
            the name of any scorer.

    Raises:
        InvalidInput: a parameter that the type does not have, or out of its bounds.
        NotFound: no such type and no such scorer.
    """
    kind = parameters.get("reward_type", "accuracy")
    if not isinstance(kind, str):
        raise InvalidInput(
            f"reward_type is {shown(kind)}; valid: accuracy, length_penalty, step, a declared type, or the name of a scorer"
        )
    settings = {name: value for name, value in parameters.items() if name != "reward_type"}
    declared = None
    if (declared_type := _TYPES.get(kind, kind)) in DECLARED:
        declared = _named(kind, read_declared({**settings, "type": declared_type}, f"create_reward of type {kind!r}"))
        register_scorer(declared.label, lambda: DeclaredScorer(declared))
        name = declared.label
    else:
        refuse_unknown(f"create_reward of type {kind!r}", parameters, {"reward_type": None})
        name = _scorer_name("answer" if kind == "accuracy" else kind)
    return {
        "status": "success",
        "reward_type": kind,
        "scorer": name,
        "parameters": declared.model_dump(mode="json", exclude={"type", "name"}) if declared is not None else {},
        "next_step": f"Score with scorer={name!r} and export with the same scorer, or train with reward={name!r}.",
    }


def _scorer_name(kind: str) -> str:
    try:
        return scorer(kind).name
    except NotFound as error:
        types = ["accuracy", *_TYPES, *DECLARED]
        raise NotFound(
            f"expected a reward_type, got {shown(kind)}{nearest(kind, types)}; valid: {', '.join(types)}, or a scorer ({error.message})"
        ) from None


def _named(kind: str, declared: Declared) -> Declared:
    """Return the scorer under a name: its own, else the type with its settings, such as `length_penalty-0.001-1024`."""
    if declared.name is not None:
        return declared
    settings = declared.model_dump(exclude={"type", "name"}).values()
    name = "-".join([kind, *(f"{value:g}" if isinstance(value, float) else str(value) for value in settings)])
    if not is_scorer_name(name):
        name = f"{kind}-{hashlib.sha256(declared.model_dump_json().encode()).hexdigest()[:8]}"
    return declared.model_copy(update={"name": name})
