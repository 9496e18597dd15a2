"""`quintain install`: the server in the settings of an MCP client, and the skill for its assistant."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Annotated

import typer

from quintain.cli.clients.clients import (
    BACKUP,
    CLIENTS,
    Change,
    Client,
    apply,
    planned_install,
    planned_skill,
    planned_undo,
    server_command,
)
from quintain.cli.session import Session, plain_console
from quintain.errors import InvalidInput, Refused
from quintain.records.text import printable
from quintain.records.wording import nearest, shown


def _clients(incomplete: str) -> list[str]:
    return [name for name in CLIENTS if name.startswith(incomplete)]


def install(
    client: Annotated[
        str, typer.Argument(help=f"One of {', '.join(CLIENTS)}.", autocompletion=_clients, show_default=False)
    ],
    undo: Annotated[bool, typer.Option("--undo", help="Take it out again.")] = False,
    skill: Annotated[
        bool, typer.Option("--skill", help="Write the skill that teaches the assistant the way, instead of the server.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the change.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the change.")] = False,
    home: Annotated[
        Path | None, typer.Option(help="Home folder that the server gets; default: QUINTAIN_HOME as it is now.")
    ] = None,
    json_out: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; changes only with --yes.")
    ] = False,
) -> None:
    """Add this server to an MCP client: show the change of its settings, ask, keep a copy of the file, and write it.

    Everything else in the file stays, comments too. --undo puts the file back as it was.
    """
    with Session(None):
        if client not in CLIENTS:
            near = nearest(client, CLIENTS)
            raise InvalidInput(f"expected one of {', '.join(CLIENTS)}, got {shown(client)}{near}")
        change = _planned(CLIENTS[client], undo=undo, skill=skill, home=home)
        then = "Its new sessions read the skill." if skill else CLIENTS[client].restart
        done = (
            f"Taken out of {CLIENTS[client].title}. Restart it."
            if undo
            else f"Installed in {CLIENTS[client].title}. {then}"
        )
        status = _carry_out(CLIENTS[client], change, ask=not yes, dry_run=dry_run, json_out=json_out, done=done)
    raise typer.Exit(status)


def _planned(client: Client, *, undo: bool, skill: bool, home: Path | None) -> Change:
    user = Path.home()
    if skill:
        change = planned_skill(client, user)
        return Change(change.file, change.before, "", keep_backup=False) if undo else change
    return planned_undo(client, user) if undo else planned_install(client, user, server_command(home))


def _carry_out(client: Client, change: Change, *, ask: bool, dry_run: bool, json_out: bool, done: str) -> int:
    console = plain_console()
    difference = _difference(change)
    if json_out and ask and not dry_run:
        raise Refused("expected --yes or --dry-run with --json, which asks nothing; add one of them")
    changed = not change.is_empty and not dry_run
    if not json_out:
        for line in difference:
            console.print(printable(line), style={"+": "green", "-": "red"}.get(line[:1]))
        if change.is_empty:
            console.print(f"Nothing to change: {change.file}")
        elif changed and ask and not typer.confirm(f"Change {change.file}?"):
            return 1
    if changed:
        apply(change)
    backup = str(change.file) + BACKUP if changed and change.keep_backup else None
    if json_out:
        result = {"client": client.name, "file": str(change.file), "changed": changed, "backup": backup}
        console.print(json.dumps({**result, "diff": difference}))
    elif changed:
        kept = f" The earlier file is {backup}." if backup and change.before else ""
        kept += f" Take it out again with quintain install {client.name} --undo." if backup else ""
        console.print(f"{done}{kept}")
    return 0


def _difference(change: Change) -> list[str]:
    name = str(change.file)
    lines = difflib.unified_diff(
        change.before.splitlines(), change.after.splitlines(), f"{name} (now)", f"{name} (then)", lineterm="", n=2
    )
    return list(lines)
