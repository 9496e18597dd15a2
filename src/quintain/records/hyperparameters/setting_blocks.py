"""Blocks of other trainers' config files, which nest settings that are flat here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from quintain.records.record import clip, list_names

_DEPTH = 8


def describe_block(name: str, block: Mapping[str, Any], setting_of: Callable[[str], str | None], remedy: str) -> str:
    """Return what to give in place of a block: each setting in it that exists here, with the path where it stands.

    Args:
        name: The block's name.
        block: Its content.
        setting_of: Returns the setting here that a name in the block means; None if there is none.
        remedy: For the block as a whole.
    """
    found = [f"{known} for {clip(path)}" for path, known in _settings_in(name, block, setting_of)]
    given = f"give {list_names(found)}; as for the rest, {remedy}" if found else remedy
    return f"`{clip(name)}` is a block, and settings are not nested here; {given}"


def _settings_in(
    path: str, block: Mapping[str, Any], setting_of: Callable[[str], str | None], depth: int = _DEPTH
) -> Iterator[tuple[str, str]]:
    for name, value in block.items():
        inner = f"{path}.{name}"
        if isinstance(value, Mapping) and depth:
            yield from _settings_in(inner, value, setting_of, depth - 1)
        elif isinstance(name, str) and value is not None and (known := setting_of(name)) is not None:
            yield inner, known
