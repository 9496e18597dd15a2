"""One log of each format, hand-made from the format's definition: tests of its reader read it, hostile tests bend and break it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "importers" / "small_logs"


def _parsed(file: Path) -> Any:
    text = file.read_bytes().decode()
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return text if file.suffix == ".md" else json.loads(text)


SMALL_LOGS: dict[str, tuple[str, Any]] = {
    file.parent.name: (file.name, _parsed(file)) for file in sorted(FOLDER.glob("*/*"))
}
"""Format -> name of its log, and its rows, its JSON value or its text."""


def log_path(format: str) -> Path:
    """The file of the log of a format."""
    return FOLDER / format / SMALL_LOGS[format][0]


def small_log(format: str) -> Any:
    """The log of a format, to change: its rows, its JSON value or its text."""
    return copy.deepcopy(SMALL_LOGS[format][1])


def content(name: str, value: Any) -> bytes:
    """As a file of this name holds it: text, a row a line, or JSON."""
    if isinstance(value, str):
        return value.encode()
    if name.endswith(".jsonl"):
        return b"".join(json.dumps(row).encode() + b"\n" for row in value)
    return json.dumps(value).encode()
