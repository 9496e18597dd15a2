"""JSON schemas of a tool, from its arguments and the return type of its function, as short as they can be.

Every client sends all of them to its model at the start of every conversation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter

Schema = dict[str, Any]

_NAMED = frozenset({"properties", "$defs"})
"""Keywords whose keys are names that we chose, not keywords: a property may be called `title`."""

_LITERAL = frozenset({"default", "enum", "const", "required"})


def input_schema(arguments: type[BaseModel]) -> Schema:
    """The schema of the arguments: descriptions and bounds stay, generated titles go.

    An optional argument is shown without its null branch, which some hosts cannot read; null is accepted all the same.
    """
    schema: Schema = _rewritten(arguments.model_json_schema(), _shorter_argument)
    return schema


def output_schema(function: Callable[..., Any], *, brief: bool = False) -> Schema:
    """The schema of the result: the names and types of its fields, and where choices are few, the choices.

    What is inside of lists and objects, titles, descriptions and bounds are left out: in full, results would take half of the
    list of tools. Objects stay open, so that a client with a cached list of tools accepts the fields of a newer server. A
    result that another tool spells out is told by the names that it always has.
    """
    annotation = get_type_hints(function, include_extras=True)["return"]
    full = TypeAdapter(annotation).json_schema(mode="serialization")
    if brief:
        return {"type": "object", "required": full["required"]}
    records = full.get("$defs", {})
    return {
        "type": "object",
        "properties": {name: _outline(field, records) for name, field in full["properties"].items()},
    }


def _outline(field: Schema, records: Schema) -> Schema:
    """A field's type, null among its types where it can be null; its choices if it has any."""
    if "$ref" in field:
        field = records[field["$ref"].rpartition("/")[2]]
    if "anyOf" in field:
        types = [_outline(branch, records).get("type") for branch in field["anyOf"]]
        return {"type": types} if all(isinstance(one, str) for one in types) else {}
    return {key: field[key] for key in ("enum", "type") if key in field}


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
    rest = {key: value for key, value in schema.items() if key != "title"}
    if "default" in rest and rest["default"] is None:
        del rest["default"]
        others = [branch for branch in rest.pop("anyOf", []) if branch.get("type") != "null"]
        rest = {**others[0], **rest} if len(others) == 1 else {"anyOf": others, **rest} if others else rest
    return rest
