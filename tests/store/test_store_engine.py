"""Transactions between real processes, the SQLite settings, and the schema's history."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import IntegrityError

from quintain.errors import InvalidInput, Unavailable
from quintain.settings import Settings
from quintain.store.database.engine import (
    create_engine,
    insert_missing,
    read_transaction,
    wal_is_safe,
    write_transaction,
)
from quintain.store.database.tables import metadata, trajectory_tags
from quintain.store.database.write_queue import writers_turn
from quintain.store.migrations import REVISIONS
from quintain.store.store import Store, open_store
from trajectory_runs import NOW

_INCREMENT = """
import sys, time
from pathlib import Path
import sqlalchemy
from quintain.store.database.engine import create_engine

folder, me, other, rounds = *sys.argv[1:4], int(sys.argv[4])
meet = lambda name: Path(folder, name)

def wait_for(name, seconds):
    deadline = time.monotonic() + seconds
    while not meet(name).exists() and time.monotonic() < deadline:
        time.sleep(0.002)

meet(f"up-{me}").touch()
wait_for(f"up-{other}", 30)
for kind, create in (("ours", create_engine), ("default", sqlalchemy.create_engine)):
    engine = create(f"sqlite:///{folder}/{kind}.db")
    for i in range(rounds):
        with engine.begin() as connection:
            n = connection.exec_driver_sql("SELECT n FROM counter").scalar()
            meet(f"{kind}-read-{i}-{me}").touch()
            wait_for(f"{kind}-read-{i}-{other}", 0.3)  # both stand between read and write, unless a lock forbids it
            connection.exec_driver_sql("UPDATE counter SET n = ?", (n + 1,))
        meet(f"{kind}-done-{i}-{me}").touch()
        wait_for(f"{kind}-done-{i}-{other}", 30)
    engine.dispose()
