"""Every setting says what it is, and the names of other trainers mean the same or are refused with the reason."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from quintain.errors import InvalidInput
from quintain.records.hyperparameters import setting_aliases as aliases
from quintain.records.hyperparameters.methods import (
    CONFIGS,
    DATASET_KINDS,
    ONLINE_METHODS,
    EWCConfig,
    GRPOConfig,
    LoraConfig,
    Method,
    SFTConfig,
    TrainingConfig,
)
from quintain.records.jobs.evolve import EvolveConfig
from quintain.records.wording import explain, nearest
from quintain.tools.training.config_files import settings_of
from quintain.tools.training.foreign_files import canonical_document
from quintain.tools.training.methods import read_hyperparameters

# Name elsewhere -> (method, its value there, what it is here); one of each kind of translation.
MEANINGS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "use_gradient_checkpointing": ("sft", "unsloth", {"gradient_checkpointing": True}),
    "train_type": ("sft", "lora", {"lora": LoraConfig(rank=8, dropout=0.05)}),
    "finetuning_type": ("sft", "lora", {"lora": LoraConfig(rank=8, alpha=16)}),
    "quant_bits": ("sft", 8, {"quantization": "int8", "lora": LoraConfig()}),
    "global_batch_size": ("sft", 64, {"batch_size": 64}),
    "clip_grad_norm": ("sft", None, {"grad_clip": 0.0}),
    "max_grad_norm": ("sft", None, {"grad_clip": 0.0}),
    "lr_scheduler": ("sft", "constant", {"schedule": "constant", "warmup_steps": 0}),
    "reference_policy_kl_penalty": ("dpo", 0.05, {"beta": 0.05}),
    "eps_clip": ("ppo", 0.3, {"clip_low": 0.3, "clip_high": 0.3}),
    "r": ("sft", 8, {"lora": LoraConfig(rank=8)}),
    "lora_target_linear": ("sft", True, {"lora": LoraConfig(targets="all-linear")}),
    "target_modules": ("sft", ["q_proj"], {"lora": LoraConfig(targets=("q_proj",))}),
    "lora_target_modules": ("sft", "q_proj,v_proj", {"lora": LoraConfig(targets=("q_proj", "v_proj"))}),
    "quantization_bit": ("sft", 4, {"quantization": "nf4", "lora": LoraConfig()}),
    "torch_dtype": ("sft", "bfloat16", {"precision": "bf16"}),
    "lr": ("sft", 2e-5, {"learning_rate": 2e-5}),
    "lr_scheduler_type": ("sft", "constant_with_warmup", {"schedule": "constant"}),
    "optim": ("sft", "adamw_bnb_8bit", {"optimizer": "adamw_8bit"}),
    "use_lora": ("sft", True, {"lora": LoraConfig()}),
    "adapter": ("sft", "qlora", {"lora": LoraConfig()}),
    "lora_target": ("sft", "all", {"lora": LoraConfig(targets="all-linear")}),
    "curriculum_warmup_epochs": ("bc", 2, {"curriculum": {"start_ratio": 0.3, "warmup_epochs": 2}}),
    "use_coreset_selection": ("sft", False, {"coreset": None}),
    "coreset_strategy": ("sft", "loss_topk", {"coreset": {"method": "loss", "size": 99}}),
    "coreset_target_size": ("sft", 99, {"coreset": {"method": "hybrid", "size": 99}}),
    "use_online_continual": ("sft", True, {"replay": {"buffer": "default", "size": 2048, "ratio": 0.25}}),
    "continual_buffer_size": ("sft", 64, {"replay": {"buffer": "default", "size": 64, "ratio": 0.25}}),
    "ewc_lambda": ("sft", 5.0, {"ewc": EWCConfig(strength=5.0)}),
    "step_weighted_loss": ("sft", True, {"step_weighting": "reward"}),
    "clip_epsilon": ("grpo", 0.3, {"clip_low": 0.3, "clip_high": 0.3}),
    "init_kl_coef": ("ppo", 0.05, {"kl_coefficient": 0.05}),
    "epsilon": ("grpo", 0.3, {"clip_low": 0.3, "clip_high": 0.3}),
    "epsilon_high": ("grpo", 0.4, {"clip_high": 0.4}),
    "selection_method": ("evolve", "rejection_sampling", {"select": "rejection"}),
    "dual_clip": ("grpo", 3.0, {"delta": 3.0}),
    "kto_chosen_weight": ("kto", 1.3, {"desirable_weight": 1.3}),
    "pissa_init": ("sft", True, {"lora": {"init": "pissa"}}),
    "clip_ratio_low": ("grpo", 0.3, {"clip_low": 0.3}),
    "loss_agg_mode": ("grpo", "seq-mean-token-mean", {"loss": "grpo"}),
    "norm_adv_by_std_in_grpo": ("grpo", False, {"scale_rewards": "none"}),
    "rollout.n": ("grpo", 4, {"group_size": 4}),
    "init_lora_weights": ("sft", "pissa_niter_4", {"lora": {"init": "pissa"}}),
    "ref_model_mixup_alpha": ("dpo", 0.5, {"reference_mixup": 0.5, "reference_sync_steps": 64}),
    "sync_ref_model": ("dpo", True, {"reference_sync_steps": 512}),
    "loss_type": ("dpo", ["ipo"], {"loss": "ipo"}),
    "use_dft_loss": ("sft", True, {"loss": "dft"}),
    "dpo_loss_type": ("dpo", "dpo_norm", {"loss": "sigmoid_norm"}),
    "dpo_beta": ("dpo", 5, {"beta": 5.0}),
    "checkpointing_steps": ("sft", 1000, {"checkpoint_every_steps": 1000}),
    "full_finetuning": ("sft", True, {"lora": None}),
    "rollout_batch_size": ("grpo", 32, {"tasks_per_step": 32}),
    "teacher_model_name_or_path": ("distill", "big", {"teacher": "big"}),
    "warmup_steps": ("sft", 0.03, {"warmup_ratio": 0.03}),
}
MODELS = {**CONFIGS, "evolve": EvolveConfig}


def read(method: str, settings: dict[str, Any]) -> Any:
    """The settings as a call brings them in: aliases translated, then checked."""
    return MODELS[method].model_validate(aliases.canonical(settings, MODELS[method].model_fields))


def fault(method: str, given: dict[Any, Any] | None = None, **settings: Any) -> str:
    with pytest.raises((InvalidInput, ValidationError)) as raised:
        read(method, given or settings)
    return explain(raised.value, "hyperparameters") if isinstance(raised.value, ValidationError) else str(raised.value)


@pytest.mark.parametrize("name", MEANINGS)
def test_a_name_of_another_trainer_means_the_same_here(name: str) -> None:
    method, value, meaning = MEANINGS[name]
    needed = {
        "coreset_strategy": {"coreset_target_size": 99},
        "ref_model_mixup_alpha": {"reference_sync_steps": 64},
        "quantization_bit": {"lora": {}},
        "quant_bits": {"lora": {}},
    }
    config = read(method, {name: value, **needed.get(name, {})})
    same = MODELS[method].model_validate(meaning)
    assert config == same
    if name not in ("use_coreset_selection", "full_finetuning"):
        assert config != MODELS[method](), "the value differs from the default, so the name did something"


def test_every_name_of_another_trainer_stands_for_settings_that_a_method_has() -> None:
    known = {name for config in MODELS.values() for name in names(config)}
    assert {target for targets in aliases.RENAMED.values() for target in targets} - known == set()


def names(model: type[BaseModel]) -> Iterator[str]:
    """Yield the settings of a method, those in its blocks with a dot."""
    for name, field in model.model_fields.items():
        yield name
        for part in typing.get_args(field.annotation) or (field.annotation,):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from (f"{name}.{inner}" for inner in part.model_fields)


def test_one_name_means_what_it_means_for_the_method_and_the_later_of_two_bounds_counts() -> None:
    """TRL's `num_iterations` of GRPO is the number of updates on each batch of rollouts; `epsilon_high` overrides `epsilon`.

    In cispo it is the highest ratio itself, and there is no lowest one (TRL's `torch.clamp(coef_1, max=self.epsilon_high)`).
    """
    assert read("grpo", {"num_iterations": 2}).updates_per_rollout == 2
    bounds = read("grpo", {"epsilon": 0.1, "epsilon_high": 0.3})
    assert (bounds.clip_low, bounds.clip_high) == (0.1, 0.3)
    assert read("grpo", {"loss_type": "cispo", "epsilon": 0.2, "epsilon_high": 5.0}).clip_bounds == (1.0, 4.0)
    assert "highest ratio itself, got 0.2; give 5.0" in fault("grpo", loss_type="cispo", epsilon=0.2)
    assert "give sampler: {endpoint: 'endpoint:NAME'}, a vLLM server" in fault("grpo", use_vllm=True)
    assert "give `reward`" in fault("grpo", reward_funcs=["accuracy"])


def test_a_switch_decides_about_the_settings_beside_it() -> None:
    """Defaults of TRL's DPOConfig and GRPOConfig: each has settings of what is off."""
    sync = {"ref_model_mixup_alpha": 0.6, "ref_model_sync_steps": 512}
    assert read("dpo", {"sync_ref_model": False, **sync}) == CONFIGS["dpo"]()
    assert read("dpo", {"sync_ref_model": True, "ref_model_sync_steps": 64}).reference_sync_steps == 64
    assert read("grpo", {"use_kl_loss": False, "kl_loss_coef": 0.1}) == GRPOConfig(), "verl's"
    assert read("grpo", {"use_kl_in_reward": False, "kl_coef": 0.1}) == GRPOConfig()
    assert read("grpo", {"use_kl_loss": True}).kl_coefficient == 0.001
    assert read("grpo", {"use_kl_loss": True, "init_kl_coef": 0.1}).kl_coefficient == 0.1, "OpenRLHF's"
    assert read("ppo", {"use_kl_loss": False, "kl_loss_coef": 0.1}) == CONFIGS["ppo"]()
    assert [read("ppo", {"use_kl_in_reward": on, "kl_coef": 0.1}).kl_coefficient for on in (True, False)] == [0.1, 0.0]
    for in_loss in ({"use_kl_loss": True}, {"kl_loss_coef": 0.1}):
        assert "ppo has the KL in the reward" in fault("ppo", **in_loss)
    server = {"vllm_importance_sampling_clip_max": 3.0, "vllm_importance_sampling_mode": "sequence_mask"}
    assert read("grpo", {"use_vllm": False, **server, "beta": 0, "use_bias_correction_kl": True}) == GRPOConfig(beta=0)
    assert read("grpo", {"vllm_importance_sampling_cap": 2.0}).importance_cap == 2.0
    assert "`vllm_importance_sampling_mode` cannot be 'sequence_mask': give importance_cap" in fault("grpo", **server)
    assert read("ppo", {"whiten_rewards": False}) == CONFIGS["ppo"](), "TRL's, which is not the whitening of advantages"
    assert "without use_kl_loss: the KL would be in the reward" in fault("grpo", init_kl_coef=0.01)
    assert read("grpo", {"sync_ref_model": False, **sync}) == GRPOConfig()
    assert "`sync_ref_model` cannot be True: the start model stays" in fault("grpo", sync_ref_model=True)
    assert "`shuffle_dataset` cannot be false: examples come in a new order" in fault("grpo", shuffle_dataset=False)
    assert read("sft", {"shuffle_dataset": False}) == SFTConfig(), "TRL's default there, whose rows are shuffled too"
    off = {"use_lora": True, "lora_dropout": 0.05, "disable_dropout": True}
    assert read("dpo", off).lora == LoraConfig()


def test_a_share_of_all_steps_is_taken_where_their_number_is_known() -> None:
    """transformers: 0.5 of 100 steps are 50, and no steps of warm-up leave it to the ratio."""
    config = read("sft", {"max_steps": 100, "save_steps": 0.5, "eval_steps": 0.255})
    assert (config.checkpoint_every_steps, config.validate_every_steps) == (50, 26)
    assert "`save_steps` is 0.5, a share of all steps; give max_steps too, or checkpoint_every_steps" in fault(
        "sft", save_steps=0.5
    )
    assert read("sft", {"save_steps": -1, "eval_steps": -1}) == SFTConfig()
    assert read("sft", {"warmup_steps": 0, "warmup_ratio": 0.2}) == SFTConfig(warmup_ratio=0.2)
    assert read("sft", {"warmup_steps": 0}).warmup_steps == 0


@pytest.mark.parametrize(
    ("method", "settings", "field"),
    [
        ("grpo", {"beta": 0.04}, "kl_coefficient"),
        ("ppo", {"beta": 0.05}, "kl_coefficient"),
        ("grpo", {"importance_sampling_level": "sequence"}, "loss: gspo"),
        ("grpo", {"generation_batch_size": 32}, "tasks_per_step"),
        ("grpo", {"max_tool_calling_iterations": 4}, "max_turns"),
        ("sft", {"lora_modules_to_save": ["lm_head"]}, "lora.targets"),
        ("sft", {"freeze_trainable_layers": 2}, "frozen_layers"),
        ("sft", {"loss_watchdog_threshold": 5.0}, "early_stopping_patience"),
        ("kto", {"loss_type": "apo_zero_unpaired"}, "this method has one loss"),
        ("grpo", {"vespo_k_pos": 1.0}, "TRL's exponents"),
        ("simpo", {"cpo_alpha": 1.0}, "train by dpo with sft_weight"),
        ("simpo", {"gamma_beta_ratio": 0.5}, "give gamma"),
        ("distill", {"kd_ratio": 0.5}, "the divergence from the teacher alone"),
        ("sft", {"plugins": ["axolotl.integrations.gkd.GKDPlugin"]}, "code of plugins is never run"),
        ("ppo", {"reward_model": "m"}, "give `reward` beside the hyperparameters"),
    ],
)
def test_a_name_that_means_another_thing_here_is_answered_by_the_field_of_that_meaning(
    method: str, settings: dict[str, Any], field: str
) -> None:
    assert field in fault(method, settings)


def test_names_with_one_remedy_are_refused_together() -> None:
    message = fault("sft", input_key="question", output_key="answer")
    assert "`input_key` cannot be 'question', `output_key` cannot be 'answer': rename the columns" in message


def test_names_that_change_no_result_are_taken_and_switches_of_sinks_add_up() -> None:
    ignored = {"packing": False, "logging_steps": 10, "save_strategy": "steps", "use_vllm": False, "push_to_hub": False}
    ignored |= {"evals_per_epoch": 4, "use_liger_kernel": True, "wandb_project": "", "profiler": {"warmup_steps": 5}}
    assert read("sft", ignored) == SFTConfig()
    sinks = read("sft", {"use_wandb": True, "use_tensorboard": True, "report_to": "trackio"}).report_to
    assert sinks == ("trackio", "wandb", "tensorboard")
    assert read("sft", {"use_wandb": False, "use_tensorboard": None}).report_to == ()
    assert "true or false" in fault("sft", use_wandb="yes")
    named = read("sft", {"wandb_project": "mine", "run_name": "./output/second try", "project": "huggingface"})
    assert (named.report_to, named.report_project, named.report_run) == (("wandb",), "mine", "./output/second try")
    for quiet in ({"use_wandb": False}, {"report_to": "none"}):
        assert read("sft", {"wandb_project": "mine", **quiet}).report_to == ()
    assert "report_project" in fault("sft", project="a/b")
    assert read("sft", {"warmup_steps": 100}).warmup_steps == 100


@pytest.mark.parametrize("name", aliases.ACCUMULATION)
@pytest.mark.parametrize("size", ["batch_size", "per_device_train_batch_size"])
def test_accumulated_gradients_make_the_batch_of_a_step_larger(name: str, size: str) -> None:
    """4 examples in each of 8 passes are 32 in one optimizer step."""
    assert read("sft", {size: 4, name: 8}).batch_size == 32
    assert read("sft", {name: 1}).batch_size == SFTConfig().batch_size
    assert "the product of the two" in fault("sft", **{name: 8})
    assert "whole number" in fault("sft", batch_size=4, **{name: 2.5})


def test_a_batch_of_another_trainer_is_the_examples_of_an_optimizer_step() -> None:
    """Its size is that of a device, counts runs of groups in GRPO, and is beside a whole size a matter of memory alone."""
    per_device = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    assert read("sft", {**per_device, "processes": 2}).batch_size == 16
    assert read("sft", {"batch_size": 4, "processes": 2}).batch_size == 4
    assert read("sft", {"micro_batch_size": 1, "global_batch_size": 16}).batch_size == 16, "Megatron's"
    assert read("grpo", {**per_device, "num_generations": 4}).batch_size == 2, "groups, of 8 runs"
    assert read("grpo", per_device).batch_size == 1
    assert read("grpo", {"batch_size": 4}).batch_size == 4
    runs = "counts runs, 8 in a step, which make no whole groups of 3; give batch_size in groups, or tasks_per_step"
    assert runs in fault("grpo", **per_device, num_generations=3)
    played = {"rollout_batch_size": 64, "n_samples_per_prompt": 8}
    for runs_of_a_step, steps in ((64, 8), (512, 1)):
        config = read("grpo", {**played, "train_batch_size": runs_of_a_step})
        assert (config.tasks_per_step, config.minibatches, config.updates_per_rollout) == (64, steps, steps), (
            "OpenRLHF's"
        )
    assert "512 runs of a rollout make no whole steps of 100" in fault("grpo", **played, train_batch_size=100)
    assert read("ppo", {"num_ppo_epochs": 4, "num_mini_batches": 2}).updates_per_rollout == 8
    for name in ("packing", "sample_packing"):
        assert f"`{name}` cannot be True: a batch has so many rows" in fault("sft", **{name: True})


@pytest.mark.parametrize(
    ("settings", "precision"),
    [
        ({"bf16": True}, "bf16"),
        ({"fp16": True}, "fp16"),
        ({"use_fp16": True, "use_bf16": False}, "fp16"),
        ({"bf16": False}, "fp32"),
        ({"bf16": None}, "auto"),
        ({"bf16": True, "precision": "bf16"}, "bf16"),
    ],
)
def test_switches_of_number_formats_become_one_precision(settings: dict[str, Any], precision: str) -> None:
    assert read("sft", settings).precision == precision


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lr": 1e-3, "learning_rate": 2e-3}, ["`lr`", "`learning_rate`", "0.001", "0.002"]),
        ({"num_epochs": 1, "num_train_epochs": 2}, ["`num_epochs`", "`num_train_epochs`", "epochs"]),
        ({"lora_r": 8, "lora": {"rank": 16}}, ["`lora_r`", "`lora.rank`", "8", "16"]),
        ({"use_lora": False, "lora": {}}, ["`use_lora`", "`lora`"]),
        ({"bf16": True, "fp16": True}, ["`bf16`", "`fp16`", "precision"]),
        ({"bf16": "yes"}, ["`bf16`", "'yes'", "true or false"]),
    ],
)
def test_two_names_of_one_setting_that_disagree_are_refused_and_both_are_named(
    settings: dict[str, Any], words: list[str]
) -> None:
    message = fault("sft", settings)
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learning_rate": math.nan}, ["hyperparameters.learning_rate", "finite number", "got nan"]),
        (
            {"lr": math.nan, "learning_rate": float("nan")},
            ["hyperparameters.learning_rate", "finite number", "got nan"],
        ),
        ({"learning_rate": True}, ["`learning_rate` cannot be true or false", "number"]),
        ({"lr": True}, ["`learning_rate` cannot be true or false"]),
        ({"learning_rate": 1, "lr": True}, ["`learning_rate` and `lr`", "1 and True"]),
        ({"batch_size": True, "gradient_accumulation_steps": 2}, ["`batch_size` cannot be true or false"]),
        ({"max_steps": False}, ["`max_steps` cannot be true or false"]),
        ({"lora": {"rank": True}}, ["hyperparameters.lora", "`rank` cannot be true or false"]),
        ({"epochs": 1e-300}, ["hyperparameters.epochs", "0.001", "1e-300"]),
        ({"epochs": 0}, ["hyperparameters.epochs", "0.001", "got 0"]),
        ({"lora": {"targets": []}}, ["hyperparameters.lora.targets", "names no module", "all-linear"]),
        ({"lora_target_modules": [""]}, ["hyperparameters.lora.targets", "names no module"]),
        ({"lora_target_modules": ""}, ["hyperparameters.lora.targets", "names no module"]),
        ({"target_modules": ".*(up|down)_proj"}, ["hyperparameters.lora.targets: it is a pattern; give module names"]),
        ({7: 1}, ["name of a setting as text, got 7"]),
        ({"lora": {7: 1}}, ["name of a setting as text, got 7"]),
        ({"epochs": 9**9999}, ["hyperparameters.epochs", "a very large int"]),
    ],
)
def test_wrong_types_are_reported_as_such(settings: dict[Any, Any], words: list[str]) -> None:
    message = fault("sft", settings)
    assert [word for word in words if word not in message] == [], message


