"""Call a tool with plain arguments: checked against its signature, with errors in our words."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

from annotated_types import MaxLen
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from quintain.errors import InvalidInput, UnknownField
from quintain.records.record import explain, nearest, shown, valid_fields
from quintain.records.text import require_clean
from quintain.tools.spec import ToolSpec

if TYPE_CHECKING:
    from quintain.tools.services import Services

MAX_ENTRIES = 10_000
"""Entries of a list argument that sets no bound of its own."""

MAX_FIELDS = 200
"""Fields of an object argument that sets no bound of its own."""


def call(services: Services, spec: ToolSpec, arguments: Mapping[str, Any]) -> Any:
    """Check the arguments and run the tool.

    Raises:
        UnknownField: an argument that the tool does not have; names the valid ones and the nearest.
        InvalidInput: a value of the wrong type or out of bounds, or text that is not Unicode.
    """
    return spec.function(services, **check(spec, arguments))


def check(spec: ToolSpec, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the tool takes them; nothing is run.

    Raises:
        UnknownField: as `call`.
        InvalidInput: as `call`.
    """
    require_clean(dict(arguments), "arguments")
    model = arguments_model(spec)
    refuse_unknown(spec.name, arguments, model.model_fields)
    try:
        checked = model.model_validate(dict(arguments))
    except ValidationError as error:
        fields = valid_fields(error, model)
        raise InvalidInput(
            f"{explain(error, spec.name, fields.split(', '))}{'; valid: ' if fields else ''}{fields}"
        ) from None
    return {name: getattr(checked, name) for name in checked.model_fields_set}


def refuse_unknown(tool: str, arguments: Mapping[str, Any], valid: Mapping[str, Any]) -> None:
    """Refuse arguments that nothing reads.

    Raises:
        UnknownField: names them, the nearest valid name and all valid names.
    """
    unknown = [name for name in arguments if name not in valid]
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        raise UnknownField(
            f"{tool} has no argument {', '.join(map(shown, unknown[:3]))}{more}{nearest(unknown[0], valid)}; "
            f"valid: {', '.join(valid)}",
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

    Args:
        hint: An annotation.
        own: Whether the annotation around it sets a greatest length.
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
