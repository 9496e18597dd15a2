"""Batch sizes of other trainers, which count what one pass takes on one device, as examples of an optimizer step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

from quintain.errors import InvalidInput
from quintain.records.wording import shown

ACCUMULATION = (
    "gradient_accumulation_steps",
    "gradient_accumulation",
    "grad_accumulation_steps",
    "grad_accumulation",
)
"""Aliases that multiply the batch size: here `batch_size` counts the examples of one optimizer step."""

PASS = "micro_batch_size"
"""Size of a pass."""

_PER_DEVICE = ("per_device_train_batch_size", PASS)
WHOLE = ("batch_size", "global_batch_size", "train_batch_size")
"""Sizes beside which that of a pass decides about memory alone."""
_SIZES = ("batch_size", *_PER_DEVICE)
"""Names of the batch size, which `ACCUMULATION` multiplies."""

_OF_GROUPS = "scale_rewards"
"""Setting that a method on groups has: its batch counts groups, and that of other trainers the runs in them."""
_GROUP_SIZES = ("num_generations", "group_size", "n_samples_per_prompt")
_USUAL_GROUP = 8
"""Runs of a group where no size is given, here as in TRL."""

_ROLLOUT, _STEP = "rollout_batch_size", "train_batch_size"
"""Prompts of a rollout in OpenRLHF, and beside it the runs of an optimizer step, which verl counts in prompts."""

_EPOCHS = ("num_ppo_epochs", "ppo_epochs")
_MINIBATCHES = "num_mini_batches"


def with_batch_size(values: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Return settings with the batch of an optimizer step: passes, processes and minibatches multiplied.

    Raises:
        InvalidInput: a factor is no whole number or has nothing to multiply, or a batch of runs makes no whole groups.
    """
    result = {name: value for name, value in values.items() if name not in ACCUMULATION}
    if any(result.get(name) is not None for name in (*WHOLE, _PER_DEVICE[0])):
        result.pop(PASS, None)
    sizes = [name for name in _SIZES if result.get(name) is not None]
    passes, processes = _passes(values, sizes), values.get("processes")
    devices = processes if _is_count(processes) else 1
    for name in sizes:
        if _is_count(result[name]):
            result[name] *= passes * (devices if name in _PER_DEVICE else 1)
            if name in _PER_DEVICE and _OF_GROUPS in fields:
                result[name] = _groups(name, result[name], values)
    if _is_count(result.get(_ROLLOUT)) and _is_count(result.get(_STEP)):
        result |= _parts(result.pop(_STEP), result, fields)
    for name in _EPOCHS:
        if _is_count(result.get(name)) and _is_count(values.get(_MINIBATCHES)):
            result[name] *= values[_MINIBATCHES]
    return result


def _passes(values: Mapping[str, Any], sizes: Collection[str]) -> int:
    """Return the number of accumulated passes."""
    factors = {name: values[name] for name in ACCUMULATION if values.get(name) is not None}
    if not factors:
        return 1
    name, factor = next(iter(factors.items()))
    if not all(_is_count(other) and other == factor for other in factors.values()):
        raise InvalidInput(
            f"{' and '.join(f'`{key}`' for key in factors)}: expected a whole number of at least 1, got {shown(factor)}"
        )
    if not sizes and factor > 1:
        raise InvalidInput(
            f"`{name}` multiplies the batch size, and none is given; give batch_size, the product of the two"
        )
    return int(factor)


def _parts(runs: int, values: Mapping[str, Any], fields: Collection[str]) -> dict[str, int]:
    """Return the minibatches of a rollout of OpenRLHF whose steps take so many runs each."""
    played = values[_ROLLOUT] * _group_size(values, _USUAL_GROUP if _OF_GROUPS in fields else 1)
    if played % runs:
        raise InvalidInput(
            f"`{_STEP}` counts the runs of an optimizer step beside `{_ROLLOUT}`, and {played} runs of a rollout make no whole "
            f"steps of {runs}; give tasks_per_step, minibatches and updates_per_rollout"
        )
    return {"minibatches": played // runs, "updates_per_rollout": played // runs}


def _group_size(values: Mapping[str, Any], usual: int) -> int:
    return next((int(values[key]) for key in _GROUP_SIZES if _is_count(values.get(key))), usual)


def _groups(name: str, runs: int, values: Mapping[str, Any]) -> int:
    size = _group_size(values, _USUAL_GROUP)
    if runs % size:
        raise InvalidInput(
            f"`{name}` counts runs, {runs} in a step, which make no whole groups of {size}; give batch_size in groups, or "
            "tasks_per_step where the agent acts"
        )
    return int(runs // size)


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
