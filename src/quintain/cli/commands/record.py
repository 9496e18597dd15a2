"""`quintain record`: one run from a file or a pipe, as chat messages or as a whole trajectory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from quintain.cli.session import CommandRun, plain_console
from quintain.errors import InvalidInput, NotFound
from quintain.records.text import printable
from quintain.records.wording import list_names

_MAX_BYTES = 64 * 2**20
_FIELDS = ("messages", "task", "tools", "agent", "outcome", "tags")


def run_record(use: CommandRun) -> int:
    """Store the run of a file, or the outcome of a stored run; returns the exit status: 0 stored, 2 refused."""
    file = use.own["file"]
    if file is None and "trajectory_id" not in use.arguments:
        raise InvalidInput("expected a file with a run, got none; name a JSON file, or - for standard input")
    from_file = _arguments(read_json(file, _MAX_BYTES)) if file is not None else {}
    options = {name: value for name, value in use.arguments.items() if value is not None}
    use.show(use.call(use.services(), **{**from_file, **options}))
    return 0


def read_json(file: str, max_bytes: int) -> Any:
    """Return the JSON value in a file, or on standard input where `file` is `-`.

    Raises:
        NotFound: the file cannot be read.
        InvalidInput: it is too large, or not JSON.
    """
    try:
        data = sys.stdin.buffer.read(max_bytes + 1) if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise NotFound(f"cannot read {file!r} ({error.strerror}); name a JSON file, or - for standard input") from None
    if len(data) > max_bytes:
        raise InvalidInput(
            f"{file!r} has more than {max_bytes:,} bytes; give large logs to `quintain import`, answers in parts",
            code="too_large",
        )
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"expected JSON in {file!r}, got a fault in it ({error}); correct the file") from None


def _arguments(value: Any) -> dict[str, Any]:
    """Return the arguments of `record_trajectory` for a JSON value."""
    if isinstance(value, list):
        return {"messages": value}
    if isinstance(value, dict) and "messages" in value:
        if left := sorted(value.keys() - {*_FIELDS}):
            text = f"Left out, beside the messages: {list_names(left)}; `quintain import` reads verdicts in rows, and more."
            plain_console(stderr=True).print(printable(text), style="yellow")
        return {key: value[key] for key in _FIELDS if value.get(key) is not None}
    if isinstance(value, dict):
        return {"trajectory": value}
    raise InvalidInput(
        f"expected a run as a JSON object or a list of chat messages, got {type(value).__name__}; correct the file"
    )
