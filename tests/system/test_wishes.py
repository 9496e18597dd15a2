"""Wishes in people's words reach their end by a script that only lists tools, calls them and follows their answers."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from benchmarks.wishes.run import run


def test_wishes_about_stored_runs_reach_their_end(tmp_path: Path) -> None:
    wishes = ["forget_session", "cheating", "password", "remember"]
    assert anyio.run(run, tmp_path / "home", wishes) == []


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_all_wishes_reach_their_end(tmp_path: Path) -> None:
    assert anyio.run(run, tmp_path / "home") == []
