"""A shelf and a server on it, and three runs on a home."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quintain.records.trajectory import OutcomeStatus
from quintain.server.app import QuintainServer, build_server
from quintain.settings import Settings
from quintain.tools.services import Services, open_services
from server.small_server import CATALOG, Shelf
from trajectory_runs import NOW, answer, run, user


@pytest.fixture
def shelf(settings: Settings) -> Shelf:
    return Shelf(settings)


@pytest.fixture
def small(shelf: Shelf) -> QuintainServer:
    return build_server(CATALOG, lambda: shelf)  # type: ignore[arg-type,return-value]


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    """Services on a home with three runs of unknown outcome."""
    opened = open_services(settings)
    runs = [run(f"t{n}", user(), answer(f"Answer {n}."), status=OutcomeStatus.UNKNOWN) for n in range(3)]
    opened.store.trajectories.add_many(runs, NOW)
    yield opened
    opened.close()
