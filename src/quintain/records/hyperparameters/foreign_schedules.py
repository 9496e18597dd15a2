"""Schedulers of transformers and their arguments, as settings here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.errors import InvalidInput
from quintain.records.record import shown

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

    Raises:
        InvalidInput: an argument that no schedule here has, or a floor that depends on an unknown learning rate.
    """
    result = dict(values)
    given = [name for name in SCHEDULERS if isinstance(result.get(name), str)]
    kind = result[given[0]] if given else "cosine"
    if kind in _BY_RESULTS:
        raise _fault(
            f"`{given[0]}` cannot be {kind}: the rate depends on the step alone, so that a resumed run ends the same; give schedule: "
            "cosine or warmup_stable_decay, and early_stopping_patience to end at a plateau"
        )
    arguments = result.pop(ARGUMENTS, None) or {}
    if not isinstance(arguments, Mapping):
        raise _fault(f"`{ARGUMENTS}`: expected a mapping, got {shown(arguments)}")
    rates = {name: arguments[name] for name in ("min_lr", "lr_end") if arguments.get(name) is not None}
    rates |= {"min_lr": result.pop("min_lr")} if result.get("min_lr") is not None else {}
    for name, value in arguments.items():
        if name in FLOORS:
            result[name] = value
        elif (setting := _SETTINGS.get((str(kind), name))) is not None:
            result[setting] = value
        elif name not in rates and (kind, name) not in _FIXED:
            raise _fault(f"`{ARGUMENTS}.{name}` cannot be {shown(value)}: no schedule here has it; leave it out")
        elif name not in rates and value not in (None, _FIXED[kind, name]):
            raise _fault(
                f"`{ARGUMENTS}.{name}` cannot be {shown(value)}: expected {shown(_FIXED[kind, name])}; leave it out, or give a "
                "schedule of ours and its settings"
            )
    if kind == "polynomial":
        rates.setdefault("lr_end", _END)
    for name, rate in rates.items():
        result["min_rate_ratio"] = _share(name, rate, result)
    if kind == _WITH_FLOOR and not any(result.get(name) is not None for name in FLOORS):
        raise _fault(f"`{given[0]}` is {_WITH_FLOOR} without its floor; give min_rate_ratio, such as 0.1")
    return result | {name: _MEANINGS.get(kind, kind) for name in given[:1]}


def _share(name: str, rate: Any, values: Mapping[str, Any]) -> float:
    peak = next((values[key] for key in ("learning_rate", "lr") if values.get(key) is not None), None)
    if not _is_rate(rate) or not _is_rate(peak) or not peak:
        raise _fault(f"`{name}` is {shown(rate)}, a rate; give learning_rate too, or min_rate_ratio, its share of it")
    return float(rate) / float(peak)


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _fault(message: str) -> InvalidInput:
    return InvalidInput(f"hyperparameters: {message}")
