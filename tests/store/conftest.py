"""A store of its own for every test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from quintain.store.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path, empty_database: Path) -> Iterator[Store]:
    """An open store without records, in `tmp_path / "quintain.db"`."""
    path = tmp_path / "quintain.db"
    shutil.copyfile(empty_database, path)
    opened = open_store(f"sqlite:///{path}")
    yield opened
    opened.close()
