"""The HTTP application of a server: the protocol at `/mcp`, the health checks, OAuth metadata, and the web page."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
from mcp.server.auth.routes import create_protected_resource_routes
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from quintain.errors import QuintainError
from quintain.server.app import QuintainServer
from quintain.server.http.access import Access
from quintain.server.http.guard import Guard, is_route, refusal, replay
from quintain.server.http.limits import Limits
from quintain.server.transport.json_rpc_lines import Refusal, read_line

logger = logging.getLogger(__name__)

PROTOCOL = "/mcp"
_HEALTH = "/healthz"
_METADATA = "/.well-known/oauth-protected-resource"
_PING_S = 3.0


def http_application(
    server: QuintainServer, access: Access, limits: Limits, *, issuer: str | None = None, page: ASGIApp | None = None
) -> Guard:
    """Return the guarded application of a server; `issuer` is the OAuth issuer whose tokens `access.verifier` accepts.

    The page is the application for all other paths, which asks `may_read` and `may_change` of the guard itself; None: no page.
    """
    # The guard checks Host and Origin exactly and reads the body; the SDK's wildcard for ports is a prefix match.
    protocol = server.streamable_http_app(
        streamable_http_path=PROTOCOL,
        max_request_body_size=limits.body_bytes,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    routes: list[BaseRoute] = [*protocol.routes, Route(_HEALTH, _health_route(server)), Route(f"{_HEALTH}/live", _live)]
    # Also with a slash at the end, as many clients are configured: the page would take it.
    routes += [Route(f"{PROTOCOL}/", route.endpoint) for route in protocol.routes if isinstance(route, Route)]
    if issuer is not None:
        metadata = create_protected_resource_routes(
            AnyHttpUrl(f"{access.public_url}{PROTOCOL}"), [AnyHttpUrl(issuer)], resource_name="Quintain"
        )
        # Also where clients look that do not insert the path of the resource.
        routes += [*metadata, Route(_METADATA, metadata[0].endpoint, methods=["GET"])]
    if page is not None:
        routes.append(Mount("/", page))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with protocol.router.lifespan_context(app):
            yield

    def needs_token(scope: Scope) -> bool:
        return is_route(scope, PROTOCOL) or (page is None and not is_route(scope, "/.well-known"))

    readable = [Middleware(ReadableMessages)]
    app = Starlette(
        middleware=readable,
        routes=routes,
        lifespan=lifespan,
        exception_handlers={404: _not_found, 405: _wrong_method, 500: _failed},
    )
    return Guard(app, access, limits, needs_token, is_probe=lambda scope: is_route(scope, _HEALTH))


class ReadableMessages:
    """Middleware that answers a body that is not a JSON-RPC message as a pipe does; the SDK's words name its own types.

    A client that resumes its stream gets a new one.

    Bodies are complete: the guard has read them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http":  # events here have no ids to go on after, which the SDK answers with nothing
            scope = {**scope, "headers": [one for one in scope["headers"] if one[0] != b"last-event-id"]}
        is_message = scope["type"] == "http" and scope["method"] == "POST" and is_route(scope, PROTOCOL)
        if not is_message or not Headers(scope=scope).get("content-type", "").lower().startswith("application/json"):
            await self._app(scope, receive, send)
            return
        body = (await receive()).get("body", b"")
        message = read_line(body)
        if isinstance(message, Refusal):
            content = message.answer.model_dump_json(by_alias=True, exclude_unset=True)
            await Response(content, 400, media_type="application/json")(scope, receive, send)
        else:
            await self._app(scope, replay(body, receive), send)


def _health_route(server: QuintainServer) -> Callable[[Request], object]:
    async def health(request: Request) -> JSONResponse:
        """Report whether the store answers and the reconciler looks after the jobs: 200, else 503."""
        store, reconciler = "unavailable", "starting"
        if server.running is not None:
            reconciler = server.running.health
            try:
                services = await server.running.services()
                with anyio.move_on_after(_PING_S):
                    await anyio.to_thread.run_sync(services.store.ping, abandon_on_cancel=True)
                    store = "ok"
            except QuintainError as error:
                store = error.code
            except Exception:
                logger.exception("the health check cannot read the store")
        ready = store == "ok" and reconciler != "failing"
        return JSONResponse(
            {"status": "ok" if ready else "unavailable", "store": store, "reconciler": reconciler},
            status_code=200 if ready else 503,
        )

    return health


async def _live(request: Request) -> JSONResponse:
    """Report that the process answers."""
    return JSONResponse({"status": "ok"})


async def _not_found(request: Request, error: Exception) -> JSONResponse:
    return refusal(404, "not_found", f"expected a path of this server, got another; the protocol is at {PROTOCOL}")


async def _wrong_method(request: Request, error: Exception) -> JSONResponse:
    allowed = getattr(error, "headers", None)  # RFC 9110, section 15.5.6: a 405 names the methods in Allow
    return refusal(
        405, "wrong_method", "expected a method that this path has, got another; correct the request", allowed
    )


async def _failed(request: Request, error: Exception) -> JSONResponse:
    return refusal(500, "internal", "unexpected error; the server's log (stderr) has the details")
