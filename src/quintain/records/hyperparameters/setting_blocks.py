"""Blocks of other trainers' config files, which nest settings that are flat here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from quintain.records.record import clip, list_names

_DEPTH = 8


def nested(values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return settings with dotted names, as command lines of other trainers have them, as blocks.

    Known names stay, and so do dotted names that begin with one of them.
    """
    result: dict[str, Any] = {}
    for name, value in values.items():
        *outer, last = name.split(".")
        if not outer or name in known or outer[0] in known or not all((*outer, last)):
            result[name] = value
            continue
        block = result
        for part in outer[:_DEPTH]:
            inner = block.get(part)
            block[part] = block = dict(inner) if isinstance(inner, Mapping) else {}
        block[".".join([*outer[_DEPTH:], last])] = value
    return result


def describe_block(
    name: str,
    block: Mapping[str, Any],
    setting_of: Callable[[str], str | None],
    remedy_of: Callable[[str, Any], str | None],
    remedy: str,
) -> str:
    """Return what to give in place of a block: each setting in it that exists here, with the path where it stands.

    Args:
        name: The block's name.
        block: Its content.
        setting_of: Returns the setting here that a name in the block means, `outer.name` before `name`; None if there is none.
        remedy_of: Returns what to do about a name with this value; None if it can be left out.
        remedy: For the block as a whole.
    """
    found, advice = list[str](), list[str]()
    for path, value in _values_in(name, block):
        names = path.split(".")
        known = next((known for short in (".".join(names[-2:]), names[-1]) if (known := setting_of(short))), None)
        if known is not None:
            found.append(f"{known} for {clip(path)}")
        elif (about := remedy_of(names[-1], value)) is not None:
            advice.append(f"{about} ({clip(path)})")
    given = f"give {list_names(found)}; " if found else ""
    more = f"{'; '.join(advice)}; " if advice else ""
    rest = f"as for the rest, {remedy}" if found or advice else remedy
    return f"`{clip(name)}` is a block, and settings are not nested here; {given}{more}{rest}"


def _values_in(path: str, block: Mapping[str, Any], depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    for name, value in block.items():
        inner = f"{path}.{name}"
        if isinstance(value, Mapping) and depth:
            yield from _values_in(inner, value, depth - 1)
        elif isinstance(name, str) and value is not None:
            yield inner, value
