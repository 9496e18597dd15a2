"""Records as the two channels of a result carry them: compact JSON text and the same facts as plain values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError

from quintain.next_step import WRITTEN, ToolCall
from quintain.records.record import Record

_SURROGATE = re.compile("[\ud800-\udfff]")


class Facts(NamedTuple):
    """One record in both channels: `text` is one line of JSON, `values` is what that line parses to."""

    text: str
    values: dict[str, Any]


def scrub(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD: one of them in an answer would end the connection."""
    return _SURROGATE.sub("\ufffd", text)


def facts(record: Record, written: Callable[[ToolCall], str] = str) -> Facts:
    """Return the facts of a record for a result; numbers that are not finite are null, and hints name calls as `written`."""
    context = {WRITTEN: written}
    try:
        text = record.model_dump_json(context=context)
    except PydanticSerializationError:
        values = record.model_dump(mode="json", context=context)
        text = scrub(json.dumps(values, ensure_ascii=False, separators=(",", ":")))
    return Facts(text, json.loads(text))
