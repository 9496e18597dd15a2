"""`quintain serve`: the MCP server over stdio or loopback HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quintain.errors import InvalidInput, QuintainError


def serve(
    transport: Annotated[str, typer.Option(help="stdio, or http on this machine's loopback address.")] = "stdio",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port for http.")] = 8765,
    toolsets: Annotated[
        str | None, typer.Option(help="Comma-separated: data, label, train, evaluate. Default: all.")
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Offer only tools that read, plan, preview and compare.")
    ] = False,
    home: Annotated[Path | None, typer.Option(help="Home folder; default: QUINTAIN_HOME.")] = None,
) -> None:
    """Serve the tools over MCP, until the client closes stdin or the process is stopped."""
    from quintain.server.app import create_server
    from quintain.server.http import serve_http
    from quintain.server.stdio import serve_stdio
    from quintain.settings import Settings

    try:
        if transport not in {"stdio", "http"}:
            raise InvalidInput(f"expected the transport stdio or http, got {transport!r}")
        settings = Settings(home=home.resolve()) if home else Settings()
        chosen = tuple(part.strip() for part in toolsets.split(",") if part.strip()) if toolsets else None
        server = create_server(settings, toolsets=chosen, read_only=read_only)
        if transport == "stdio":
            serve_stdio(server)
        else:
            serve_http(server, host="127.0.0.1", port=port)
    except QuintainError as error:
        typer.echo(error, err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
