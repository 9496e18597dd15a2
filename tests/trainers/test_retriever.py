"""Retrievers from training to search: passes, resumption, the folder on disk, vectors and search."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from quintain.datasets.recorded_calls import tool_document
from quintain.errors import InvalidInput, TrainingFailed
from quintain.records.dataset import DatasetRow
from quintain.records.hyperparameters import RetrieverConfig
from quintain.trainers.engine.forward import Engine
from quintain.trainers.new_trunk import new_trunk
from quintain.trainers.retriever import TextEncoder, nearest, open_retriever
from trainers.runs import LORA, Data, metric, resumed, run, same, spec
from trajectory_runs import call, user
from trajectory_runs import run as run_of

NAMES = ("search", "open", "submit", "price")
TOOLS = tuple({"type": "function", "function": {"name": name, "description": f"the {name} of items"}} for name in NAMES)
WORDS = ("look up", "unlock", "hand in", "cost")
"""What people say for each tool."""


def rows(n: int) -> list[DatasetRow]:
    calls = [(NAMES[i % 4], f"{WORDS[i % 4]} number {i}") for i in range(n)]
    return [DatasetRow(trajectory=run_of(need, user(need), call(name), tools=TOOLS)) for name, need in calls]


def test_a_retriever_learns_resumes_bit_equal_and_is_the_same_however_a_step_is_split(
    model_folder: Path, tmp_path: Path
) -> None:
    """Two hard negatives a call. Passes of at most 64 tokens are several; with adapters, dropout is the same in both of each."""
    settings = {"batch_size": 4, "learning_rate": 1e-2, "hard_negatives": 2, "batch_tokens": 64}
    adapters = {**settings, "epochs": 4, "lora": LORA}
    job = spec(model_folder, tmp_path / "out", "retriever", **adapters)
    report, recorder = run(job, tmp_path / "job", rows(8), validation=rows(4))
    losses = metric(recorder, "loss")
    assert losses[-1] < losses[0]
    right, n = report.held_out["retrieval_accuracy"]
    assert (n, right > 2) == (4, True)
    again = spec(model_folder, tmp_path / "again", "retriever", **adapters)
    after, rest = resumed(again, tmp_path / "again-job", Data(rows(8), rows(4)))
    assert after.resumed_from_step == 2
    assert metric(rest, "loss") == losses[2:]
    assert same(tmp_path / "out", tmp_path / "again")

    split, whole = (
        run(
            spec(
                model_folder,
                tmp_path / name,
                "retriever",
                **{**settings, "epochs": 1, "batch_tokens": tokens},
            ),
            tmp_path / f"{name}-job",
            rows(8),
        )[1]
        for name, tokens in (("split", 64), ("whole", 100_000))
    )
    for figure in ("loss", "grad_norm"):
        assert metric(split, figure) == pytest.approx(metric(whole, figure), rel=1e-5)

    retriever = open_retriever(tmp_path / "out", [f"{name}: the {name} of items" for name in NAMES])
    found = [retriever.search(f"{words} number 77", 1) for words in WORDS]
    assert sum(first == [i] for i, first in enumerate(found)) >= 3
    assert retriever.search("cost", 9) == sorted(retriever.search("cost", 9), key=retriever.search("cost", 4).index)


def test_the_folder_is_one_of_sentence_transformers_and_gives_the_same_vectors(
    model_folder: Path, tmp_path: Path
) -> None:
    """Its three modules, carried out with transformers alone: the trunk, the mean over the mask, the norm."""
    job = spec(model_folder, tmp_path / "out", "retriever", batch_size=4, max_steps=1, max_length=16)
    run(job, tmp_path / "job", rows(4))
    folder = tmp_path / "out"
    modules = json.loads((folder / "modules.json").read_text())
    assert [one["type"].rpartition(".")[2] for one in modules] == ["Transformer", "Pooling", "Normalize"]
    assert json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"] == 16
    assert json.loads((folder / "1_Pooling" / "config.json").read_text())["word_embedding_dimension"] == 16

    texts = [
        "look up the price",
        "hand in a number that is far longer than sixteen tokens can ever be, is it not?",
        "x",
    ]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(texts, padding=True, truncation=True, max_length=16, return_tensors="pt")
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    expected = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
    encoder = TextEncoder.of(folder)
    np.testing.assert_allclose(encoder.encode(texts), expected.numpy(), atol=1e-5)
    assert encoder.encode([]).shape == (0, 16)
    with pytest.raises(InvalidInput, match="expected the folder of a retriever") as raised:
        TextEncoder.of(model_folder)
    assert raised.value.code == "not_a_retriever"
    (folder / "1_Pooling" / "config.json").write_text("{}")
    with pytest.raises(InvalidInput, match="damaged or pools otherwise"):
        TextEncoder.of(folder)


def test_runs_without_usable_calls_are_counted_and_too_few_end_the_job(model_folder: Path, tmp_path: Path) -> None:
    unknown = DatasetRow(trajectory=run_of("t", user("fly"), call("fly"), tools=TOOLS))
    every = DatasetRow(trajectory=run_of("all", user("all"), *map(call, NAMES), tools=TOOLS))
    job = spec(model_folder, tmp_path / "out", "retriever", batch_size=4, max_steps=1)
    report, recorder = run(job, tmp_path / "job", [*rows(4), unknown, every])
    assert report.dropped == {"no_calls": 1}
    (warning,) = [message for _, message in recorder.warnings if "teach a retriever nothing" in message]
    assert "5 calls" in warning
    assert "no_negative 4" in warning, "every tool answers this need"
    assert "undefined_tool 1" in warning
    with pytest.raises(TrainingFailed, match="contain their definitions"):
        run(job, tmp_path / "other", [unknown])


def test_the_nearest_are_a_sort_of_all_cosines_and_ties_keep_their_order() -> None:
    vectors = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    vectors[7] = vectors[3]
    query = vectors[3] + np.float32(0.1)
    expected = sorted(range(50), key=lambda i: (-float(vectors[i] @ query), i))
    assert nearest(vectors, query, 5) == expected[:5]
    assert nearest(vectors, query, 80) == expected


def test_a_new_trunk_is_made_of_the_calls_alone_and_texts_with_common_words_begin_near_each_other(
    model_folder: Path, tmp_path: Path
) -> None:
    """Its vocabulary has the words of the texts; before training, most tools are found by their own words. A resumed run is the same."""
    start = new_trunk(rows(8), seed=3)
    assert "\u0120submit" in start.tokenizer.get_vocab()
    assert start.tokenizer("SUBMIT")["input_ids"] == start.tokenizer("submit")["input_ids"]
    documents = [tool_document(tool) for tool in TOOLS]
    vectors = TextEncoder(Engine.of(start.model), start.tokenizer, 64).encode([*documents, *NAMES])
    assert sum(nearest(vectors[:4], vectors[4 + i], 1) == [i] for i in range(4)) >= 3
    settings = {"trunk": "new", "batch_size": 4, "learning_rate": 1e-2, "epochs": 2}
    run(spec(model_folder, tmp_path / "whole", "retriever", **settings), tmp_path / "job", rows(8))
    halted = spec(model_folder, tmp_path / "halted", "retriever", **settings)
    resumed(halted, tmp_path / "halted-job", rows(8))
    assert same(tmp_path / "whole", tmp_path / "halted")
    with pytest.raises(InvalidInput, match="expected recorded calls of defined tools"):
        new_trunk([], seed=0)


def test_adapters_on_a_new_trunk_are_refused() -> None:
    with pytest.raises(ValueError, match="set lora to null"):
        RetrieverConfig(trunk="new", lora=LORA)


@pytest.mark.parametrize(("name", "value"), [("processes", 2), ("kl_stop", 0.1), ("sample_every_steps", 5)])
def test_settings_that_a_retriever_cannot_have_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        RetrieverConfig(**{name: value})
