from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quintain.errors import Conflict, InvalidInput, Unavailable
from quintain.trainers.data.example_files import read_examples, write_examples
from quintain.trainers.data.replay_buffer import ReplayBuffer
from quintain.trainers.data.streams import Example, token_row


def example(key: str, *, length: int = 4) -> Example:
    first = token_row([int(key[1:]) + i for i in range(length)], [i > 1 for i in range(length)])
    return Example((first,), (0,), key=key)


def examples(start: int, end: int) -> list[Example]:
    return [example(f"k{i}") for i in range(start, end)]


def keys(held: ReplayBuffer) -> set[str]:
    return {e.key for e in held.sample(10_000, exclude=(), seed=0)}


def test_a_later_job_replays_what_an_earlier_one_was_trained_on(tmp_path: Path) -> None:
    """A buffer that is filled and asked in one job, and only there, replays nothing: its new data are excluded."""
    first = ReplayBuffer.open(tmp_path / "default", 100, "tok-a")
    assert first.sample(5, exclude=(), seed=0) == []
    assert first.add(examples(0, 10)) == 10
    second = ReplayBuffer.open(tmp_path / "default", 100, "tok-a")
    drawn = second.sample(4, exclude={"k0", "k1"}, seed=7)
    assert len({e.key for e in drawn}) == 4
    assert not {"k0", "k1"} & {e.key for e in drawn}
    assert second.warning is None
    again = ReplayBuffer.open(tmp_path / "default", 100, "tok-a").sample(4, exclude={"k0", "k1"}, seed=7)
    assert [e.key for e in again] == [e.key for e in drawn]
    assert len(second.sample(99, exclude={"k0"}, seed=1)) == 9


def test_examples_come_back_whole_with_every_stream(tmp_path: Path) -> None:
    masked = [False, True, True]
    whole = Example(
        rows=(
            token_row([5, 6, 7], masked, weight=[0.0, 0.5, 0.25], step_index=[-1, 3, 3], old_logprob=[np.nan, -1, -2]),
            token_row([8, 9], [False, True], ref_logprob=[np.nan, -3.5], advantage=[0.0, 1.5]),
            token_row([5, 6, 1], masked, old_logprob=[np.nan, -4, np.nan]),
        ),
        member=(0, 0, 1),
        value=(1.0, -0.5),
        weight=2.0,
        key="task 芒果",
        divisible=False,
    )
    path = tmp_path / "examples.npz"
    write_examples(path, [example("k1"), whole], "tok-a")
    fingerprint, (first, read) = read_examples(path)
    assert fingerprint == "tok-a"
    assert first.key == "k1"
    assert replace(read, rows=()).__dict__ == replace(whole, rows=()).__dict__
    for mine, theirs in zip(whole.rows, read.rows, strict=True):
        for name, stream in vars(mine).items():
            other = getattr(theirs, name)
            assert (stream is None) == (other is None), name
            if stream is not None:
                assert other.dtype == stream.dtype
                np.testing.assert_array_equal(stream, other)
    write_examples(path, [], "tok-a")
    assert read_examples(path) == ("tok-a", [])


def test_the_buffer_is_bounded_and_keeps_the_same_whatever_the_order(tmp_path: Path) -> None:
    """The 10 of 40 whose hashed keys are smallest: a uniform sample. Dropped examples do not come back in their place."""
    hashes = {f"k{i}": hashlib.sha256(f"replay/k{i}".encode()).digest() for i in range(40)}
    expected = set(sorted(hashes, key=hashes.__getitem__)[:10])
    forth, back = (ReplayBuffer.open(tmp_path / name, 10, "tok-a") for name in ("forth", "back"))
    for start in (0, 10, 20, 30, 0):
        assert forth.add(examples(start, start + 10)) == 10
        back.add(examples(30 - start, 40 - start))
    assert keys(forth) == keys(back) == expected
    assert len(ReplayBuffer.open(tmp_path / "back", 4, "tok-a")) == 4
    assert ReplayBuffer.open(tmp_path / "back", 4, "tok-a").add([]) == 4
    assert len(ReplayBuffer.open(tmp_path / "back", 10, "tok-a")) == 4


