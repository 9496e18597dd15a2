"""The web page in a server process of its own: `quintain ui`."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import uvicorn
from starlette.applications import Starlette

from quintain.errors import Unavailable
from quintain.server.app import QuintainServer
from quintain.ui.access import Access, loopback_hosts
from quintain.ui.app import web_app

HOST = "127.0.0.1"


def serve_ui(server: QuintainServer, port: int, ready: Callable[[str, str], None]) -> None:
    """Serve the page on this machine's loopback address until interrupted.

    Args:
        server: Its tools and data.
        port: Of the address; 0: a free one.
        ready: Takes the URL and the token when requests are answered.

    Raises:
        Unavailable: the port is in use.
    """
    import socket

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError:
        raise Unavailable(f"expected a free port, got {port}, which is in use; choose another with --port") from None
    port = listener.getsockname()[1]
    token = secrets.token_urlsafe(32)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with server.lifespan(server):
            yield

    app = web_app(server, Access(loopback_hosts(port), token), lifespan=lifespan)

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready(f"http://{HOST}:{port}/", token)

    # log_config=None: uvicorn's own would write to standard output. Open event streams must not delay the end.
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    with listener:
        anyio.run(Announcing(config).serve, [listener])
