"""Talks of a client with a server, and a person in front of the client who fills forms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import ElicitRequestFormParams, ElicitResult

from mcp_client import call
from quintain.server.app import create_server
from quintain.settings import Settings

Result = TypeVar("Result")

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
