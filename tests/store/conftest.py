"""A store of its own for every test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from postgres_server import VARIABLE, new_database
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