def test_an_unknown_name_gets_a_suggestion_and_is_quoted_in_part() -> None:
    with pytest.raises(ValidationError) as raised:
        read("sft", {"learnin_rate": 1, "lora": {"rnk": 1}, "x" * 5000: 1})
    message = explain(raised.value, "hyperparameters", ["learning_rate", "epochs", "lora.rank"])
    assert "learnin_rate is not a known field (did you mean 'learning_rate'?)" in message
    assert "lora.rnk is not a known field (did you mean 'lora.rank'?)" in message
    assert len(message) < 400


@pytest.mark.parametrize(
    ("given", "known"), [("model_revision", "precision"), ("template", "temperature"), ("eot_tokens", "batch_tokens")]
)
def test_a_name_that_is_not_near_is_not_suggested(given: str, known: str) -> None:
    assert nearest(given, [known]) == ""
    assert nearest(given, [f"{given}s", given]) == "", "nor is itself, which another method has"


def test_every_refused_name_is_in_one_answer() -> None:
    names = [f"other_{n}" for n in range(6)]
    with pytest.raises(ValidationError) as raised:
        read("sft", dict.fromkeys(names, 1) | {"epochs": 0})
    assert [name for name in names if f"hyperparameters.{name}" not in explain(raised.value, "hyperparameters")] == []
    with pytest.raises(ValidationError) as raised:
        read("sft", {f"other_{n}": 1 for n in range(100)})
    message = explain(raised.value, "hyperparameters")
    assert "and 97 more: hyperparameters.other_3, " in message
    assert message.endswith(" and 57 more"), "40 of them are named"

    message = fault("sft", {"push_to_hub": True, "learnin_rate": 1, **dict.fromkeys(names, 1)})
    assert "`push_to_hub` cannot be True" in message
    near = "learnin_rate (did you mean 'learning_rate'?)"
    assert f"not known settings: {near}, {', '.join(names)}; correct or remove them" in message


