"""Search by text, tags and reward: the same answers as reading every run, by way of the indexes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from quintain.records.filters import TrajectoryFilter
from quintain.store.database.engine import read_transaction, write_transaction
from quintain.store.store import Store, open_store
from quintain.store.trajectories.text_index import index_new_texts, trigram_query
from trajectory_runs import NOW, answer, later, run, user


def found(store: Store, **conditions: object) -> list[str]:
    return [str(item.task_id) for item in store.trajectories.search(TrajectoryFilter.model_validate(conditions)).items]


def plan(store: Store, **conditions: object) -> list[str]:
    """What SQLite does for a page of a search, one line a table, in the order of its loops."""
    statements: list[str] = []
    with read_transaction(store.engine) as connection:
        connection.connection.driver_connection.set_trace_callback(statements.append)  # type: ignore[union-attr]
    store.trajectories.search(TrajectoryFilter.model_validate(conditions))
    with read_transaction(store.engine) as connection:
        connection.connection.driver_connection.set_trace_callback(None)  # type: ignore[union-attr]
        (select,) = (text for text in statements if text.startswith("SELECT trajectories.seq"))
        return [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {select}")]


def indexed(store: Store) -> int:
    """How many runs with a trigram of `case` the index has."""
    query = "SELECT rowid FROM trajectories_text WHERE trajectories_text MATCH 'cas'"
    with read_transaction(store.engine) as connection:
        return len(connection.exec_driver_sql(query).all())


TEXTS = {
    "german": "Die Straße ist gesperrt",
    "chinese": "仓库里没有红色的盒子",
    "code": "if a == 'x': return \"100%\"",
    "path": "src/quintain_core/[main].py*",
    "spaces": "one  two\n\tthree",
    "emoji": "done 🎉🎉🎉 thanks",
    "turkish": "İstanbul",
    "nul": "before \0 behind",
}
PATTERNS = (
    *("STRASSE", "straße", "aße", "仓库里", "仓库", "色的盒子", "== 'x'", '"100%"', "0%", "_core/[", "].py*", "e  t", "two\n\tth"),
    *("🎉🎉🎉", "🎉", "istanbul", "i̇stan", "e", "xyz", "box", "find the red box", "a" * 500, '"', '"""', "AND", "NOT OR", "behind"),
)  # fmt: skip


def test_a_pattern_finds_the_runs_whose_text_contains_it_whatever_its_characters(store: Store) -> None:
    runs = [run(name, user(text), answer("Find the red box.")) for name, text in TEXTS.items()]
    store.trajectories.add_many(runs, NOW)
    whole = {name: f"{text}\nFind the red box.".casefold() for name, text in TEXTS.items()}
    for pattern in PATTERNS:
        expected = [name for name in reversed(TEXTS) if pattern.casefold() in whole[name]]
        assert found(store, text=pattern) == expected, pattern
        assert store.trajectories.count(TrajectoryFilter(text=pattern)) == len(expected), pattern


def test_a_pattern_finds_the_text_of_other_columns_of_a_row(store: Store) -> None:
    """A table names the customer in a column, by which all runs of theirs can be forgotten."""
    theirs = run("theirs", user("Hello"), answer("Hi"), extra={"row": {"customer": "Meyer GmbH", "stars": 5}})
    store.trajectories.add_many([theirs, run("other", user("Hello"), answer("Hi"))], NOW)
    assert found(store, text="meyer gmbh") == ["theirs"]


@pytest.mark.usefixtures("sqlite_only")
def test_the_index_keeps_in_step_with_growth_replacement_and_forgetting(store: Store, tmp_path: Path) -> None:
    (session,) = store.trajectories.add_many([run("s", user(), answer("zebra"), session_id="s")], NOW)
    assert found(store, text="zebra") == ["s"]
    store.trajectories.add_many([run("s", user(), answer("zebra"), answer("giraffe"), session_id="s")], later(1))
    assert (found(store, text="giraffe"), found(store, text="zebra")) == (["s"], ["s"])
    store.trajectories.grow(session.id, lambda old: run("s", user(), answer("okapi")), later(2))
    assert (found(store, text="okapi"), found(store, text="zebra")) == (["s"], [])
    store.trajectories.add_many([run("t", user(), answer("qyx wvk"))], NOW)
    (secret,) = store.trajectories.search(TrajectoryFilter(text="qyx wvk")).items
    store.lineage.forget([secret.id], later(3))
    assert found(store, text="qyx wvk") == []
    with read_transaction(store.engine) as connection:
        blocks = connection.exec_driver_sql("SELECT block FROM trajectories_text_data").scalars().all()
        connection.exec_driver_sql("INSERT INTO trajectories_text(trajectories_text) VALUES ('integrity-check')")
    # FTS5 stores a term without the prefix that it shares with the one before, and no other text begins so.
    assert not any(b"qyx" in block for block in blocks)
    assert any(b"oka" in block for block in blocks)


