"""JSON schemas of a tool, from its arguments and the return type of its function, as short as they can be.

Every client sends all of them to its model at the start of every conversation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter

from quintain.tools.invocation import MAX_ENTRIES
from quintain.tools.training.methods import inline_definitions

Schema = dict[str, Any]

_NAMED = frozenset({"properties", "$defs"})
"""Keywords whose keys are names that we chose, not keywords: a property may be called `title`."""

_LITERAL = frozenset({"default", "enum", "const", "required"})

_COMMON = frozenset({"next_step", "resource_uri"})
"""Fields of many results, which the instructions name once."""

_LEFT_OUT = frozenset({"title", "minLength", "maxLength", "maxProperties"})

_UPPER_BOUNDS = ("maximum", "maxItems")

_FAR = 10_000
"""Upper bounds from here on protect the machine. The server checks them, and no caller chooses a value by them."""

_PLAIN = tuple({"type": name} for name in ("string", "array", "object", "null"))
"""Outlines that say nothing of a result that its reader does not see: texts, and lists and objects without their members."""

_USUAL = (("additionalProperties", True), ("maxItems", MAX_ENTRIES))
"""Keywords that add nothing: objects are open, and every list has this bound unless it sets its own."""


def input_schema(arguments: type[BaseModel]) -> Schema:
    """The schema of the arguments: descriptions and bounds stay; titles, far upper bounds and deprecated arguments go.

    An optional argument is shown without its null branch, and what is defined apart in its place: some hosts cannot read the
    one or follow the other. Null is accepted all the same.
    """
    schema: Schema = _rewritten(inline_definitions(arguments.model_json_schema()), _shorter_argument)
    arguments_listed = {name: part for name, part in schema["properties"].items() if not part.get("deprecated")}
    return {**schema, "properties": arguments_listed}


def output_schema(function: Callable[..., Any]) -> Schema:
    """Return the schema of the result: the names of its fields, the types of numbers and switches, and choices where they are few.

    Members of lists and objects, titles, descriptions and bounds are left out: full schemas would take half of the list of
    tools. `next_step` is left out too, because the instructions name it for every answer. Objects stay open, so that a client
    with a cached list of tools accepts the fields of a newer server. A text, a list, an object, and a field that can be null
    and so has no single type, is only named, among the required ones. A result that another tool describes in full lists only
    its required names.
    """
    annotation = get_type_hints(function, include_extras=True)["return"]
    full = TypeAdapter(annotation).json_schema(mode="serialization")
    records = full.get("$defs", {})
    outlines = {name: _outline(field, records) for name, field in full["properties"].items() if name not in _COMMON}
    schema: Schema = {"type": "object"}
    if typed := {name: part for name, part in outlines.items() if part}:
        schema["properties"] = typed
    if untyped := [name for name, part in outlines.items() if not part]:
        schema["required"] = untyped
    return schema


def _outline(field: Schema, records: Schema) -> Schema:
    """A field's type and its choices if it has any; nothing for plain ones, and for several types, which not every host reads."""
    if "$ref" in field:
        field = records[field["$ref"].rpartition("/")[2]]
    outline: Schema = {key: field[key] for key in ("enum", "type") if key in field}
    return {} if outline in _PLAIN else outline


def _rewritten(schema: Any, shorten: Callable[[Schema], Schema]) -> Any:
    """Apply `shorten` to every schema in a schema, innermost first."""
    if isinstance(schema, list):
        return [_rewritten(item, shorten) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner: Schema = {}
    for key, value in schema.items():
        if key in _NAMED:
            inner[key] = {name: _rewritten(part, shorten) for name, part in value.items()}
        else:
            inner[key] = value if key in _LITERAL else _rewritten(value, shorten)
    return shorten(inner)


def _shorter_argument(schema: Schema) -> Schema:
    rest = {key: value for key, value in schema.items() if key not in _LEFT_OUT and (key, value) not in _USUAL}
    rest = {key: value for key, value in rest.items() if key not in _UPPER_BOUNDS or value < _FAR}
    branches = rest.pop("anyOf", [])
    if "default" in rest and rest["default"] is None:
        del rest["default"]
        branches = [branch for branch in branches if branch.get("type") != "null"]
    if not branches:
        return rest
    return {**(branches[0] if len(branches) == 1 else {"anyOf": branches}), **rest}
