"""Answers of the web page: the security headers that each carries, and errors as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quintain.errors import QuintainError

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
