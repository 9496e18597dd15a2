"""Retrievers from training to search: passes, resumption, the folder on disk, vectors and search."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from quintain.datasets.recorded_calls import tool_document
from quintain.errors import InvalidInput, TrainingFailed
from quintain.records.dataset import DatasetRow
from quintain.records.hyperparameters.methods import RetrieverConfig
from quintain.trainers.data.retrieval_examples import relevant_tools
from quintain.trainers.data.streams import Example, streams_of, token_row
from quintain.trainers.engine.forward import Engine
from quintain.trainers.losses.loss_output import LossOutput, totals_of
from quintain.trainers.losses.retriever import mean_pooled, retriever_loss
from quintain.trainers.models.new_trunk import new_trunk
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
    """Two hard negatives a call. Passes of at most 128 tokens are several; with adapters, dropout is the same in both of each."""
    settings = {"batch_size": 4, "learning_rate": 1e-2, "hard_negatives": 2, "batch_tokens": 128}
    adapters = {**settings, "epochs": 3, "lora": LORA}
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
    engine = Engine.of(start.model)
    assert engine.reason is None  # it has no last block that a faster path could prune
    vectors = TextEncoder(engine, start.tokenizer, 64).encode([*documents, *NAMES])
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


E1, E2, E3 = ([float(i == j) for j in range(3)] for i in range(3))


def example(need: int, *tools: int, weight: float = 1.0) -> Example:
    """A call of the first of these tools, the others hard negatives; texts by number."""
    texts = (need, *tools)
    rows = tuple(token_row([1, 0], [False, True]) for _ in texts)
    return Example(rows, tuple(range(len(texts))), tuple(map(float, texts)), weight, divisible=False)


def loss_of(examples: Sequence[Example], states: Sequence[Sequence[float]], scale: float = 20.0) -> LossOutput:
    vectors = torch.tensor(states, dtype=torch.float64)
    relevant = relevant_tools(examples)
    return retriever_loss(vectors, streams_of(examples), totals_of(examples), scale=scale, relevant=relevant)


def test_the_loss_of_two_calls_by_hand() -> None:
    """Cosines 0.6 to the own tool, 0.8 and 0 to the others: with scale ln 2 / 0.2 the softmax over 8, 16, 1 is 8 / 25.

    The second need has cosine 1 to its tool, 0 to the others: 32 of 34, by the same scale. Lengths do not count.
    """
    scale = math.log(2) / 0.2
    one, two = example(0, 10, 11), example(1, 12)
    # Rows: need 0, tool 10, tool 11, need 1, tool 12.
    states = [[3.0, 4.0, 0.0], E1, [0.0, 7.0, 0.0], [0.0, 0.0, 2.0], E3]
    first, second = -math.log(8 / 25), -math.log(32 / 34)
    found = loss_of([one, two], states, scale)
    assert found.loss.item() == pytest.approx((first + second) / 2)
    assert found.metrics == {"retrieval_accuracy": (1.0, 2.0)}
    weighted = [example(0, 10, 11, weight=3.0), two]
    assert loss_of(weighted, states, scale).loss.item() == pytest.approx((3 * first + second) / 4)


def test_a_tool_counts_once_and_is_no_negative_of_a_need_that_it_answers_too() -> None:
    """Two needs with the same tool have one candidate: loss 0. Text 0 has both tools: neither is a negative of the other."""
    assert loss_of([example(0, 10), example(1, 10)], [E1, E2, E3, E2]).loss.item() == pytest.approx(0)
    assert loss_of([example(0, 10), example(0, 11)], [E1, E2, E1, E3]).loss.item() == pytest.approx(0)
    apart = loss_of([example(0, 10), example(1, 11)], [E1, E2, E1, E3])
    assert apart.loss.item() == pytest.approx(math.log(2)), "two needs of one vector, each with its own tool"


def test_without_duplicates_it_is_the_multiple_negatives_ranking_loss() -> None:
    """sentence-transformers: cross entropy of scale cos(anchor, all candidates), positives first, then the negatives."""
    chance = torch.Generator().manual_seed(5)
    needs, called, other = torch.randn(3, 4, 3, generator=chance, dtype=torch.float64)
    states = [row.tolist() for trio in zip(needs, called, other, strict=True) for row in trio]
    cosines = torch.nn.functional.cosine_similarity(needs[:, None], torch.cat([called, other])[None], dim=-1)
    expected = torch.nn.functional.cross_entropy(20 * cosines, torch.arange(4))
    examples = [example(i, 10 + i, 20 + i) for i in range(4)]
    assert loss_of(examples, states).loss.item() == pytest.approx(expected.item())


def test_states_are_averaged_by_text_and_examples_without_a_tool_are_refused() -> None:
    rows = (token_row([1, 2, 0], [False, True, True]), token_row([1, 0], [False, True]))
    two = Example(rows, (0, 1), (0.0, 1.0), divisible=False)
    pooled = mean_pooled(torch.tensor([[1.0, 3.0], [3.0, 5.0], [7.0, 9.0]]), streams_of([two]))
    assert pooled.tolist() == [[2.0, 4.0], [7.0, 9.0]]
    with pytest.raises(ValueError, match="a need and a tool in each of 1 examples"):
        retriever_loss(pooled[:1], streams_of([example(0)]), totals_of([example(0)]), scale=20.0, relevant={})
