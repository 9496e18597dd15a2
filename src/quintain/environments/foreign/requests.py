"""JSON over HTTP with the standard library: bounded, direct, without redirects."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

MAX_BYTES = 16_000_000


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_opener = build_opener(ProxyHandler({}), _NoRedirects)


def ask(url: str, body: dict[str, Any] | None, timeout_s: float) -> Any:
    """Return the JSON answer to a POST of `body`, or to a GET without one.

    Raises:
        OSError: no answer in time, or a status other than 2xx.
        ValueError: an answer that is not JSON, or longer than `MAX_BYTES`.
    """
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json", "User-Agent": "quintain"})
    try:
        with _opener.open(request, timeout=timeout_s) as answer:
            content = answer.read(MAX_BYTES + 1)
    except HTTPError as error:
        detail = error.read(300).decode("utf-8", "replace")
        raise OSError(f"{url} answered with status {error.code}: {detail}") from None
    if len(content) > MAX_BYTES:
        raise ValueError(f"expected at most {MAX_BYTES:,} bytes from {url}, got more")
    return json.loads(content)
