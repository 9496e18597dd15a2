"""Advice that names tools: the calls are data, rendered for each reader (MCP, dict calls, terminal)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


WRITTEN = "written"
"""Key in the context of a serialization: how calls in hints are written, as `Hint.render` takes it."""


@dataclass(frozen=True)
class ToolCall:
    """One tool with its arguments; `...` marks an argument whose value the caller has to choose."""

    tool: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        """Return the call in Python syntax: `get_job(job_id='job-1', wait_s=30)`."""
        if not self.arguments:
            return self.tool
        arguments = ", ".join(f"{name}={_literal(value)}" for name, value in self.arguments.items())
        return f"{self.tool}({arguments})"


class Hint(str):
    """A text with calls of tools in it. As a string it has the calls in Python syntax; `parts` keeps them as data.

    Being a string, it passes through JSON and through code that knows nothing of calls. An f-string keeps only the text:
    put a hint together as `Hint("Follow it with ", call("get_job", job_id=id), ".")`.
    """

    parts: tuple[str | ToolCall, ...]

    def __new__(cls, *parts: str | ToolCall) -> Self:
        """Join texts, calls and other hints."""
        flat: list[str | ToolCall] = []
        for part in parts:
            flat.extend(part.parts if isinstance(part, Hint) else (part,))
        hint = super().__new__(cls, "".join(map(str, flat)))
        hint.parts = tuple(flat)
        return hint

    def __getnewargs__(self) -> tuple[str | ToolCall, ...]:  # type: ignore[override]
        return self.parts

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls, in their order in the text."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    def split_once(self, separator: str) -> tuple[str, Hint]:
        """Return the text before the first separator, and what follows it with its calls; empty without a separator."""
        for place, part in enumerate(self.parts):
            if isinstance(part, str) and separator in part:
                before, _, after = part.partition(separator)
                return str(Hint(*self.parts[:place], before)), Hint(after, *self.parts[place + 1 :])
        return str(self), Hint("")

    def render(self, written: Callable[[ToolCall], str]) -> str:
        """Return the text with each call as `written` gives it."""
        return "".join(part if isinstance(part, str) else written(part) for part in self.parts)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        def validate(value: Any, text: Callable[[Any], str]) -> Hint:
            return value if isinstance(value, Hint) else Hint(text(value))

        def serialize(value: Any, info: Any) -> str:
            written = (info.context or {}).get(WRITTEN)
            return value.render(written) if written is not None and isinstance(value, Hint) else value

        return core_schema.no_info_wrap_validator_function(
            validate,
            core_schema.str_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(
                serialize, info_arg=True, return_schema=core_schema.str_schema()
            ),
        )


def call(tool: str, /, **arguments: Any) -> ToolCall:
    """Return the call of a tool; arguments that are None are left out."""
    return ToolCall(tool, {name: value for name, value in arguments.items() if value is not None})


def join_hints(separator: str, hints: list[Hint]) -> Hint:
    """Join hints with a text between them."""
    parts: list[str | ToolCall] = []
    for place, hint in enumerate(hints):
        parts += [separator, *hint.parts] if place else hint.parts
    return Hint(*parts)


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return "..." if value is ... else repr(value)
