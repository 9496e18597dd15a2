"""Stored judging batches: answers and votes add up, and a rater's batches are found."""

from __future__ import annotations

import pytest

from quintain.errors import NotFound
from quintain.records.labels.judging import BatchItem, Criterion, JudgingBatch, Rubric
from quintain.store.store import Store
from trajectory_runs import NOW

RUBRIC = Rubric(name="r", criteria=(Criterion(name="c", description="Good?"),))


def batch(number: int, rater: str) -> JudgingBatch:
    items = tuple(BatchItem(item_id=f"i{n}", trajectory_ids=("traj-a", "traj-b")) for n in (1, 2))
    return JudgingBatch(
        id=f"batch-{number}", judge="assistant", rater=rater, mode="pairwise", rubric=RUBRIC, items=items
    )


def test_answers_add_up_and_earlier_votes_stay(store: Store) -> None:
    store.judging.add(batch(1, "assistant"), NOW)
    store.judging.record_answers("batch-1", ["i1"], {"i1": "a"})
    store.judging.record_answers("batch-1", ["i1", "i2"], {"i1": "tie"})
    found = store.judging.get("batch-1")
    assert (found.answered, found.votes) == (("i1", "i2"), {"i1": ("a", "tie")})
    with pytest.raises(NotFound, match="the newest are batch-1"):
        store.judging.record_answers("batch-2", ["i1"])


def test_the_batches_of_a_rater_come_oldest_first(store: Store) -> None:
    for number, rater in enumerate(("assistant", "person:ann", "assistant")):
        store.judging.add(batch(number, rater), NOW)
    assert [found.id for found in store.judging.iterate("assistant")] == ["batch-0", "batch-2"]
    assert [found.id for found in store.judging.iterate()] == ["batch-0", "batch-1", "batch-2"]
    assert list(store.judging.iterate("person:bo")) == []