def test_the_main_revision_of_a_model_is_the_one_that_is_taken() -> None:
    assert read("sft", {"model_revision": "main"}) == SFTConfig()
    assert "`model_revision` cannot be 'v2': download" in fault("sft", model_revision="v2")


def test_all_names_that_cannot_be_honoured_are_in_one_answer() -> None:
    message = fault("sft", push_to_hub=True, system_prompt="Be kind.", dataset_name="org/rows", trust_remote_code=True)
    assert [
        name for name in ("push_to_hub", "system_prompt", "dataset_name") if f"`{name}` cannot be" not in message
    ] == []
    assert "trust_remote_code" not in message, "code in a model's folder is never run"


def test_values_by_which_other_files_leave_a_setting_open_are_taken() -> None:
    """TRL's -1 steps, vLLM's -1 of all tokens, Axolotl's `bf16: auto`, and names of optimizers beside the setting's own name."""
    assert read("sft", {"max_steps": -1, "bf16": "auto", "optimizer": "adamw_torch"}) == SFTConfig(optimizer="adamw")
    assert read("grpo", {"top_k": -1, "label_smoothing": 0.0}) == GRPOConfig()
    assert read("sft", {"finetuning_type": "full", "lora_rank": 8}) == SFTConfig()
    assert read("orpo", {"pref_ftx": 0.0}) == CONFIGS["orpo"]()


