"""Settings of other trainers that choose a value of one setting here: number formats, where a run is reported, a bound."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from quintain.errors import InvalidInput
from quintain.records.hyperparameters.foreign_settings import FIXED, RENAMED
from quintain.records.wording import shown

PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "use_bf16": "bf16", "use_fp16": "fp16"}
"""Switch -> `precision`; fp32 where all given switches are off."""

QUANTIZATIONS = {"load_in_4bit": "nf4", "load_in_8bit": "int8", "use_4bit": "nf4", "use_8bit": "int8"}
"""Switch -> `quantization`."""

SINKS = {"use_wandb": "wandb", "use_tensorboard": "tensorboard"}
"""Switch -> the member of `report_to` that it adds."""

IMPLIED = {"wandb_project": "use_wandb"}
"""Name -> the switch that it turns on where neither the switch nor `report_to` is given, as in axolotl and knowlyr."""


def chosen_formats(values: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the number formats that switches choose; fp32 where all those of `precision` are off."""
    for setting, formats in (("precision", PRECISIONS), ("quantization", QUANTIZATIONS)):
        switches = {name: values[name] for name in formats if values.get(name) is not None}
        for name, on in switches.items():
            if formats is PRECISIONS and on == "auto":
                yield setting, name, on
            elif not isinstance(on, bool):
                known = ", ".join(dict.fromkeys(formats.values()))
                raise InvalidInput(
                    f"`{name}`: expected true or false, got {shown(on)}; or give {setting}, such as {known}"
                )
            elif on:
                yield setting, name, formats[name]
            elif formats is PRECISIONS and not any(switches.values()):
                yield setting, name, "fp32"


def added_sinks(values: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield `report_to` with the sinks that switches add to it."""
    switches = {name: values[name] for name in SINKS if values.get(name) is not None}
    for name, switch in IMPLIED.items():
        if values.get(name) and values.get("report_to") is None:
            switches.setdefault(switch, True)
    for name, on in switches.items():
        if not isinstance(on, bool):
            raise InvalidInput(f"`{name}`: expected true or false, got {shown(on)}; or give report_to: [{SINKS[name]}]")
    if added := [SINKS[name] for name, on in switches.items() if on]:
        reported = values.get("report_to") or ()
        stated = (reported,) if isinstance(reported, str) else tuple(reported)
        yield (
            "report_to",
            " and ".join(name for name, on in switches.items() if on),
            tuple(dict.fromkeys((*stated, *added))),
        )


_OF_SEQUENCES = {"grpo": "gspo", "luspo": "luspo"}
"""`loss_type` of TRL with `importance_sampling_level: sequence` -> the loss here."""


def with_ratio_of_sequences(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the loss that TRL states as another one and the level of its ratio."""
    loss = _OF_SEQUENCES.get(str(values.get("loss_type")))
    if loss is None or values.get("importance_sampling_level") != "sequence":
        return dict(values)
    rest = {name: value for name, value in values.items() if name != "importance_sampling_level"}
    return rest | {"loss_type": loss}


def with_bound_of_cispo(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the distance from 1 in place of TRL's bound of the ratio in cispo.

    There `epsilon_high`, or without it `epsilon`, is the highest ratio itself, and nothing bounds it from below.

    Raises:
        InvalidInput: the bound is below 1.
    """
    given = {name: values[name] for name in ("epsilon_high", "epsilon") if values.get(name) is not None}
    if not given or "cispo" not in (values.get("loss"), values.get("loss_type")):
        return dict(values)
    name, bound = next(iter(given.items()))
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not bound >= 1:
        raise InvalidInput(
            f"`{name}`: expected a number of at least 1, for in cispo it is the highest ratio itself, got "
            f"{shown(bound)}; give 5.0, as its authors do, or clip_high, the distance above 1"
        )
    return {key: value for key, value in values.items() if key not in given} | {"epsilon_high": bound - 1}


_KL = "kl_coefficient"
_LOSS_KL = ("use_kl_loss", "kl_loss_coef")
_REWARD_KL = "init_kl_coef"


def with_place_of_kl(values: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Return the settings of PPO, whose KL is in the reward, without the switch of verl that puts it there, or leaves it out.

    verl has the KL in the loss, in the reward, in both or in neither, and in neither by default. OpenRLHF has it in the reward, and
    with `use_kl_loss` in the loss.

    Raises:
        InvalidInput: the KL is to be in the loss, or outside of PPO in the reward.
    """
    if "kl_target" not in fields:  # of PPO alone
        if _KL in fields and values.get(_REWARD_KL) and not values.get(_LOSS_KL[0]):
            raise InvalidInput(
                f"`{_REWARD_KL}` cannot be {shown(values[_REWARD_KL])} without use_kl_loss: the KL would be in the reward, and here it is "
                "in the loss; give kl_coefficient, its weight there, or train by ppo"
            )
        return dict(values)
    for name in _LOSS_KL:
        if values.get(name):
            raise InvalidInput(
                f"`{name}` cannot be {shown(values[name])}: ppo has the KL in the reward; give kl_coefficient, its weight there, or "
                "train by grpo, which has it in the loss"
            )
    rest = {name: value for name, value in values.items() if name not in ("use_kl_in_reward", *_LOSS_KL)}
    if values.get("use_kl_in_reward") is not False:
        return rest
    return {name: value for name, value in rest.items() if RENAMED.get(name) != (_KL,) and name != _KL} | {_KL: 0.0}


_SHUFFLE = "shuffle_dataset"


def require_new_order(values: Mapping[str, Any], fields: Collection[str]) -> None:
    """Refuse to keep the order of the rows, as TRL does in GRPO; in its SFT the same value is the default, and rows are shuffled too.

    Raises:
        InvalidInput: the rows are to keep their order.
    """
    if "scale_rewards" in fields and values.get(_SHUFFLE) is False:
        raise InvalidInput(f"`{_SHUFFLE}` cannot be false: {FIXED['shuffle'].remedy}")
