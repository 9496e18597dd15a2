"""`quintain prefer`: mine preferences, record what people said in a file, and list what is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from quintain.cli.border import REFUSED, Command
from quintain.cli.remedies import in_commands
from quintain.errors import InvalidInput, NotFound, Unavailable
from quintain.exporters.preview_page import printable
from quintain.records.filters import TrajectoryFilter
from quintain.records.preference import Preference
from quintain.records.record import counted, explain, nearest
from quintain.tools.labels.preferences import Mode, record_preferences
from quintain.tools.results import PreferencesResult
from quintain.tools.services import Services

Action = Literal["mine", "imported", "record", "list"]

_EVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Asked:
    """What the command line asks for; None and empty: not asked."""

    action: Action
    file: Path | None
    """JSONL of pairs, for `record`."""
    source: Literal["person", "assistant"]
    everything: bool
    """Take every stored run."""
    filter: Mapping[str, Any]
    """Fields of `TrajectoryFilter`."""
    mining: Mapping[str, Any]
    """Arguments of `record_preferences` that go with mining."""
    run: str | None = None
    """List only preferences of this run."""
    limit: int = 20


def run_prefer(asked: Asked, *, json_out: bool, home: Path | None) -> int:
    """Do what is asked, and show it.

    Returns:
        0: done; 2: the request was refused, or of a file nothing could be recorded.
    """
    console = Console(soft_wrap=True, highlight=False, markup=False)
    with Command(home) as command:
        services = command.services()
        if asked.action == "list":
            _list(console, services, asked, json_out=json_out)
        else:
            unread, result = _recorded(services, asked)
            if json_out:
                console.print(json.dumps(result.model_dump(mode="json") | {"unreadable_lines": unread}), emoji=False)
            else:
                _show(console, result, unread)
            if asked.action == "record" and not _came_in(result):
                return 2
        return 0
    return REFUSED


def _came_in(result: PreferencesResult) -> bool:
    """Is any of the pairs stored now?"""
    return bool(result.created or result.findings.get("replaced") or result.findings.get("unchanged"))


def _recorded(services: Services, asked: Asked) -> tuple[list[str], PreferencesResult]:
    """What could not be read of the file, and what came of the rest."""
    if asked.action == "record":
        if asked.file is None:
            raise InvalidInput("which file? quintain prefer record FILE.jsonl, one pair in each line")
        pairs, unread = _pairs_of(asked.file)
        if not pairs:
            raise InvalidInput(f"{asked.file} holds no pair{': ' + unread[0] if unread else '; give one in each line'}")
        return unread, record_preferences(services, asked.source, pairs)
    if asked.file is not None:
        raise InvalidInput(
            f"{asked.action!r} reads stored runs and no file; record reads one: quintain prefer record FILE"
        )
    if asked.action == "imported":
        return [], record_preferences(services, "imported", filter=_filter(asked))
    mining = {name: value for name, value in asked.mining.items() if value is not None}
    try:
        TypeAdapter(Mode).validate_python(mining.get("mode", "outside_in"))
    except ValidationError:
        modes = ("outside_in", "adjacent", "all_pairs", "best_worst", "forks")
        raise InvalidInput(
            f"--mode {mining['mode']!r} is none{nearest(mining['mode'], modes)}; valid: {', '.join(modes)}"
        ) from None
    return [], record_preferences(services, "mined", filter=_filter(asked), **mining)


def _filter(asked: Asked) -> TrajectoryFilter:
    chosen = {name: value for name, value in asked.filter.items() if value is not None and value != []}
    if asked.everything and not chosen:
        chosen = {"since": _EVER}
    if not chosen:
        raise InvalidInput(
            "which runs? Name them with --agent, --environment, --task-type, --tag or --text, or take all with --all",
            code="empty_filter",
        )
    try:
        return TrajectoryFilter.model_validate(chosen)
    except ValidationError as error:
        raise InvalidInput(explain(error, "option")) from None


def _pairs_of(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The pairs of a file, and a sentence about each line that is none."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist; name a JSONL file") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is no UTF-8 text; save it as UTF-8 JSONL") from None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read ({error.strerror}); check the path and its rights") from None
    pairs, unread = list[dict[str, Any]](), list[str]()
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                pair = json.loads(line)
            except (ValueError, RecursionError) as error:
                unread.append(f"line {number} is no JSON ({error})")
                continue
            if isinstance(pair, dict):
                pairs.append(pair)
            else:
                unread.append(f"line {number} is {type(pair).__name__}, no object")
    return pairs, unread


def _show(console: Console, result: PreferencesResult, unread: list[str]) -> None:
    found = dict(result.findings)
    circles, notes = found.pop("circles", []), [*found.pop("warnings", []), *found.pop("changes", [])]
    more = "".join(f", {name} {n:,}" for name, n in found.items())
    ties = f", {counted(result.ties, 'tie')} among those recorded or changed" if result.ties else ""
    console.print(f"{counted(result.created, 'preference')} recorded{more}{ties}")
    for skipped in result.skipped:
        console.print(printable(in_commands(f"  left out: {skipped.reason} {skipped.count:,}: {skipped.detail}")))
    for line in (*unread, *notes):
        console.print(printable(f"  note: {line}"))
    for circle in circles:
        console.print(printable(f"  no order fits: {' > '.join((*circle, circle[0]))}"))
    console.print(printable(in_commands(result.next_step)))


def _list(console: Console, services: Services, asked: Asked, *, json_out: bool) -> None:
    if asked.run is not None:
        services.store.trajectories.get(asked.run)
    page = services.store.preferences.page(trajectory_id=asked.run, limit=asked.limit)
    if json_out:
        console.print(page.model_dump_json(), emoji=False)
        return
    for preference in page.items:
        console.print(printable(_line(preference)))
    if not page.items:
        console.print("No preference is stored; quintain prefer mine --all, or record FILE.")


def _line(one: Preference) -> str:
    word = f"{one.a} = {one.b}" if one.chosen is None else f"{one.chosen} > {one.rejected}"
    step = "" if one.step is None else f" at step {one.step}"
    margin = "" if one.margin is None else f" by {one.margin:.3g}"
    who = one.rater or (f"mined from {one.scorer}" if one.scorer else one.source)
    return f"{one.id}  {word}{step}{margin}  ({who}){': ' + one.reason if one.reason else ''}"
