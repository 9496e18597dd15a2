"""Shared fixtures: a home folder of its own for every test, no network, few threads."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "2")

from hypothesis import settings as generated

from quintain.settings import Settings
from quintain.store.store import open_store
from quintain.threads import limit_spinning

limit_spinning()  # torch reads it when it is imported

# Hundreds of child processes import the same modules: where no bytecode may be kept, each compiles all of them anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What `make test` tries is the same every time, so that it says something of the change and not of chance; `make soak` tries anew.
generated.register_profile("repeatable", derandomize=True)
generated.load_profile("repeatable")

_LONG = {"system", "worker", "trainers"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folders of long tests first, so that two processes end at about the same time."""
    items.sort(key=lambda item: _LONG.isdisjoint(item.path.parts))


@pytest.fixture(scope="session")
def migrated_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database with the newest schema: to copy it is a tenth of the work of migrating one."""
    path = tmp_path_factory.mktemp("database") / "quintain.db"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def home(tmp_path: Path, migrated_database: Path) -> Path:
    """A home folder with an empty database."""
    folder = tmp_path / "home"
    folder.mkdir()
    shutil.copy(migrated_database, folder)
    return folder


@pytest.fixture
def settings(home: Path) -> Settings:
    """Operator settings of a test: its own home, quick polling, a short grace."""
    return Settings(home=home, poll_s=0.1, grace_s=2.0)


@pytest.fixture
def samples() -> Path:
    """Real agent logs, where they lie beside this repository; they are never part of it."""
    folder = Path(__file__).parents[2] / "shared" / "samples"
    if not folder.is_dir():
        pytest.skip("no folder of real agent logs beside this repository")
    return folder
