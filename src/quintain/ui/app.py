"""The web page as an ASGI application: one HTML file, its static files, tools and resources as JSON, live updates."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quintain.errors import InvalidInput, NotFound, QuintainError, Refused
from quintain.next_step import Hint, ToolCall
from quintain.server.app import QuintainServer
from quintain.server.http.access import Access
from quintain.server.http.guard import may_change, may_read
from quintain.tools.catalog import tool
from quintain.tools.web_address import page_of_call
from quintain.ui.events import JobFeed

logger = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
PAGES = ("jobs", "runs", "datasets", "agents", "comparisons", "evaluations", "lineage", "judging", "leaderboard")
"""First parts of the paths that are pages; each is served by the same file."""
MAX_BODY = 1_000_000
"""Bytes of a request; the guard of the HTTP server bounds what is read."""

Written = Callable[[ToolCall], str]
"""Names a call of a tool in a text for a person."""

Endpoint = Callable[["_Site", Request], Awaitable[Response]]


@dataclass(frozen=True)
class _Site:
    server: QuintainServer
    access: Access
    feed: JobFeed
    written: Written


def web_app(server: QuintainServer, access: Access, command_line: Written) -> Starlette:
    """Return the application, to be mounted behind the guard of the HTTP server, whose lifespan has begun before.

    `command_line` returns the command of the terminal that makes a call of a tool.
    """
    site = _Site(server, access, JobFeed(server), for_person(command_line))

    def endpoint(function: Endpoint, *, changes: bool | None = False) -> Callable[[Request], Awaitable[Response]]:
        return partial(_guarded, site, function, changes)

    routes = [
        Route("/api/tools/{name}", endpoint(_call_tool, changes=None), methods=["POST"]),
        Route("/api/resource", endpoint(_read_resource), methods=["GET"]),
        Route("/api/events", endpoint(_stream_events), methods=["GET"]),
        Route("/api/jobs/{job_id}", endpoint(_job), methods=["GET"]),
        Route("/api/judging/{batch_id}/{item_id}", endpoint(_longer_item, changes=True), methods=["POST"]),
        Route("/api/overview", endpoint(_overview), methods=["GET"]),
        Route("/api/session", endpoint(_session, changes=None), methods=["GET"]),
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/{path:path}", endpoint(_page, changes=None), methods=["GET"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(SecurityHeaders)],
        exception_handlers={HTTPException: _http_error},
    )


def for_person(command_line: Written) -> Written:
    """Return how the page names a call: `[title](path)`, or its command between backticks."""

    def written(call: ToolCall) -> str:
        try:
            title = tool(call.tool).title
        except NotFound:
            return str(call)
        path = page_of_call(call)
        return f"[{title}]({path})" if path is not None else f"`{command_line(call)}`"

    return written


async def _guarded(site: _Site, function: Endpoint, changes: bool | None, request: Request) -> Response:
    """Answer a request that passes the checks; `changes` None: the function checks the token itself."""
    try:
        if changes is not None:
            _require(site, request, changes=changes)
        return await function(site, request)
    except QuintainError as error:
        text = Hint(error.message).render(site.written)
        if site.server.home is not None:
            text = text.replace(str(site.server.home), "the home folder")
        return error_response(QuintainError(text, code=error.code))
    except Exception:
        logger.exception("the web page's request for %r failed", request.url.path)
        text = "expected an answer, got an unexpected error; the log of the server has the details"
        return error_response(QuintainError(text, code="internal"))


def _require(site: _Site, request: Request, *, changes: bool) -> None:
    """Refuse a request that needs the token and lacks it."""
    allowed = may_change if changes else may_read
    if not allowed(request.scope, site.access):
        raise Refused(
            "expected the token, got none; enter the one in the file http-token of the server's home folder, or open the "
            "address with #token= that `quintain ui` printed",
            code="token",
        )


async def _http_error(_: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    code = {404: "not_found", 405: "method"}.get(status, "invalid_input")
    allowed = getattr(error, "headers", None) or {}  # RFC 9110, section 15.5.6: a 405 names the methods in Allow
    expected = f"the method {allowed['Allow']}" if "Allow" in allowed else "an address of this server"
    answer = error_response(InvalidInput(f"expected {expected}, got another; open /", code=code))
    answer.headers.update(allowed)
    return answer


async def _call_tool(site: _Site, request: Request) -> Response:
    name = request.path_params["name"]
    arguments = await _body(request)
    _require(site, request, changes=_changes(site.server, name, arguments))
    result = await site.server.call_tool(name, arguments, site.written)
    texts = [part.text for part in result.content if part.type == "text"]
    if result.is_error:
        code, _, message = "".join(texts).removeprefix("[").partition("] ")
        raise QuintainError(message, code=code)
    if result.structured_content is not None:
        return json_response(result.structured_content)
    images = [part.data for part in result.content if part.type == "image"]
    return json_response({"text": "".join(texts), "png": images[0] if images else None})


def _changes(server: QuintainServer, name: str, arguments: dict[str, Any]) -> bool:
    """Whether a call changes something: a tool that only reads does so with the argument that starts work alone, a dry run not."""
    binding = server.bindings.get(name)
    if binding is None:
        return False
    spec = binding.spec
    if spec.read_only:
        return bool(spec.writes_with and arguments.get(spec.writes_with))
    return not (spec.dry_run_with and arguments.get(spec.dry_run_with, True) is True)


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request."""
    if not request.headers.get("content-type", "").lower().startswith("application/json"):
        raise InvalidInput("expected content type application/json, got another; send the arguments as a JSON object")
    received = await request.body()
    if len(received) > MAX_BODY:
        raise InvalidInput(f"expected at most {MAX_BODY} bytes, got {len(received)}; send less", code="too_large")
    try:
        body = json.loads(received or b"{}")
    except (ValueError, RecursionError):
        raise InvalidInput("expected a JSON object, got text that is not JSON; send the arguments as JSON") from None
    if not isinstance(body, dict):
        raise InvalidInput(f"expected a JSON object, got {type(body).__name__}; send the arguments by name")
    return body


