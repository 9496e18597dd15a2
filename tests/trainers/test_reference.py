from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from quintain.errors import TrainingFailed
from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters.methods import DPOConfig, GRPOConfig, LoraConfig
from quintain.records.jobs.job import TrainSpec
from quintain.trainers.data.streams import Example, TokenRow, token_row
from quintain.trainers.engine.forward import Engine
from quintain.trainers.models.loading import LoadedModel
from quintain.trainers.reference_log_probs import References, adapters_off, model_identity, with_reference
from tiny_models import tiny_model
from trainers.own_forward import own_logprobs
from trainers.playing import TOKENIZER, with_random_adapters
from trainers.runs import Recorder


def some_examples(n: int = 3, *, members: int = 2) -> list[Example]:
    """Runs that share their first ten tokens; every third later token is in the loss."""
    rng = np.random.default_rng(0)
    shared = rng.integers(3, 400, 10).tolist()

    def row() -> TokenRow:
        ids = shared + rng.integers(3, 400, 20).tolist()
        return token_row(ids, [place > 10 and place % 3 == 0 for place in range(30)])

    return [
        Example(tuple(row() for _ in range(members)), tuple(range(members)), value=(0.0,) * members, key=str(i))
        for i in range(n)
    ]


def adapted(*, dropout: float = 0.0) -> Any:
    return with_random_adapters(tiny_model(TOKENIZER), dropout=dropout)


@torch.no_grad()
def plain(model: Any, row: TokenRow) -> np.ndarray[Any, Any]:
    """Log-probs of the supervised tokens by the model's own forward pass over the row alone."""
    return np.asarray(own_logprobs(model, [row]))


def values(examples: list[Example]) -> list[np.ndarray[Any, Any]]:
    rows = [row for example in examples for row in example.rows]
    return [row.ref_logprob[row.supervised] for row in rows if row.ref_logprob is not None]


@pytest.fixture
def heard() -> Recorder:
    return Recorder()


@pytest.fixture
def engine() -> Engine:
    return Engine.of(tiny_model(TOKENIZER).train())


def scored(engine: Engine, examples: list[Example], cache: Path | None, warn: Any, **changes: Any) -> list[Example]:
    settings = {"cache": cache, "identity": "model-1", "batch_tokens": 64, "warn": warn} | changes
    return with_reference(examples, engine, **settings)


@pytest.mark.parametrize("batch_tokens", [16, 64, 8192])
def test_every_row_gets_the_models_own_log_probs_however_examples_are_batched(
    batch_tokens: int, heard: Recorder
) -> None:
    """Examples of 2 x 30 tokens: a budget of 16 splits them by members, 64 holds one, 8192 all."""
    model = tiny_model(TOKENIZER).train()
    examples = some_examples()
    given = scored(Engine.of(model), examples, None, heard.warn, batch_tokens=batch_tokens)
    assert [(e.key, e.member, e.value) for e in given] == [(e.key, e.member, e.value) for e in examples]
    for before, after in zip(examples, given, strict=True):
        for row, done in zip(before.rows, after.rows, strict=True):
            assert done.ref_logprob is not None
            assert np.isnan(done.ref_logprob[~row.supervised]).all()
            np.testing.assert_allclose(done.ref_logprob[row.places], plain(model.eval(), row), atol=1e-5)
            assert row.ref_logprob is None


def test_stored_values_come_back_bit_equal_and_nothing_is_computed(
    engine: Engine, tmp_path: Path, heard: Recorder
) -> None:
    assert scored(engine, [], tmp_path / "cache", heard.warn) == []
    assert not (tmp_path / "cache").exists()
    first = values(scored(engine, some_examples(), tmp_path / "cache", heard.warn))
    assert len(list((tmp_path / "cache").iterdir())) == 1
    with torch.no_grad():
        engine.model.get_input_embeddings().weight.add_(1.0)  # computed anew, the values would be others
    again = values(scored(engine, some_examples(), tmp_path / "cache", heard.warn))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert heard.warnings == []


