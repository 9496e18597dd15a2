"""Services on the home folder of a test, and the tools as dict calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs_in_process import jobs_in_process  # noqa: F401
from mcp_client import ToolCaller, tool_caller
from quintain.settings import Settings
from tools.dict_calls import Caller


@pytest.fixture
def tool(home: Path) -> Iterator[Caller]:
    """The tools as dict calls."""
    caller = Caller(home)
    yield caller
    caller.close()


@pytest.fixture
def ask(settings: Settings) -> Iterator[ToolCaller]:
    """Tool calls through one client, which shows no forms."""
    with tool_caller(settings) as tools:
        yield tools


@pytest.fixture
def inbox(settings: Settings) -> Path:
    """The folder of files to import, which exists."""
    settings.inbox_dir.mkdir(parents=True, exist_ok=True)
    return settings.inbox_dir
