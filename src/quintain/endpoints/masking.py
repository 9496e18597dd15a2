"""Mask an endpoint's key in its answers: a server, or a proxy before it, may echo requests."""

from __future__ import annotations

import json
import re

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
        """What went wrong without the key and without parts of it of 8 characters or more: who reports a key may cut it."""
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