def test_an_example_that_comes_again_takes_the_others_place(tmp_path: Path) -> None:
    buffer = ReplayBuffer.open(tmp_path, 10, "tok-a")
    buffer.add([example("k3"), example("k3", length=6)])
    assert [len(e.rows[0]) for e in buffer.sample(9, exclude=(), seed=0)] == [6]
    buffer.add([example("k3", length=5)])
    assert [len(e.rows[0]) for e in ReplayBuffer.open(tmp_path, 10, "tok-a").sample(9, exclude=(), seed=0)] == [5]


def test_rows_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    mine = ReplayBuffer.open(tmp_path, 10, "tok-a")
    ReplayBuffer.open(tmp_path, 10, "tok-b").add(examples(0, 3))
    for attempt in (lambda: ReplayBuffer.open(tmp_path, 10, "tok-a"), lambda: mine.add(examples(3, 4))):
        with pytest.raises(Conflict, match=r"expected tokens of tok-a .*, got tok-b; name another buffer"):
            attempt()


def test_damage_is_never_read_as_data(tmp_path: Path) -> None:
    """Every byte of a small file turned in its place, and every length cut: what is read is right, or refused."""
    path = tmp_path / "examples.npz"
    write_examples(path, examples(0, 2), "tok-a")
    content = path.read_bytes()
    refused = 0
    damaged = [content[:n] for n in range(0, len(content), 37)]
    damaged += [content[:i] + bytes([content[i] ^ 0x15]) + content[i + 1 :] for i in range(0, len(content), 11)]
    for variant in damaged:
        path.write_bytes(variant)
        try:
            fingerprint, read = read_examples(path)
        except InvalidInput:
            refused += 1
            continue
        assert fingerprint == "tok-a"
        assert [(e.key, e.rows[0].token_ids.tolist()) for e in read] == [("k0", [0, 1, 2, 3]), ("k1", [1, 2, 3, 4])]
    assert refused > len(damaged) / 2


def test_a_damaged_buffer_starts_empty_with_a_warning_and_recovers(tmp_path: Path) -> None:
    ReplayBuffer.open(tmp_path, 10, "tok-a").add(examples(0, 5))
    (path,) = tmp_path.glob("*.npz")
    path.write_bytes(path.read_bytes()[:-30])
    buffer = ReplayBuffer.open(tmp_path, 10, "tok-a")
    assert len(buffer) == 0
    assert buffer.warning is not None
    assert "the replay buffer starts empty" in buffer.warning
    path.write_bytes(bytes(2000))
    zeroed = ReplayBuffer.open(tmp_path, 10, "tok-a").warning or ""
    assert "the file is damaged" in zeroed
    assert "unsafe" not in zeroed, "numpy advises to load it as a pickle"
    buffer.add(examples(5, 7))
    assert keys(ReplayBuffer.open(tmp_path, 10, "tok-a")) == {"k5", "k6"}


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.trainers.data.example_files._FORMAT", 2)
    ReplayBuffer.open(tmp_path, 10, "tok-a").add(examples(0, 5))
    monkeypatch.undo()
    with pytest.raises(Unavailable, match="newer version"):
        ReplayBuffer.open(tmp_path, 10, "tok-a")


def test_jobs_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    """Two writers add 10 examples each, one at a time; each opens the file and its lock anew, as jobs do."""

    def write(first: int) -> None:
        for new in examples(first, first + 10):
            ReplayBuffer.open(tmp_path, 1000, "tok-a").add([new])

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write, first) for first in (0, 100)]:
            done.result(60)
    assert keys(ReplayBuffer.open(tmp_path, 1000, "tok-a")) == {f"k{i}" for i in (*range(10), *range(100, 110))}
    assert {path.name for path in tmp_path.iterdir()} <= {"examples.npz", "lock"}


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable, match="cannot use the replay buffer"):
        ReplayBuffer.open(tmp_path / "file", 5, "tok-a")
