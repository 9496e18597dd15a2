"""Check values for what cannot be stored, and make texts printable."""

from __future__ import annotations

import math
import re
from typing import Any

from quintain.errors import InvalidInput

MAX_DEPTH = 100
"""Levels of nesting that a value from outside may have."""

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that steer a terminal or reverse text direction, tags (a text that nobody sees), and invalid characters."""


def printable(text: str) -> str:
    """Replace control characters by U+FFFD, so that a text cannot steer a terminal; a line may end as in Windows."""
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


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
    size = 0
    stack: list[tuple[Any, str, int]] = [((value,), "", -1)]
    while stack:
        container, path, depth = stack.pop()
        if depth >= MAX_DEPTH and container:
            raise InvalidInput(
                f"{where} is nested deeper than {MAX_DEPTH} levels; flatten it or pass the inner part as a JSON string",
                code="too_deep",
            )
        in_object = isinstance(container, dict)
        for key, item in container.items() if in_object else enumerate(container):
            if in_object and isinstance(key, str) and not key.isascii():
                _require_unicode(key, f"a key of {path}")
            if item is None or item is True or item is False:
                continue
            if isinstance(item, str):
                size += len(item)
                if not item.isascii():
                    _require_unicode(item, _path(path, key, where, in_object=in_object))
            elif isinstance(item, (dict, list, tuple)):
                stack.append((item, _path(path, key, where, in_object=in_object), depth + 1))
            elif isinstance(item, float) and not math.isfinite(item):
                raise InvalidInput(
                    f"{_path(path, key, where, in_object=in_object)} is {item}; numbers must be finite: leave the field out "
                    "(null) where the value is unknown",
                    code="not_finite",
                )
    return size


def _path(outer: str, key: Any, where: str, *, in_object: bool) -> str:
    """Return the path of a member of a container; `where` is that of the root."""
    if not outer:
        return where
    return f"{outer}.{key}" if in_object else f"{outer}[{key}]"


def _require_unicode(text: str, path: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{path} contains a lone surrogate (U+{ord(text[error.start]):04X}) at character {error.start}, which is not "
            "Unicode text; replace it by U+FFFD, or cut the text at a whole character",
            code="lone_surrogate",
        ) from None
