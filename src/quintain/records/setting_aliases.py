"""Aliases: the names of other trainers for the settings here, translated or refused with the reason.

The names are those of Hugging Face's `TrainingArguments`, of PEFT, and of agent trainers built on them. A null value is
ignored, and so is a disabled switch for a feature that the method does not have. Translation happens once, where a call or a
config file comes in (`tools.training.methods`); stored records carry the canonical names only.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from quintain.errors import InvalidInput
from quintain.records.record import shown

RENAMED: dict[str, tuple[str, ...]] = {
    "num_epochs": ("epochs",),
    "num_train_epochs": ("epochs",),
    "per_device_train_batch_size": ("batch_size",),
    "lr": ("learning_rate",),
    "max_grad_norm": ("grad_clip",),
    "lr_scheduler": ("schedule",),
    "lr_scheduler_type": ("schedule",),
    "max_seq_length": ("max_length",),
    "save_steps": ("checkpoint_every_steps",),
    "save_total_limit": ("keep_checkpoints",),
    "eval_steps": ("validate_every_steps",),
    "save_best_model": ("keep_best",),
    "load_best_model_at_end": ("keep_best",),
    "optim": ("optimizer",),
    "activation_offloading": ("offload_activations",),
    "use_lora": ("lora",),
    "lora_r": ("lora.rank",),
    "lora_alpha": ("lora.alpha",),
    "lora_dropout": ("lora.dropout",),
    "lora_target_modules": ("lora.targets",),
    "use_dora": ("lora.dora",),
    "init_lora_weights": ("lora.init",),
    "loraplus_lr_ratio": ("lora.b_rate_ratio",),
    "neftune_noise_alpha": ("neftune_alpha",),
    "chunk_long_trajectories": ("chunk",),
    "curriculum_start_ratio": ("curriculum.start_ratio",),
    "curriculum_warmup_epochs": ("curriculum.warmup_epochs",),
    "use_coreset_selection": ("coreset",),
    "coreset_strategy": ("coreset.method",),
    "coreset_target_size": ("coreset.size",),
    "use_online_continual": ("replay",),
    "continual_buffer_size": ("replay.size",),
    "continual_replay_ratio": ("replay.ratio",),
    "ewc_lambda": ("ewc.strength",),
    "step_weighted_loss": ("step_weighting",),
    "clip_epsilon": ("clip_low", "clip_high"),
    "clip_range": ("clip_low", "clip_high"),
    "kl_coef": ("kl_coefficient",),
    "init_kl_coef": ("kl_coefficient",),
    "cliprange": ("clip_low", "clip_high"),
    "cliprange_value": ("value_clip",),
    "vf_coef": ("value_weight",),
    "lam": ("gae_lambda",),
    "num_ppo_epochs": ("updates_per_rollout",),
    "num_mini_batches": ("minibatches",),
    "rloo_k": ("group_size",),
    "whiten_advantages": ("whiten",),
    "step_level_advantage": ("step_level",),
    "num_generations": ("group_size",),
    "loss_type": ("loss",),
    "center_rewards_coefficient": ("centring",),
    "num_iterations": ("iterations",),
    "max_completion_length": ("max_new_tokens",),
    "epsilon": ("clip_low", "clip_high"),
    "epsilon_high": ("clip_high",),
    "samples_per_task": ("attempts",),
    "training_method": ("train",),
    "success_threshold": ("min_reward",),
    "lambda_orpo": ("beta",),
    "selection_method": ("select",),
    "selection_ratio": ("ratio",),
    "reward_threshold": ("threshold",),
    "mask_truncated_completions": ("mask_truncated",),
    "vllm_importance_sampling_cap": ("importance_cap",),
    "vllm_importance_sampling_clip_max": ("importance_cap",),
    "rpo_alpha": ("sft_weight",),
    "use_weighting": ("policy_weighting",),
    "ref_model_sync_steps": ("reference_sync_steps",),
    "ref_model_mixup_alpha": ("reference_mixup",),
}
"""Alias -> settings here; a dot separates a group from its member."""

OTHERWISE = {"num_iterations": "updates_per_rollout"}
"""Alias -> setting that it means for methods without that of `RENAMED`: rounds of agent trainers, updates in TRL's GRPO."""

NARROWED = {"epsilon": "epsilon_high"}
"""Alias of two settings -> alias that takes over the second."""

VALUES: dict[str, dict[Any, Any]] = {
    "step_weighted_loss": {True: "reward", False: "none"},
    "lr_scheduler": {"constant_with_warmup": "constant"},
    "lr_scheduler_type": {"constant_with_warmup": "constant"},
    "coreset_strategy": {"loss_topk": "loss"},
    "optim": {"adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_bnb_8bit": "adamw_8bit"},
    "selection_method": {"rejection_sampling": "rejection"},
    "init_lora_weights": {True: "default", "pissa_niter_4": "pissa", "pissa_niter_16": "pissa"},
    "loss_type": {"exo_pair": "exo", "nca_pair": "nca"},
}
"""Alias -> its values that have another name here."""

