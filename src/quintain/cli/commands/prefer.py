"""`quintain prefer`: mine preferences, record those of a file, and list what is stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from quintain.cli.command_lines import explain_for_terminal
from quintain.cli.main import HomeOption
from quintain.cli.session import REFUSED, CommandRun, Session, plain_console, show_next_step
from quintain.errors import InvalidInput, NotFound, Unavailable
from quintain.records.labels.preference import Preference
from quintain.records.text import printable
from quintain.records.wording import counted
from quintain.tools.results import PreferencesResult


def run_record_pairs(use: CommandRun) -> int:
    """Record the pairs of a file; returns 2 where the request was refused or none of the pairs could be recorded."""
    file = use.own["file"]
    services = use.services()
    pairs, unread = _pairs_of(file)
    if not pairs:
        raise InvalidInput(f"{file} has no pair{': ' + unread[0] if unread else '; give one in each line'}")
    result = use.call(services, source=use.own["source"], pairs=pairs)
    if use.json_out:
        use.print_json(result, unreadable_lines=unread)
    else:
        show_preferences(plain_console(), result, unread)
    recorded = result.created or result.findings.get("replaced") or result.findings.get("unchanged")
    return 0 if recorded else REFUSED


def list_preferences(
    run: Annotated[str | None, typer.Option(help="Only preferences of this run.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="So many, newest first.")] = 20,
    json_out: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    home: HomeOption = None,
) -> None:
    """List stored preferences, newest first."""
    console = plain_console()
    with Session(home) as session:
        services = session.services()
        if run is not None:
            services.store.trajectories.get(run)
        page = services.store.preferences.page(trajectory_id=run, limit=limit)
        if json_out:
            console.print(page.model_dump_json())
        for preference in () if json_out else page.items:
            console.print(printable(_line(preference)))
        if not page.items and not json_out:
            console.print(
                "No preference is stored; record some with quintain prefer mine --all, or prefer record FILE."
            )


def _pairs_of(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the pairs of a file, and a note for each line without one."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise NotFound(f"expected a JSONL file, got nothing at {path}; correct the path") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not UTF-8 text; save it as UTF-8 JSONL") from None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read ({error.strerror}); check the path and its permissions") from None
    pairs, unread = list[dict[str, Any]](), list[str]()
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                pair = json.loads(line)
            except (ValueError, RecursionError) as error:
                unread.append(f"line {number} is not JSON ({error})")
                continue
            if isinstance(pair, dict):
                pairs.append(pair)
            else:
                unread.append(f"line {number} is {type(pair).__name__}, expected an object")
    return pairs, unread


def show_preferences(console: Console, result: PreferencesResult, unread: Sequence[str] = ()) -> None:
    """Print what was recorded and what was not, with notes on lines that could not be read."""
    found = dict(result.findings)
    circles, notes = found.pop("circles", []), [*found.pop("warnings", []), *found.pop("changes", [])]
    more = "".join(f", {name} {n:,}" for name, n in found.items())
    ties = f", {counted(result.ties, 'tie')} among those recorded or changed" if result.ties else ""
    console.print(f"{counted(result.created, 'preference')} recorded{more}{ties}")
    for skipped in result.skipped:
        console.print(
            printable(
                f"  left out: {skipped.reason} {skipped.count:,}: {explain_for_terminal(skipped.detail, 'prefer record')}"
            )
        )
    for line in (*unread, *notes):
        console.print(printable(f"  note: {line}"))
    for circle in circles:
        console.print(printable(f"  no order fits: {' > '.join((*circle, circle[0]))}"))
    show_next_step(console, result)


def _line(one: Preference) -> str:
    word = f"{one.a} = {one.b}" if one.chosen is None else f"{one.chosen} > {one.rejected}"
    step = "" if one.step is None else f" at step {one.step}"
    margin = "" if one.margin is None else f" by {one.margin:.3g}"
    who = one.rater or (f"mined from {one.scorer}" if one.scorer else one.source)
    return f"{one.id}  {word}{step}{margin}  ({who}){': ' + one.reason if one.reason else ''}"
