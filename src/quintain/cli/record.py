"""`quintain record`: one run from a file or a pipe, as chat messages or as a whole trajectory."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from quintain.cli.border import REFUSED, Command
from quintain.errors import InvalidInput, NotFound
from quintain.tools.calls import call
from quintain.tools.catalog import tool_named

_MAX_BYTES = 64 * 2**20


def run_record(
    file: str, *, task: str | None, agent: str | None, outcome: str | None, tags: Sequence[str], home: Path | None
) -> int:
    """Store what the file holds; returns the exit status: 0 stored, 2 refused."""
    console = Console(soft_wrap=True)
    with Command(home) as command:
        given = _arguments(_parsed(_text(file), file))
        more = {"task": task, "agent": agent, "outcome": outcome, "tags": list(tags) or None}
        services = command.services()
        arguments = {**given, **{key: value for key, value in more.items() if value is not None}}
        recorded = call(services, tool_named("record_trajectory"), arguments)
        console.print_json(recorded.model_dump_json())
        return 0
    return REFUSED


def _text(file: str) -> bytes:
    try:
        data = sys.stdin.buffer.read(_MAX_BYTES + 1) if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise NotFound(
            f"{file!r} cannot be read ({error.strerror}); give a JSON file, or - for standard input"
        ) from None
    if len(data) > _MAX_BYTES:
        raise InvalidInput(
            f"{file!r} holds more than {_MAX_BYTES:,} bytes; use `quintain import` for large logs", code="too_large"
        )
    return data


def _parsed(data: bytes, file: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{file!r} is not JSON ({error}); give a trajectory or a list of chat messages") from None


def _arguments(value: Any) -> dict[str, Any]:
    """The arguments of `record_trajectory` that a JSON value stands for."""
    if isinstance(value, list):
        return {"messages": value}
    if isinstance(value, dict) and "messages" in value:
        return {
            key: value[key]
            for key in ("messages", "task", "tools", "agent", "outcome", "tags")
            if value.get(key) is not None
        }
    if isinstance(value, dict):
        return {"trajectory": value}
    raise InvalidInput(f"a run is a JSON object or a list of chat messages, not {type(value).__name__}")
