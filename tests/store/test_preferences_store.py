"""Stored preferences: one word for each rater on two runs, whichever of them is named first."""

from __future__ import annotations

from typing import Any

import pytest

from quintain.errors import NotFound
from quintain.records.labels.preference import Preference
from quintain.store.store import Store
from trajectory_runs import NOW, answer, later, run, user


def _runs(store: Store, n: int) -> list[str]:
    """Ids of `n` runs of one task, in the order of their ids."""
    runs = [run("t", user(), answer(f"answer {i}")) for i in range(n)]
    return sorted(added.id for added in store.trajectories.add_many(runs, NOW))


def _said(a: str, b: str, better: str = "a", **more: Any) -> Preference:
    return Preference(**({"a": a, "b": b, "better": better, "source": "person", "rater": "person:Ada"} | more))


def test_a_later_preference_replaces_the_opposite_one_and_a_repetition_is_stored_once(store: Store) -> None:
    a, b = _runs(store, 2)
    (first,) = store.preferences.add_many([_said(a, b)], NOW)
    assert (first.chosen, first.rejected, first.created_at) == (a, b, NOW)
    assert store.preferences.add_many([_said(a, b)], later(1))[0].id == first.id
    assert store.preferences.previous([_said(b, a)]) == [first.model_copy(update={"created_at": later(1)})]
    (changed,) = store.preferences.add_many([_said(a, b, "b")], later(2))
    assert (changed.id, changed.chosen) == (first.id, b)
    assert store.preferences.among([a, b]) == [changed]


def test_the_order_in_which_two_runs_are_named_does_not_matter(store: Store) -> None:
    """b > a named as (b, a, better a) is stored as (a, b, better b); a tie stays one."""
    a, b, c = _runs(store, 3)
    (one,) = store.preferences.add_many([_said(b, a, "a")], NOW)
    assert (one.a, one.b, one.better, one.chosen) == (a, b, "b", b)
    (other,) = store.preferences.add_many([_said(a, b, "b")], NOW)
    assert other.id == one.id
    (tie,) = store.preferences.add_many([_said(c, a, "tie")], NOW)
    assert (tie.a, tie.better, tie.chosen, tie.rejected) == (a, "tie", None, None)
    assert len(store.preferences.among([a, b, c])) == 2


def test_every_rater_scorer_source_and_step_has_a_word_of_its_own(store: Store) -> None:
    a, b = _runs(store, 2)
    words = [
        _said(a, b),
        _said(a, b, "b", rater="person:Bob"),
        _said(a, b, "b", source="assistant", rater="assistant"),
        _said(a, b, "b", step=0),
        _said(a, b, source="mined", rater=None, scorer="outcome"),
        _said(a, b, source="mined", rater=None, scorer="rules"),
    ]
    store.preferences.add_many(words, NOW)
    assert len(store.preferences.among([a, b])) == 6
    assert [p.scorer for p in store.preferences.among([a, b], sources=["mined"])] == ["outcome", "rules"]
    assert store.preferences.among([a]) == []
    assert [p.id for p in store.preferences.page(trajectory_id=a, limit=2).items] == [
        p.id for p in reversed(store.preferences.among([a, b])[-2:])
    ]


def test_a_preference_needs_both_runs_and_is_stored_with_all_others_or_none(store: Store) -> None:
    a, b = _runs(store, 2)
    with pytest.raises(NotFound, match="traj-none"):
        store.preferences.add_many([_said(a, b), _said(a, "traj-none")], NOW)
    assert store.preferences.among([a, b]) == []
    with pytest.raises(ValueError, match="expected two different runs of one task"):
        _said(a, a)


def test_forgetting_a_run_deletes_its_scores_and_preferences(store: Store) -> None:
    a, b, c = _runs(store, 3)
    store.preferences.add_many([_said(a, b), _said(b, c), _said(a, c)], NOW)
    store.lineage.forget([a], NOW)
    assert [(p.a, p.b) for p in store.preferences.page().items] == [(b, c)]
    assert store.preferences.comparable([a, b]) == {b}
    with pytest.raises(NotFound):
        store.preferences.add_many([_said(a, b)], NOW)