def test_schedulers_of_transformers_mean_a_schedule_and_its_floor() -> None:
    """`polynomial` of power 1 is linear down to a rate of 1e-7; `cosine_with_restarts` is a cosine of `num_cycles`."""
    assert read("sft", {"min_lr": "5e-6", "lr": "5e-5"}).min_rate_ratio == pytest.approx(0.1), "as YAML reads them"
    floor = {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}}
    assert read("sft", floor) == SFTConfig(min_rate_ratio=0.1)
    rate = {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-6}, "learning_rate": 5e-5}
    assert read("sft", rate).min_rate_ratio == pytest.approx(0.02)
    assert read("sft", {"lr_scheduler_type": "inverse_sqrt"}) == SFTConfig(schedule="inverse_sqrt")
    assert (
        read("sft", {"lr_scheduler": "cosine_with_restarts", "lr_scheduler_kwargs": {"num_cycles": 1}}) == SFTConfig()
    )
    restarts = {"lr_scheduler_type": "cosine_with_restarts", "lr_scheduler_kwargs": {"num_cycles": 3}}
    assert read("sft", restarts) == SFTConfig(cycles=3)
    stable = {"num_decay_steps": 40, "decay_type": "1-sqrt", "min_lr_ratio": 0.1, "warmup_type": "linear"}
    assert read("sft", {"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": stable}) == SFTConfig(
        schedule="warmup_stable_decay", decay_steps=40, decay_shape="1-sqrt", min_rate_ratio=0.1
    )
    linear = read("sft", {"lr_scheduler": "polynomial", "lr": 1e-3})
    assert (linear.schedule, linear.min_rate_ratio) == ("linear", pytest.approx(1e-4))
    assert read("sft", {"optim": "paged_adamw_32bit"}) == SFTConfig()
    assert read("sft", {"optim": "paged_adamw_8bit"}) == SFTConfig(optimizer="adamw_8bit")
    kwargs = "lr_scheduler_kwargs"
    for settings, words in (
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "give min_rate_ratio, such as 0.1"),
        (
            {"lr_scheduler_type": "cosine", kwargs: {"min_lr": 1e-6}},
            "`min_lr` is 1e-06, a rate; give learning_rate too",
        ),
        (
            {"lr_scheduler_type": "cosine_with_min_lr", kwargs: {"num_cycles": 3}},
            "`lr_scheduler_kwargs.num_cycles` cannot be 3",
        ),
        (
            {"lr_scheduler_type": "cosine_with_restarts", kwargs: {"num_cycles": 1.5}},
            "hyperparameters.cycles",
        ),
        (
            {"lr_scheduler_type": "warmup_stable_decay", kwargs: {"num_stable_steps": 9}},
            "`lr_scheduler_kwargs.num_stable_steps` cannot be 9: expected None; leave it out",
        ),
        ({"lr_scheduler_type": "linear", kwargs: {"gamma": 1}}, "no schedule here has it"),
        (
            {"lr_scheduler_type": "reduce_lr_on_plateau"},
            "the rate depends on the step alone, so that a resumed run ends the same; give schedule: cosine",
        ),
    ):
        assert words in fault("sft", settings)


