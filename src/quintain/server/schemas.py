"""JSON schemas of a tool, from the signature and the return type of its function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter

_NAMED = frozenset({"properties", "$defs"})
"""Keywords whose keys are names that we chose, not keywords: a property may be called `title`."""

_LITERAL = frozenset({"default", "enum", "const"})


def input_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """The schema of the arguments: descriptions and bounds stay, generated titles and null defaults go."""
    schema: dict[str, Any] = _without(
        arguments.model_json_schema(), lambda key, value: key == "title" or (key == "default" and value is None)
    )
    return schema


def output_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """The schema of the result, as short as it can be: shapes and types, no titles, descriptions or defaults.

    Objects stay open, so that a client with a cached list of tools accepts the fields of a newer server.
    """
    annotation = get_type_hints(function, include_extras=True)["return"]
    schema: dict[str, Any] = _without(
        TypeAdapter(annotation).json_schema(mode="serialization"),
        lambda key, value: key in {"title", "description", "default"} or (key == "additionalProperties" and value is False),
    )
    return schema


def _without(schema: Any, drop: Callable[[str, Any], bool]) -> Any:
    if isinstance(schema, list):
        return [_without(item, drop) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED:
            kept[key] = {name: _without(inner, drop) for name, inner in value.items()}
        elif not drop(key, value):
            kept[key] = value if key in _LITERAL else _without(value, drop)
    return kept
