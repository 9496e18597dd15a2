"""Parse JSON of logs into Unicode text, finite numbers, and values of bounded depth and size."""

from __future__ import annotations

import json
import re
from collections import Counter
from math import isfinite
from typing import Any

from pydantic_core import from_json

from quintain.errors import InvalidInput
from quintain.importers.files.byte_streams import UNDECODABLE
from quintain.records.text import MAX_DEPTH

MAX_VALUES = 10_000_000
"""Limit of commas and opening brackets in a line or document: each value takes up to 100 bytes of memory."""

SURROGATES = "lone surrogates or NUL characters were replaced by U+FFFD"
NOT_FINITE = "numbers outside JSON (NaN, Infinity, or beyond the range of floats) were read as null"

_NO_TEXT = re.compile("[\ud800-\udfff\0]")


class Parser:
    """JSON parser that repairs text and numbers and counts the repairs."""

    def __init__(self, repairs: Counter[str], parsed: dict[bytes, Any] | None = None) -> None:
        """Create a parser that counts into `repairs` and reuses the values in `parsed`, each once."""
        self.repairs, self._parsed = repairs, parsed
        # Raw control characters in strings are taken: programs that write logs by hand forget to escape them.
        self._decoder = json.JSONDecoder(strict=False, parse_constant=self._none, parse_float=self._finite)

    def parse(self, raw: bytes, outer: int = 0) -> Any:
        """Return the value of some bytes, inside `outer` levels of a larger value.

        Bytes that are not UTF-8, lone surrogates and NUL become U+FFFD; NaN and Infinity become null. Each repair is
        counted.

        Raises:
            InvalidInput: not JSON (code `not_json`; `extra_data` after a whole value), too deep, too many values, or an
                integer of too many digits. The message quotes nothing.
        """
        if self._parsed and (known := self._parsed.pop(raw, None)) is not None:
            return known
        if len(raw) > MAX_VALUES and raw.count(b",") + raw.count(b"[") + raw.count(b"{") > MAX_VALUES:
            raise InvalidInput(f"expected at most {MAX_VALUES:,} values", code="too_large")
        value = self._value(raw)
        if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH - outer and _deeper_than(value, MAX_DEPTH - outer):
            raise InvalidInput(f"nested deeper than {MAX_DEPTH} levels", code="too_deep")
        if (b"\\u" in raw and (b"\\ud" in raw or b"\\uD" in raw or b"\\u0000" in raw)) or b"\0" in raw:
            return self._mended(value)
        return value

    def _value(self, raw: bytes) -> Any:
        try:
            # Reads bytes without a copy as text, and shares equal names and short texts of all rows.
            value = from_json(raw, allow_inf_nan=False)
        except ValueError:  # stricter than the decoder below, which repairs, or reports what is wrong
            return self._decoded(self._text(raw))
        return self._decoded(self._text(raw)) if _has_infinity(value) else value

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            text = raw.decode("utf-8", errors="replace")
            self.repairs[UNDECODABLE] += text.count("\ufffd")
            return text

    def _decoded(self, text: str) -> Any:
        try:
            return self._decoder.decode(text)
        except json.JSONDecodeError as error:
            code = "extra_data" if error.msg == "Extra data" else "not_json"
            raise InvalidInput(
                f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos:,}", code=code
            ) from None
        except RecursionError:
            raise InvalidInput(f"nested deeper than {MAX_DEPTH} levels", code="too_deep") from None
        except ValueError:  # Python reads no integers of more than 4,300 digits
            raise InvalidInput("expected integers of at most 4,300 digits", code="not_json") from None

    def _none(self, constant: str) -> None:
        self.repairs[NOT_FINITE] += 1

    def _finite(self, digits: str) -> float | None:
        if isfinite(number := float(digits)):
            return number
        self._none(digits)
        return None

    def _mended(self, value: Any) -> Any:
        """Return the value with U+FFFD in place of invalid characters; its depth is already bounded."""
        if isinstance(value, str):
            text, n = _NO_TEXT.subn("\ufffd", value)
            if n:
                self.repairs[SURROGATES] += n
            return text
        if isinstance(value, dict):
            return {self._mended(key): self._mended(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._mended(inner) for inner in value]
        return value


def _has_infinity(value: Any) -> bool:
    """Whether a number was beyond the range of floats."""
    stack = [[value]]
    while stack:
        items = stack.pop()
        for item in items:
            kind = type(item)
            if kind is dict:
                stack.append(item.values())
            elif kind is list:
                stack.append(item)
            elif kind is float and not isfinite(item):
                return True
    return False


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
