"""Talks of a client with a server, a server in a process of its own, and a person in front of the client who fills forms."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import ElicitRequestFormParams, ElicitResult

from mcp_client import call
from quintain.server.app import create_server
from quintain.settings import Settings

Result = TypeVar("Result")

SCRIPT = Path(__file__).with_name("small_server.py")
ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])
ASK: dict[str, Any] = {"limit": 3, "judge": "person", "rater": "ann"}
FILLED = {"score_task_completion": "5", "score_process": "2"}
"""0.6 * 1 + 0.4 * 0.25 = 0.7."""

ACCEPTED = {"answer": ElicitResult(action="accept", content=FILLED)}  # type: ignore[dict-item]


def serve(server: Any, mode: str, talk: Callable[[Client], Awaitable[Result]], **options: Any) -> Result:
    """Return what a client of this server, address or command finds in its talk."""

    async def main() -> Result:
        with anyio.fail_after(100):
            async with Client(server, mode=mode, **options) as client:
                return await talk(client)

    return anyio.run(main)


@contextmanager
def listening(*arguments: str) -> Iterator[int]:
    """A Python process that serves HTTP and prints its URL, and nothing else, on standard output; yields its port."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=SCRIPT.parents[1], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            ready = process.stdout.readline().decode()
            yield int(re.findall(r":(\d+)", ready)[0])
        finally:
            process.terminate()
            printed = process.stdout.read()
        assert printed == b""


class Person:
    """Somebody in front of a client: fills forms with what is prepared, then does what `afterwards` says."""

    def __init__(self, *filled: dict[str, Any], afterwards: str = "decline") -> None:
        self.filled = list(filled)
        self.afterwards = afterwards
        self.seen: list[ElicitRequestFormParams] = []

    async def __call__(self, context: Any, params: ElicitRequestFormParams) -> ElicitResult:
        self.seen.append(params)
        if self.filled:
            return ElicitResult(action="accept", content=self.filled.pop(0))
        if self.afterwards == "break":
            raise MCPError(-32603, "no form today")
        return ElicitResult(action=self.afterwards)  # type: ignore[arg-type]


def round_of(settings: Settings, person: Person, mode: str, *then: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """Return a round, and what `submit_scores` returns to these answers to its batch afterwards."""

    async def talk(client: Client) -> list[dict[str, Any]]:
        found = [await call(client, "get_judging_batch", **{**ASK, **more})]
        for scores in then:
            found.append(await call(client, "submit_scores", batch_id=found[0]["batch_id"], scores=[scores]))
        return found

    return serve(create_server(settings), mode, talk, elicitation_callback=person)


async def asked(client: Client, **more: Any) -> Any:
    """One round of a client that drives the rounds itself."""
    arguments = {**ASK, **more.pop("arguments", {})}
    return await client.session.call_tool("get_judging_batch", arguments, allow_input_required=True, **more)
