"""Stamps of imported files, and links between runs that an import finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from quintain.records.filters import TrajectoryFilter
from quintain.records.imports import FileStamp, RunLink
from quintain.store.lineage.links import Ref
from quintain.store.store import Store
from quintain.store.trajectories import trajectories
from store_shelves import dataset
from trajectory_runs import NOW, answer, later, run, user


def _stamp(uri: str, size: int = 1) -> FileStamp:
    return FileStamp(uri=uri, size=size, mtime_ns=2**60, format="atif")


def test_a_files_newest_stamp_is_the_one_that_counts(store: Store) -> None:
    store.imports.add([_stamp("/logs/a"), _stamp("/logs/b")], NOW)
    store.imports.add([_stamp("/logs/a", 2), _stamp("/logs/a", 3)], later(1))
    assert store.imports.stamps_below(Path("/logs")) == {
        "/logs/a": _stamp("/logs/a", 3).model_copy(update={"imported_at": later(1)}),
        "/logs/b": _stamp("/logs/b").model_copy(update={"imported_at": NOW}),
    }
    store.imports.add([], NOW)
    assert store.imports.stamps_below(Path("/other")) == {}


def test_the_stamps_below_a_folder_are_its_own_and_no_neighbours(store: Store) -> None:
    uris = ["/logs/a", "/logs/a/1", "/logs/a/b/2", "/logs/ab", "/logs/a%/3", "/logs/_/4"]
    store.imports.add([_stamp(uri) for uri in uris], NOW)
    assert set(store.imports.stamps_below(Path("/logs/a"))) == {"/logs/a", "/logs/a/1", "/logs/a/b/2"}
    assert set(store.imports.stamps_below(Path("/logs/a%"))) == {"/logs/a%/3"}
    assert set(store.imports.stamps_below(Path("/logs/_"))) == {"/logs/_/4"}
    assert set(store.imports.stamps_below(Path("/"))) == set(uris)


@pytest.mark.parametrize("chars", [1, 2_000_000], ids=["a transaction for each run", "one transaction"])
def test_runs_of_an_import_learn_of_their_subagents_and_of_what_they_continue(
    store: Store, monkeypatch: pytest.MonkeyPatch, chars: int
) -> None:
    monkeypatch.setattr(trajectories, "_LINKED_CHARS", chars)
    parent, child, after = (run(name) for name in ("parent", "child", "after"))
    ids = [added.id for added in store.trajectories.add_many([parent, child, after], NOW)]
    links = [
        RunLink(identity=parent.identity, subagents=(child.identity, "f" * 64)),
        RunLink(identity=after.identity, continues=parent.identity),
        RunLink(identity="e" * 64, continues=parent.identity),
    ]
    for _ in range(2):
        assert store.trajectories.link(links) == 2
        assert store.trajectories.get(ids[0]).subagents == (ids[1],)
        assert store.trajectories.get(ids[2]).continues == ids[0]
        assert store.trajectories.get(ids[1]) == child.identified()
    assert {node.id for node in store.lineage.descendants([Ref("trajectory", ids[0])], 1).nodes} == {ids[1], ids[2]}
    assert [node.id for node in store.lineage.ancestors([Ref("trajectory", ids[1])], 1).nodes] == [ids[0]]
    # What the links say is no part of the run: the log imported again is known.
    assert [added.created for added in store.trajectories.add_many([parent, child, after], later(1))] == [False] * 3


def test_links_outlive_the_growth_of_a_session(store: Store) -> None:
    short, sub = run("t", user(), answer("a"), session_id="s"), run("sub")
    first, second = (added.id for added in store.trajectories.add_many([short, sub], NOW))
    store.trajectories.link([RunLink(identity=short.identity, subagents=(sub.identity,))])
    store.trajectories.add_many([run("t", user(), answer("a"), answer("b"), session_id="s")], later(1))
    assert len(store.trajectories.get(first).steps) == 3
    assert store.trajectories.get(first).subagents == (second,)
    later_sub = run("sub2")
    (third,) = (added.id for added in store.trajectories.add_many([later_sub], NOW))
    grown = store.trajectories.get(first)
    store.trajectories.link([RunLink(identity=grown.identity, subagents=(later_sub.identity,))])
    assert store.trajectories.get(first).subagents == (second, third)


def test_runs_are_found_by_the_dataset_that_holds_them(store: Store) -> None:
    ids = [added.id for added in store.trajectories.add_many([run(f"t{i}", tags=("x",)) for i in range(4)], NOW)]
    store.datasets.add(dataset("ds-1"), ids[1:3], NOW)
    for conditions in ({"dataset_id": "ds-1"}, {"dataset_id": "ds-1", "tags": ("x",)}):
        found = store.trajectories.search(TrajectoryFilter(**conditions)).items
        assert [item.id for item in found] == [ids[2], ids[1]]
    assert store.trajectories.count(TrajectoryFilter(dataset_id="ds-none")) == 0