GROUPS = frozenset({"lora", "curriculum", "coreset", "replay", "ewc"})
"""Settings that are objects: true or {} enables the defaults, false or null disables."""

ACCUMULATION = ("gradient_accumulation_steps", "gradient_accumulation")
"""Aliases that multiply the batch size: here `batch_size` counts the examples of one optimizer step."""

PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "use_bf16": "bf16", "use_fp16": "fp16"}
"""Switch -> `precision`; fp32 where all given switches are off."""

QUANTIZATIONS = {"load_in_4bit": "nf4", "load_in_8bit": "int8"}
"""Switch -> `quantization`."""

CONTEXT_PARALLEL = (
    "context_parallel_degree",
    "context_parallel_dim",
    "context_parallel_size",
    "cp_size",
    "sequence_parallel_degree",
    "sequence_parallel_size",
    "sp_size",
    "ulysses_sequence_parallel_size",
)
"""Names under which other trainers divide one sequence over several GPUs."""

FIXED: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(
        CONTEXT_PARALLEL,
        (
            1,
            "a run is not divided over processes; for long runs give gradient_checkpointing and offload_activations, or a smaller "
            "max_length; sharding: full divides the model",
        ),
    ),
    "agent_format": (True, "runs are always trained as multi-turn conversations; leave it out"),
    "mask_observations": (True, "observations are never trained on; leave it out"),
    "use_lora_plus": (False, "give lora.b_rate_ratio, such as 16, and leave it out"),
    "sync_ref_model": (False, "give reference_sync_steps and reference_mixup, and leave it out"),
    "coreset_metric_key": ("loss", "the loss is that of the start model on the data; leave it out"),
    "use_advantage": (True, "the advantage of a group is always taken; leave it out"),
    "trajectories_per_iter": (None, "give tasks_per_iteration and attempts, of which it is the product"),
    "num_rollouts": (None, "give rollouts and tasks_per_step: rounds of acting, and tasks in each"),
    "target_kl": (None, "give kl_stop, which ends a run that moved too far; kl_coefficient stays as given"),
    "use_vllm": (False, "the model under training samples its own rollouts; leave it out"),
    "assistant_only_loss": (True, "only what the agent wrote is trained; leave it out"),
    "push_to_hub": (False, "export_agent hands the trained agent over"),
    "wandb_project": (None, "give report_to: [wandb] and set WANDB_PROJECT"),
    "run_name": (None, "a run is named after its agent: give `name` beside the hyperparameters"),
    "wandb_run_name": (None, "a run is named after its agent: give `name` beside the hyperparameters"),
    "seed": (None, "give `seed` beside the hyperparameters"),
    "model_name_or_path": (None, "give `model` beside the hyperparameters"),
    "base_model": (None, "give `model` beside the hyperparameters"),
    "tokenizer_name": (None, "the tokenizer of the model is used; leave it out"),
    "train_file": (None, "give a dataset beside the hyperparameters"),
    "eval_file": (None, "the validation split of the dataset is used; export it with a validation_share"),
    "reward_funcs": (None, "give `reward` beside the hyperparameters"),
    "reward_weights": (
        None,
        "give `reward` with weights beside the hyperparameters, such as {'outcome': 0.8, 'length': 0.2}",
    ),
    "output_dir": (None, "the job chooses the folder; its result names it"),
    "resume_from_checkpoint": (None, "resume_job continues a job from its newest checkpoint"),
}
"""Alias -> the only value accepted, and the remedy for any other."""


WITHOUT_EFFECT = frozenset(
    {
        "dataloader_num_workers",
        "dataloader_pin_memory",
        "ddp_find_unused_parameters",
        "eval_accumulation_steps",
        "eval_strategy",
        "evaluation_strategy",
        "logging_first_step",
        "logging_steps",
        "logging_strategy",
        "packing",
        "padding_free",
        "per_device_eval_batch_size",
        "remove_unused_columns",
        "save_strategy",
    }
)
"""Names of other trainers that change no result here: rows are packed without padding, every step is reported."""

SINKS = {"use_wandb": "wandb", "use_tensorboard": "tensorboard"}
"""Switch -> the member of `report_to` that it adds."""

QUALIFIERS = {"chunk_overlap": ("chunk", "chunk_long_trajectories")}
"""Setting -> the switches that give it an effect; without one it is ignored by methods that lack the switch."""


def canonical(values: Mapping[str, Any], fields: Container[str]) -> dict[str, Any]:
    """Return the settings under their canonical names.

    Args:
        values: Settings by canonical name or alias.
        fields: Canonical names of the method; unknown names pass through, for the model to refuse.

    Raises:
        InvalidInput: two names of one setting disagree, or a name asks for a feature that does not exist here.
    """
    resolved: dict[str, tuple[str, Any]] = {}
    for path, name, value in _translated(values, fields):
        known = resolved.setdefault(path, (name, value))
        if not _alike(known[1], value):
            both = f"{shown(known[1])} and {shown(value)}"
            raise _fault(f"`{known[0]}` and `{name}` both set {path}, to {both}; give one of them")
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


