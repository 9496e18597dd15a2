"""`quintain serve`: the MCP server over stdio or loopback HTTP."""

from __future__ import annotations

import sys
from pathlib import Path

from quintain.errors import InvalidInput, QuintainError
from quintain.settings import Settings


def run_server(*, transport: str, port: int, toolsets: str | None, read_only: bool, home: Path | None) -> int:
    """Serve until the client closes stdin (or the process is stopped); returns the exit status."""
    from quintain.server.app import create_server
    from quintain.server.http import serve_http
    from quintain.server.stdio import serve_stdio

    try:
        if transport not in {"stdio", "http"}:
            raise InvalidInput(f"transport {transport!r} is not known; valid: stdio, http")
        settings = Settings(home=home.resolve()) if home else Settings()
        chosen = tuple(part.strip() for part in toolsets.split(",") if part.strip()) if toolsets else None
        server = create_server(settings, toolsets=chosen, read_only=read_only)
        if transport == "stdio":
            serve_stdio(server)
        else:
            serve_http(server, host="127.0.0.1", port=port)
    except QuintainError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0
