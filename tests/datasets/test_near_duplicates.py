"""Runs that say almost the same, and tasks that ask almost the same."""

from __future__ import annotations

import pytest

from quintain.datasets.near_duplicates import NearDuplicateIndex, drop_near_duplicates, shingles, words
from quintain.datasets.selection import ExportCounts, ValuedRun
from quintain.datasets.split_leaks import LeakCheck, near_prompts_together
from quintain.datasets.splits import KeyedRow, task_key
from quintain.records.dataset import DatasetRow
from quintain.records.trajectory import Task, Trajectory
from trajectory_runs import answer, call, run, user


def _words(n: int, changed: int = 0, name: str = "word") -> str:
    """`n` different words; the last `changed` of them are others."""
    return " ".join(f"{name}{i}" if i < n - changed else f"other{i}" for i in range(n))


def _said(text: str, task: str = "t", **fields: object) -> Trajectory:
    return run(task, user(), answer(text), task=Task(id=task, prompt=""), **fields).identified()  # type: ignore[arg-type]


def _kept(runs: list[Trajectory], threshold: float = 0.9) -> list[Trajectory]:
    tally = ExportCounts()
    kept = [
        one.trajectory
        for one in drop_near_duplicates([ValuedRun(r, None) for r in runs], threshold, tally, by_value=False)
    ]
    assert len(kept) + tally.dropped["near_duplicate"] == len(runs)
    return kept


def test_words_are_folded_and_characters_of_chinese_are_words() -> None:
    assert words("Take it, NOW! 你好 a_b") == ["take", "it", "now", "你", "好", "a_b"]
    assert shingles("a b c d") == {b"a b c", b"b c d"}
    assert shingles("a b") == {b"a b"}
    assert shingles("!") == {b""}


@pytest.mark.parametrize(("changed", "same"), [(0, True), (4, True), (100, False), (200, False)])
def test_texts_are_the_same_from_the_threshold_on(changed: int, same: bool) -> None:
    """Of 400 words the last 4 differ: 394 of 398 shingles are shared, J = 394/402 = 0.98; of the last 100, J = 298/498 = 0.6."""
    texts = NearDuplicateIndex(0.9)
    assert texts.find(_words(400)) is None
    assert texts.find(_words(400, changed)) == (0 if same else None)


@pytest.mark.parametrize("threshold", [0.5, 0.96, 1.0])
def test_every_threshold_finds_equal_texts(threshold: float) -> None:
    texts = NearDuplicateIndex(threshold)
    assert [texts.find(text) for text in (_words(50), _words(50, 40), _words(50))] == [None, None, 0]


def test_a_short_text_resembles_its_equal_only() -> None:
    texts = NearDuplicateIndex(0.9)
    assert [texts.find(text) for text in ("take box", "Take, box!", "take bag", "", "")] == [None, 0, None, None, 2]


def test_the_oldest_stays_over_all_tasks_and_what_is_left_out_is_no_measure() -> None:
    """a ~ b (0.98) ~ c (0.98 of b, below 0.97 of a): b falls to a; c is told by a alone, and stays."""
    a, b, c = (_said(_words(400, changed), task=f"t{changed}") for changed in (0, 4, 8))
    assert _kept([a, b, c], 0.97) == [a, c]
    assert _kept([a, b, c, _said("quite another text")], 0.97)[:2] == [a, c], "newer runs change nothing"


def test_what_the_environment_answered_does_not_make_runs_different() -> None:
    same = [run("t", user(), call(result=result), answer(_words(50))) for result in ("one", "two")]
    assert _kept(same) == same[:1]
    other = run("t", user(), call("take", result="one"), answer(_words(50, 40)))
    assert _kept([same[0], other]) == [same[0], other]


def _line(key: str, prompt: str) -> KeyedRow:
    asked = run(None, user(prompt), answer(), task=Task(id=key, prompt=prompt))
    return KeyedRow(task_key(asked), DatasetRow(trajectory=asked))


def test_tasks_that_ask_almost_the_same_go_to_the_side_of_the_oldest() -> None:
    asked = [("a", _words(100)), ("b", "Something else."), ("c", _words(100, 1)), ("a", _words(100)), ("d", "")]
    lines = list(near_prompts_together([_line(*one) for one in asked], 0.9))
    assert [line.key for line in lines] == ["id::a", "id::b", "id::a", "id::a", "id::d"]


def test_tasks_outside_train_that_ask_in_the_words_of_train_are_counted_once() -> None:
    check = LeakCheck()
    rows = [("a", "Sort it.", "train"), ("b", "sort  IT", "validation"), ("b", "sort it", "validation")]
    rows += [
        ("c", "sort it!", "test"),
        ("d", "Else", "test"),
        ("e", "More", "train"),
        ("f", "", "test"),
        ("g", "", "train"),
    ]
    for key, prompt, split in rows:
        check.add(*_line(key, prompt), split)  # type: ignore[arg-type]
    assert check.tasks == 2
