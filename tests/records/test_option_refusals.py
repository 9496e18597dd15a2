"""Combinations of options that cannot work are refused where settings are read, with the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from quintain.errors import InvalidInput
from quintain.tools.training.methods import read_hyperparameters

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("dpo", {"loss": "robust"}, "set label_smoothing above 0, such as 0.1"),
    ("dpo", {"loss": "exo"}, "set label_smoothing above 0, such as 0.001"),
    ("dpo", {"loss": "nca", "label_smoothing": 0.1}, "set label_smoothing to 0, or loss to robust"),
    ("dpo", {"loss": "apo_zero", "reference_free": True}, "set reference_free to false"),
    ("dpo", {"discopop_tau": 0.5}, "set loss to discopop"),
    ("dpo", {"reference_mixup": 0.5}, "set reference_sync_steps"),
    ("dpo", {"reference_sync_steps": 8, "reference_free": True}, "set reference_free to false"),
    ("dpo", {"reference_sync_steps": 8, "kl_stop": 0.1}, "set kl_stop to null"),
    ("dpo", {"reference_sync_steps": 8, "sharding": "full", "processes": 2}, "set sharding to 'none'"),
    ("dpo", {"reference_sync_steps": 8, "lora": {}}, "set reference_mixup to 1"),
    ("sft", {"use_lora_plus": True}, "give lora.b_rate_ratio"),
    ("bc", {"chunk_overlap": 2}, "set chunk to true, or leave chunk_overlap out"),
    ("sft", {"frozen_layers": 1, "lora": {}}, "set frozen_layers to 0"),
    ("sft", {"frozen_layers": 1, "sharding": "full", "processes": 2}, "set sharding to 'none'"),
    ("sft", {"lora": {"init": "pissa"}, "quantization": "nf4"}, "set lora.init to 'default'"),
    ("sft", {"lora": {"init": "pissa"}, "weight_decay": 0.1}, "set weight_decay to 0"),
    ("sft", {"lora": {"init": "pissa"}, "sharding": "full", "processes": 2}, "set sharding to 'none'"),
    ("sft", {"evaluate_environment": "quintain/inventory"}, "set evaluate_every_steps to a number of steps"),
    ("sft", {"evaluate_tasks": 50}, "set evaluate_every_steps to a number of steps"),
    ("grpo", {"target_success": 0.9}, "set evaluate_every_steps to a number of steps"),
    ("ppo", {"critic_warmup_steps": 8, "rollouts": 2}, "lower critic_warmup_steps"),
    ("ppo", {"critic_warmup_steps": 10, "max_steps": 10}, "or raise rollouts, updates_per_rollout or max_steps"),
    (
        "ppo",
        {"minibatches": 8, "updates_per_rollout": 8, "tasks_per_step": 4},
        "set minibatches to at most tasks_per_step",
    ),
    ("ppo", {"self_play": {"baseline": "group"}}, "train with grpo, or leave baseline out"),
    ("grpo", {"minibatches": 2}, "not a multiple of minibatches 2"),
    ("ppo", {"kl_horizon": 500}, "set kl_target"),
    ("retriever", {"trunk": "new", "frozen_layers": 1}, "set frozen_layers to 0, or trunk to 'model'"),
    ("reward", {"evaluate_every_steps": 5}, "train a policy, or leave evaluate_every_steps out"),
    ("dpo", {"neftune_alpha": 5.0}, "neftune_alpha is not a known field"),
    ("grpo", {"delta": 1.1}, "set delta above 1.2"),
    ("grpo", {"delta": 4.0, "loss": "cispo"}, "loss to another than cispo"),
    ("grpo", {"clip_low": 0.2, "loss": "sapo"}, "which has no bounds; set loss to 'grpo'"),
    ("grpo", {"importance_cap": 2.0, "loss": "vespo"}, "set importance_cap to null"),
    ("grpo", {"scale_rewards": "batch", "loss": "dr_grpo"}, "set scale_rewards to 'none'"),
    ("grpo", {"scale_rewards": "batch", "constraint": {"limit": 0.1}}, "set scale_rewards to group"),
    ("grpo", {"importance_cap": 2.0, "constraint": {"limit": 0.1}}, "set importance_cap to null"),
    ("grpo", {"importance_cap": 2.0, "self_play": {}}, "set importance_cap to null"),
    ("grpo", {"self_play": {"baseline": "group", "baseline_decay": 0.5}}, "set baseline to 'role'"),
    ("grpo", {"max_tokens": 500}, "set max_new_tokens to bound"),
    ("grpo", {"reward_model": "judge", "beta": 0.0}, "set beta above 0"),
    ("grpo", {"overlong_penalty": 0.5}, "set overlong_tokens"),
    ("grpo", {"overlong_buffer": 9}, "set overlong_tokens"),
    ("grpo", {"overlong_buffer": 9, "overlong_tokens": 8}, "set overlong_buffer to at most overlong_tokens"),
]


def test_switches_of_reward_scaling_keep_their_meaning() -> None:
    scales = [read_hyperparameters("grpo", {"scale_rewards": x}) for x in (True, False, "batch")]
    assert [config.scale_rewards for config in scales] == ["group", "none", "batch"]  # type: ignore[attr-defined]


def test_forms_of_the_policy_gradient_are_clipped_as_their_authors_do() -> None:
    bounds = [read_hyperparameters("grpo", {"loss": x}).clip_bounds for x in ("dapo", "luspo", "cispo")]  # type: ignore[attr-defined]
    assert bounds == [(0.2, 0.2), (0.0003, 0.0004), (1.0, 0.2)]
    assert read_hyperparameters("grpo", {"loss": "gspo", "epsilon": 0.1}).clip_bounds == (0.1, 0.1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("method", "settings", "remedy"), REFUSED, ids=lambda value: str(value)[:60])
def test_options_that_do_not_fit_together_are_refused_with_the_remedy(
    method: str, settings: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_hyperparameters(method, settings)
    assert remedy in refused.value.message
