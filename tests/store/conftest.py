"""A store of its own for every test."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy

from quintain.store.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path, empty_database: Path) -> Iterator[Store]:
    """An open store without records, in `tmp_path / "quintain.db"`.

    With QUINTAIN_TEST_DATABASE, the URL of a PostgreSQL database, each store is a new database of that server instead.
    """
    if server := os.environ.get("QUINTAIN_TEST_DATABASE"):
        with _new_database(sqlalchemy.make_url(server)) as url:
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


@contextmanager
def _new_database(server: sqlalchemy.URL) -> Iterator[str]:
    name = f"quintain_{uuid.uuid4().hex[:12]}"
    engine = sqlalchemy.create_engine(server, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        yield server.set(database=name).render_as_string(hide_password=False)
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        engine.dispose()
