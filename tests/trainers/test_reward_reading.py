"""Values of a value head: at the right token, the same however rows are packed, with the gradients of the padded path."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from quintain.records.agent import ModelRef
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.records.trajectory import Actor, Step
from quintain.trainers.data.streams import Example, TokenRow, streams_of
from quintain.trainers.data.value_positions import read_run, read_steps, with_labels
from quintain.trainers.engine.forward import Engine
from quintain.trainers.losses.loss_output import totals_of
from quintain.trainers.losses.reward import reward_loss
from quintain.trainers.models.loading import LoadedModel, load_model, save_model, stored_heads
from quintain.trainers.models.value_head import ValueHead, attach, head_of
from quintain.trainers.rendering.renderer import Renderer
from tiny_models import save_tiny_model, tiny_model, tiny_tokenizer
from trainers.episodes import episode
from trainers.runs import run_of
from trainers.templates import QWEN3


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    """A tiny float64 model with a random value head of two numbers."""
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer).double().eval()
    head = attach(model, ("value", "relevance"), None).double()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        head.weight.copy_(torch.randn(head.weight.shape, generator=generator))
        head.bias.copy_(torch.tensor([0.5, -1.0]))
    return LoadedModel(model, tokenizer, 1024)


@pytest.fixture(scope="module")
def renderer(loaded: LoadedModel) -> Renderer:
    return Renderer.of(loaded.tokenizer)


def plain(loaded: LoadedModel, row: TokenRow) -> torch.Tensor:
    """The head on the model's own hidden states of the row alone, without its last token; float64 [n, K]."""
    ids = torch.from_numpy(row.token_ids[:-1].astype(np.int64))[None]
    states = loaded.model.get_decoder()(input_ids=ids).last_hidden_state[0]
    head = head_of(loaded.model)
    assert head is not None
    return states[row.places - 1] @ head.weight.T + head.bias


def rows_of(renderer: Renderer) -> list[TokenRow]:
    runs = [episode(3), run_of(0, "It costs 40."), run_of(0, "No idea."), episode(2, question="stock?")]
    return [row for run in runs for row in read_steps(renderer, run, 1024).rows]


def test_a_run_is_read_at_the_end_token_of_its_last_turn(renderer: Renderer) -> None:
    (row,) = read_run(renderer, episode(3), 1024).rows
    (place,) = row.places
    assert renderer.decode(row.token_ids[:place]).endswith("It costs 40.<|im_end|>")
    assert row.step_index[place] == 4  # system, user, then the third turn of the agent


def test_steps_are_read_before_what_the_environment_answers(renderer: Renderer) -> None:
    (row,) = read_steps(renderer, episode(3), 1024).rows
    read = [renderer.decode(row.token_ids[:place]) for place in row.places]
    assert [text.count("<|im_start|>assistant") for text in read] == [1, 2, 3]
    assert all(text.endswith("<|im_end|>") for text in read)
    assert "result 1" not in read[1], "a causal model's value cannot depend on the answer"
    assert [int(row.step_index[p]) for p in row.places] == [2, 3, 4]


def test_masked_and_copied_steps_are_read_and_empty_ones_are_not(renderer: Renderer) -> None:
    steps = list(episode(3).steps)
    steps[2] = steps[2].model_copy(update={"train": False})
    steps[3] = steps[3].model_copy(update={"copied_context": True})
    (row,) = read_steps(renderer, episode(3).model_copy(update={"steps": tuple(steps)}), 1024).rows
    assert len(row.places) == 3
    never = Step(actor=Actor.AGENT, train=False, extra={"acted": False})
    silent = episode(1).model_copy(update={"steps": (*episode(1).steps[:2], never)})
    assert read_run(renderer, silent, 1024).dropped == "nothing_written"


def test_a_run_that_does_not_fit_whole_is_not_read(renderer: Renderer) -> None:
    length = len(read_run(renderer, episode(3), 1024).rows[0])
    assert read_run(renderer, episode(3), length).dropped is None
    assert read_run(renderer, episode(3), length - 1).dropped == "too_long"
    assert read_steps(renderer, episode(3), 20).dropped == "too_long"


