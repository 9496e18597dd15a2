"""Typed access to values of logs, times and token counts among them: a value of another type is absent, and nothing raises."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Container, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from quintain.errors import InvalidInput
from quintain.records.text import require_clean

_JSON = json.JSONEncoder(ensure_ascii=False)

MAX_SMALL = 2000
"""Characters of JSON up to which a field is kept in `extra` or in a task's metadata."""

_MAX_LITERAL = 2**20
"""Characters of a text that may be a Python value: parsing one takes much memory."""

SHORT_CHARS = 200
"""Characters up to which a column of a row is kept in `extra.row`; a longer one is prose."""


def as_dict(value: Any) -> dict[str, Any]:
    """Return the object, or {}."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the list, or []."""
    return value if isinstance(value, list) else []


def dicts_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_text(value: Any) -> str:
    """Return the string, or ""."""
    return value if isinstance(value, str) else ""


def nonblank(*values: Any) -> str | None:
    """Return the first string that is not blank, or None."""
    for value in values:
        if isinstance(value, str) and value.strip():
            return value
    return None


def as_written(value: Any) -> str | None:
    """Return a string that is not blank, or a number as JSON writes it: the answer 18 is the text 18."""
    return nonblank(value) if as_number(value) is None else to_text(value)


def as_name(value: Any) -> str | None:
    """Return an id or name: a string that is not blank, or an integer as a string."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return str(value)
    return nonblank(value)


def as_number(value: Any) -> float | None:
    """Return a finite number; a boolean is not a number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        known = float(value)
    except OverflowError:
        return None
    return known if math.isfinite(known) else None


def as_score(value: Any) -> float | None:
    """Return a score: a finite number, or 1 and 0 for booleans."""
    return float(value) if isinstance(value, bool) else as_number(value)


def score_fields(fields: Mapping[str, Any]) -> dict[str, float]:
    """Return the fields that are scores."""
    return {key: known for key, value in fields.items() if (known := as_score(value)) is not None}


def as_count(value: Any) -> int | None:
    """Return a non-negative integer, also from a float or digits."""
    if type(value) is int:
        return value if 0 <= value < 2**53 else None
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 16 else None
    known = as_number(value)
    return int(known) if known is not None and 0 <= known < 2**53 and known == int(known) else None


def parse_json_text(value: Any, mark: str = "") -> Any:
    """Parse a string that is a JSON object or array and contains the mark; return any other value unchanged."""
    if not isinstance(value, str) or mark not in value or value.lstrip()[:1] not in {"{", "["}:
        return value
    try:
        known = json.loads(value, parse_constant=refuse_constant)
        require_clean(known, "value")
    except (ValueError, RecursionError, InvalidInput):
        return value
    return known


def parse_python_text(text: str) -> Any:
    """Parse a text that is a list or an object as Python writes it; return any other text unchanged."""
    if text[:1] + text[-1:] not in ("[]", "{}") or len(text) > _MAX_LITERAL:
        return text
    try:
        return parse_json_text(json.dumps(ast.literal_eval(text)))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return text


def transpose_columns(value: Any) -> Any:
    """Convert an object of lists, as Arrow stores a sequence of structs, back to a list of objects."""
    value = parse_json_text(value)
    if not isinstance(value, dict) or not value or not all(isinstance(column, list) for column in value.values()):
        return value
    if len({len(column) for column in value.values()}) > 1:
        return value
    return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]


def text_chars(value: Any) -> int:
    """Return the number of characters in the texts of a JSON value, without the keys."""
    size, stack = 0, [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, tuple | list):
            stack += item
    return size


def to_text(value: Any) -> str:
    """Return strings unchanged, None as "", and other values as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return _JSON.encode(value)


def text_fields(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that are strings and not blank."""
    return {key: value for key, value in fields.items() if nonblank(value)}


def short_fields(fields: Mapping[str, Any], limit: int = MAX_SMALL, *, without: Container[str] = ()) -> dict[str, Any]:
    """Return the non-empty fields that are short enough to keep."""
    kept = {key: value for key, value in fields.items() if value not in (None, "", [], {}) and key not in without}
    kept = {key: value for key, value in kept.items() if len(key) <= 200}
    return {key: value for key, value in kept.items() if len(to_text(value)) <= limit}


def refuse_constant(constant: str) -> NoReturn:
    """Refuse NaN and infinities, which JSON does not have.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{constant} is not JSON")


def parse_time(value: Any) -> datetime | None:
    """Parse ISO 8601 or seconds, milli-, micro- or nanoseconds since 1970 to UTC; None for other values."""
    if isinstance(value, datetime):
        return value
    try:
        if isinstance(value, str) and value.isascii() and value.isdigit() and 9 < len(value) < 25:
            value = int(value)
        if isinstance(value, str):
            read = datetime.fromisoformat(value)
            return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            per_second = next((10**n for n, bound in ((9, 1e17), (6, 1e14), (3, 1e11)) if value > bound), 1)
            return datetime.fromtimestamp(value / per_second, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


_WHOLE = ("prompt_tokens", "promptTokens", "promptTokenCount", "prompt_token_count", "inputUsage", "prompt")
"""Input tokens that include cached tokens."""
_FRESH = ("input_tokens", "inputTokens", "input", "inputOther", "input_other", "tokensIn")
"""Input tokens; records that count the cache separately exclude it here."""
_CACHED = (
    *("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens_cache_read", "input_tokens_cache_write"),
    *("cacheReadInputTokens", "cacheWriteInputTokens", "cacheCreationInputTokens", "cacheRead", "cacheWrite"),
    *("inputCacheRead", "inputCacheCreation", "input_cache_read", "input_cache_creation", "cacheReads", "cacheWrites"),
)
_OUTPUT = (
    *("output_tokens", "completion_tokens", "outputTokens", "completionTokens", "candidatesTokenCount"),
    *("candidates_token_count", "outputUsage", "output", "completion", "tokensOut"),
)
_THOUGHT = ("thoughts", "reasoning", "thoughtsTokenCount", "thoughts_token_count")
"""Output tokens of thoughts, where they are counted apart from the answer."""


def parse_usage(*counts: Any) -> dict[str, int | None] | None:
    """Return input (cached tokens included) and output tokens as in `Usage`, from the first object with counts."""
    for fields in filter(None, map(as_dict, counts)):
        input_tokens = _first(fields, _WHOLE)
        if input_tokens is None:
            cache = as_dict(fields.get("cache"))
            cached = [fields[key] for key in _CACHED if key in fields] + [cache.get("read"), cache.get("write")]
            input_tokens = _sum(_first(fields, _FRESH), *cached)
        output = _first(fields, _OUTPUT)
        output = _sum(output, *(fields[key] for key in _THOUGHT if key in fields)) if output is not None else None
        if input_tokens is not None or output is not None:
            return {"input_tokens": input_tokens, "output_tokens": output}
    return None


def total_usage(counts: list[Any]) -> dict[str, int | None] | None:
    """Return the sum of several turns."""
    known = [usage for fields in counts if (usage := parse_usage(fields))]
    return {key: _sum(*(usage[key] for usage in known)) for key in known[0]} if known else None


def _first(fields: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:  # a loop, for this is asked of every turn
        if key in fields and (n := as_count(fields[key])) is not None:
            return n
    return None


def _sum(*counts: Any) -> int | None:
    known = [n for value in counts if value is not None and (n := as_count(value)) is not None]
    return sum(known) if known else None
