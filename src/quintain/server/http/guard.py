"""The guard of every HTTP application of the server: Host, Origin, token, rate, concurrency, and the request's body."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quintain.server.http.access import Access
from quintain.server.http.limits import Limits, TokenBuckets

logger = logging.getLogger(__name__)

_FORWARDED = ("forwarded", "via", "x-forwarded-for")


def may_change(scope: Scope, access: Access) -> bool:
    """Whether a request that passed the guard may change something: it presented a token, or the server asks for none."""
    return access.verifier is None or isinstance(scope.get("user"), AuthenticatedUser)


def may_read(scope: Scope, access: Access) -> bool:
    """Whether a request that passed the guard may read: it may change, or it comes from this machine and by no proxy."""
    if may_change(scope, access):
        return True
    headers = Headers(scope=scope)
    return access.reads_are_open and not any(name in headers for name in _FORWARDED)


def is_route(scope: Scope, path: str) -> bool:
    """Whether a request is for a path, relative to the root path, or below it."""
    found = scope["path"].removeprefix(scope.get("root_path", ""))
    return bool(found == path or found.startswith(f"{path}/"))


def refusal(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return the answer to a request that is not served: `{"error": {"code": ..., "message": ...}}`."""
    always = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    always["Content-Security-Policy"] = "default-src 'none'"
    body = {"error": {"code": code, "message": message}}
    return JSONResponse(body, status_code=status, headers=always | (headers or {}))