def test_a_template_that_rewrites_history_gives_each_step_its_own_row_and_the_run_the_last_one() -> None:
    renderer = Renderer.of(tiny_tokenizer(QWEN3))
    steps = read_steps(renderer, episode(3), 1024)
    assert [int(row.step_index[p]) for row in steps.rows for p in row.places] == [2, 3, 4]
    assert len(steps.rows) == 3
    (last,) = read_run(renderer, episode(3), 1024).rows
    assert np.array_equal(last.token_ids, steps.rows[-1].token_ids)


def test_steps_without_a_label_are_not_marked(renderer: Renderer) -> None:
    (row,) = read_steps(renderer, episode(3), 1024).rows
    nan = float("nan")
    kept = with_labels(row, {2: (0.25, nan), 3: (nan, nan), 4: (nan, 1.0)}, 2)
    assert [int(kept.step_index[p]) for p in kept.places] == [2, 4]
    assert kept.label is not None
    assert kept.label[kept.places].tolist() == [
        [0.25, pytest.approx(nan, nan_ok=True)],
        [pytest.approx(nan, nan_ok=True), 1.0],
    ]


def test_values_are_those_of_the_plain_model_whatever_the_path_and_the_neighbours(
    loaded: LoadedModel, renderer: Renderer
) -> None:
    rows = rows_of(renderer)
    packed = Engine.of(loaded.model)
    assert packed.path == "packed"
    engines = [
        packed,
        Engine.of(loaded.model, share_prefixes=False),
        replace(packed, path="padded", pruned=False, shares=False),
        Engine.of(deepcopy(loaded.model), gradient_checkpointing=True),
    ]
    with torch.no_grad():
        expected = torch.cat([plain(loaded, row) for row in rows])
        for engine in engines:
            torch.testing.assert_close(engine.values(rows), expected, rtol=1e-9, atol=1e-9)
        alone = torch.cat([packed.values([row]) for row in rows])
        torch.testing.assert_close(alone, expected, rtol=1e-9, atol=1e-9)


def test_gradients_of_the_pair_loss_are_those_of_the_padded_path(loaded: LoadedModel, renderer: Renderer) -> None:
    pairs = [
        Example(
            tuple(read_run(renderer, run_of(i, said), 1024).rows[0] for said in ("It costs 40.", "No idea.")),
            (0, 1),
            (0.5, 0.0),
        )
        for i in range(3)
    ]
    rows = [row for pair in pairs for row in pair.rows]
    packed = Engine.of(loaded.model)
    gradients = []
    for engine in (packed, replace(packed, path="padded", pruned=False, shares=False)):
        loaded.model.zero_grad()
        loss = reward_loss(engine.values(rows)[:, :1], streams_of(pairs), totals_of(pairs), centring=0.1).loss
        loss.backward()  # type: ignore[no-untyped-call]
        gradients.append({n: p.grad.clone() for n, p in loaded.model.named_parameters() if p.grad is not None})
    loaded.model.zero_grad()
    assert gradients[0].keys() == gradients[1].keys() >= {"value_head.weight", "value_head.bias", "model.norm.weight"}
    for name, one in gradients[0].items():
        assert float((one - gradients[1][name]).norm()) <= 1e-5 * float(gradients[1][name].norm()) + 1e-12, name


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=2, alpha=4.0)], ids=["full", "lora"])
def test_a_head_is_saved_beside_the_model_and_loads_with_it(tmp_path: Any, lora: LoraConfig | None) -> None:
    base = ModelRef(source="folder", path=str(save_tiny_model(tmp_path / "base", hidden=16)))
    assert stored_heads(base) == ()
    trained = load_model(base, lora=lora, train=True, heads=("reward",))
    head = head_of(trained.model)
    assert isinstance(head, ValueHead)
    with torch.no_grad():
        head.weight.fill_(0.25)
    save_model(trained.model, trained.tokenizer, tmp_path / "out")
    ref = base.model_copy(update={"adapter": str(tmp_path / "out")} if lora else {"path": str(tmp_path / "out")})
    assert head_of(trained.model) is head
    assert stored_heads(ref) == ("reward",)
    again = head_of(load_model(ref, heads=("reward",)).model)
    assert again is not None
    assert torch.equal(again.weight, head.weight)
    assert head_of(load_model(ref).model) is None
