"""Errors of endpoints: retry, give up on this request or on all, with the key masked: a server, or a proxy before it, may echo it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from quintain.errors import InvalidInput, QuintainError, Refused, Unavailable

MASK = "[the key]"
PLACEHOLDER_BELOW = 7
"""Shorter keys are placeholders of servers that want any (`EMPTY`, `ollama`): an answer with such a word is left as it is."""
_LEAST_PART = 8


class KeyMask:
    """Hides a key, plain or as JSON escapes it (RFC 8259, 7), however often a text was encoded as JSON."""

    def __init__(self, key: str | None) -> None:
        """Know the key, of printable ASCII; None: nothing is hidden."""
        self._key = key or ""
        self._whole = re.compile("".join(map(_escaped_or_not, self._key)))

    def in_answer(self, body: bytes) -> str:
        """The body of an answer without the key; JSON stays JSON.

        Raises:
            ValueError: the body is not text.
        """
        text = body.decode(json.detect_encoding(body), "surrogatepass")
        return self._whole.sub(MASK, text) if len(self._key) >= PLACEHOLDER_BELOW else text

    def in_error(self, text: str) -> str:
        """Return a text without the key and without parts of it of 8 characters or more: who reports a key may cut it."""
        if not self._key:
            return text
        text = self._whole.sub(MASK, text)
        least = min(_LEAST_PART, len(self._key))
        starts = {self._key[i : i + least] for i in range(len(self._key) - least + 1)}
        parts: list[str] = []
        at = kept = 0
        while at <= len(text) - least:
            end = at + least
            if text[at:end] not in starts:
                at += 1
                continue
            while end < len(text) and text[at : end + 1] in self._key:
                end += 1
            parts += text[kept:at], MASK
            at = kept = end
        return "".join((*parts, text[kept:]))


def _escaped_or_not(char: str) -> str:
    r"""A pattern of a character, of its escape `\u002d`, and of `\"`, `\\` and `\/`."""
    plain = rf"\\*{re.escape(char)}" if char in '"\\/' else re.escape(char)
    return rf"(?:{plain}|\\+u(?i:{ord(char):04x}))"


BUSY = "endpoint_busy"
"""Code of a request that was tried as often as allowed."""
STOPPED = "stopped"
"""Code of a request that ended because its client was stopped."""
UNANSWERED = frozenset({BUSY, STOPPED, "endpoint_answer", "too_long", "blocked"})
"""Codes of errors that concern one request; the next one may well succeed."""
NOT_TAKEN = "bad_request"
"""Code of a request that the endpoint does not take; where it has taken others, something in this one is to blame."""

_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_TOO_LONG = (
    "context_length",
    "context length",
    "prompt is too long",
    "maximum context",
    "too many tokens",
    "too large",
)
_FILTERED = ("content_filter", "content management policy", "content policy")
_NO_MONEY = ("insufficient_quota", "credit balance", "billing")
_EXCERPT = 200


class Trouble(NamedTuple):
    """An error of an endpoint."""

    error: QuintainError
    again: bool
    """Whether the same request may succeed later."""
    wait_s: float | None = None
    """The wait that the endpoint requests, in seconds."""


def trouble_of(
    name: str, status: int, headers: dict[str, str], body: bytes, now: datetime, hide: Callable[[str], str]
) -> Trouble:
    """Return the error of an HTTP status other than 200.

    Args:
        name: The endpoint's.
        status: The HTTP status.
        headers: Of the answer, names in lower case.
        body: Of the answer.
        now: The moment, for a `Retry-After` that is a date.
        hide: Masks the key in the text of the endpoint.
    """
    message = excerpt(body, hide)
    about = f"endpoint {name!r} answered {status}{f': {message}' if message else ''}"
    low = body[:4000].decode("utf-8", "replace").lower()
    if status == 429 and any(sign in low for sign in _NO_MONEY):
        return Trouble(Refused(f"{about}; the account has no credit left; add credit, then resume the job"), False)
    if status in _AGAIN or status >= 500:
        return Trouble(Unavailable(about, code=BUSY), True, _retry_after(headers.get("retry-after"), now))
    if status == 413 or (status in {400, 422} and any(sign in low for sign in _TOO_LONG)):
        return Trouble(InvalidInput(f"{about}; the request does not fit this model", code="too_long"), False)
    if status in {400, 403} and any(sign in low for sign in _FILTERED):
        return Trouble(InvalidInput(f"{about}; its filter withheld the answer", code="blocked"), False)
    return Trouble(_fatal(status, about), False)


def _fatal(status: int, about: str) -> QuintainError:
    if status in {401, 403}:
        return Refused(f"{about}; check the key in the variable that api_key_env names, and its rights", code="bad_key")
    if status == 404:
        return InvalidInput(f"{about}; check base_url and model in endpoints.toml", code="bad_endpoints")
    if 300 <= status < 400:
        return InvalidInput(
            f"{about}; redirects are not followed: set base_url to where it leads", code="bad_endpoints"
        )
    return InvalidInput(
        f"{about}; it does not take such a request: check model, extra and omit in endpoints.toml (a model that refuses "
        'temperature takes omit = ["temperature"])',
        code=NOT_TAKEN,
    )


def excerpt(body: bytes, hide: Callable[[str], str]) -> str:
    """Return the endpoint's message in one line, masked before it is shortened, as a part of a key is confidential too."""
    text = body[:20_000].decode("utf-8", "replace")
    try:
        document = json.loads(text)
        error = document.get("error", document) if isinstance(document, dict) else document
        message = error.get("message") if isinstance(error, dict) else error
        text = message if isinstance(message, str) else text
    except (ValueError, RecursionError):
        pass
    text = hide(" ".join("".join(c if c.isprintable() else " " for c in text).split()))
    return text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 3]}..."


def reports_failure(body: bytes) -> bool:
    """Whether the body of an answer is an object with `success` false."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("success") is False


def _retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds that a `Retry-After` asks for (RFC 9110, 10.2.3: seconds, or a date)."""
    if value is None:
        return None
    try:
        return max(0.0, float(value)) if value.strip().replace(".", "", 1).isdigit() else _until(value, now)
    except (ValueError, OverflowError):
        return None


def _until(value: str, now: datetime) -> float:
    moment = parsedate_to_datetime(value)
    return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp())
