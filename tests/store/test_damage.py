"""A damaged database is named as such, and what can be read of it is got back."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quintain.cli.commands.doctor import run_doctor
from quintain.errors import Conflict, Unavailable
from quintain.records.filters import TrajectoryFilter
from quintain.store.database.damage import problems, readable, salvage
from quintain.store.database.engine import write_transaction
from quintain.store.store import open_store
from trajectory_runs import run

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def path(home: Path) -> Path:
    """A closed database with 300 runs."""
    store = open_store(f"sqlite:///{home / 'quintain.db'}")
    store.trajectories.add_many([run(f"t{number}") for number in range(300)], MOMENT)
    store.close()
    return home / "quintain.db"


def test_a_truncated_database_is_named_and_doctor_lists_what_can_be_read(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problems(path) == []
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    assert run_doctor(path.parent) == 1
    printed = capsys.readouterr().out
    assert "damaged" in printed or "malformed" in printed
    assert "quintain restore" in printed
    assert "sqlalche.me" not in printed
    assert problems(path)


def test_a_file_that_is_no_database_is_refused_in_words_of_our_own(path: Path) -> None:
    path.write_bytes(b"This is a letter, and no database at all." * 100)
    with pytest.raises(Unavailable, match=r"damaged file \(file is not a database\).*quintain doctor") as raised:
        open_store(f"sqlite:///{path}")
    assert raised.value.code == "database_damaged"
    assert readable(path) == []


def test_an_open_store_follows_its_file_when_it_is_deleted_replaced_emptied_or_repaired(path: Path) -> None:
    """SQLite alone would go on reading the old file, and keep pages of a file that is no database."""
    store, saved = open_store(f"sqlite:///{path}"), path.with_name("saved.db")
    everything = TrajectoryFilter()
    assert store.trajectories.count(everything) == 300
    path.rename(saved)
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"\[database_missing\].*quintain restore"):
            store.trajectories.count(everything)
        assert not path.exists()
    open_store(f"sqlite:///{path}").close()
    assert store.trajectories.count(everything) == 0
    saved.replace(path)
    store.trajectories.add_many([run("after")], MOMENT)
    content = path.read_bytes()
    for damaged in (b"", b"A letter.\n" * 1000):
        path.write_bytes(damaged)
        with pytest.raises(Unavailable, match=r"\[database_damaged\].*quintain doctor"):
            store.trajectories.count(everything)
        path.write_bytes(content)
        assert store.trajectories.count(everything) == 301
    store.close()


def test_rows_before_and_behind_a_damaged_page_are_salvaged_into_a_database_that_opens(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        leaves = "SELECT pageno FROM dbstat WHERE name = 'trajectories' AND pagetype = 'leaf' ORDER BY pageno"
        try:
            pages = [number for (number,) in connection.execute(leaves)]
        except sqlite3.OperationalError:
            pytest.skip("this SQLite has no dbstat, which finds the pages of a table")
    content = bytearray(path.read_bytes())
    at = (pages[len(pages) // 2] - 1) * size
    content[at : at + size] = b"\xff" * size
    path.write_bytes(content)
    target = path.with_name("salvaged.db")
    open_store(f"sqlite:///{target}").close()
    copied = {one.table: one for one in salvage(path, target)}["trajectories"]
    assert copied.problem is not None
    assert 250 < copied.rows < 300
    store = open_store(f"sqlite:///{target}")
    assert store.trajectories.count(TrajectoryFilter()) == copied.rows
    assert len(list(store.trajectories.iterate())) == copied.rows
    store.close()
    assert problems(target) == []
    with pytest.raises(Conflict, match="expected an empty database"):
        salvage(path, target)


def test_doctor_gives_the_space_of_deleted_rows_back(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(f"sqlite:///{path}")
    assert store.unused_bytes() == 0
    with write_transaction(store.engine) as connection:
        connection.exec_driver_sql("DELETE FROM trajectories WHERE seq > 10")
    unused, size = store.unused_bytes(), path.stat().st_size
    assert unused > 100_000
    assert run_doctor(path.parent, vacuum=True) == 0
    assert re.search(r"is \d[\d.,]* KiB smaller", capsys.readouterr().out)
    assert size - path.stat().st_size >= unused
    assert store.unused_bytes() == 0
    assert store.trajectories.count(TrajectoryFilter()) == 10
    store.close()
