"""Elastic weight consolidation: the penalty and the Fisher information by hand, less forgetting, and a bit-equal resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from quintain.errors import InvalidInput
from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import Row, TextRow
from quintain.records.hyperparameters.methods import CONFIGS, EWCConfig, LoraConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.jobs.recipe import EarlierSkill
from quintain.trainers.data.example_selection import mean_losses
from quintain.trainers.data.examples import ExampleMaker
from quintain.trainers.data.streams import Example
from quintain.trainers.engine import head
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.other_tokens import sampled_nll
from quintain.trainers.loop.ewc import WeightPenalty, fisher_diagonal
from quintain.trainers.models.loading import load_model
from quintain.trainers.models.value_head import attach
from quintain.trainers.run_setup import Data
from quintain.trainers.train import train
from tiny_models import save_tiny_model
from trainers.own_forward import gradients, make, own_logprobs, row
from trainers.runs import LORA, Recorder, metric, resumed, rows_for, run, same, spec

EARLIER: list[Row] = [TextRow(text=f"Box {i} is in the cellar, behind the green door.") for i in range(4)]


def test_weights_are_pulled_by_their_importance_and_the_penalty_is_that_of_the_formula() -> None:
    """w* + (w - w*) / (1 + 0.5 * 2 F): 1 / 1.5 and 1 + 2 / 2.5; 2 / 2 * (0.5 / 1.5^2 + 1.5 * 0.8^2)."""
    layer = torch.nn.Linear(2, 1, bias=False)
    layer.weight = torch.nn.Parameter(torch.tensor([[1.0, 3.0]]))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    penalty = WeightPenalty(2.0, {"weight": torch.tensor([[0.0, 1.0]])}, {"weight": torch.tensor([[0.5, 1.5]])})
    assert penalty.pull(layer, optimizer, 0) == pytest.approx(0.5 / 2.25 + 0.96)
    assert layer.weight.tolist() == [pytest.approx([1 / 1.5, 1.8])]
    exact = torch.linspace(1.0, 1.01, 4096)
    layer.weight = torch.nn.Parameter(exact.bfloat16()[None])
    whole = WeightPenalty(1e6, {"weight": exact[None]}, {"weight": torch.ones(1, 4096)})
    whole.pull(layer, torch.optim.SGD(layer.parameters(), lr=1.0), 0)
    assert layer.weight.double().mean().item() == pytest.approx(exact.double().mean().item(), abs=2e-4)


def test_draws_follow_the_distribution_of_each_place() -> None:
    """Logits 0 and log 3 give 1/4 and 3/4; the second state gives 1/2 each."""
    layer = torch.nn.Linear(1, 2, bias=False)
    layer.weight = torch.nn.Parameter(torch.tensor([[0.0], [1.0986123]]))
    source = torch.tensor([0, 1]).repeat(2000)
    tokens = head.sample_tokens(layer, torch.tensor([[1.0], [0.0]]), source, torch.Generator().manual_seed(1))
    assert tokens[0::2].float().mean().item() == pytest.approx(0.75, abs=0.04)
    assert tokens[1::2].float().mean().item() == pytest.approx(0.5, abs=0.045)


def test_the_diagonal_is_the_mean_of_squared_gradients_of_each_run_scaled_to_1() -> None:
    model = make(Qwen3Config, Qwen3ForCausalLM, head_dim=8, tie_word_embeddings=True)
    engine = Engine.of(model)
    rows = [row(range(3, 12)), row(range(20, 34))]
    examples = [Example((one,), (0,)) for one in rows]
    expected: dict[str, torch.Tensor] = {}
    for one in rows:
        for name, gradient in gradients(model, lambda one=one: own_logprobs(model, [one]).sum()).items():
            expected[name] = expected.get(name, torch.zeros(())) + gradient.square()
    model.zero_grad()
    mean = sum(float(e.double().sum()) for e in expected.values()) / sum(e.numel() for e in expected.values())
    found = fisher_diagonal(engine, examples, sample_labels=False, seed=0)
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name] / mean, rtol=1e-3, atol=1e-5)
    assert all(p.grad is None for p in model.parameters())

    # Drawn tokens: the gradient is that of the negative log-likelihood of the draws behind the recorded text.
    generator = torch.Generator().manual_seed(3)
    loss = sampled_nll(engine, rows, generator)
    states, source = engine.states(rows), torch.arange(sum(one.n_supervised for one in rows))
    again = head.sample_tokens(model.get_output_embeddings(), states.detach(), source, torch.Generator().manual_seed(3))
    logs = model.get_output_embeddings()(states).log_softmax(-1)
    assert loss.item() == pytest.approx(-logs[source, again].sum().item(), rel=1e-5)
    drawn = fisher_diagonal(engine, examples, sample_labels=True, seed=3)
    assert sum(float(f.sum()) for f in drawn.values()) / sum(f.numel() for f in drawn.values()) == pytest.approx(1.0)
    assert any(not torch.allclose(drawn[name], found[name]) for name in found)

    # The critic of PPO is trained beside the policy, and its weights count neither in F nor in its mean.
    attach(model, ["critic"], None, own_trunk=True)
    beside = fisher_diagonal(engine, examples, sample_labels=False, seed=0)
    assert len(beside) > len(found)
    assert all(torch.allclose(beside[name], found[name]) for name in found)
    assert not any(value.any() for name, value in beside.items() if name not in found)


def keeping(
    folder: Path, agent: Path, lora: LoraConfig | None = None, kept: Agent | None = None, **ewc: Any
) -> TrainSpec:
    job = spec(agent, folder / "out", "sft", lora=lora, learning_rate=1e-2, epochs=4)
    earlier = EarlierSkill(agent=kept, dataset_id="ds-0", dataset_path="unused", dataset_files={}, dataset_kind="text")
    config = job.config.model_copy(update={"ewc": EWCConfig(**ewc)})
    return job.model_copy(update={"config": config, "earlier": earlier})


def test_a_skill_is_forgotten_less_and_a_killed_run_resumes_to_bit_equal_weights(
    model_folder: Path, tmp_path: Path
) -> None:
    skilled = spec(model_folder, tmp_path / "skilled", "pretrain", learning_rate=1e-2, epochs=8)
    run(skilled, tmp_path / "job-skilled", EARLIER)
    plain = spec(tmp_path / "skilled", tmp_path / "plain", "sft", learning_rate=1e-2, epochs=4)
    run(plain, tmp_path / "job-plain", rows_for("sft", 4))
    job, data = (
        keeping(tmp_path, tmp_path / "skilled", strength=100, runs=3),
        Data(rows_for("sft", 4), earlier=EARLIER),
    )
    recorder = Recorder()
    report = train(job, data, tmp_path / "job", recorder)
    penalties = metric(recorder, "ewc_penalty")
    assert min(penalties) > 0
    assert "fisher" in recorder.phases

    def loss_on_earlier(agent: Path) -> float:
        loaded = load_model(ModelRef(source="folder", path=str(agent)))
        maker = ExampleMaker.of(loaded.tokenizer, "auto", CONFIGS["pretrain"](), 1024)
        losses = mean_losses(Engine.of(loaded.model), maker.make(EARLIER).examples, 300)
        return sum(losses) / len(losses)

    before, forgot, kept = (loss_on_earlier(tmp_path / name) for name in ("skilled", "plain", "out"))
    assert before < kept < forgot
    assert kept - before < 0.5 * (forgot - before)

    again = job.model_copy(update={"output_dir": str(tmp_path / "again")})
    after, _ = resumed(again, tmp_path / "job-killed", data)
    assert (after.resumed_from_step, after.final_loss) == (2, report.final_loss)
    assert same(tmp_path / "out", tmp_path / "again")


def test_one_adapter_is_held_in_its_own_parameters_and_another_model_is_refused(
    model_folder: Path, tmp_path: Path
) -> None:
    first = spec(model_folder, tmp_path / "first", "pretrain", lora=LORA, learning_rate=1e-2)
    run(first, tmp_path / "job-first", EARLIER)
    base = Agent(name="first", model=ModelRef(source="folder", path=str(model_folder), adapter=str(tmp_path / "first")))
    job = keeping(tmp_path, model_folder, lora=LORA, strength=100).model_copy(update={"agent": base})
    recorder = Recorder()
    train(job, Data(rows_for("sft", 4), earlier=EARLIER), tmp_path / "job", recorder)
    penalties = metric(recorder, "ewc_penalty")
    assert min(penalties) > 0

    other = Agent(name="wide", model=ModelRef(source="folder", path=str(save_tiny_model(tmp_path / "wide", hidden=32))))
    wrong = keeping(tmp_path / "wrong", model_folder, kept=other)
    with pytest.raises(InvalidInput, match=r"weights of wide, which ewc keeps") as refused:
        train(wrong, Data(rows_for("sft", 2), earlier=EARLIER), tmp_path / "job-wrong", Recorder())
    assert refused.value.code == "ewc_mismatch"
