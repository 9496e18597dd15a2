"""Random arguments of a tool, drawn from its schema: enums, constants, examples, defaults, bounds of numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

_NOTHING = object()
_RANGE = re.compile(r"\{(-?\d{1,12})\.\.(-?\d{1,12})\}")
_INTEGERS = (0, 99)
"""Bounds of numbers without bounds in the schema."""
_LIST_LENGTH = 3
_MAX_DEPTH = 5


def draw_arguments(
    tool: str, schema: Mapping[str, Any], values: Mapping[str, Sequence[Any]], rng: Random
) -> dict[str, Any] | None:
    """Return random arguments that the schema allows; None if it defines a required one too vaguely.

    Args:
        tool: Name of the tool.
        schema: JSON schema of its arguments.
        values: Argument or tool.argument -> values from the operator. In a text, `{1..99}` becomes an integer in that range.
        rng: Random generator.
    """
    required = set(schema.get("required") or ())
    drawn: dict[str, Any] = {}
    for name, about in (schema.get("properties") or {}).items():
        choices = values.get(f"{tool}.{name}", values.get(name))
        value = _filled(rng.choice(list(choices)), rng) if choices else _drawn(about, schema, rng, _MAX_DEPTH)
        if value is _NOTHING:
            if name in required:
                return None
        elif name in required or rng.random() < 0.5:
            drawn[name] = value
    return drawn if required <= drawn.keys() else None


def _filled(value: Any, rng: Random) -> Any:
    if not isinstance(value, str):
        return value
    return _RANGE.sub(lambda found: str(rng.randint(*sorted((int(found[1]), int(found[2]))))), value)


def _drawn(about: Any, root: Mapping[str, Any], rng: Random, depth: int) -> Any:
    about = _resolved(about, root)
    if not isinstance(about, Mapping) or depth == 0:
        return _NOTHING
    if "const" in about:
        return about["const"]
    for name in ("enum", "examples"):
        if isinstance(about.get(name), list) and about[name]:
            return rng.choice(about[name])
    if about.get("default") is not None:
        return about["default"]
    choices = [part for part in (*about.get("anyOf", ()), *about.get("oneOf", ())) if _kind(part) != "null"]
    if choices:
        return _drawn(choices[0], root, rng, depth - 1)
    match _kind(about):
        case "integer":
            return rng.randint(*_bounds(about))
        case "number":
            low, high = _bounds(about)
            return min(max(rng.randint(low * 10, high * 10) / 10, low), high)
        case "boolean":
            return rng.random() < 0.5
        case "array":
            items = [
                _drawn(about.get("items"), root, rng, depth - 1)
                for _ in range(max(about.get("minItems", 1), _LIST_LENGTH))
            ]
            return _NOTHING if any(item is _NOTHING for item in items) else items[: about.get("maxItems", len(items))]
    return _NOTHING


def _kind(about: Any) -> Any:
    kind = about.get("type") if isinstance(about, Mapping) else None
    return next((one for one in kind if one != "null"), "null") if isinstance(kind, list) else kind


def _resolved(about: Any, root: Mapping[str, Any]) -> Any:
    """Resolve a reference to a definition in the same schema."""
    target = about.get("$ref") if isinstance(about, Mapping) else None
    if not isinstance(target, str) or not target.startswith("#/"):
        return about
    place: Any = root
    for key in target[2:].split("/"):
        place = place.get(key) if isinstance(place, Mapping) else None
    return place


def _bounds(about: Mapping[str, Any]) -> tuple[int, int]:
    """Return integer bounds of a number, 0 to 99 without bounds in the schema."""
    above, below = about.get("exclusiveMinimum"), about.get("exclusiveMaximum")
    least, most = about.get("minimum"), about.get("maximum")
    low = _whole(above, +1) if above is not None else _whole(least, 0)
    high = _whole(below, -1) if below is not None else _whole(most, 0)
    low = low if low is not None else min(_INTEGERS[0], high if high is not None else _INTEGERS[0])
    high = high if high is not None else max(_INTEGERS[1], low + _INTEGERS[1])
    return low, max(low, min(high, low + 10**6))


def _whole(bound: Any, step: int) -> int | None:
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        return None
    return int(bound) + step
