"""Names of other trainers' settings that have no setting here: accepted at one value, or without any effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

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

DATASETS = ("train_file", "dataset_name", "dataset_mixture", "datasets")
"""Names under which other trainers' files have their data."""

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
    "model_revision": ("main", "download that revision and give its folder as `model` beside the hyperparameters"),
    "base_model": (None, "give `model` beside the hyperparameters"),
    "tokenizer_name": (None, "the tokenizer of the model is used; leave it out"),
    **dict.fromkeys(DATASETS, (None, "give a dataset beside the hyperparameters")),
    "val_set_size": (0, "the validation split of the dataset is used; export it with a validation_share"),
    "max_prompt_length": (None, "give max_length, which holds the prompt and the answer"),
    "system_prompt": (None, "give it to register_agent, and train that agent"),
    "template": (None, "give `template` to register_agent, and train that agent"),
    "chat_template": ("tokenizer_default", "give `template` to register_agent, and train that agent"),
    **dict.fromkeys(("torch_dtype", "dtype"), ("auto", "give precision: auto, bf16, fp16 or fp32")),
    **dict.fromkeys(("stage", "rl"), (None, "give `method` beside the hyperparameters")),
    "do_train": (True, "a training is what starts here; measure an agent with evaluate_agent"),
    "trust_remote_code": (False, "code in a model's folder is never run; leave it out"),
    **dict.fromkeys(
        ("eval_file", "dev_data"),
        (None, "the validation split of the dataset is used; export it with a validation_share"),
    ),
    "reward_funcs": (None, "give `reward` beside the hyperparameters"),
    **dict.fromkeys(
        ("reward_weights", "task_reward_weight", "reasoning_reward_weight"),
        (None, "give `reward` with weights beside the hyperparameters, such as {'outcome': 0.8, 'length': 0.2}"),
    ),
    "output_dir": (None, "the job chooses the folder; its result names it"),
    "resume_from_checkpoint": (False, "resume_job continues a job from its newest checkpoint"),
}
"""Alias -> the only value accepted, and the remedy for any other."""


class ComponentBlock(NamedTuple):
    """A block of torchtune's configs, which names a class and its arguments."""

    settings: Mapping[str, Mapping[str, Any]]
    """Component -> settings here, with the component's own defaults."""
    members: Mapping[str, str]
    """Argument -> setting here."""
    fixed: Mapping[str, Any]
    """Argument -> the only value accepted."""
    without_effect: frozenset[str]
    remedy: str
    """For other components."""


COMPONENT = "_component_"
_ADAMW = {"optimizer": "adamw", "weight_decay": 0.01}
_COSINE = {"schedule": "cosine"}

COMPONENTS: dict[str, ComponentBlock] = {
    "optimizer": ComponentBlock(
        {
            "torch.optim.AdamW": _ADAMW,
            "bitsandbytes.optim.PagedAdamW": _ADAMW,
            "bitsandbytes.optim.AdamW8bit": {**_ADAMW, "optimizer": "adamw_8bit"},
            "bitsandbytes.optim.PagedAdamW8bit": {**_ADAMW, "optimizer": "adamw_8bit"},
        },
        {"lr": "learning_rate", "weight_decay": "weight_decay"},
        {"betas": (0.9, 0.999), "eps": 1e-8},
        frozenset({"fused", "foreach"}),
        "give optimizer: adamw, adamw_8bit or adamw_bf16",
    ),
    "lr_scheduler": ComponentBlock(
        {
            "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup": _COSINE,
            "torchtune.modules.get_cosine_schedule_with_warmup": _COSINE,
        },
        {"num_warmup_steps": "warmup_steps"},
        {"num_cycles": 0.5},
        frozenset(),
        "give schedule: cosine, linear or constant",
    ),
}
"""Block of torchtune -> what it means here."""

WITHOUT_EFFECT = frozenset(
    {
        "attn_implementation",
        "dataloader_num_workers",
        "dataloader_pin_memory",
        "dataset_num_proc",
        "dataset_prepared_path",
        "ddp_find_unused_parameters",
        "ddp_timeout",
        "do_eval",
        "eval_accumulation_steps",
        "eval_sample_packing",
        "eval_strategy",
        "evaluation_strategy",
        "flash_attention",
        "flash_attn",
        "gradient_checkpointing_kwargs",
        "hub_model_id",
        "hub_strategy",
        "log_completions",
        "log_level",
        "logging_first_step",
        "logging_steps",
        "logging_strategy",
        "overwrite_cache",
        "overwrite_output_dir",
        "packing",
        "padding_free",
        "per_device_eval_batch_size",
        "plot_loss",
        "preprocessing_num_workers",
        "remove_unused_columns",
        "sample_packing",
        "save_only_model",
        "save_strategy",
        "tf32",
    }
)
"""Names of other trainers that change no result here: rows are packed without padding, every step is reported."""
