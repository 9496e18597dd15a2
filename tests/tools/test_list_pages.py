"""Lists over the protocol: no answer is too long for a context, the cursor leads to the rest, no path of the installation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

import quintain
from quintain.records.filters import TrajectoryFilter
from quintain.server.app import build_server
from quintain.settings import Settings
from quintain.tools.catalog import CATALOG
from quintain.tools.pages import MAX_PAGE_BYTES, count_fitting
from quintain.tools.services import open_services
from quintain.tools.training.methods import METHODS
from trajectory_runs import NOW, answer, run, user

MOST = MAX_PAGE_BYTES + 2_000
"""Bytes of a whole answer: the page, its frame and `next_step`."""


async def pages(client: Client, tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """The entries of all pages, each page within the bound in both channels."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        given = arguments | ({"cursor": cursor} if cursor else {})
        result = await client.call_tool(tool, given)
        assert not result.is_error, result.content[0].text
        assert len(result.content[0].text.encode()) < MOST
        found += result.structured_content["items"]
        cursor = result.structured_content["next_cursor"]
        if cursor is None:
            return found


@pytest.fixture
def filled(settings: Settings) -> Settings:
    """A home with 200 runs of long names, and 12 agents with long prompts."""
    services = open_services(settings)
    runs = [run(f"t{i}", user(f"case {i} " + "ä" * 150), answer(), tags=(f"batch-{'x' * 60}",)) for i in range(200)]
    services.store.trajectories.add_many(runs, NOW)
    assert services.store.trajectories.count(TrajectoryFilter()) == 200
    services.close()
    return settings


def test_long_lists_end_where_an_answer_would_be_too_long_and_go_on_by_the_cursor(filled: Settings) -> None:
    async def main() -> None:
        with anyio.fail_after(60):
            async with Client(build_server(CATALOG, lambda: open_services(filled))) as client:
                first = await client.call_tool("search_trajectories", {"limit": 200})
                assert 20 < len(first.structured_content["items"]) < 200
                runs = await pages(client, "search_trajectories", limit=200)
                assert [one["task_id"] for one in runs] == [f"t{i}" for i in range(199, -1, -1)]
                for i in range(12):
                    arguments = {"name": f"clerk-{i}", "model": "starter", "system_prompt": f"{i} " * 4000}
                    assert not (await client.call_tool("register_agent", arguments)).is_error
                agents = await pages(client, "list_library", kind="agents", limit=200)
                assert [one["name"] for one in agents] == [*(f"clerk-{i}" for i in range(11, -1, -1)), "starter"]
                methods = await pages(client, "list_library", kind="methods")
                assert [one["method"] for one in methods] == ["*", *METHODS]
                refused = await client.call_tool("list_library", {"kind": "methods", "cursor": "x"})
                assert refused.content[0].text.startswith("[bad_cursor] expected a cursor of this list, got 'x'")

    anyio.run(main)


def test_an_entry_longer_than_a_page_comes_alone() -> None:
    assert count_fitting([]) == 0
    assert count_fitting(["a" * MAX_PAGE_BYTES, "b"]) == 1
    assert count_fitting(["b", "a" * MAX_PAGE_BYTES]) == 1
    # Each entry has two quotes and a comma; an umlaut has two bytes.
    assert count_fitting(["ä" * 60] * 1000) == MAX_PAGE_BYTES // 123


def test_no_answer_about_an_agent_names_the_folder_of_the_installation(settings: Settings) -> None:
    installed = str(Path(quintain.__file__).parent)

    async def main() -> None:
        with anyio.fail_after(60):
            async with Client(build_server(CATALOG, lambda: open_services(settings))) as client:
                made = await client.call_tool("register_agent", {"name": "clerk", "model": "starter"})
                assert made.structured_content["agent"]["model"]["path"] == "starter"
                listed = await client.call_tool("list_library", {"kind": "agents"})
                assert {one["model"]["path"] for one in listed.structured_content["items"]} == {"starter"}
                plan = await client.call_tool("plan_training", {"method": "grpo", "environment": "quintain/inventory"})
                pieces = [made, listed, plan]
                texts = [str(one.structured_content) + one.content[0].text for one in pieces]
                uris = ("agent://agent:clerk@1", "lineage://agent:clerk@1")
                texts += [(await client.read_resource(uri)).contents[0].text for uri in uris]
                assert not [text for text in texts if installed in text]

    anyio.run(main)
