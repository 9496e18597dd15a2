"""What is trained, and how it begins: noise on embeddings, LoRA+, PiSSA, frozen blocks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig as PeftLora
from peft import get_peft_model
from transformers import BertConfig, BertLMHeadModel

from quintain.errors import InvalidInput
from quintain.records.agent import ModelRef
from quintain.records.hyperparameters.methods import LoraConfig, SFTConfig
from quintain.trainers.data.streams import token_row
from quintain.trainers.engine.embeddings import embedding_noise
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.packing import pack
from quintain.trainers.loop.optimizer import adamw, update
from quintain.trainers.models.adapters import merge_adapter, with_new_adapter
from quintain.trainers.models.loading import load_model
from quintain.trainers.models.start_model import freeze_layers
from quintain.trainers.reference_log_probs import adapters_off
from tiny_models import tiny_model, tiny_tokenizer
from trainers.runs import metric, resumed, rows_for, run, same, spec, weights

TOKENIZER = tiny_tokenizer()
IDS = torch.randint(3, 400, (2, 20), generator=torch.Generator().manual_seed(5))


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return torch.as_tensor(model(input_ids=IDS).logits)


def test_noise_is_uniform_within_alpha_by_the_root_of_length_and_width() -> None:
    """Width 32, rows of 8 and 50 tokens, alpha 5: bounds 5 / sqrt(256) = 0.3125 and 5 / sqrt(1600) = 0.125."""
    model = tiny_model(TOKENIZER).train()
    embeddings = model.get_input_embeddings()
    plain = embeddings(IDS)
    torch.manual_seed(0)
    with embedding_noise(model, 5.0, torch.tensor([[8], [50]])):
        noise = (embeddings(IDS) - plain).detach()
    for row, bound in zip(noise, (0.3125, 0.125), strict=True):
        assert 0.99 * bound < row.abs().max() <= bound + 1e-6
        assert row.std() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    with embedding_noise(model.eval(), 5.0, torch.tensor([[8], [50]])):
        assert torch.equal(embeddings(IDS), plain)
    assert torch.equal(embeddings(IDS), plain)


def test_packed_tokens_know_the_lengths_of_their_rows_and_only_training_is_noisy() -> None:
    rows = [token_row(ids, [False] * (len(ids) - 1) + [True]) for ids in ([5, 6, 7, 8], [5, 6, 9, 9, 9, 9])]
    assert sorted(pack(rows).row_lengths.tolist()) == [4, 4, 4, 6, 6, 6]
    assert sorted(pack(rows, share=False).row_lengths.tolist()) == [4] * 3 + [6] * 5
    model = tiny_model(TOKENIZER).train()
    quiet, noisy = Engine.of(model), Engine.of(model, noise=5.0)
    assert not torch.equal(quiet.logprobs(rows).logprobs, noisy.logprobs(rows).logprobs)
    model.eval()
    assert torch.equal(quiet.logprobs(rows).logprobs, noisy.logprobs(rows).logprobs)


def test_b_learns_at_a_multiple_of_the_rate_of_a() -> None:
    """The first step of AdamW moves each weight by its learning rate, whatever the gradient: 0.01, and 16 times that."""
    model = with_new_adapter(tiny_model(TOKENIZER), LoraConfig(rank=2))
    config = SFTConfig(lora=LoraConfig(rank=2, b_rate_ratio=16.0))
    optimizer = adamw(model, config)
    before = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    update(optimizer, torch.amp.GradScaler("cpu", enabled=False), 0.01)
    moved = {name: float((before[name] - p.detach()).mean()) for name, p in model.named_parameters() if name in before}
    assert {round(x, 5) for name, x in moved.items() if "lora_A" in name} == {0.01}
    assert {round(x, 5) for name, x in moved.items() if "lora_B" in name} == {0.16}


@pytest.mark.parametrize("rslora", [False, True])
def test_pissa_trains_the_principal_part_as_peft_does_and_stores_a_plain_adapter(rslora: bool) -> None:
    """Half the rank of the widest matrix, where the decomposition is exact; a step of gradient descent on both models.

    PEFT changes the base to W - s B_0 A_0. Ours leaves it: without adapters it is the start model, and the merged adapter
    is what was trained.
    """
    start = tiny_model(TOKENIZER)
    lora = LoraConfig(rank=16, alpha=8.0, init="pissa", rslora=rslora)
    ours = with_new_adapter(tiny_model(TOKENIZER), lora).eval()
    settings = PeftLora(r=16, lora_alpha=8, init_lora_weights="pissa", target_modules="all-linear", use_rslora=rslora)
    theirs = get_peft_model(tiny_model(TOKENIZER), settings).eval()
    assert torch.allclose(logits(ours), logits(start), atol=1e-4)
    for model in (ours, theirs):
        model(input_ids=IDS, labels=IDS).loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter -= 0.5 * parameter.grad
    assert (logits(theirs) - logits(start)).abs().max() > 0.05
    assert torch.allclose(logits(ours), logits(theirs), atol=2e-3)
    with adapters_off(ours):
        assert torch.equal(logits(ours), logits(start))
    trained = logits(ours)
    assert torch.allclose(logits(merge_adapter(ours)), trained, atol=1e-4)


def test_the_principal_part_of_a_diagonal_matrix_by_hand() -> None:
    """diag(3, 2, 1) has the principal part diag(3, 0, 0) at rank 1; alpha / rank = 4: s B A = 3 e e', less the same."""
    base = tiny_model(TOKENIZER)
    layer = base.model.layers[0].mlp.gate_proj
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[:3, :3] = torch.diag(torch.tensor([3.0, 2.0, 1.0]))
    model = with_new_adapter(base, LoraConfig(rank=1, alpha=4.0, init="pissa", targets=("gate_proj",)))
    adapted = model.get_base_model().model.layers[0].mlp.gate_proj
    a, b = adapted.lora_A["default"].weight.detach(), adapted.lora_B["default"].weight.detach()
    assert adapted.scaling["default"] == pytest.approx(4.0)
    part = 4.0 * b[:, :1] @ a[:1]
    assert part[0, 0] == pytest.approx(3.0, abs=1e-4)
    assert part.abs().sum() == pytest.approx(3.0, abs=1e-3)
    assert torch.equal(b[:, 1:] @ a[1:], -(b[:, :1] @ a[:1]))
    model = tiny_model(TOKENIZER)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.config.tie_word_embeddings = False
    with pytest.raises(InvalidInput, match=r"leave it out of lora\.targets"):
        with_new_adapter(model, LoraConfig(rank=1, init="pissa", targets=("embed_tokens",)))