def test_a_name_without_a_value_is_ignored_and_a_block_is_answered_by_the_settings_in_it() -> None:
    assert read("sft", {"s2_attention": None, "lora_fan_in_fan_out": None}) == SFTConfig()
    actor = {"optim": {"lr": 1e-6}, "kl_loss_coef": 0.001, "strategy": "fsdp"}
    message = fault("grpo", {"actor_rollout_ref": {"actor": actor}, "data": {"seed": 1}})
    given = "kl_coefficient for actor_rollout_ref.actor.kl_loss_coef"
    assert f"give learning_rate for actor_rollout_ref.actor.optim.lr, {given}; as for the rest, leave it out" in message
    assert (
        "`data` is a block, and settings are not nested here; give `seed` beside the hyperparameters (data.seed)"
        in message
    )
    assert "as for the rest, give `model` beside" in fault("sft", model={"lora_rank": 8, "path": "x"})


def test_a_block_is_answered_by_what_its_names_mean_where_they_stand() -> None:
    sizes = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 16}
    message = fault("sft", training=sizes, train={"micro_batch_size": 1, "global_batch_size": 8, "max_norm": 1.0})
    assert "a factor of batch_size for training.gradient_accumulation_steps" in message
    assert "give batch_size for train.global_batch_size, grad_clip for train.max_norm; as for the rest" in message
    optimizer = {"class_path": "torch.optim.AdamW", "init_args": {"lr": 2e-4, "betas": [0.9, 0.95]}}
    assert "give learning_rate for optimizer.init_args.lr; as for" in fault("sft", optimizer=optimizer), "litgpt's"
    assert "kl_coefficient for trl.beta" in fault("grpo", trl={"beta": 0.001}), "axolotl's"
    assert "beta for trl.beta" in fault("dpo", trl={"beta": 0.001})
    message = fault("sft", model={"lora_attn_modules": ["q_proj"], "apply_lora_to_mlp": True})
    assert "or all-linear (model.lora_attn_modules, model.apply_lora_to_mlp); as for" in message, "torchtune's"
    rollout = {"n": 8, "val_kwargs": {"temperature": 0}}
    adapter = {"lora_cfg": {"alpha": 8}, "lora": {"type": "lora", "r": 4}}
    message = fault("grpo", actor={"rollout": rollout, **adapter}, orchestrator={"batch_size": 512})
    given = "group_size for actor.rollout.n, lora.alpha for actor.lora_cfg.alpha, lora.rank for actor.lora.r; as for"
    assert f"give {given} the rest" in message
    assert "give tasks_per_step, that number over group_size (orchestrator.batch_size)" in message


