"""`quintain ui`: the web page on this machine."""

from __future__ import annotations

import json
import webbrowser
from typing import Annotated

import typer

from quintain.cli.main import HomeOption
from quintain.errors import QuintainError


def ui(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: a free one.")] = 8766,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print the addresses as one line of JSON.")] = False,
    home: HomeOption = None,
) -> None:
    """Show runs, jobs, datasets, agents and comparisons on a local web page, until Ctrl-C."""
    from quintain.cli.command_lines import command_line
    from quintain.cli.session import note_new_home
    from quintain.server.app import create_server
    from quintain.server.http.serving import serve_http
    from quintain.server.http.tokens import TokenFile
    from quintain.settings import read_settings
    from quintain.ui.app import web_app

    try:
        settings = read_settings(home)
        note_new_home(settings.home)
        server, token = create_server(settings), TokenFile(settings.home)
        token.create()

        def show(url: str) -> None:
            with_token = f"{url}/#token={token.read()}"
            ready = json.dumps({"url": f"{url}/", "url_with_token": with_token, "ready": True})
            typer.echo(ready if json_out else f"{url}/\nready; actions need the address with the token: {with_token}")
            if open_browser:
                webbrowser.open(with_token)

        serve_http(
            server,
            settings,
            port=port,
            token=token,
            page=lambda access: web_app(server, access, command_line),
            on_ready=show,
        )
    except QuintainError as error:
        typer.echo(error, err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
