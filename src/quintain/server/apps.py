"""MCP Apps (`io.modelcontextprotocol/ui`, 2026-01-26): the page in which hosts draw figures, and the data that it draws.

The SDK has the same in `mcp.server.apps`, for its high-level server; importing that would double the time of a cold start.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcp.server import ServerRequestContext
from mcp.types import CallToolResult

from quintain.records.record import Record
from quintain.server.calls.record_json import facts, scrub

if TYPE_CHECKING:
    from quintain.tools.services import Services

EXTENSION = "io.modelcontextprotocol/ui"
MIME_TYPE = "text/html;profile=mcp-app"
PAGE = "ui://quintain/dashboard"
TOOL_META: dict[str, Any] = {"ui": {"resourceUri": PAGE}}
PAGE_META: dict[str, Any] = {"ui": {"csp": {}, "prefersBorder": True}}
"""The page asks for no domain."""


def dashboard_page(services: Services) -> str:
    """Return the page as one file."""
    from quintain.evaluation.reports.standalone_page import standalone_page

    return standalone_page("dashboard.js", '<main id="app"></main>', title="Quintain")


def app_data(figure: Mapping[str, Any] | None, job: Record | None) -> dict[str, Any] | None:
    """Return `_meta` of a result: what the page draws, which hosts keep from the model."""
    data: dict[str, Any] = {}
    if figure is not None:
        data["quintain/figure"] = json.loads(scrub(json.dumps(figure, ensure_ascii=False)))
    if job is not None:
        data["quintain/job"] = facts(job).values
    return data or None


def for_client(result: CallToolResult, ctx: ServerRequestContext[Any]) -> CallToolResult:
    """Return a result without the data of the page where the client shows no page."""
    capabilities = ctx.session.client_capabilities
    settings = ((capabilities.extensions if capabilities else None) or {}).get(EXTENSION) or {}
    types = settings.get("mimeTypes")
    shows = isinstance(types, list | tuple) and MIME_TYPE in types
    return result if shows or result.meta is None else result.model_copy(update={"meta": None})