def test_adapters_may_have_the_names_of_peft_and_a_padding_token_changes_nothing() -> None:
    peft = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "bias": "none", "task_type": "CAUSAL_LM"}
    assert read("sft", {"lora": peft}).lora == LoraConfig(rank=8, alpha=16, targets=("q_proj",))
    assert "`bias` cannot be 'all': adapters have no biases" in fault("sft", lora={"rank": 8, "bias": "all"})
    assert "`lora.rank` and `lora_r` both set lora.rank" in fault("sft", lora={"rank": 8, "lora_r": 4})
    assert read("sft", {"special_tokens": {"pad_token": "<pad>"}, "pad_token": "<pad>"}) == SFTConfig()
    assert "`special_tokens` cannot be" in fault("sft", special_tokens={"pad_token": "<pad>", "eos_token": "<end>"})


def test_a_block_that_another_setting_replaces_is_answered_by_it_alone() -> None:
    """DeepSpeed's stage is no stage of training, and its optimizer's type no setting here."""
    blocks = {"optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 2}, "train_batch_size": "auto"}
    message = fault("sft", deepspeed=blocks)
    assert message.endswith("give processes, and sharding: full to divide the model")
    assert "give optimizer for training.optimizer" in fault("sft", training={"optimizer": "adamw", "optimizer.type": 1})


VERL = {
    "data": {"train_batch_size": 8, "max_response_length": 64},
    "algorithm": {"adv_estimator": "grpo"},
    "actor_rollout_ref": {
        "actor": {"clip_ratio": 0.2, "clip_ratio_high": 0.28, "use_kl_loss": True, "ppo_mini_batch_size": 8},
        "rollout": {"n": 4, "name": "vllm"},
    },
}


@pytest.mark.parametrize("is_flat", [False, True])
def test_settings_of_verl_are_named_by_what_they_mean_here_nested_and_as_on_its_command_line(is_flat: bool) -> None:
    actor, rollout = VERL["actor_rollout_ref"]["actor"], VERL["actor_rollout_ref"]["rollout"]
    flat = {f"actor_rollout_ref.actor.{name}": value for name, value in actor.items()}
    flat |= {f"actor_rollout_ref.rollout.{name}": value for name, value in rollout.items()}
    flat |= {f"{block}.{name}": value for block in ("data", "algorithm") for name, value in VERL[block].items()}
    message = fault("grpo", flat if is_flat else VERL)
    for meaning in (
        "give tasks_per_step for data.train_batch_size, max_new_tokens for data.max_response_length",
        "give `method` beside the hyperparameters, grpo or ppo (gae) (algorithm.adv_estimator)",
        "clip_low and clip_high for actor_rollout_ref.actor.clip_ratio, clip_high for actor_rollout_ref.actor.clip_ratio_high",
        "group_size for actor_rollout_ref.rollout.n",
        "minibatches, train_batch_size over ppo_mini_batch_size, and updates_per_rollout, so many for each epoch (actor_rollout_ref.",
    ):
        assert meaning in message
    assert "use_kl_loss" not in message


def test_a_setting_that_repeats_the_method_is_taken_and_another_method_is_refused() -> None:
    """LLaMA-Factory states the stage among its settings, and unsloth the seed."""
    assert read_hyperparameters("sft", {"stage": "sft"}) == SFTConfig()
    assert "`stage` cannot be 'dpo': give `method` beside" in fault("sft", stage="dpo")
    assert "`random_state` cannot be 3407: give `seed` beside" in fault("sft", random_state=3407)
    assert read_hyperparameters("simpo", {"loss_type": "simpo", "cpo_alpha": 0.0}) == CONFIGS["simpo"]()
    assert read_hyperparameters("grpo", {"loss_type": "grpo"}).loss == "grpo"  # type: ignore[attr-defined]
    assert read("grpo", {"loss_type": "bnpo"}).loss == "dapo", (
        "a mean over the tokens of a batch, which is not divided here"
    )
    sequence = {"importance_sampling_level": "sequence"}
    assert [read("grpo", {"loss_type": x, **sequence}).loss for x in ("grpo", "luspo")] == ["gspo", "luspo"], "TRL's"
    assert read("dpo", {"loss_type": "sppo_hard"}).loss == "sppo"
    assert read("sft", {"loss_type": "chunked_nll"}) == SFTConfig()
    assert read("sft", {"train_batch_size": 8}).batch_size == 8
    assert read("dpo", {"train_batch_size": 8}) == CONFIGS["dpo"](batch_size=8), "OpenRLHF's, on pairs"
    assert read("grpo", {"train_batch_size": 32}).tasks_per_step == 32, "verl's"


def test_keys_of_a_file_that_change_nothing_are_left_out_and_a_block_is_no_method() -> None:
    named = {"model_name_or_path": "m", "tokenizer_name_or_path": "m", "algorithm": {"gamma": 1.0}}
    assert canonical_document(named) == {"model": "m", "algorithm": {"gamma": 1.0}}
    assert "model" in settings_of({"method": "sft", "model": {"lora_rank": 8}})
    assert settings_of({"method": "sft", "model": "starter"}) == {}
    assert read_hyperparameters("grpo", {"top_k": None}) == GRPOConfig()
    assert read_hyperparameters("sft", {"lora": None}) == SFTConfig(lora=None)


def test_blocks_of_torchtune_mean_what_their_component_means() -> None:
    """torch's AdamW decays by 0.01 where its block does not state it."""
    optimizer = {"_component_": "torch.optim.AdamW", "lr": 2e-5, "fused": True, "betas": [0.9, 0.999]}
    schedule = {
        "_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
        "num_warmup_steps": 9,
    }
    assert read("sft", {"optimizer": optimizer, "lr_scheduler": schedule}) == SFTConfig(
        learning_rate=2e-5, weight_decay=0.01, warmup_steps=9
    )
    eight = {"_component_": "bitsandbytes.optim.PagedAdamW8bit", "weight_decay": 0.1}
    assert read("sft", {"optimizer": eight}) == SFTConfig(optimizer="adamw_8bit", weight_decay=0.1)
    assert "`lr` and `optimizer.learning_rate`" in fault("sft", lr=1e-3, optimizer=optimizer)
    for changed, words in (
        (
            {"_component_": "torch.optim.SGD"},
            "`optimizer._component_` cannot be 'torch.optim.SGD': give optimizer: adamw",
        ),
        ({"betas": [0.8, 0.9]}, "`optimizer.betas` cannot be [0.8, 0.9]"),
        ({"momentum": 0.9}, "momentum"),
    ):
        assert words in fault("sft", optimizer={**optimizer, **changed})


def test_a_preference_loss_of_llama_factory_that_is_a_method_here_names_it() -> None:
    assert canonical_document({"rlhf_type": "gkd", "pretrain": "m", "random_state": 7, "seed": 7}) == {
        "method": "distill",
        "model": "m",
        "seed": 7,
    }
    assert canonical_document({"reward_model": True}) == {"method": "reward"}, "axolotl's"
    assert canonical_document({"reward_model": True, "method": "sft"})["reward_model"] is True
    file = {"stage": "dpo", "pref_loss": "simpo", "simpo_gamma": 0.5}
    assert canonical_document(file) == {"method": "simpo", "simpo_gamma": 0.5}
    assert canonical_document({**file, "pref_loss": "ipo"})["method"] == "dpo"


def test_the_one_dataset_of_a_file_of_trl_or_axolotl_is_the_dataset() -> None:
    rows = {"path": "rows.jsonl", "type": "alpaca"}
    assert canonical_document({"dataset_name": "rows.jsonl"}) == {"dataset": "rows.jsonl"}
    assert canonical_document({"datasets": [rows]}) == {"dataset": "rows.jsonl"}
    shares = {"role": "from", "content": "value"}
    chats = {
        "ds_type": "json",
        "split": "train",
        "field_messages": "conversations",
        "message_property_mappings": shares,
    }
    held = canonical_document({"datasets": [{**rows, **chats}], "val_set_size": 0.05})
    assert held == {"dataset": "rows.jsonl", "validation_share": 0.05}
    assert canonical_document({"datasets": [rows, rows]}) == {"datasets": [rows, rows]}, "a choice is not dropped"
    for more in ({"field_output": "say"}, {"split": "test"}):
        with pytest.raises(InvalidInput, match=f"got {more} for rows.jsonl"):
            canonical_document({"datasets": [rows | more]})


def test_two_names_of_one_setting_may_agree() -> None:
    assert read("sft", {"lr": 1e-3, "learning_rate": 1e-3, "use_lora": True, "lora": {"rank": 8}}) == (
        SFTConfig(learning_rate=1e-3, lora=LoraConfig(rank=8))
    )


@pytest.mark.parametrize(
    ("given", "sinks"), [("tensorboard", ("tensorboard",)), ("none", ()), (["wandb"], ("wandb",)), (["none"], ())]
)
def test_one_sink_may_stand_without_a_list_and_none_is_none(given: Any, sinks: tuple[str, ...]) -> None:
    assert SFTConfig(report_to=given).report_to == sinks


def test_what_is_switched_off_stays_off_whatever_its_settings_say() -> None:
    """So it is where these names come from: their settings stand in every file, also of runs without them."""
    off = {"use_lora": False, "lora_r": 8, "curriculum": False, "curriculum_start_ratio": 0.2}
    assert read("sft", off) == SFTConfig()
    assert read("dpo", {"step_weighted_loss": False, "use_online_continual": False}) == CONFIGS["dpo"]()
    assert read("sft", {"curriculum": True}) == read("sft", {"curriculum": {}})


@pytest.mark.parametrize("method", ["sft", "dpo", "grpo"])
def test_a_file_of_an_agent_trainer_with_every_name_it_has_is_read_whatever_the_method(method: str) -> None:
    """Its methods share one config, so a file for DPO names what only SFT has; what is null or off says nothing."""
    shared = {
        "num_epochs": 3,
        "batch_size": 4,
        "gradient_accumulation_steps": 4,
        "learning_rate": 2e-5,
        "max_grad_norm": 1.0,
        "lr_scheduler": "cosine",
        "bf16": True,
        "wandb_project": None,
        "wandb_run_name": None,
        "run_name": None,
        "use_lora": False,
        "lora_r": 8,
        "agent_format": True,
        "mask_observations": True,
        "step_weighted_loss": False,
        "chunk_long_trajectories": False,
        "chunk_overlap": 1,
    }
    config = read(method, shared)
    assert (config.epochs, config.batch_size, config.precision, config.lora) == (3, 16, "bf16", None)
    assert "chunk" in fault("dpo", chunk_overlap=1, chunk_long_trajectories=True)


@pytest.mark.parametrize("name", aliases.FIXED)
def test_a_name_that_cannot_be_honoured_is_refused_with_the_reason_and_the_remedy(name: str) -> None:
    remedy, only, among = aliases.FIXED[name]
    method = "orpo" if "loss" in aliases.RENAMED.get(name, ()) else "sft"
    for value in (only, *among):
        assert read(method, {name: value}) == MODELS[method](), "the one true value says nothing new"
    message = fault(method, **{name: not only if isinstance(only, bool) else "other"})
    assert f"`{name}` cannot be" in message
    assert remedy in message


@pytest.mark.parametrize("name", ["chunk_long_trajectories", "step_weighted_loss", "no_such_name"])
def test_what_a_method_does_not_have_is_refused_under_the_name_that_was_given(name: str) -> None:
    assert f"hyperparameters.{name} is not a known field" in fault("dpo", **{name: True})


def test_every_method_has_settings_and_a_kind_of_dataset() -> None:
    assert CONFIGS.keys() == DATASET_KINDS.keys() == set(typing.get_args(Method))
    assert CONFIGS.keys() >= ONLINE_METHODS
    assert all(config.model_fields["method"].default == method for method, config in CONFIGS.items())
    assert GRPOConfig().group_size >= 2


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        for part in typing.get_args(field.annotation) or (field.annotation,):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from models(part)


@pytest.mark.parametrize(
    "config", [TrainingConfig, EvolveConfig, *CONFIGS.values()], ids=lambda config: config.__name__
)
def test_every_setting_describes_its_meaning_bounds_and_null(config: type[BaseModel]) -> None:
    faults = []
    for model in models(config):
        for name, schema in model.model_json_schema()["properties"].items():
            said, parts = schema.get("description", ""), (schema, *schema.get("anyOf", ()))
            if name == "method" and "const" in schema:
                continue
            if len(said) < 10 and said != "Null: off.":
                faults.append(f"{model.__name__}.{name} has no description")
            kinds = {part.get("type") for part in parts}
            bounded = any({"minimum", "exclusiveMinimum"} & part.keys() for part in parts) and any(
                {"maximum", "exclusiveMaximum"} & part.keys() for part in parts
            )
            if kinds & {"integer", "number"} and not bounded and "any number" not in said:
                faults.append(f"{model.__name__}.{name} has no bounds")
            if "null" in kinds and "null" not in said.casefold():
                faults.append(f"{model.__name__}.{name} does not say what null means")
    assert faults == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"self_play": {}}, "self_play is set"), ({"processes": 2, "sharding": "full"}, "no process has the whole model")],
)
def test_success_is_not_measured_between_steps_where_the_model_cannot_play_alone(
    settings: dict[str, object], why: str
) -> None:
    with pytest.raises(
        ValidationError, match=rf"evaluate_every_steps is (5|set) and .*{why}.*; set evaluate_every_steps to"
    ):
        GRPOConfig.model_validate({"evaluate_every_steps": 5, **settings})


def test_the_template_of_the_tokenizer_itself_is_what_a_training_uses_anyway() -> None:
    """Axolotl's configs name it, and so do those that are exported for Axolotl."""
    assert "chat_template" not in fault("sft", chat_template="tokenizer_default", push_to_hub=True)
    assert "`chat_template` cannot be 'chatml'" in fault("sft", chat_template="chatml")
