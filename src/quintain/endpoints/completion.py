"""What is asked of a chat endpoint and what it answers, whatever its protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quintain.records.record import Record
from quintain.records.seams import Message, Stop
from quintain.records.trajectory import Action, Usage


class Said(Message):
    """An answer of the model as a message of the conversation that goes on."""

    kept: tuple[dict[str, Any], ...] = ()
    """Blocks that the protocol wants back unchanged, such as signed thinking."""


class Ask(Record):
    """One request for a completion."""

    messages: tuple[Message, ...]
    temperature: float = 0.0
    max_tokens: int | None = None
    """None: what the endpoint's profile says."""
    tools: tuple[dict[str, Any], ...] = ()
    """OpenAI function style, for both protocols."""
    top_p: float = 1.0
    """1 is off, and is not sent."""
    stop: tuple[str, ...] = ()
    """Texts at which the model shall stop."""


class Completion(Record):
    """One answer."""

    text: str
    thought: str | None = None
    actions: tuple[Action, ...] = ()
    stop: Stop = Stop.END
    usage: Usage = Usage()
    model: str | None = None
    blocked: bool = False
    """Did the endpoint's own filter keep the answer back?"""
    kept: tuple[dict[str, Any], ...] = ()
    """As `Said.kept`."""


class BadAnswer(ValueError):
    """A body is not what the protocol promises; the client makes it a fault of ours."""


def require_object(value: object, what: str) -> Mapping[str, Any]:
    """The value where it is a JSON object.

    Raises:
        BadAnswer: it is something else.
    """
    if not isinstance(value, Mapping):
        raise BadAnswer(f"{what} is no object")
    return value


def tokens(given: object, *names: str) -> int | None:
    """A count of tokens by one of its names; None where there is none."""
    counts: Sequence[object] = [given.get(name) for name in names] if isinstance(given, Mapping) else ()
    return next((n for n in counts if isinstance(n, int) and not isinstance(n, bool) and n >= 0), None)
