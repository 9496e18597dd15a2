"""Call a tool with plain arguments: checked against its signature, with errors in our words."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

from annotated_types import MaxLen
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from quintain.errors import InvalidInput, UnknownField
from quintain.next_step import Hint, ToolCall
from quintain.records.text import require_clean
from quintain.records.wording import CHOICES, explain, list_names, nearest, shown, valid_fields
from quintain.tools.catalog import ToolSpec

if TYPE_CHECKING:
    from quintain.tools.services import Services

MAX_ENTRIES = 10_000
"""Maximum number of entries of a list argument without its own bound."""

MAX_FIELDS = 200
"""Maximum number of fields of an object argument without its own bound."""


def call(services: Services, spec: ToolSpec, arguments: Mapping[str, Any]) -> Any:
    """Check the arguments and run the tool; every face of the catalog checks them here."""
    return spec.function(services, **check(spec, arguments))


def check(spec: ToolSpec, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as the tool takes them; nothing is run.

    Some clients send objects and lists as JSON strings: a string that is not a valid value is parsed as JSON.
    """
    model = arguments_model(spec)
    refuse_unknown(spec.name, arguments, model.model_fields)
    require_clean(dict(arguments), "arguments")
    try:
        try:
            checked = model.model_validate(dict(arguments))
        except ValidationError as error:
            parsed = _with_json_strings_parsed(arguments, {str(one["loc"][0]) for one in error.errors() if one["loc"]})
            if parsed == arguments:
                raise
            require_clean(parsed, "arguments")
            checked = model.model_validate(parsed)
    except ValidationError as error:
        raise _invalid(spec.name, error, model) from None
    return {name: getattr(checked, name) for name in checked.model_fields_set}


def _with_json_strings_parsed(arguments: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    parsed = dict(arguments)
    for name in names & arguments.keys():
        if isinstance(arguments[name], str):
            try:
                value = json.loads(arguments[name])
            except (ValueError, RecursionError):
                continue
            if isinstance(value, (dict, list)):
                parsed[name] = value
    return parsed


def _invalid(tool: str, error: ValidationError, model: type[BaseModel]) -> InvalidInput:
    """Return the error of wrong arguments, with the bounds of the first one at fault, or else what it is for."""
    from quintain.tools.training.methods import inline_definitions  # few calls are wrong

    fault = error.errors(include_url=False)[0]
    name = str(fault["loc"][0]) if fault["loc"] else ""
    fields = valid_fields(error, model)
    # The schema of a whole object does not help against a wrong value within it, and some messages list the valid values.
    stated = len(fault["loc"]) > 1 or {"error", "pattern"} & {*fault.get("ctx", {})}
    schema = {} if stated else inline_definitions(model.model_json_schema()).get("properties", {}).get(name, {})
    bounds = fields or ("" if fault["type"] in CHOICES else _bounds(schema))
    about = f"; `{name}`: {schema['description'].removesuffix('.')}" if "description" in schema else ""
    valid = f"; valid `{name}`: {bounds}" if bounds else about
    return InvalidInput(
        Hint(
            f"{explain(error, 'arguments', fields.split(', '))}{valid}; correct it and call ",
            ToolCall(tool, {}),
            " again",
        )
    )


def _bounds(schema: Mapping[str, Any]) -> str:
    """Describe the valid values of an argument (of an object: its fields) briefly; empty without a bound, or with several types."""
    if "anyOf" in schema:
        branches = [branch for branch in schema["anyOf"] if branch.get("type") != "null"]
        return _bounds(branches[0]) if len(branches) == 1 else ""
    for names in ("enum", "properties"):
        if names in schema:
            return ", ".join(map(str, schema[names]))
    if "const" in schema:
        return str(schema["const"])
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{low}..{high}"
    limits = [("at least", low), ("above", schema.get("exclusiveMinimum"))]
    limits += [("at most", high), ("below", schema.get("exclusiveMaximum"))]
    return ", ".join(f"{word} {bound}" for word, bound in limits if bound is not None)


def refuse_unknown(tool: str, arguments: Mapping[str, Any], valid: Mapping[str, Any]) -> None:
    """Refuse arguments that nothing reads.

    Raises:
        UnknownField: names them, the valid name near each, and all valid names.
    """
    unknown = [name for name in arguments if name not in valid]
    if unknown:
        names = list_names([f"{shown(name)}{nearest(name, valid)}" for name in unknown])
        raise UnknownField(
            f"{tool} has no argument {names}; valid: {', '.join(valid)}",
            code="unknown_argument",
        )


@cache
def arguments_model(spec: ToolSpec) -> type[BaseModel]:
    """The arguments of a tool as a pydantic model, read from its signature less `services`.

    Every list and object in them has a greatest length: its own, or `MAX_ENTRIES` and `MAX_FIELDS`.
    """
    hints = get_type_hints(spec.function, include_extras=True)
    fields: dict[str, Any] = {
        name: (
            with_length_bounds(hints[name]),
            ... if parameter.default is inspect.Parameter.empty else parameter.default,
        )
        for name, parameter in inspect.signature(spec.function).parameters.items()
        if name != "services"
    }
    return create_model(f"{spec.name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)


def with_length_bounds(hint: Any, *, own: bool = False) -> Any:
    """Return a type whose lists and objects, nested ones too, have a greatest length where they set none.

    `own`: whether the annotation around it sets one.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind, *notes = inner
        limits = (limit for note in notes for limit in getattr(note, "metadata", ()))
        return Annotated[
            (with_length_bounds(kind, own=own or any(isinstance(limit, MaxLen) for limit in limits)), *notes)
        ]
    if origin in (Union, UnionType):
        return reduce(or_, (with_length_bounds(member, own=own) for member in inner))
    if origin not in (list, tuple, dict):
        return hint
    members = origin[tuple(map(with_length_bounds, inner))]
    return members if own else Annotated[members, Field(max_length=MAX_FIELDS if origin is dict else MAX_ENTRIES)]
