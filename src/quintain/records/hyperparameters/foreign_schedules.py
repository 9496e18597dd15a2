"""Schedulers of transformers, their arguments, and shares of steps, as settings here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from quintain.errors import InvalidInput
from quintain.records.hyperparameters.foreign_settings import RENAMED
from quintain.records.wording import shown

SCHEDULERS = ("lr_scheduler_type", "lr_scheduler", "schedule")
ARGUMENTS = "lr_scheduler_kwargs"
FLOORS = ("min_lr_rate", "min_lr_ratio", "cosine_min_lr_ratio", "min_rate_ratio")
"""Names of the share of the peak rate at which a decay ends."""

_WITH_FLOOR, _RESTARTS, _STABLE = "cosine_with_min_lr", "cosine_with_restarts", "warmup_stable_decay"
_MEANINGS = {
    _WITH_FLOOR: "cosine",
    _RESTARTS: "cosine",
    "constant_with_warmup": "constant",
    "polynomial": "linear",
}
"""Scheduler -> schedule here, for the arguments that `_FIXED` and `_floor` allow."""

_BY_RESULTS = ("reduce_lr_on_plateau", "greedy")
"""Schedulers that follow a loss."""

_SETTINGS = {
    (_RESTARTS, "num_cycles"): "cycles",
    (_STABLE, "num_decay_steps"): "decay_steps",
    (_STABLE, "decay_type"): "decay_shape",
}
"""(scheduler, argument) -> setting here."""

_FIXED = {
    ("cosine", "num_cycles"): 0.5,
    (_WITH_FLOOR, "num_cycles"): 0.5,
    (_STABLE, "num_cycles"): 0.5,
    (_STABLE, "num_stable_steps"): None,
    (_STABLE, "warmup_type"): "linear",
    ("polynomial", "power"): 1.0,
    ("polynomial", "lr_init"): None,
    ("inverse_sqrt", "timescale"): None,
}
"""(scheduler, argument) -> the only value that means a schedule here."""

_END = 1e-7
"""Rate at which `polynomial` ends where `lr_end` is not given."""


def with_schedule(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the schedule and its floor in place of another trainer's scheduler and its arguments.

    The scheduler `constant` of transformers has no warm-up, whatever its length; `constant_with_warmup` has.

    Raises:
        InvalidInput: an argument that no schedule here has, or a floor that depends on an unknown learning rate.
    """
    result = dict(values)
    given = [name for name in SCHEDULERS if isinstance(result.get(name), str)]
    kind = result[given[0]] if given else "cosine"
    if kind in _BY_RESULTS:
        raise InvalidInput(
            f"`{given[0]}` cannot be {kind}: the rate depends on the step alone, so that a resumed run ends the same; give schedule: "
            "cosine or warmup_stable_decay, and early_stopping_patience to end at a plateau"
        )
    arguments = result.pop(ARGUMENTS, None) or {}
    if not isinstance(arguments, Mapping):
        raise InvalidInput(f"`{ARGUMENTS}`: expected a mapping, got {shown(arguments)}")
    rates = {name: arguments[name] for name in ("min_lr", "lr_end") if arguments.get(name) is not None}
    rates |= {"min_lr": result.pop("min_lr")} if result.get("min_lr") is not None else {}
    for name, value in arguments.items():
        if name in FLOORS:
            result[name] = value
        elif (setting := _SETTINGS.get((str(kind), name))) is not None:
            result[setting] = value
        elif name not in rates and (kind, name) not in _FIXED:
            raise InvalidInput(f"`{ARGUMENTS}.{name}` cannot be {shown(value)}: no schedule here has it; leave it out")
        elif name not in rates and value not in (None, _FIXED[kind, name]):
            raise InvalidInput(
                f"`{ARGUMENTS}.{name}` cannot be {shown(value)}: expected {shown(_FIXED[kind, name])}; leave it out, or give a "
                "schedule of ours and its settings"
            )
    if kind == "polynomial":
        rates.setdefault("lr_end", _END)
    for name, rate in rates.items():
        result["min_rate_ratio"] = _share(name, rate, result)
    if kind == _WITH_FLOOR and not any(result.get(name) is not None for name in FLOORS):
        raise InvalidInput(f"`{given[0]}` is {_WITH_FLOOR} without its floor; give min_rate_ratio, such as 0.1")
    if kind == "constant" and given[0] != "schedule":
        result = {name: value for name, value in result.items() if name != "warmup_ratio"} | {"warmup_steps": 0}
    return result | {name: _MEANINGS.get(kind, kind) for name in given[:1]}


def shares_to_steps(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with numbers of steps in place of shares of all steps, and the warm-up in one of its two forms.

    transformers takes both in one argument: from 1 on steps, below it a share. No steps of warm-up leave it to the ratio.

    Raises:
        InvalidInput: a share, where the number of all steps is not given.
    """
    result, total = dict(values), values.get("max_steps")
    for name in ("save_steps", "eval_steps"):
        share = result.get(name)
        if isinstance(share, float) and 0 < share < 1:
            if isinstance(total, bool) or not isinstance(total, int) or total < 1:
                (setting,) = RENAMED[name]
                raise InvalidInput(
                    f"`{name}` is {share}, a share of all steps; give max_steps too, or {setting}, in steps"
                )
            result[name] = math.ceil(share * total)
    warmup = result.get("warmup_steps")
    if isinstance(warmup, float) and 0 < warmup < 1:
        result["warmup_ratio"] = result.pop("warmup_steps")
    elif warmup == 0 and result.get("warmup_ratio"):
        del result["warmup_steps"]
    return result


def _share(name: str, given: Any, values: Mapping[str, Any]) -> float:
    rate = _rate(given)
    peak = next((found for key in ("learning_rate", "lr") if (found := _rate(values.get(key))) is not None), None)
    if rate is None or not peak:
        raise InvalidInput(
            f"`{name}` is {shown(given)}, a rate; give learning_rate too, or min_rate_ratio, its share of it"
        )
    return rate / peak


def _rate(value: Any) -> float | None:
    """Return a learning rate, which YAML reads as a text where it has an exponent without a dot."""
    try:
        rate = math.nan if isinstance(value, bool | None) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return rate if 0 <= rate < math.inf else None
