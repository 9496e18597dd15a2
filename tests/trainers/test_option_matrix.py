"""Options and methods: each option changes the loss of the methods that it is for, no other loss, and is refused elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch

from quintain.errors import InvalidInput
from quintain.records.hyperparameters.methods import CONFIGS, ONLINE_METHODS, TrainingConfig
from quintain.tools.training.methods import read_hyperparameters
from quintain.trainers.data.streams import streams_of
from quintain.trainers.engine.head import TokenScores
from quintain.trainers.loop.objectives import objective_of
from quintain.trainers.losses.loss_output import LossOutput, totals_of
from trainers.loss_runs import Group, trl_runs


class Option(NamedTuple):
    """An option that is on."""

    settings: dict[str, Any]
    changes: frozenset[str] = frozenset()
    """Methods whose loss it changes."""
    beside: Mapping[str, Any] = MappingProxyType({})
    """Other settings, in both runs."""
    accepts: frozenset[str] = frozenset()
    """Methods that have it, where these are others."""


DPO, GRPO = frozenset({"dpo"}), frozenset({"grpo"})
SAMPLING = {"top_p": 0.9, "top_k": 40, "min_p": 0.05}
OPTIONS: dict[str, Option] = {
    **{
        name: Option({"loss": name}, DPO)
        for name in ("sigmoid_norm", "hinge", "ipo", "nca", "bco", "sppo", "apo_zero", "apo_down", "discopop")
    },
    "robust": Option({"loss": "robust"}, DPO, {"label_smoothing": 0.1}),
    "exo": Option({"loss": "exo"}, DPO, {"label_smoothing": 0.1}),
    "label_smoothing": Option({"label_smoothing": 0.1}, DPO),
    "discopop_tau": Option({"discopop_tau": 0.5}, DPO, {"loss": "discopop"}),
    "rpo": Option({"sft_weight": 0.5}, DPO),
    "ld_alpha": Option({"ld_alpha": 0.5}, DPO),
    "wpo": Option({"policy_weighting": True}, DPO),
    "tr_dpo": Option({"reference_sync_steps": 2}, accepts=DPO),  # another reference, used alike
    "reference_mixup": Option({"reference_mixup": 0.5}, accepts=DPO, beside={"reference_sync_steps": 2}),
    "reference_free": Option({"reference_free": True}, DPO),
    **{name: Option({"loss": name}, GRPO) for name in ("grpo", "gspo", "cispo", "sapo", "luspo", "vespo")},
    "dr_grpo": Option({"loss": "dr_grpo", "max_tokens": 9}, GRPO),
    "kl_coefficient": Option({"kl_coefficient": 0.1}, GRPO, accepts=GRPO | {"ppo"}),  # of PPO it changes the reward
    "delta": Option({"delta": 1.3}, GRPO),
    "scale by batch": Option({"scale_rewards": "batch"}, GRPO),
    "importance correction": Option({"importance_cap": 2.0}, accepts=GRPO),  # these four change the examples
    "masked runs": Option({"mask_truncated": True}, accepts=GRPO),
    "overlong penalty": Option(
        {"overlong_buffer": 2, "overlong_penalty": 0.5}, accepts=GRPO, beside={"overlong_tokens": 8}
    ),
    "unscaled": Option({"scale_rewards": "none"}, accepts=GRPO),
    "dft": Option({"loss": "dft"}, frozenset({"sft", "bc"})),
    "neftune": Option({"neftune_alpha": 5.0}, accepts=frozenset({"sft", "bc"})),
    "lora+": Option({"lora": {"b_rate_ratio": 16.0}}, accepts=frozenset(CONFIGS)),
    "pissa": Option({"lora": {"init": "pissa"}}, accepts=frozenset(CONFIGS)),
    "frozen layers": Option({"frozen_layers": 1}, accepts=frozenset(CONFIGS)),
    **{name: Option({name: value}, accepts=ONLINE_METHODS) for name, value in SAMPLING.items()},
}
"""Name -> option. Those that change no loss act elsewhere; tests of their own show it."""


def examples_of(method: str) -> list[Any]:
    runs = trl_runs()
    if method in ("ranking", "grpo"):
        return [Group(runs[:3], (1.0, 0.0, 0.5), 3.0).example(), Group(runs[3:], (0.0, 1.0, 0.2), 3.0).example()]
    if method in ("dpo", "orpo", "simpo", "reward"):
        return [Group(runs[i : i + 2], (1.0, -1.0)).example() for i in (0, 2, 4)]
    if method == "retriever":
        return [Group(runs[i : i + 2], (float(i), float(i + 1))).example() for i in (0, 2, 4)]
    return [Group([run], (float((-1) ** i),)).example() for i, run in enumerate(runs)]


def loss_of(config: TrainingConfig) -> float:
    """The loss of a method on fixed runs with every stream."""
    return float(output_of(config).loss)


@cache
def output_of(config: TrainingConfig) -> LossOutput:
    examples = examples_of(config.method)  # type: ignore[attr-defined]
    streams = streams_of(examples)
    runs = trl_runs()
    logprobs = torch.tensor([x for run in runs for x in run.logprobs], dtype=torch.float64)
    collision = torch.tensor([x for run in runs for x in run.collision or ()])
    objective = objective_of(config)
    values = logprobs[:, None]
    if config.method == "retriever":  # type: ignore[attr-defined]
        values = torch.randn(streams.n_sequences, 3, generator=torch.Generator().manual_seed(0)).double()
    if config.method == "distill":  # type: ignore[attr-defined]
        streams = replace(streams, teacher_logprobs=values.detach() - 0.1)
    if objective.on_values:
        streams = replace(streams, label=torch.full_like(values, 0.5))
    if objective.with_values:
        streams = replace(streams, label=values + 1, old_value=values + 0.1)
    takes_values = objective.on_values or config.method == "retriever"  # type: ignore[attr-defined]
    scores = TokenScores(values if takes_values else logprobs, None, collision, values)
    return objective.output(scores, streams, totals_of(examples))


def accepted(method: str, settings: Mapping[str, Any]) -> TrainingConfig | None:
    """The settings of a method; None where they are refused."""
    try:
        return read_hyperparameters(method, settings)
    except InvalidInput:
        return None


@cache
def defaults(method: str) -> TrainingConfig | None:
    return accepted(method, {})


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_changes_the_losses_that_it_is_for_and_no_other(name: str) -> None:
    option = OPTIONS[name]
    changed, allowed = set(), set()
    for method in CONFIGS:
        after = accepted(method, {**option.beside, **option.settings})
        if after is None:
            continue
        allowed.add(method)
        before = accepted(method, option.beside) if option.beside else defaults(method)
        if before is not None and loss_of(before) != loss_of(after):
            changed.add(method)
    assert changed == option.changes
    assert allowed == (option.accepts or changed)


def test_every_option_of_the_catalogue_is_among_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "training-options.md").read_text("utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    catalogue = {name for cell in cells for name in re.findall(r"`(\S+?)[`:]", cell)} - {"loss", "sigmoid"}
    groups = [{**option.settings, **option.beside} for option in OPTIONS.values()]
    tried = {name for group in groups for name in group} | {str(group.get("loss")) for group in groups}
    tried |= {f"lora.{name}" for group in groups for name in group.get("lora", {})}
    assert len(catalogue) > 25
    assert catalogue - tried == set()


def test_every_metric_of_a_loss_is_explained() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "training-methods.md").read_text("utf-8")
    found = {name for method in CONFIGS for name in output_of(read_hyperparameters(method, {})).metrics}
    assert len(found) > 15
    assert [name for name in sorted(found) if f"`{name}`" not in page] == []
