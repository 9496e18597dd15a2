"""Shared fixtures: a home folder of its own for every test, no network, few threads."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import sqlalchemy

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # several test processes share the cores

from hypothesis import HealthCheck
from hypothesis import settings as generated

from quintain.settings import Settings
from quintain.threads import limit_spinning

if TYPE_CHECKING:
    from quintain.tools.services import Services


def _keep_files_in_memory(folder: Path, room: int = 8 * 2**30) -> None:
    """Use a folder in memory, if there is room: waiting for a disk takes a third of the time of tests that store runs."""
    if "TMPDIR" in os.environ or not folder.is_dir() or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return
    if min(shutil.disk_usage(folder).free, psutil.virtual_memory().available) > room:
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None  # pytest has asked for it already


_keep_files_in_memory(Path("/dev/shm"))
limit_spinning()  # torch reads it when it is imported

# Collecting imports torch and creates thousands of items, of which the collector would find none to free.
gc.disable()

# Hundreds of child processes import the same modules: where no bytecode may be kept, each compiles all of them anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What `make test` tries is the same every time, so that it says something of the change and not of chance; `make soak` tries anew.
# Neither has a bound on time: on a busy machine any example may be late.
_PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
generated.register_profile("repeatable", derandomize=True, max_examples=40, **_PATIENT)
generated.register_profile("anew", **_PATIENT)
generated.load_profile("repeatable")

_LONG = {
    "system",
    "worker",
    "trainers",
    "jobs",
    "compatibility",
    "cli",
    "tools",
    "server",
    "security",
    "environments",
    "sandbox",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folders of long tests first, so that all processes end at about the same time."""
    items.sort(key=lambda item: _LONG.isdisjoint(item.path.parts))


def pytest_collection_finish() -> None:
    """From here on the garbage collector runs, and leaves alone what collecting created.

    It looks after every 20,000 new objects instead of 700: 2 % of the time of all tests instead of 5 %.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20)
    gc.enable()


class _Compiled(dict[Any, Any]):
    """Compiled statements of SQLite, known by everything but the engine's own dialect, which begins their key."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key[1:], value)


@pytest.fixture(scope="session", autouse=True)
def _statements_compiled_once() -> Iterator[None]:
    """Share compiled statements: each test has an engine of its own, which would compile all of them anew."""
    create, compiled = sqlalchemy.create_engine, _Compiled()

    def sharing(*arguments: Any, **options: Any) -> sqlalchemy.Engine:
        engine = create(*arguments, **options)
        if engine.dialect.name == "sqlite":
            engine.update_execution_options(compiled_cache=compiled)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlalchemy, "create_engine", sharing)
        yield


def _shape(figure: Any) -> str:
    """The names in a figure at every depth, without its values."""
    if isinstance(figure, dict):
        return str(sorted((name, _shape(value)) for name, value in figure.items()))
    return str(sorted({_shape(value) for value in figure})) if isinstance(figure, list) else ""


@pytest.fixture(scope="session", autouse=True)
def _pictures_in_process() -> Iterator[None]:
    """Draw in the process of the test, and figures of one shape once: a process for each would import matplotlib for each."""
    from quintain.tools.jobs import plots

    drawn: dict[str, bytes] = {}

    def run(_: Any, *, input: bytes, **__: Any) -> CompletedProcess[bytes]:
        from quintain.worker.pictures.draw import draw

        figure = json.loads(input)
        if (shape := _shape(figure)) not in drawn:
            drawn[shape] = draw(figure)
        return CompletedProcess([], 0, stdout=drawn[shape])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "subprocess", SimpleNamespace(**{**vars(subprocess), "run": run}))
        yield


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database without records. A copy saves each test the migration: 0.05 s of CPU, and as much waiting for disk."""
    from quintain.store.store import open_store

    path = tmp_path_factory.mktemp("database") / "quintain.db"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def home(tmp_path: Path, empty_database: Path) -> Path:
    """A home folder with a database that has no records."""
    folder = tmp_path / "home"
    folder.mkdir()
    shutil.copyfile(empty_database, folder / empty_database.name)
    return folder


@pytest.fixture
def settings(home: Path) -> Settings:
    """Operator settings of a test: its own home, quick polling, a short grace."""
    return Settings(home=home, poll_s=0.1, grace_s=2.0)


@pytest.fixture
def services(settings: Settings, request: pytest.FixtureRequest) -> Iterator[Services]:
    """Services of the user, or of a client, who may read less, in a module with `TRUSTED = False`."""
    from quintain.tools.services import open_services

    opened = open_services(settings, trusted=getattr(request.module, "TRUSTED", True))
    yield opened
    opened.close()


@pytest.fixture
def waiting(services: Services) -> Iterator[Services]:
    """Services whose jobs are stored and never begin."""
    from jobs_in_process import starts_held

    with starts_held(services.settings.jobs_dir):
        yield services


@pytest.fixture
def samples() -> Path:
    """Real agent logs, where they lie beside this repository; they are never part of it."""
    folder = Path(__file__).parents[2] / "shared" / "samples"
    if not folder.is_dir():
        pytest.skip("no folder of real agent logs beside this repository")
    return folder
