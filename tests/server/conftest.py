"""A shelf and a server on it."""

from __future__ import annotations

import pytest

from quintain.server.app import QuintainServer, build_server
from quintain.settings import Settings
from server.small_server import CATALOG, Shelf


@pytest.fixture
def shelf(settings: Settings) -> Shelf:
    return Shelf(settings)


@pytest.fixture
def small(shelf: Shelf) -> QuintainServer:
    return build_server(CATALOG, lambda: shelf)  # type: ignore[arg-type,return-value]