def test_another_model_other_tokens_and_another_mask_have_files_of_their_own(
    engine: Engine, tmp_path: Path, heard: Recorder
) -> None:
    examples = some_examples(1, members=1)
    (row,) = examples[0].rows
    flipped = row.token_ids.copy()
    flipped[3] += 1
    masked = row.supervised.copy()
    masked[29] = True
    scored(engine, examples, tmp_path, heard.warn)
    scored(engine, examples, tmp_path, heard.warn, identity="model-2")
    for changed in (token_row(flipped, row.supervised), token_row(row.token_ids, masked)):
        scored(engine, [Example((changed,), (0,))], tmp_path, heard.warn)
    assert len(list(tmp_path.iterdir())) == 4
    scored(engine, [Example((row,), (0,), value=(3.0,), weight=2.0)], tmp_path, heard.warn)
    assert len(list(tmp_path.iterdir())) == 4, "weights and rewards do not change a log-prob"


def bit_flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def of_another_shape(path: Path) -> None:
    key = path.stem.removeprefix("reference-")
    save_file({"logprobs": np.zeros(2, np.float32)}, path, metadata={"key": key})


DAMAGE: dict[str, Callable[[Path], object]] = {
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "empty": lambda path: path.write_bytes(b""),
    "bit flipped": bit_flipped,
    "of another run": lambda path: save_file(load_file(path), path, metadata={"key": "another"}),
    "of another shape": of_another_shape,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_reported_and_replaced(engine: Engine, tmp_path: Path, heard: Recorder, damage: str) -> None:
    first = values(scored(engine, some_examples(), tmp_path, heard.warn))
    (path,) = tmp_path.iterdir()
    DAMAGE[damage](path)
    again = values(scored(engine, some_examples(), tmp_path, heard.warn))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    ((code, message),) = heard.warnings
    assert code == "reference_damaged"
    assert path.name in message
    assert np.array_equal(load_file(path)["logprobs"], np.concatenate(first))
    assert list(tmp_path.iterdir()) == [path], "nothing is left aside"


def test_a_cache_that_cannot_be_written_costs_a_warning_and_no_run(
    engine: Engine, tmp_path: Path, heard: Recorder
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be", encoding="utf-8")
    given = scored(engine, some_examples(), tmp_path / "cache", heard.warn)
    assert len(values(given)) == 6
    assert "reference_not_kept" in [code for code, _ in heard.warnings]


def test_a_reference_that_is_not_finite_ends_the_run_and_is_not_kept(
    engine: Engine, tmp_path: Path, heard: Recorder
) -> None:
    with torch.no_grad():
        engine.model.get_input_embeddings().weight[5] = float("nan")
    with pytest.raises(TrainingFailed) as caught:
        scored(engine, some_examples(), tmp_path, heard.warn)
    assert caught.value.code == "reference_not_finite"
    assert list(tmp_path.iterdir()) == []


def test_dropout_modes_gradients_and_random_states_are_left_alone(heard: Recorder) -> None:
    model = adapted(dropout=0.5)
    frozen = model.get_base_model().model.layers[1].eval()
    engine = Engine.of(model)
    model.train()
    frozen.eval()

    def draws() -> list[float]:
        return [*torch.rand(3).tolist(), random.random(), np.random.rand()]

    def seed() -> None:
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)

    seed()
    expected = draws()
    seed()
    first = values(scored(engine, some_examples(), None, heard.warn))
    again = values(scored(engine, some_examples(), None, heard.warn))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)), "no dropout"
    assert draws() == expected
    assert model.training
    assert not frozen.training
    assert all(p.grad is None for p in model.parameters())


def test_without_its_adapters_a_model_is_its_base_and_trains_on_as_before() -> None:
    row = some_examples(1, members=1)[0].rows[0]
    base = plain(tiny_model(TOKENIZER), row)
    model = adapted().eval()
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    changed = plain(model, row)
    with adapters_off(model):
        np.testing.assert_allclose(plain(model, row), base, atol=1e-6)
    assert np.array_equal(plain(model, row), changed)
    assert np.abs(changed - base).max() > 1e-2
    assert {name for name, p in model.named_parameters() if p.requires_grad} == trained
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with adapters_off(model):
        pass
    assert not any(p.requires_grad for p in model.parameters()), "frozen adapters stay frozen"


