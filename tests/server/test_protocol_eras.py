"""What clients of both protocol eras are notified of: changed lists, log messages; what they complete and read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp import Client

from mcp_client import call
from quintain.records.job import SelftestSpec
from quintain.server.app import create_server
from quintain.settings import Settings
from quintain.tools.services import Services
from server.talks import ERAS, serve

pytestmark = pytest.mark.filterwarnings("ignore:.*(deprecated|removed) as of 2026-07-28:mcp.MCPDeprecationWarning")


class Inbox:
    """Notifications that a client of the handshake era gets, by method."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self._arrived = anyio.Condition()

    async def __call__(self, message: object) -> None:
        async with self._arrived:
            self.messages.append(message)
            self._arrived.notify_all()

    async def until(self, condition: Callable[[Any], bool]) -> Any:
        """Return the first message that meets a condition."""
        async with self._arrived:
            while True:
                for message in self.messages:
                    if condition(message):
                        return message
                await self._arrived.wait()

    def logs(self) -> list[Any]:
        return [one.params for one in self.messages if getattr(one, "method", "") == "notifications/message"]


async def register(client: Client) -> None:
    await call(client, "register_agent", name="clerk", model="starter")


@ERAS
def test_only_the_list_of_resources_is_advertised_as_changing(settings: Settings, mode: str) -> None:
    async def talk(client: Client) -> None:
        capabilities = client.server_capabilities
        assert not capabilities.tools.list_changed
        assert not capabilities.prompts.list_changed
        assert capabilities.resources.list_changed is True
        assert capabilities.resources.subscribe is True
        assert capabilities.logging is not None

    serve(create_server(settings), mode, talk)


def test_a_new_agent_changes_the_list_for_a_listener_of_the_modern_era(settings: Settings) -> None:
    async def talk(client: Client) -> None:
        async with client.listen(tools_list_changed=True, resources_list_changed=True) as events:
            assert events.honored.tools_list_changed is None
            assert events.honored.resources_list_changed is True
            await register(client)
            async for event in events:
                assert type(event).__name__ == "ResourcesListChanged"
                break
        uris = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert "agent://agent:clerk@1" in uris

    serve(create_server(settings), "auto", talk)


def test_a_session_hears_of_a_changed_list_and_of_jobs_from_its_level_on(
    settings: Settings, services: Services
) -> None:
    inbox = Inbox()

    async def talk(client: Client) -> None:
        await client.list_resources()
        await client.set_logging_level("info")
        job = services.jobs.start(SelftestSpec(steps=2)).job.id
        await inbox.until(lambda one: getattr(one, "method", "") == "notifications/resources/list_changed")
        ended = await inbox.until(
            lambda one: getattr(one, "method", "") == "notifications/message" and "succeeded" in one.params.data
        )
        assert (ended.params.level, ended.params.logger) == ("info", "quintain.jobs")
        assert job in ended.params.data
        assert {message.level for message in inbox.logs()} == {"info"}

    serve(create_server(settings), "legacy", talk, message_handler=inbox)
