from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from quintain.records.dataset import DatasetRow, GroupRow, PairRow, TextRow
from quintain.trainers.loop.probes import Probes, Sample, append_samples, diversity
from quintain.trainers.models.loading import LoadedModel
from quintain.trainers.rendering.renderer import Renderer
from tiny_models import tiny_model
from trainers.episodes import episode
from trainers.playing import TOKENIZER, spread, with_random_adapters

RENDERER = Renderer.of(TOKENIZER)
ROWS = [DatasetRow(trajectory=episode(question=f"price of item {i}?")) for i in range(20)]
MOST = 64
"""Tokens of a sample."""


def loaded(model: Any = None) -> LoadedModel:
    return LoadedModel(model or spread(tiny_model(TOKENIZER)), TOKENIZER, 1024)


def adapted() -> Any:
    return with_random_adapters(tiny_model(TOKENIZER), dropout=0.3)


def test_the_same_rows_and_seed_give_the_same_openings_and_another_seed_gives_others() -> None:
    first = Probes.of(ROWS, RENDERER, 1024, seed=3)
    assert len(first.turns) == 4
    assert first == Probes.of(ROWS, RENDERER, 1024, seed=3)
    assert {t.messages for t in first.turns} != {t.messages for t in Probes.of(ROWS, RENDERER, 1024, seed=4).turns}


def test_equal_openings_count_once_and_those_without_room_for_a_turn_are_passed_over() -> None:
    alike = [DatasetRow(trajectory=episode(n_turns=n)) for n in (1, 2, 3)]
    assert len(Probes.of(alike, RENDERER, 1024).turns) == 1
    length = len(RENDERER.opening(Probes.of(alike, RENDERER, 1024).turns[0].messages, alike[0].trajectory.tools))
    assert len(Probes.of(alike, RENDERER, length + MOST).turns) == 1
    assert Probes.of(alike, RENDERER, length + MOST - 1).turns == ()
    assert Probes.of([], RENDERER, 1024).write(loaded(), 0) == ([], (None, None, None, None))


def test_pairs_and_groups_show_the_opening_that_their_runs_share() -> None:
    good, bad = episode(3), episode(2)
    rows = [PairRow(chosen=good, rejected=bad), GroupRow(key="t", trajectories=(good, bad), rewards=(1.0, 0.0))]
    of_run = Probes.of([DatasetRow(trajectory=good)], RENDERER, 1024).turns
    for row in rows:
        assert Probes.of([row], RENDERER, 1024).turns == of_run


def test_samples_report_prompt_and_text_and_do_not_change_with_the_calls() -> None:
    """Greedy: the first one is what `generate` gives."""
    model = spread(tiny_model(TOKENIZER)).eval()
    probes = Probes.of(ROWS[:2], RENDERER, 1024)
    samples, figures = probes.write(loaded(model), 5)
    assert samples == probes.write(loaded(model), 5)[0]
    for sample, turn in zip(samples, probes.turns, strict=True):
        assert sample.step == 5
        assert turn.messages[-1].content in sample.prompt
        assert sample.prompt.endswith("<|im_start|>assistant\n")
        assert 0 < sample.tokens <= MOST
    assert figures.mean_length == sum(sample.tokens for sample in samples) / 2
    ids = RENDERER.opening(probes.turns[0].messages, probes.turns[0].tools)
    out = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        max_new_tokens=MOST,
        do_sample=False,
        eos_token_id=sorted(RENDERER.end_ids),
        pad_token_id=0,
    )
    written = RENDERER.written(out[0, len(ids) :].tolist())
    assert len(set(written)) > 3, "a model that repeats one token shows nothing"
    assert samples[0].text == written


def test_adapters_take_part_in_what_is_written() -> None:
    """The wrapped model writes what the same model writes with its adapters merged into the weights."""
    probes = Probes.of(ROWS[:1], RENDERER, 1024)
    wrapped, merged, base = (
        probes.write(loaded(model), 0)[0] for model in (adapted(), adapted().merge_and_unload(), adapted().unload())
    )
    assert wrapped == merged
    assert wrapped != base


def test_plain_text_is_continued_as_it_stands() -> None:
    probes = Probes.of([TextRow(text="the quick brown fox " * 20)], RENDERER, 1024)
    (sample,), figures = probes.write(loaded(), 0)
    seen = ("the quick brown fox " * 20)[:200]
    assert sample.prompt == seen
    assert sample.error is None
    assert figures.parsed is None


def test_diversity_counts_distinct_tokens_and_pairs_by_all_tokens() -> None:
    """Rows 1 2 1 2 and 1 3: 3 distinct of 6 tokens; pairs 12 21 13 are 3 of 6 tokens; 21 is not built across rows."""
    assert diversity([[1, 2, 1, 2], [1, 3]], [True, False]) == (3 / 6, 3 / 6, 3.0, 0.5)
    assert diversity([[5, 5, 5, 5]], [True]) == (1 / 4, 1 / 4, 4.0, 1.0)
    assert diversity([[]], [False]) == (None, None, 0.0, 0.0)
    assert diversity([[1, 2]]).metrics() == {
        "sample_distinct_1": 1.0,
        "sample_distinct_2": 0.5,
        "sample_mean_length": 2.0,
        "sample_parsed": None,
    }


def test_samples_are_appended_as_whole_lines_after_a_torn_one(tmp_path: Path) -> None:
    samples = [Sample(1, f"price of item {i}?", "41 ü", 3, "end", None) for i in range(4)]
    path = tmp_path / "samples.jsonl"
    append_samples(path, samples[:2])
    with path.open("ab") as file:
        file.write(b'{"step": 1, "pro')
    append_samples(path, samples[2:])
    read = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert read == [vars(sample) for sample in samples]