def test_the_identity_changes_with_values_configuration_and_adapters() -> None:
    model = tiny_model(TOKENIZER)
    same = model_identity(tiny_model(TOKENIZER))
    assert model_identity(model) == same
    assert len(same) == 64
    model.config.rope_parameters = {**model.config.rope_parameters, "rope_theta": 5.0}
    assert model_identity(model) != same
    assert model_identity(tiny_model(TOKENIZER, seed=1)) != same
    assert model_identity(tiny_model(TOKENIZER).to(torch.bfloat16)) != same
    nudged = tiny_model(TOKENIZER)
    with torch.no_grad():
        nudged.model.norm.weight[3] += 1e-6
    assert model_identity(nudged) != same

    first, second = adapted(), adapted()
    assert model_identity(first) == model_identity(second)
    with torch.no_grad():
        next(p for name, p in second.named_parameters() if "lora_A" in name).mul_(2.0)
    assert model_identity(first) != model_identity(second)
    with adapters_off(first), adapters_off(second):
        assert model_identity(first) == model_identity(second), "adapters that are off do not count"


def online(tmp_path: Path, *, lora: LoraConfig | None, adapter: str | None = None) -> TrainSpec:
    agent = Agent(name="a", model=ModelRef(source="folder", path=str(tmp_path), adapter=adapter))
    config = GRPOConfig(kl_coefficient=0.1, lora=lora)
    return TrainSpec(
        method="grpo",
        agent=agent,
        environment="quintain/inventory",
        name="b",
        output_dir=str(tmp_path / "out"),
        config=config,
    )


@pytest.fixture(params=["all weights", "all weights, dpo", "new adapters", "adapters trained before"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, TrainSpec]]:
    """A model as a run begins with it, and the run's settings."""
    lora = LoraConfig(rank=4, alpha=8.0)
    if request.param == "all weights":
        yield tiny_model(TOKENIZER), online(tmp_path, lora=None)
    elif request.param == "all weights, dpo":
        spec = online(tmp_path, lora=None)
        yield tiny_model(TOKENIZER), spec.model_copy(update={"method": "dpo", "config": DPOConfig()})
    elif request.param == "adapters trained before":
        yield adapted(), online(tmp_path, lora=lora, adapter=str(tmp_path / "adapter"))
    else:
        model = adapted()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.zero_()
        yield model, online(tmp_path, lora=lora)


def test_a_run_that_is_under_way_still_compares_with_the_model_it_began_with(
    start: tuple[Any, TrainSpec], tmp_path: Path
) -> None:
    model, spec = start
    engine = Engine.of(model)
    references = References.of(spec, LoadedModel(model, TOKENIZER, 1024), engine, tmp_path, Recorder())
    before = values(references.with_logprobs(some_examples(), keep=False))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    moved = {name: p.detach().clone() for name, p in model.named_parameters()}
    after = values(references.with_logprobs(some_examples(), keep=False))
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(torch.equal(moved[name], p) for name, p in model.named_parameters())
    current = values(with_reference(some_examples(), engine, cache=None, identity="", batch_tokens=8192))
    assert max(np.abs(a - b).max() for a, b in zip(before, current, strict=True)) > 1e-2


def test_a_reference_that_follows_mixes_the_weights_before_each_kth_step(tmp_path: Path) -> None:
    """Every 2 steps, a share of 0.25: after the weights have grown by 1, the reference has grown by 0.25, then by 0.4375."""
    spec = online(tmp_path, lora=None)
    config = DPOConfig(reference_sync_steps=2, reference_mixup=0.25)
    model = tiny_model(TOKENIZER)
    job = spec.model_copy(update={"method": "dpo", "config": config})
    references = References.of(job, LoadedModel(model, TOKENIZER, 1024), Engine.of(model), tmp_path, Recorder())
    start = {name: value.clone() for name, value in references.state()["weights"].items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)

    def grown() -> float:
        (growth,) = {round(float((v - start[name]).mean()), 5) for name, v in references.state()["weights"].items()}
        return growth

    growths = []
    for step in range(5):
        references.scored(some_examples(1), step)
        growths.append(grown())
    assert growths == [0.0, 0.0, 0.25, 0.25, 0.4375]
