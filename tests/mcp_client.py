"""A real server as a child process, and what a client does with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters

from quintain.server.app import create_server
from quintain.settings import Settings


def server(settings: Settings) -> StdioServerParameters:
    """`quintain serve` on the test's home."""
    arguments = ["-m", "quintain", "serve", "--home", str(settings.home)]
    env = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "QUINTAIN_POLL_S": "0.25"}
    return StdioServerParameters(command=sys.executable, args=arguments, env=env)


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured result of a tool call that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


class ToolCaller:
    """Tool calls of a test through one client of a server in its process."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal, self._client = portal, client

    def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the result of a call that must succeed."""
        result: dict[str, Any] = self._portal.call(partial(call, self._client, tool, **arguments))
        return result

    def raw(self, tool: str, **arguments: Any) -> Any:
        """Return the whole result of a call, of an error too."""
        return self._portal.call(self._client.call_tool, tool, arguments)

    def read(self, uri: str) -> Any:
        """Return the one content of a resource."""
        (content,) = self._portal.call(self._client.read_resource, uri).contents
        return content

    def refused(self, tool: str, *calls: dict[str, Any]) -> list[str]:
        """Return the errors of calls of one tool, each of which must fail."""
        results = [self.raw(tool, **arguments) for arguments in calls]
        assert all(result.is_error for result in results), results
        return ["".join(getattr(part, "text", "") for part in result.content) for result in results]


@contextmanager
def tool_caller(settings: Settings) -> Iterator[ToolCaller]:
    """Open a server in this process and a client of it."""
    client = Client(create_server(settings))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(client) as opened:
        yield ToolCaller(portal, opened)


async def until(client: Client, job_id: str, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Follow a job with waiting calls until it has come to a point; the tool answers by itself at every phase and at the end."""
    wait_s = 5 if reached is ended else 0.2
    with anyio.fail_after(100):
        while True:
            view = await call(client, "get_job", job_id=job_id, wait_s=wait_s)
            if reached(view):
                return view


async def finished(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Start a job and follow it to its end, which must be a success."""
    view = await until(client, (await call(client, tool, **arguments))["job_id"], ended)
    assert view["status"] == "succeeded", view
    return view


def ended(view: dict[str, Any]) -> bool:
    """Has the job ended?"""
    return view["status"] in {"succeeded", "failed", "cancelled", "interrupted"}
