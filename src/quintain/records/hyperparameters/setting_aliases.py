"""Aliases: the names of other trainers for the settings here, translated or refused with the reason.

The names are in `foreign_settings.toml`. A null value is ignored, and so is a zero or a disabled switch for a feature that
the method does not have. Translation happens once, where a call or a config file comes in (`tools.training.methods`); stored
records carry the canonical names only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from quintain.errors import InvalidInput
from quintain.records.hyperparameters.foreign_batches import ACCUMULATION, PASS, WHOLE, with_batch_size
from quintain.records.hyperparameters.foreign_schedules import ARGUMENTS, shares_to_steps, with_schedule
from quintain.records.hyperparameters.foreign_settings import (
    COMPONENT,
    COMPONENTS,
    FIXED,
    RENAMED,
    WITHOUT_EFFECT,
    with_switches,
)
from quintain.records.hyperparameters.setting_groups import (
    CoresetConfig,
    CurriculumConfig,
    EWCConfig,
    LoraConfig,
    ReplayConfig,
)
from quintain.records.hyperparameters.setting_switches import (
    PRECISIONS,
    QUANTIZATIONS,
    SINKS,
    added_sinks,
    chosen_formats,
    require_new_order,
    with_bound_of_cispo,
    with_place_of_kl,
    with_ratio_of_sequences,
)
from quintain.records.wording import clip, list_names, nearest, shown

FALLBACKS = {
    "num_iterations": "updates_per_rollout",
    "num_generations": "iterations",
    "train_batch_size": "batch_size",
    "reference_policy_kl_penalty": "beta",
}
"""Alias -> its setting for methods that lack the one in `RENAMED`.

In TRL's GRPO the first two are updates of a rollout and answers of a group, in trainers of agents rounds. In verl the third counts
prompts of a step, for methods with a KL coefficient. In NeMo RL the fourth is the beta of DPO.
"""

NEEDED = {"train_batch_size": "kl_coefficient"}
"""Alias of `FALLBACKS` -> setting that a method has too where the alias means what `RENAMED` says."""

SECOND_NAMES = {"epsilon": "epsilon_high", "clip_ratio": "clip_ratio_high"}
"""Alias of two settings -> alias that sets the second one if both are given."""

_PULL = "kl_coefficient"
_MODEL = "model"
"""The one refused name whose block has settings: those of the adapters."""
_OPTIMIZERS: dict[Any, Any] = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "AdamW"), "adamw"),
    **dict.fromkeys(("paged_adamw", "paged_adamw_32bit"), "adamw"),
    **dict.fromkeys(("adamw_bnb_8bit", "adamw_torch_8bit", "paged_adamw_8bit"), "adamw_8bit"),
}
"""Optimizers of transformers; the paged ones compute the same, with moments that may leave the GPU."""
_FORMATS: dict[Any, Any] = {"auto": None, "bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_TUNERS: dict[Any, Any] = {"lora": True, "full": False}

VALUES: dict[str, dict[Any, Any]] = {
    "step_weighted_loss": {True: "reward", False: "none"},
    "coreset_strategy": {"loss_topk": "loss"},
    "optim": _OPTIMIZERS,
    "optimizer": _OPTIMIZERS,
    "adapter": {"lora": True, "qlora": True},
    "full_finetuning": {True: False, False: None},
    **dict.fromkeys(("finetuning_type", "train_type", "tuner_type", "sft_type", "fine_tune_type"), _TUNERS),
    "lora_target": {"all": "all-linear"},
    "lora_target_modules": {"ALL": "all-linear"},
    "lora_target_linear": {True: "all-linear", False: None},
    "use_gradient_checkpointing": {"unsloth": True},
    "dtype": _FORMATS,
    "torch_dtype": _FORMATS,
    "param_dtype": _FORMATS,
    **{name: {4: "nf4", 8: "int8"} for name in ("quantization_bit", "quant_bits")},
    "selection_method": {"rejection_sampling": "rejection"},
    "pissa_init": {True: "pissa", False: None},
    "init_lora_weights": {True: "default", "pissa_niter_4": "pissa", "pissa_niter_16": "pissa"},
    "loss_type": {
        **{f"{name}_pair": name for name in ("exo", "nca", "bco")},
        "sppo_hard": "sppo",
        "bnpo": "dapo",
        "chunked_nll": "nll",
        "dpo_norm": "sigmoid_norm",
    },
    **{name: {True: "dft", False: None} for name in ("use_dft_loss", "enable_dft_loss")},
    "dpo_loss_type": {"dpo": "sigmoid", "dpo_norm": "sigmoid_norm"},
    **{name: {None: 0.0} for name in ("clip_grad_norm", "max_grad_norm")},
    "sync_ref_model": {True: None, False: None},
    "mixed_precision": {"no": "fp32"},
    "checkpointing_steps": {"epoch": None},
    "loss_agg_mode": {"token-mean": "dapo", "seq-mean-token-mean": "grpo", "seq-mean-token-sum-norm": "dr_grpo"},
}
"""Name -> its values that have another name here; None: it leaves the setting open."""

UNSET = {
    **dict.fromkeys(("max_steps", "save_steps", "eval_steps"), -1),
    **dict.fromkeys(("wandb_project", "wandb_name", "wandb_run_name", "run_name"), ""),
    "project": "huggingface",
    "top_k": -1,
}
"""Setting -> the value by which other trainers leave it unset."""

SINGLE = ("loss_type",)
"""Names whose value may be a list of one."""

GROUPS: dict[str, type[BaseModel]] = {
    "lora": LoraConfig,
    "curriculum": CurriculumConfig,
    "coreset": CoresetConfig,
    "replay": ReplayConfig,
    "ewc": EWCConfig,
}
"""Settings that are objects: true or {} enables the defaults, false or null disables."""

_DEPTH = 8
"""Levels of other trainers' blocks that are looked into."""