"""


def test_no_update_is_lost_when_two_processes_read_and_then_write(tmp_path: Path) -> None:
    """2 processes x 3 rounds, each held between its read and its write: 6 acknowledged, 6 counted.

    SQLAlchemy's default engine loses one of the two updates of each round in the same trial, so the trial can fail.
    """
    for kind in ("ours", "default"):
        with closing(sqlite3.connect(tmp_path / f"{kind}.db")) as database:
            database.executescript("CREATE TABLE counter (n INTEGER); INSERT INTO counter VALUES (0);")
    program = [sys.executable, "-c", _INCREMENT, str(tmp_path)]
    children = [subprocess.Popen([*program, *pair, "3"]) for pair in (("a", "b"), ("b", "a"))]
    assert [child.wait(timeout=60) for child in children] == [0, 0]
    counted = {}
    for kind in ("ours", "default"):
        with closing(sqlite3.connect(tmp_path / f"{kind}.db")) as database:
            counted[kind] = database.execute("SELECT n FROM counter").fetchone()[0]
    assert counted == {"ours": 6, "default": 3}


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 0), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 53, 1), True),
    ],
)
def test_wal_is_used_only_without_the_wal_reset_bug(version: tuple[int, ...], safe: bool) -> None:
    assert wal_is_safe(version) is safe


def test_every_connection_is_durable_checks_foreign_keys_and_waits_for_locks(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    with read_transaction(engine) as connection:
        values = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas]
    engine.dispose()
    assert values == ["wal" if wal_is_safe(sqlite3.sqlite_version_info) else "persist", 2, 1, 30_000]


def test_readers_do_not_wait_for_the_end_of_a_transaction_that_writes_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    engine = create_engine(f"sqlite:///{path}")
    with write_transaction(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE texts (text)")
    with write_transaction(engine) as connection, closing(sqlite3.connect(path, timeout=0)) as reader:
        connection.exec_driver_sql("INSERT INTO texts VALUES (?)", ("x" * 8_000_000,))
        assert reader.execute("SELECT count(*) FROM texts").fetchone() == (0,)
    engine.dispose()


def test_a_database_that_cannot_be_opened_is_unavailable_with_the_remedy(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'missing' / 'a.db'}")
    with pytest.raises(Unavailable, match="free disk space"), read_transaction(engine):
        pass
    engine.dispose()


def _schema(engine: Engine) -> dict[str, tuple[object, ...]]:
    """Every table with its columns, keys and indexes as SQLite itself reports them."""
    found: dict[str, tuple[object, ...]] = {}
    with read_transaction(engine) as c:
        names = c.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars().all()
        for name in names:
            if name in {"alembic_version", "sqlite_sequence"} or name.startswith("trajectories_text"):
                continue
            columns = [tuple(row) for row in c.exec_driver_sql(f"PRAGMA table_info({name})")]
            foreign = [tuple(row) for row in c.exec_driver_sql(f"PRAGMA foreign_key_list({name})")]
            indexes = {
                (row.unique, row.partial, tuple(i.name for i in c.exec_driver_sql(f"PRAGMA index_info({row.name})")))
                for row in c.exec_driver_sql(f"PRAGMA index_list({name})")
            }
            named = c.exec_driver_sql(
                f"SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = '{name}' AND sql IS NOT NULL"
            )
            automatic = "AUTOINCREMENT" in str(
                c.exec_driver_sql(f"SELECT sql FROM sqlite_master WHERE name = '{name}'").scalar()
            )
            found[name] = (columns, foreign, indexes, sorted(named.scalars()), automatic)
    return found


def test_the_migrated_schema_is_the_declared_one(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'migrated.db'}")
    fresh = create_engine(f"sqlite:///{tmp_path / 'fresh.db'}")
    with write_transaction(fresh) as connection:
        metadata.create_all(connection)
    migrated, declared = _schema(store.engine), _schema(fresh)
    store.close()
    fresh.dispose()
    assert set(migrated) == set(metadata.tables)
    assert migrated == declared


def test_the_listed_revisions_are_those_of_the_migrations() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "quintain.store:migrations")
    script = ScriptDirectory.from_config(config)
    assert tuple(reversed([revision.revision for revision in script.walk_revisions()])) == REVISIONS


def test_processes_that_open_a_new_home_at_once_find_it_ready_and_a_later_one_needs_no_alembic(tmp_path: Path) -> None:
    program = (
        "import sys; from quintain.store.store import open_store; s = open_store(sys.argv[1]);"
        "print(len(s.agents.page().items)); s.close();"
        "print([m for m in ('alembic', 'filelock') if m in sys.modules])"
    )
    command = [sys.executable, "-c", program, f"sqlite:///{tmp_path / 'home' / 'quintain.db'}"]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [child.communicate(timeout=90)[0].splitlines()[0] for child in children] == ["0", "0"]
    assert subprocess.check_output(command, text=True, timeout=60) == "0\n[]\n"


def test_a_newer_schema_is_refused_by_its_name_also_when_it_appears_under_an_open_store(store: Store) -> None:
    with write_transaction(store.engine) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Unavailable, match=r"\[database_newer\].*got 9999.*upgrade"):
        store.jobs.request_cancel("job-1", NOW)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE agents RENAME COLUMN document TO body")
    with pytest.raises(Unavailable, match=r"\[database_newer\].*got 9999.*upgrade"):
        open_store(store.url)
    with pytest.raises(Unavailable, match=r"\[database_newer\].*got 9999.*upgrade"):
        store.agents.page()


def test_a_failed_transaction_leaves_nothing(store: Store) -> None:
    table = metadata.tables["agents"]
    row = {"id": "agent:a@1", "name": "a", "version": 1, "document": "{}", "created_at": NOW}
    with pytest.raises(IntegrityError), write_transaction(store.engine) as connection:
        connection.execute(insert(table), [row, row])
    with read_transaction(store.engine) as connection:
        assert connection.execute(select(table)).all() == []


def test_insert_missing_counts_what_went_in_and_still_checks_foreign_keys(store: Store) -> None:
    table = metadata.tables["agents"]
    rows = [{"id": f"agent:a@{v}", "name": "a", "version": v, "document": "{}", "created_at": NOW} for v in (1, 2, 1)]
    with write_transaction(store.engine) as connection:
        assert insert_missing(connection, table, rows) == 2
        assert insert_missing(connection, table, rows) == 0
        assert insert_missing(connection, table, []) == 0
    with pytest.raises(IntegrityError, match=r"(?i)foreign key"), write_transaction(store.engine) as connection:
        insert_missing(connection, trajectory_tags, [{"seq": 1, "tag": "x"}])


def test_writers_get_their_turn_in_the_order_in_which_they_asked(tmp_path: Path) -> None:
    """Each writer asks when the one before it waits, as the kernel shows; the first ones cannot wait longer than their time."""
    locks, database, order = Path("/proc/locks"), tmp_path / "a.db", list[int]()
    if not locks.exists():
        pytest.skip("this system does not list who waits for a lock")

    def waiting() -> int:
        queue = f":{database.with_name('a.db.queue').stat().st_ino} "
        return sum("->" in line and queue in line for line in locks.read_text(encoding="ascii").splitlines())

    def write(number: int) -> None:
        with writers_turn(database, 60):
            order.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    with writers_turn(database):
        with writers_turn(database, 0.0):
            order.append(-1)
        for number, thread in enumerate(threads):
            thread.start()
            while waiting() < number + 2:  # one of them has given up, and its request is still there
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == [-1, 0, 1, 2, 3]
    with writers_turn(tmp_path / "missing" / "a.db"):
        order.append(4)


@pytest.mark.parametrize("name", ["d" * 250 + "/" + "d" * 250, os.fsdecode(b"a\xff")])
def test_a_home_whose_path_sqlite_cannot_open_is_refused_with_the_bound(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"in at most 500 bytes of UTF-8, got \d+ bytes: /x/.*set QUINTAIN_HOME"):
        _ = Settings(home=Path("/x") / name).url
