"""Edits of one table in a TOML file; every other line stays. The caller compares the result, which is parsed anew."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from quintain.cli.clients.jsonc import Unreadable

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def loads(text: str) -> Any:
    """Return the tables of a text.

    Raises:
        Unreadable: With the line.
    """
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        _, _, place = str(error).rpartition("at line ")
        line = int(place.partition(",")[0]) if place[:1].isdigit() else text.count("\n") + 1
        raise Unreadable(str(error).partition(" (at ")[0], line) from None


def with_entry(text: str, path: Sequence[str], value: Mapping[str, Any]) -> str:
    """Return the text with a table set: in its place, or at the end.

    Raises:
        Unreadable: The text is not TOML.
    """
    loads(text)
    table = "".join([f"[{'.'.join(path)}]\n", *(f"{_key(name)} = {_inline(one)}\n" for name, one in value.items())])
    lines = text.splitlines(keepends=True)
    if (span := _span(lines, path)) is not None:
        start, end = span
        return "".join([*lines[:start], table, *(["\n"] if lines[end:] and lines[end].strip() else []), *lines[end:]])
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}{table}"


def without_entry(text: str, path: Sequence[str]) -> str:
    """Return the text without a table, or as it is where the table does not exist.

    Raises:
        Unreadable: The text is not TOML.
    """
    loads(text)
    lines = text.splitlines(keepends=True)
    if (span := _span(lines, path)) is None:
        return text
    start, end = span
    before = lines[:start]
    if end == len(lines) and before and not before[-1].strip():
        before.pop()
    return "".join([*before, *lines[end:]])


def _inline(value: Any) -> str:
    """Return a value in one line; one of a kind that JSON lacks becomes a text, which the caller's comparison finds."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {_inline(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return json.dumps(value, ensure_ascii=False, default=str)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _span(lines: Sequence[str], path: Sequence[str]) -> tuple[int, int] | None:
    """Return the first line of a table with its subtables, and the line after their last pair."""
    start = end = None
    for number, line in enumerate(lines):
        header = _header(line)
        if header is not None and (start is not None or header == tuple(path)) and not _is_whole(lines[:number]):
            header = None  # within a text or list of several lines
        if start is None:
            if header == tuple(path):
                start = end = number
        elif header is not None and header[: len(path)] != tuple(path):
            break
        if start is not None and line.strip() and not line.lstrip().startswith("#"):
            end = number
    return None if start is None or end is None else (start, end + 1)


def _is_whole(lines: Sequence[str]) -> bool:
    try:
        tomllib.loads("".join(lines))
    except tomllib.TOMLDecodeError:
        return False
    return True


def _header(line: str) -> tuple[str, ...] | None:
    """Return the name of the table that a line begins, if it begins one."""
    stripped = line.strip()
    if not stripped.startswith("["):
        return None
    try:
        found = tomllib.loads(stripped + "\n")
    except tomllib.TOMLDecodeError:
        return None
    names = []
    while isinstance(found, dict) and len(found) == 1:
        ((name, found),) = found.items()
        names.append(name)
    return tuple(names) if found in ({}, [{}]) else None