@pytest.mark.usefixtures("sqlite_only")
def test_a_run_that_the_index_lacks_is_found_and_later_indexed(store: Store, tmp_path: Path) -> None:
    store.trajectories.add_many([run(f"t{i}", user(f"case {i}"), answer()) for i in range(3)], NOW)
    # Each text has 32 characters: the second run exceeds 40.
    assert index_new_texts(store.engine, most_chars=40) is False
    assert indexed(store) == 2
    hurried = open_store(f"sqlite:///{tmp_path / 'quintain.db'}", wait_s=0.05)
    with write_transaction(store.engine):
        # The index cannot be written now, so that every text is compared.
        assert found(hurried, text="case") == ["t2", "t1", "t0"]
    hurried.close()
    assert store.trajectories.index_new_texts() is True
    assert indexed(store) == 3


@pytest.mark.usefixtures("sqlite_only")
def test_a_search_for_text_starts_from_the_index_and_keeps_the_order_of_pages(store: Store) -> None:
    store.trajectories.add_many([run(f"t{i}", user(f"case {i:03d}"), answer(), tags=("all",)) for i in range(40)], NOW)
    for more in (
        {},
        {"agent": "agent"},
        {"tags": ("all",)},
        {"outcome": "success", "environment": "quintain/inventory"},
    ):
        steps = plan(store, text="case 03", **more)
        assert "trajectories_text VIRTUAL TABLE INDEX" in steps[0], steps
        assert not any("TEMP B-TREE" in step for step in steps), steps
    first = store.trajectories.search(TrajectoryFilter(text="case 03", tags=("all",)), limit=4)
    rest = store.trajectories.search(TrajectoryFilter(text="case 03", tags=("all",)), limit=9, cursor=first.next_cursor)
    assert [item.task_id for item in (*first.items, *rest.items)] == [f"t{i}" for i in range(39, 29, -1)]


@pytest.mark.usefixtures("sqlite_only")
def test_a_rare_pattern_of_one_or_two_characters_starts_from_the_index_and_a_frequent_one_from_the_newest_runs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quintain.store.trajectories.text_index._FREQUENT", 20)
    ends = ("a 仓", "仓", "b 仓b", "zq", "\ufffe")
    store.trajectories.add_many([run(f"t{i}", user(f"case {i:03d}"), answer()) for i in range(40)], NOW)
    store.trajectories.add_many([run(f"end {n}", user("hello"), answer(end)) for n, end in enumerate(ends)], NOW)
    for pattern, expected in {"仓": (2, 1, 0), "仓b": (2,), "zq": (3,), "q": (3,), "xq": (), "\ufffe": (4,)}.items():
        assert found(store, text=pattern) == [f"end {n}" for n in expected], pattern
        assert "trajectories_text_trigrams" in "".join(plan(store, text=pattern)), pattern
    assert len(found(store, text="as")) == 40
    assert "trajectories_text" not in "".join(plan(store, text="as"))


@pytest.mark.usefixtures("sqlite_only")
def test_a_bound_on_the_reward_is_tested_in_an_index(store: Store) -> None:
    store.trajectories.add_many([run(f"t{i}", reward=i / 10) for i in range(5)], NOW)
    assert found(store, min_reward=0.3) == ["t4", "t3"]
    assert found(store, min_reward=0.1, max_reward=0.2) == ["t2", "t1"]
    assert "ix_trajectories_reward" in plan(store, min_reward=2.0)[0]
    assert "ix_trajectories_agent" in plan(store, min_reward=2.0, agent="agent")[0]


@pytest.mark.usefixtures("sqlite_only")
def test_many_tags_are_one_condition_and_more_than_fifty_are_refused(store: Store) -> None:
    tags = tuple(f"tag-{i}" for i in range(50))
    runs = [run("all", tags=tags), run("less", tags=tags[1:]), run("more", tags=(*tags, "x"))]
    store.trajectories.add_many(runs, NOW)
    assert found(store, tags=tags) == ["more", "all"]
    assert found(store, tags=(*tags[1:], tags[1])) == ["more", "less", "all"]
    assert len(plan(store, tags=tags)) == len(plan(store, tags=tags[:2])) == 4
    with pytest.raises(ValidationError, match="at most 50 items"):
        TrajectoryFilter(tags=(*tags, "x"))


def test_a_pattern_asks_for_its_trigrams_and_a_long_one_for_some_of_them() -> None:
    assert trigram_query("ab") is None
    assert trigram_query('a"bc') == '"a""b" AND """bc"'
    assert trigram_query("aaaa") == '"aaa"'
    pattern = "".join(chr(0x4E00 + i) for i in range(500))
    assert trigram_query(pattern).count(" AND ") == 9  # of 498 trigrams every fiftieth, which are 10
