"""A real server as a child process, and what a client does with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from quintain.settings import Settings


def server(settings: Settings) -> StdioServerParameters:
    """`quintain serve` on the test's home."""
    arguments = ["-m", "quintain.cli.main", "serve", "--home", str(settings.home)]
    env = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "QUINTAIN_POLL_S": "0.25"}
    return StdioServerParameters(command=sys.executable, args=arguments, env=env)


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured result of a tool call that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def until(client: Client, job_id: str, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Follow a job with waiting calls until it has come to a point; the tool answers by itself at every phase and at the end."""
    wait_s = 5 if reached is ended else 0.2
    with anyio.fail_after(100):
        while True:
            view = await call(client, "get_job", job_id=job_id, wait_s=wait_s)
            if reached(view):
                return view


def ended(view: dict[str, Any]) -> bool:
    """Has the job ended?"""
    return view["status"] in {"succeeded", "failed", "cancelled", "interrupted"}
