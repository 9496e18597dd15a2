"""`quintain serve`: the MCP server over stdio or HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from quintain.cli.main import HomeOption
from quintain.errors import InvalidInput, QuintainError

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from quintain.server.app import QuintainServer
    from quintain.server.http.access import Access
    from quintain.server.http.tokens import TokenFile
    from quintain.settings import Settings


def serve(
    transport: Annotated[str, typer.Option(help="stdio, or http.")] = "stdio",
    host: Annotated[str, typer.Option(help="Address for http.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port for http; 0: a free one.")] = 8765,
    rotate_token: Annotated[
        bool, typer.Option("--rotate-token", help="Replace the token of http; clients need the new one.")
    ] = False,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Ask for no token: on loopback, or with an OAuth issuer.")
    ] = False,
    toolsets: Annotated[
        str | None, typer.Option(help="Comma-separated: data, label, train, evaluate. Default: all.")
    ] = None,
    read_only: Annotated[
        bool,
        typer.Option(
            "--read-only",
            help="Offer only tools that read, plan, preview and compare; previews and comparisons are kept.",
        ),
    ] = False,
    json_out: Annotated[
        bool, typer.Option("--json", help="With http: print address and file of the token as one line of JSON.")
    ] = False,
    home: HomeOption = None,
) -> None:
    """Serve the tools over MCP, until the client closes stdin or the process is stopped."""
    from quintain.server.app import create_server
    from quintain.server.transport.stdio import serve_stdio
    from quintain.settings import read_settings
    from quintain.threads import configure_malloc

    configure_malloc()
    try:
        if transport not in {"stdio", "http"}:
            raise InvalidInput(f"expected the transport stdio or http, got {transport!r}; name one of the two")
        if json_out and transport == "stdio":
            raise InvalidInput(
                "expected --json with --transport http, got stdio, whose output is the protocol; leave it out"
            )
        if no_token and rotate_token:
            raise InvalidInput("expected --no-token or --rotate-token, got both; leave one out")
        settings = read_settings(home)
        chosen = tuple(part.strip() for part in toolsets.split(",") if part.strip()) if toolsets else None
        server = create_server(settings, toolsets=chosen, read_only=read_only)
        if transport == "stdio":
            serve_stdio(server)
            return
        _serve_http(server, settings, host, port, no_token=no_token, rotate=rotate_token, json_out=json_out)
    except QuintainError as error:
        typer.echo(error, err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _serve_http(
    server: QuintainServer,
    settings: Settings,
    host: str,
    port: int,
    *,
    no_token: bool,
    rotate: bool,
    json_out: bool,
) -> None:
    """Serve the protocol and the page over HTTP until the process is stopped."""
    from quintain.cli.command_lines import command_line
    from quintain.cli.session import note_new_home
    from quintain.server.http.serving import serve_http
    from quintain.server.http.tokens import TokenFile
    from quintain.ui.app import web_app

    note_new_home(settings.home)
    token = None if no_token else TokenFile(settings.home)
    created = token is not None and token.create(replace=rotate)

    def page(access: Access) -> Starlette:
        return web_app(server, access, command_line)

    def show(url: str) -> None:
        _announce(url, token, created=created, json_out=json_out)

    serve_http(server, settings, host, port, token=token, page=page, on_ready=show)


def _announce(url: str, token: TokenFile | None, *, created: bool, json_out: bool) -> None:
    """Print where the server listens, and where its token is; a new token itself once."""
    path = None if token is None else str(token.path)
    if json_out:
        typer.echo(json.dumps({"url": f"{url}/mcp", "token_file": path, "ready": True}))
        return
    typer.echo(f"Serving at {url}/mcp", err=True)
    if token is not None:
        shown = f"{token.read()} (shown once; kept in {path})" if created else f"in {path}"
        typer.echo(f"Token: {shown}", err=True)
    typer.echo("ready", err=True)
