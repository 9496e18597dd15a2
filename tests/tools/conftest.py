"""Services on the home folder of a test, and the tools as dict calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quintain.jobs.processes import try_lock, unlock
from quintain.settings import Settings
from quintain.tools.services import Services, open_services
from tools.dict_calls import Caller


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    """Services of a caller who is the user."""
    opened = open_services(settings, trusted=True)
    yield opened
    opened.close()


@pytest.fixture
def waiting(services: Services) -> Iterator[Services]:
    """Services whose jobs are stored and never begin: the lock of those who start jobs is held."""
    lock = try_lock(services.settings.jobs_dir / "reconcile.lock")
    assert lock is not None
    yield services
    unlock(lock)


@pytest.fixture
def tool(home: Path) -> Iterator[Caller]:
    """The tools as dict calls."""
    caller = Caller(home)
    yield caller
    caller.close()
