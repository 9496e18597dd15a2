"""A store of its own for every test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.postgres_server import VARIABLE, NoServer, Server, in_full, new_database

from quintain.store.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path, empty_database: Path) -> Iterator[Store]:
    """An open store without records, in `tmp_path / "quintain.db"`.

    With QUINTAIN_TEST_DATABASE, each store is a new database of that PostgreSQL server instead.
    """
    if server := os.environ.get(VARIABLE):
        with new_database(server) as url:
            opened = open_store(url)
            yield opened
            opened.close()
        return
    path = tmp_path / "quintain.db"
    shutil.copyfile(empty_database, path)
    opened = open_store(f"sqlite:///{path}")
    yield opened
    opened.close()


@pytest.fixture
def sqlite_only(store: Store) -> None:
    """Skip a test of SQLite's files, query plans or FTS5 tables where the store is another database."""
    if store.engine.dialect.name != "sqlite":
        pytest.skip("needs SQLite: reads its file, its query plan or its FTS5 tables")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A PostgreSQL server that the tests of a module share and may kill."""
    try:
        started = Server("fsync=off")
    except NoServer as reason:
        pytest.skip(str(reason))
    yield started
    started.close()


@pytest.fixture
def shared(server: Server) -> Iterator[Store]:
    """A store in a new database."""
    with new_database(in_full(server.url())) as created:
        opened = open_store(created)
        yield opened
        opened.close()
