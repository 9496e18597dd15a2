"""How long waiting threads spin: set before torch is imported, and never over the user's own choice."""

from __future__ import annotations

import os

import pytest

from quintain.threads import GOMP_SPINCOUNT, KMP_BLOCKTIME, limit_spinning


@pytest.mark.parametrize(
    ("chosen", "count"),
    [({}, GOMP_SPINCOUNT), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
    ids=["nothing chosen", "a count", "a policy"],
)
def test_spinning_is_limited_unless_the_user_has_chosen(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], count: str | None
) -> None:
    for name in ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    limit_spinning()
    assert os.environ.get("GOMP_SPINCOUNT") == count
    assert os.environ.get("KMP_BLOCKTIME") == (KMP_BLOCKTIME if count else None)
