"""A real server as a child process, and what a client does with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from quintain.server.app import create_server
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


def asked(settings: Settings, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of one call by a client of a server in this process."""

    async def main() -> dict[str, Any]:
        with anyio.fail_after(60):
            async with Client(create_server(settings)) as client:
                return await call(client, tool, **arguments)

    return anyio.run(main)


def refused(settings: Settings, tool: str, *calls: dict[str, Any]) -> list[str]:
    """The errors of calls of one tool, each of which must fail."""

    async def main() -> list[str]:
        with anyio.fail_after(60):
            async with Client(create_server(settings)) as client:
                results = [await client.call_tool(tool, arguments) for arguments in calls]
                assert all(result.is_error for result in results), results
                return ["".join(getattr(part, "text", "") for part in result.content) for result in results]

    return anyio.run(main)


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