def test_frozen_blocks_and_embeddings_that_are_not_the_output_layer_stay() -> None:
    for tied in (True, False):
        model = tiny_model(TOKENIZER)
        if not tied:
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        freeze_layers(model, 1)
        frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
        assert {name for name in frozen if "layers.0." in name} == {
            name for name, _ in model.named_parameters() if "layers.0." in name
        }
        assert ("model.embed_tokens.weight" in frozen) is not tied
        assert not any("layers.1." in name or name == "norm.weight" for name in frozen)
    with pytest.raises(InvalidInput, match="expected at most 1 for this model, got 2"):
        freeze_layers(tiny_model(TOKENIZER), 2)


def test_blocks_within_a_part_of_a_decoder_are_frozen_too() -> None:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 1}
    model = BertLMHeadModel(BertConfig(vocab_size=50, is_decoder=True, **sizes))
    freeze_layers(model, 1)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert any("encoder.layer.0." in name for name in frozen)
    assert not any("encoder.layer.1." in name for name in frozen)


PARTS: dict[str, dict[str, Any]] = {
    "noise, frozen": {"neftune_alpha": 5.0, "frozen_layers": 1},
    "pissa": {"lora": LoraConfig(rank=2, alpha=8.0, init="pissa", b_rate_ratio=4.0)},
}


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_run_resumes_to_bit_equal_weights_that_load_as_they_are(
    model_folder: Path, tmp_path: Path, part: str
) -> None:
    options = {"learning_rate": 1e-2, **PARTS[part]}
    jobs = [spec(model_folder, tmp_path / name, "sft", **options) for name in ("whole", "resumed")]
    rows = rows_for("sft", 4)
    _, recorder = run(jobs[0], tmp_path / "job-0", rows)
    losses = metric(recorder, "loss")
    assert losses[-1] < losses[0]
    assert resumed(jobs[1], tmp_path / "job-1", rows)[0].resumed_from_step == 2
    checkpoint = tmp_path / "job-1/checkpoints/step-00000002"
    assert same(tmp_path / "whole", tmp_path / "resumed")
    adapter = {"adapter": str(tmp_path / "whole")} if part == "pissa" else {}
    path = model_folder if part == "pissa" else tmp_path / "whole"
    trained = load_model(ModelRef(source="folder", path=str(path), **adapter)).model
    assert (
        logits(trained) - logits(load_model(ModelRef(source="folder", path=str(model_folder))).model)
    ).abs().max() > 0
    if part != "pissa":
        before, after = weights(model_folder), weights(tmp_path / "whole")
        assert {name for name in before if torch.equal(before[name], after[name])} == {
            n for n in before if "layers.0." in n
        }
        assert weights(checkpoint).keys() == before.keys(), "a checkpoint is a whole model"
    if part == "pissa":
        stored = weights(tmp_path / "whole")
        assert {t.shape[0] for name, t in stored.items() if "lora_A" in name} == {4}
        start = weights(checkpoint)
        for name, tensor in stored.items():
            half = tensor[2:] if "lora_A" in name else tensor[:, 2:]
            assert torch.equal(half, start[name][2:] if "lora_A" in name else start[name][:, 2:]), "constants"
        # as the next round of an evolution
        again = spec(model_folder, tmp_path / "again", "sft", max_steps=1, **options)
        start_model = again.agent.model.model_copy(update=adapter)
        run(
            again.model_copy(update={"agent": again.agent.model_copy(update={"model": start_model})}),
            tmp_path / "job-2",
            rows,
        )
        assert not same(tmp_path / "whole", tmp_path / "again")