QUALIFIERS = {"chunk_overlap": ("chunk", "chunk_long_trajectories")}
"""Setting -> the switches that give it an effect; without one it is ignored by methods that lack the switch."""


def canonical(values: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Return the settings under their canonical names; unknown names pass through, for the method's model to refuse.

    Raises:
        InvalidInput: two names of one setting disagree, or a name asks for a feature that does not exist here.
    """
    resolved: dict[str, tuple[str, Any]] = {}
    for path, name, value in _translated(with_switches(values, fields), fields):
        known = resolved.setdefault(path, (name, value))
        if not _alike(known[1], value):
            both = f"{shown(known[1])} and {shown(value)}"
            raise InvalidInput(f"`{known[0]}` and `{name}` both set {path}, to {both}; give one of them")
    settings: dict[str, Any] = {}
    for path, (_, value) in resolved.items():
        group, _, member = path.partition(".")
        if member:
            if resolved.get(group, ("", True))[1] is True:
                settings.setdefault(group, {})[member] = value
        elif group not in GROUPS or not isinstance(value, bool):
            settings[path] = value
        elif value:
            settings.setdefault(group, {})
        else:
            settings[group] = None
    return settings


def _translated(values: Mapping[str, Any], fields: Collection[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield (canonical name, given name, value) of each setting."""
    for name in values:
        _require_text(name)
    values = _nested(_without_others(values), {*fields, *GROUPS, *COMPONENTS, *RENAMED})
    require_new_order(values, fields)
    values = with_place_of_kl(with_ratio_of_sequences(values), fields)
    fixed = {name for name in FIXED if _setting_of(fields, name) is None}
    _refuse(values, fixed, fields)
    stated = _stated(with_bound_of_cispo(with_schedule(shares_to_steps(values))), fields)
    values = with_batch_size(stated, fields)
    yield from chosen_formats(values)
    sinks = list(added_sinks(values))
    yield from sinks
    read = {
        *fixed,
        *WITHOUT_EFFECT,
        *PRECISIONS,
        *QUANTIZATIONS,
        *SINKS,
        *(setting for setting, _, _ in sinks),
    }
    for name, value in values.items():
        if name in COMPONENTS and isinstance(value, Mapping):
            yield from _component(name, value)
        elif name in GROUPS:
            yield from _group(name, value, fields)
        elif name not in read and not _has_no_effect(name, values, fields):
            yield from _setting(name, value, values, fields)


def _refuse(values: Mapping[str, Any], fixed: Collection[str], fields: Collection[str]) -> None:
    """Raise where a value asks for a feature that does not exist here, or a block of another trainer is unknown here."""
    blocks = {name: value for name, value in values.items() if _is_foreign_block(name, value, fields)}
    faults: dict[str, list[str]] = {}
    for name, value in values.items():
        if name in fixed and name not in blocks and not FIXED[name].accepts(value):
            faults.setdefault(FIXED[name].remedy, []).append(f"`{name}` cannot be {shown(value)}")
    refused = [f"{', '.join(names)}: {remedy}" for remedy, names in faults.items()]
    refused += [_block_fault(name, block, fields) for name, block in blocks.items()]
    if refused:
        rest = {name: value for name, value in values.items() if name not in fixed and name not in blocks}
        raise InvalidInput("; ".join([*refused, *_further_faults(rest, fields)]))


def _stated(values: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Return the settings without those that other trainers leave unset by a value, and without unknown ones that are null."""
    return {
        name: value
        for name, value in values.items()
        if (name not in UNSET or value != UNSET[name]) and (value is not None or name in {*fields, *RENAMED})
    }


def _setting(
    name: str, value: Any, values: Mapping[str, Any], fields: Collection[str]
) -> Iterator[tuple[str, str, Any]]:
    """Yield what one name sets: itself, or the settings of which it is an alias."""
    if name in SINGLE and isinstance(value, list) and len(value) == 1:
        (value,) = value
    translated = _comparable(VALUES.get(name, {}).get(value, value) if isinstance(value, str | int | None) else value)
    if name not in RENAMED:
        yield name, name, translated
        return
    paths = _paths(name, values, fields)
    if paths[0].split(".")[0] not in fields:
        paths = () if value == 0 else (name,)
    if translated is not None:
        yield from ((path, name, translated) for path in paths)


def _nested(values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return settings with dotted names, as command lines of other trainers have them, as blocks.

    Known names stay, and so do dotted names that begin with one of them.
    """
    result: dict[str, Any] = {}
    for name, value in values.items():
        *outer, last = name.split(".")
        if not outer or name in known or name in FIXED or outer[0] in known or not all((*outer, last)):
            result[name] = value
            continue
        block = result
        for part in outer[:_DEPTH]:
            inner = block.get(part)
            block[part] = block = dict(inner) if isinstance(inner, Mapping) else {}
        block[".".join([*outer[_DEPTH:], last])] = value
    return result


def _without_others(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with other trainers' names in a group, such as PEFT's in `lora`, beside it."""
    result = dict(values)
    for group in GROUPS.keys() & values.keys():
        block = values[group]
        others = {*RENAMED, *FIXED} - {*values, *_members(group)}
        if isinstance(block, Mapping) and (found := others & block.keys()):
            result[group] = {member: value for member, value in block.items() if member not in found}
            result |= {member: block[member] for member in found}
    return result


def _is_foreign_block(name: str, value: Any, fields: Collection[str]) -> bool:
    if name in COMPONENTS and isinstance(value, Mapping):
        return COMPONENT not in value
    known = {*fields, *GROUPS, *RENAMED, *COMPONENTS, *WITHOUT_EFFECT, ARGUMENTS}
    is_refused = name in FIXED and name != _MODEL
    return isinstance(value, Mapping) and bool(value) and name not in known and not is_refused


def _setting_of(fields: Collection[str], name: str) -> str | None:
    """Return the setting here that a name means."""
    if name in ACCUMULATION:
        return "a factor of batch_size"
    paths = [*RENAMED.get(name, (name,)), FALLBACKS.get(name, "")]
    known = [path for path in paths if _exists(path, fields)]
    return known[0] if name in FALLBACKS and known else " and ".join(known) or None


def _exists(path: str, fields: Collection[str]) -> bool:
    head, _, member = path.partition(".")
    return head in fields and head != "method" and (not member or member in _members(head))


def _members(group: str) -> Collection[str]:
    return GROUPS[group].model_fields if group in GROUPS else ()


def _block_fault(name: str, block: Mapping[str, Any], fields: Collection[str]) -> str:
    """Return what to give in place of a block: each setting in it that exists here, with its path."""
    found, advice = list[str](), dict[str, list[str]]()
    values = {path: value for path, value in _values_in(name, block) if value is not None}
    is_whole = any(path.rpartition(".")[2] in WHOLE for path in values)
    for path, value in values.items():
        *_, outer, last = path.split(".")
        if last == PASS and is_whole:
            continue
        if last == "beta" and _PULL in fields:  # in those methods beta weighs a reward model, if anything
            last = _PULL
        place = f"{outer}.{last}"
        known = _setting_of(fields, place) or (None if place in FIXED else _setting_of(fields, last))
        fixed = FIXED.get(place) or FIXED.get(last)
        if known:
            found.append(f"{known} for {clip(path)}")
        elif fixed is not None and not fixed.accepts(value):
            advice.setdefault(fixed.remedy, []).append(clip(path))
    remedy = FIXED[name].remedy if name in FIXED else "leave it out"
    given = f"give {list_names(found)}; " if found else ""
    more = "".join(f"{remedy} ({', '.join(paths)}); " for remedy, paths in advice.items())
    rest = f"as for the rest, {remedy}" if found or advice else remedy
    return f"`{clip(name)}` is a block, and settings are not nested here; {given}{more}{rest}"


def _values_in(path: str, block: Mapping[str, Any], depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the values of a block and of those in it, less blocks that change no result, such as `eval`."""
    for name, value in block.items():
        inner = f"{path}.{name}"
        if isinstance(value, Mapping) and depth:
            yield from () if name in WITHOUT_EFFECT else _values_in(inner, value, depth - 1)
        elif isinstance(name, str):
            yield inner, value


def _further_faults(values: Mapping[str, Any], fields: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with settings beside those that are refused already, so that one answer has it all."""
    try:
        paths = [path for path, _, _ in _translated(values, fields)]
    except InvalidInput as error:
        yield error.message
        return
    if unknown := [path for path in paths if path.split(".")[0] not in fields]:
        names = list_names([f"{clip(path)}{nearest(path, [*fields, *RENAMED])}" for path in unknown])
        yield f"not known settings: {names}; correct or remove {'it' if len(unknown) == 1 else 'them'}"


def _paths(name: str, values: Mapping[str, Any], fields: Collection[str]) -> tuple[str, ...]:
    paths = RENAMED[name]
    if name in FALLBACKS and not {paths[0], NEEDED.get(name, paths[0])} <= set(fields):
        return (FALLBACKS[name],)
    return paths[:1] if values.get(SECOND_NAMES.get(name, "")) is not None else paths


def _has_no_effect(name: str, values: Mapping[str, Any], fields: Collection[str]) -> bool:
    return name in QUALIFIERS and name not in fields and not any(values.get(switch) for switch in QUALIFIERS[name])


def _group(name: str, value: Any, fields: Collection[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield the members of a group, and whether it is enabled; nothing where it is disabled and the method has none."""
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_unset=True)
    if name not in fields:
        yield from () if value is False else ((name, name, _comparable(value)),)
    elif isinstance(value, Mapping):
        yield name, name, True
        for member, inner in value.items():
            _require_text(member)
            yield f"{name}.{member}", f"{name}.{member}", _comparable(inner)
    else:
        yield name, name, False if value is None else value


def _component(name: str, block: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the settings of a block of torchtune: those of its component, then those beside it."""
    component, known = block.get(COMPONENT), COMPONENTS[name]
    if not isinstance(component, str) or component not in known.settings:
        raise InvalidInput(
            f"`{name}.{COMPONENT}` cannot be {shown(component)}: {known.remedy}; known: {', '.join(known.settings)}"
        )
    stated = {known.members[member]: value for member, value in block.items() if member in known.members}
    for member, value in block.items():
        if member in known.fixed and _comparable(value) not in (_comparable(known.fixed[member]), None):
            raise InvalidInput(
                f"`{name}.{member}` cannot be {shown(value)}: expected {shown(known.fixed[member])}, or leave it out"
            )
        if member not in {COMPONENT, *known.members, *known.fixed, *known.without_effect}:
            raise InvalidInput(f"`{name}.{shown(member)}` is not a known field; leave it out")
    for path, value in {**known.settings[component], **stated}.items():
        yield path, f"{name}.{path}", _comparable(value)


def _require_text(name: Any) -> None:
    if not isinstance(name, str):
        raise InvalidInput(f"expected the name of a setting as text, got {shown(name)}")


def _alike(one: Any, other: Any) -> bool:
    """Whether both are the same value; two NaN count as equal, so that the bounds of the setting refuse them."""
    if isinstance(one, float) and isinstance(other, float) and one != one and other != other:
        return True
    return one is other or (isinstance(one, bool) == isinstance(other, bool) and bool(one == other))


def _comparable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
