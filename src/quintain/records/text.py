"""Check values for what cannot be stored, and make texts printable."""

from __future__ import annotations

import math
import re
from typing import Any

from quintain.errors import InvalidInput

MAX_DEPTH = 100
"""Levels of nesting that a value from outside may have."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that steer a terminal or reverse text direction, and invalid characters."""


def printable(text: str) -> str:
    """Replace control characters by U+FFFD, so that a text cannot steer a terminal."""
    return _CONTROL.sub("\ufffd", text)


def require_clean(value: Any, where: str) -> int:
    """Walk a JSON-like value and refuse what the store and the protocol cannot carry.

    Args:
        value: Anything that `json.loads` or a caller's dict can hold.
        where: The name that error messages give to the root of the value, such as `trajectory`.

    Returns:
        Number of characters of text, without names of fields.

    Raises:
        InvalidInput: a lone surrogate, NaN or Infinity, or nesting deeper than `MAX_DEPTH`, with its path.
    """
    size = _size_if_clean(value)
    if size is None:
        _name_the_fault(value, where)
    return size or 0


def _name_the_fault(value: Any, where: str) -> None:
    stack: list[tuple[Any, str, int]] = [(value, where, 0)]
    while stack:
        item, path, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise InvalidInput(
                f"{where} is nested deeper than {MAX_DEPTH} levels; flatten it or pass the inner part as a JSON string",
                code="too_deep",
            )
        if isinstance(item, str):
            _require_unicode(item, path)
        elif isinstance(item, float) and not math.isfinite(item):
            raise InvalidInput(
                f"{path} is {item}; numbers must be finite: leave the field out (null) where the value is unknown",
                code="not_finite",
            )
        elif isinstance(item, dict):
            for key, inner in item.items():
                if isinstance(key, str):
                    _require_unicode(key, f"a key of {path}")
                stack.append((inner, f"{path}.{key}", depth + 1))
        elif isinstance(item, (list, tuple)):
            stack.extend((inner, f"{path}[{i}]", depth + 1) for i, inner in enumerate(item))


def _size_if_clean(value: Any) -> int | None:
    """Characters of text in a clean value, else None: nearly every value is clean, and none of its paths is needed."""
    size = 0
    stack: list[tuple[Any, int]] = [((value,), -1)]
    while stack:
        container, depth = stack.pop()
        if depth >= MAX_DEPTH and container:
            return None
        if isinstance(container, dict):
            try:
                names = "".join(container)
            except TypeError:
                names = "".join([name for name in container if isinstance(name, str)])
            if not names.isascii() and not _is_unicode(names):
                return None
            container = container.values()
        for item in container:
            if item is None or item is True or item is False:
                continue
            if isinstance(item, str):
                if not item.isascii() and not _is_unicode(item):
                    return None
                size += len(item)
            elif isinstance(item, (dict, list, tuple)):
                stack.append((item, depth + 1))
            elif isinstance(item, float) and not math.isfinite(item):
                return None
    return size


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _require_unicode(text: str, path: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{path} contains a lone surrogate (U+{ord(text[error.start]):04X}) at character {error.start}, which is not "
            "Unicode text; replace it by U+FFFD, or cut the text at a whole character",
            code="lone_surrogate",
        ) from None
