"""The streamable HTTP transport, on this machine only: there is no authentication yet."""

from __future__ import annotations

import anyio

from quintain.errors import Refused
from quintain.server.app import QuintainServer

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve_http(server: QuintainServer, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve clients at `http://HOST:PORT/mcp` until interrupted; requests of foreign hosts and origins are refused.

    Raises:
        Refused: `host` is not an address of this machine alone.
    """
    if host not in LOOPBACK:
        raise Refused(
            f"host {host!r} can be reached from other machines, and this server has no authentication; valid: "
            f"{', '.join(LOOPBACK)}; to reach it from elsewhere use an SSH tunnel or a proxy that authenticates"
        )
    import uvicorn

    app = server.streamable_http_app(host=host)
    # log_config=None: uvicorn's own would write to standard output.
    config = uvicorn.Config(app, host=host, port=port, log_config=None, access_log=False)
    anyio.run(uvicorn.Server(config).serve)