async def _read_resource(site: _Site, request: Request) -> Response:
    content, mime_type = await site.server.read_resource(request.query_params.get("uri", ""))
    if mime_type == "application/json":
        return json_response(json.loads(content))
    return json_response({"text": content if isinstance(content, str) else content.decode("utf-8", "replace")})


# Readers of stored data are imported for the first page that needs them: a server without visitors stays small.
async def _job(site: _Site, request: Request) -> Response:
    from quintain.ui.job_page import job_page

    services = await site.server.services()
    return json_response(await anyio.to_thread.run_sync(job_page, services, request.path_params["job_id"]))


async def _longer_item(site: _Site, request: Request) -> Response:
    from quintain.tools.labels.judging.forms import longer_text

    services, named = await site.server.services(), request.path_params
    text = await anyio.to_thread.run_sync(longer_text, services, named["batch_id"], named["item_id"])
    return json_response({"text": text})


async def _overview(site: _Site, request: Request) -> Response:
    from quintain.ui.overview import overview

    return json_response(await anyio.to_thread.run_sync(overview, await site.server.services(), site.written))


async def _stream_events(site: _Site, request: Request) -> Response:
    site.feed.require_room()
    return StreamingResponse(site.feed.listen(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _session(site: _Site, request: Request) -> Response:
    """Answer what this page may do, so that it shows the actions that work."""
    scope, access = request.scope, site.access
    return json_response({"may_change": may_change(scope, access), "may_read": may_read(scope, access)})


async def _page(site: _Site, request: Request) -> Response:
    first = request.path_params["path"].partition("/")[0]
    if first in ("api", "static"):
        raise NotFound("expected an address of this server, got another; open /")
    status, root = 200 if first in ("", *PAGES) else 404, site.access.root_path
    if not root:
        return FileResponse(STATIC / "index.html", status)
    page = await anyio.to_thread.run_sync(_page_below, escape(root))
    return HTMLResponse(page, status)


def _page_below(root: str) -> str:
    """Return the page with its links below the path of a proxy, which its modules read from the element `root`."""
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    return text.replace('="/', f'="{root}/').replace('name="root" content=""', f'name="root" content="{root}"')


HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""On every answer, errors too. Scripts and styles come from files of this server alone, so stored text runs nowhere."""

_STATUS = {"token": 401, "not_found": 404, "unknown_tool": 404, "internal": 500}
_STATUS |= {"too_large": 413, "method": 405, "unavailable": 503}


class SecurityHeaders:
    """Middleware that adds `HEADERS` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


def json_response(body: Any, status: int = 200) -> Response:
    """Return an answer that no cache keeps; lone surrogates are escaped."""
    content = json.dumps(body, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Response(content, status, {"Cache-Control": "no-store"}, "application/json")


def error_response(error: QuintainError) -> Response:
    """Return an error with its code and message."""
    body = {"error": {"code": error.code, "message": error.message}}
    return json_response(body, _STATUS.get(error.code, 400))