def _translated(values: Mapping[str, Any], fields: Container[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield (canonical name, given name, value) of each setting."""
    for name in values:
        _require_text(name)
    values = _with_batch_size(values)
    yield from _precision(values)
    yield from _quantization(values)
    yield from _sinks(values)
    for name, value in values.items():
        if name in WITHOUT_EFFECT or name in SINKS or (name == "report_to" and _adds_sinks(values)):
            continue
        if name in FIXED:
            only, remedy = FIXED[name]
            if value is not None and value != only:
                raise _fault(f"`{name}` cannot be {shown(value)}: {remedy}")
        elif name in RENAMED:
            translated = VALUES.get(name, {}).get(value, value) if isinstance(value, str | bool) else value
            paths = _paths(name, values, fields)
            known = paths[0].split(".")[0] in fields
            if value is not None and (known or value is not False):
                for path in paths if known else (name,):
                    yield path, name, _comparable(translated)
        elif name in GROUPS and name in fields:
            yield from _group(name, value)
        elif not (
            name in PRECISIONS
            or name in QUANTIZATIONS
            or (name in GROUPS and value is False)
            or _has_no_effect(name, values, fields)
        ):
            yield name, name, _comparable(value)


def _paths(name: str, values: Mapping[str, Any], fields: Container[str]) -> tuple[str, ...]:
    """Return the settings that an alias sets."""
    paths = RENAMED[name]
    if name in OTHERWISE and paths[0] not in fields:
        return (OTHERWISE[name],)
    return paths[:1] if values.get(NARROWED.get(name, "")) is not None else paths


def _has_no_effect(name: str, values: Mapping[str, Any], fields: Container[str]) -> bool:
    return name in QUALIFIERS and name not in fields and not any(values.get(switch) for switch in QUALIFIERS[name])


def _group(name: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_unset=True)
    if isinstance(value, Mapping):
        yield name, name, True
        for member, inner in value.items():
            _require_text(member)
            yield f"{name}.{member}", f"{name}.{member}", _comparable(inner)
    else:
        yield name, name, False if value is None else value


def _with_batch_size(values: Mapping[str, Any]) -> dict[str, Any]:
    """Multiply the batch size by the number of accumulated passes."""
    result = dict(values)
    found = {name: result.pop(name) for name in ACCUMULATION if name in result}
    factors = {name: factor for name, factor in found.items() if factor is not None}
    if not factors:
        return result
    name, factor = next(iter(factors.items()))
    sizes = [size for size in ("batch_size", "per_device_train_batch_size") if result.get(size) is not None]
    if (
        isinstance(factor, bool)
        or not isinstance(factor, int)
        or factor < 1
        or not all(_alike(factor, other) for other in factors.values())
    ):
        raise _fault(
            f"{' and '.join(f'`{key}`' for key in factors)}: expected a whole number of at least 1, got {shown(factor)}"
        )
    if not sizes and factor > 1:
        raise _fault(f"`{name}` multiplies the batch size, and none is given; give batch_size, the product of the two")
    for size in sizes:
        if isinstance(result[size], int) and not isinstance(result[size], bool):
            result[size] *= factor
    return result


def _precision(values: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    switches = {name: values[name] for name in PRECISIONS if values.get(name) is not None}
    for name, on in switches.items():
        if not isinstance(on, bool):
            raise _fault(
                f"`{name}`: expected true or false, got {shown(on)}; or give precision: auto, bf16, fp16 or fp32"
            )
        if on or not any(switches.values()):
            yield "precision", name, PRECISIONS[name] if on else "fp32"


def _quantization(values: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for name in QUANTIZATIONS:
        on = values.get(name)
        if on is not None and not isinstance(on, bool):
            raise _fault(f"`{name}`: expected true or false, got {shown(on)}; or give quantization: nf4 or int8")
        if on:
            yield "quantization", name, QUANTIZATIONS[name]


def _adds_sinks(values: Mapping[str, Any]) -> bool:
    return any(values.get(name) is True for name in SINKS)


def _sinks(values: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield `report_to` with the sinks that switches add to it."""
    switches = {name: values[name] for name in SINKS if values.get(name) is not None}
    for name, on in switches.items():
        if not isinstance(on, bool):
            raise _fault(f"`{name}`: expected true or false, got {shown(on)}; or give report_to: [{SINKS[name]}]")
    if added := [SINKS[name] for name, on in switches.items() if on]:
        reported = values.get("report_to") or ()
        stated = (reported,) if isinstance(reported, str) else tuple(reported)
        yield (
            "report_to",
            " and ".join(name for name, on in switches.items() if on),
            tuple(dict.fromkeys((*stated, *added))),
        )


def _require_text(name: Any) -> None:
    if not isinstance(name, str):
        raise _fault(f"expected the name of a setting as text, got {shown(name)}")


def _alike(one: Any, other: Any) -> bool:
    """Whether both are the same value; two NaN count as equal, so that the bounds of the setting refuse them."""
    if isinstance(one, float) and isinstance(other, float) and one != one and other != other:
        return True
    return one is other or (isinstance(one, bool) == isinstance(other, bool) and bool(one == other))


def _comparable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _fault(message: str) -> InvalidInput:
    return InvalidInput(f"hyperparameters: {message}")
