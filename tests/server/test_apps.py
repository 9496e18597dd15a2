"""MCP Apps: the page, the tools that are bound to it, and what only hosts with apps receive."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from mcp.client import advertise
from mcp.types import ImageContent

from jobs_in_process import in_process
from quintain.records.jobs.job import SelftestSpec
from quintain.server.app import create_server
from quintain.server.apps import EXTENSION, MIME_TYPE, PAGE
from quintain.settings import Settings
from quintain.tools.services import open_services
from server.talks import ERAS, serve

HOST = [advertise(EXTENSION, {"mimeTypes": [MIME_TYPE]})]


@pytest.fixture
def job_id(settings: Settings) -> str:
    """A finished job with a curve."""
    services = open_services(settings)
    try:
        with in_process():
            job_id = services.jobs.start(SelftestSpec(steps=3, step_s=0)).job.id
        services.jobs.reconcile()
        return job_id
    finally:
        services.close()


@ERAS
def test_a_host_with_apps_gets_the_page_and_the_figure_and_others_the_picture_alone(
    settings: Settings, mode: str, job_id: str
) -> None:
    async def talk(client: Client) -> dict[str, Any]:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        listed = {str(one.uri): one for one in (await client.list_resources()).resources}
        return {
            "capabilities": client.server_capabilities,
            "bound": {name for name, tool in tools.items() if tool.meta == {"ui": {"resourceUri": PAGE}}},
            "listed": listed[PAGE],
            "page": (await client.read_resource(PAGE)).contents[0],
            "plot": await client.call_tool("plot_job", {"job_id": job_id}),
            "shown": await client.call_tool("show_training_dashboard", {"job_id": job_id}),
            "none": await client.call_tool("show_training_dashboard", {}),
        }

    seen = serve(create_server(settings), mode, talk, extensions=HOST)
    if mode == "auto":  # capabilities of the handshake era have no extensions; hosts of that era look at the tools
        assert seen["capabilities"].extensions[EXTENSION] == {}
    assert seen["bound"] == {"plot_job", "compare_agents", "show_training_dashboard"}
    page = seen["page"]
    assert (seen["listed"].mime_type, page.mime_type) == (MIME_TYPE, MIME_TYPE)
    assert page.meta == {"ui": {"csp": {}, "prefersBorder": True}}
    assert page.text.startswith("<!doctype html>")
    figure = seen["plot"].meta["quintain/figure"]
    assert figure["panels"][0]["lines"][0]["y"] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert seen["shown"].meta["quintain/job"]["status"] == "succeeded"
    assert seen["shown"].meta["quintain/figure"] == figure
    assert "start_training(" in seen["none"].content[0].text, "there is no training yet"

    plain = serve(create_server(settings), mode, talk)
    assert "quintain/figure" not in (plain["plot"].meta or {})
    assert [type(part) for part in plain["plot"].content][1:] == [ImageContent]
    assert f"reports/{job_id}.html" in plain["shown"].content[0].text