class Guard:
    """Pass on the requests that may reach an application, refuse the others, and end the streams when the server stops.

    An application behind it asks `may_read` and `may_change`, and gets bodies that are complete. A server has one guard around one
    application. `needs_token` is only asked where a verifier is set; a health check, which `is_probe` knows, is answered whatever its
    Host and token are.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        limits: Limits,
        needs_token: Callable[[Scope], bool],
        is_probe: Callable[[Scope], bool] = lambda scope: False,
    ) -> None:
        self._app, self._access, self._limits = app, access, limits
        self._needs_token, self._is_probe = needs_token, is_probe
        self._backend = BearerAuthBackend(access.verifier) if access.verifier is not None else None
        self._buckets = TokenBuckets(limits.calls_per_s, 2 * limits.calls_per_s)
        self._calls = 0
        self._streams: set[anyio.CancelScope] = set()
        self._stopping = False

    def close_streams(self) -> None:
        """End the streams of events and refuse new ones; calls go on."""
        self._stopping = True
        for scope in list(self._streams):
            scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        scope = dict(scope)
        _apply_root_path(scope, self._access.root_path)
        refused = await self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, send)
        elif _is_stream(scope):
            await self._stream(scope, receive, send)
        elif self._calls >= self._limits.calls_at_once:
            message = f"expected at most {self._limits.calls_at_once} calls at once, got more; try again in 1 s"
            await refusal(503, "busy", message, {"Retry-After": "1"})(scope, receive, send)
        else:
            self._calls += 1
            try:
                await self._serve(scope, receive, send)
            finally:
                self._calls -= 1

    async def _refusal(self, scope: Scope) -> JSONResponse | None:
        """Return why a request is refused before its body is read, or None."""
        headers = Headers(scope=scope)
        probe = scope["method"] in {"GET", "HEAD"} and self._is_probe(scope)
        if not probe:
            if headers.get("host", "").lower() not in self._access.hosts:
                return refusal(
                    421,
                    "foreign_host",
                    "expected a Host of this server, got another; correct the URL, or set QUINTAIN_HTTP_HOSTS or "
                    "QUINTAIN_HTTP_PUBLIC_URL on the server",
                )
            if any(origin.lower() not in self._access.origins for origin in headers.getlist("origin")):
                return refusal(
                    403,
                    "foreign_origin",
                    "expected an Origin of this server, got another; open its page by its own URL",
                )
            if self._backend is not None and (refused := await self._token_refusal(self._backend, scope, headers)):
                return refused
        if wait := self._buckets.take(_client(scope)):
            seconds = math.ceil(wait)
            return refusal(
                429,
                "too_many_calls",
                f"expected at most {self._limits.calls_per_s:g} calls/s of a client, got more; try again in {seconds} s",
                {"Retry-After": str(seconds)},
            )
        return None

    async def _token_refusal(self, backend: BearerAuthBackend, scope: Scope, headers: Headers) -> JSONResponse | None:
        found = await backend.authenticate(HTTPConnection(scope))
        if found is not None:
            scope["auth"], scope["user"] = found
            return None
        if not self._needs_token(scope):
            return None  # a page with an expired token can still read; requests that change something ask `may_change`
        presented = "authorization" in headers
        challenge = 'Bearer realm="quintain"'
        if presented:
            challenge += ', error="invalid_token", error_description="The token is not valid here"'
        if self._access.metadata_url is not None:
            challenge += f', resource_metadata="{self._access.metadata_url}"'
        got = "one that is not valid" if presented else "none"
        return refusal(
            401,
            "unauthorized",
            f"expected the header `Authorization: Bearer TOKEN`, got {got}; the token is in the file http-token of the "
            "server's home folder",
            {"WWW-Authenticate": challenge},
        )

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await self._body(scope, receive)
        if isinstance(body, JSONResponse):
            await body(scope, receive, send)
        elif body is not None:
            await self._app(scope, replay(body, receive), send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | JSONResponse | None:
        """Return the whole body, the answer to one that is too long or too slow, or None where the client is gone."""
        limit, body = self._limits.body_bytes, bytearray()
        length = Headers(scope=scope).get("content-length", "0")
        too_long = length.isdecimal() and int(length[:20]) > limit
        try:
            with anyio.fail_after(self._limits.body_s):
                while not too_long:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    too_long = len(body) > limit
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            message_text = f"expected the body within {self._limits.body_s:g} s, got a part of it; send it again"
            return refusal(408, "slow_body", message_text, {"Connection": "close"})
        if too_long:
            return refusal(
                413,
                "too_large",
                f"expected a body of at most {limit} bytes, got more; send fewer runs in one call, or put the file into the "
                "inbox folder and import it",
                {"Connection": "close"},
            )
        return bytes(body)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a stream of events until its client leaves or the server stops."""
        started = finished = False

        async def observed(message: Message) -> None:
            nonlocal started, finished
            started = True
            finished = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        with anyio.CancelScope() as cancelled:
            if self._stopping:
                cancelled.cancel()
            self._streams.add(cancelled)
            try:
                await self._serve(scope, receive, observed)
            finally:
                self._streams.discard(cancelled)
        if finished or not cancelled.cancel_called:
            return
        if started:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await refusal(503, "stopping", "expected a running server, got one that stops; connect again")(
                scope, receive, send
            )


def _is_stream(scope: Scope) -> bool:
    """Whether the answer may stay open for as long as its client likes.

    The SDK refuses a request whose `Mcp-Method` differs from the method in its body.
    """
    return scope["method"] in {"GET", "HEAD"} or Headers(scope=scope).get("mcp-method") == "subscriptions/listen"


def _client(scope: Scope) -> str:
    """Return whom the limits count a request for: the principal of its token where there are several, else its address."""
    user = scope.get("user")
    if isinstance(user, AuthenticatedUser) and user.access_token.subject is not None:
        return f"subject {user.access_token.subject}"
    return str((scope.get("client") or ("unknown",))[0])


def _apply_root_path(scope: Scope, root_path: str) -> None:
    """Set the ASGI paths, whether or not the proxy removes the root path from what it passes on."""
    if root_path:
        path = scope["path"]
        scope["root_path"] = root_path
        scope["path"] = path if path == root_path or path.startswith(f"{root_path}/") else root_path + path


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body once and waits for the client to leave after that."""
    waiting = [body]

    async def replayed() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replayed
