"""Spellings of control tokens in text.

Text of people or tools can contain the spelling of a control token (`<|im_end|>`), by accident or as an injection. It must
never become a control token. So `Spellings.defuse` inserts `CUT` after the first character of such spellings before the chat
template sees them, and `Spellings.encode` tokenises the pieces separately.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

CUT = "\ufdd0"
"""A Unicode noncharacter, meant for internal use; in stored text it is replaced by U+FFFD."""
_ANCHOR = "\n"
_TAIL = 100
"""Characters at the end of a text among which its last control token is looked for."""


@dataclass(frozen=True)
class Spellings:
    """The control tokens of one tokenizer and chat template."""

    own: re.Pattern[str]
    """For the agent's text: special tokens only, because tags such as `<think>` may be its own."""
    foreign: re.Pattern[str]
    """For all other text: special tokens, and added tokens that the template uses."""
    end: re.Pattern[str]
    """A special token followed by white space alone."""

    first: re.Pattern[str]
    """A special token."""
    begins_with_space: bool = False
    """Whether the tokenizer puts a space before a text, as that of Llama 2 does: it belongs to the start alone."""

    @staticmethod
    def of(tokenizer: Any, template: str) -> Spellings:
        """Create the patterns from the tokenizer's added tokens."""
        added = tokenizer.added_tokens_decoder.values()
        special = {token.content for token in added if token.special} | set(tokenizer.all_special_tokens)
        used = {token.content for token in added if token.content in template and not token.content.isspace()}
        return Spellings(
            own=_first_character_of(special - {"<think>", "</think>"}),
            foreign=_first_character_of(special | used),
            end=re.compile(rf"(?:{_any_of(special)})(?=\s*\Z)"),
            first=re.compile(_any_of(special)),
            begins_with_space=_ids(tokenizer, "a") != _ids(tokenizer, "a", _ANCHOR),
        )

    def opens_with_control_token(self, text: str) -> bool:
        """Whether a text starts with a special token, ignoring white space."""
        return self.first.match(text.lstrip()) is not None

    def without_first(self, text: str) -> str:
        """Return the text after a leading special token; empty if there is none."""
        found = self.first.match(text)
        return text[found.end() :] if found else ""

    def defuse(self, value: Any, *, own: bool) -> Any:
        """Return the value with a `CUT` in every spelling of a control token.

        Args:
            value: A message or tool schema, or any part of one.
            own: Whether the agent wrote it.
        """
        if isinstance(value, str):
            return (self.own if own else self.foreign).sub(rf"\g<0>{CUT}", value.replace(CUT, "\ufffd"))
        if isinstance(value, dict):
            return {self.defuse(key, own=own): self.defuse(item, own=own) for key, item in value.items()}
        return [self.defuse(item, own=own) for item in value] if isinstance(value, (list, tuple)) else value

    def encode(self, tokenizer: Any, text: str, *, after: str = "") -> list[int]:
        """Return the ids of rendered text: the template's control tokens are recognised, defused ones are plain text.

        Args:
            tokenizer: The tokenizer of these control tokens.
            text: The text.
            after: The text before it, which is encoded already.
        """
        found = self.end.search(after[-_TAIL:])
        anchor = after[-_TAIL:][found.start() :] if found else after and _ANCHOR
        ids: list[int] = []
        for piece in filter(None, text.split(CUT)):
            ids += _ids(tokenizer, piece, anchor if self.begins_with_space else "")
            anchor = _ANCHOR
        return ids


def _ids(tokenizer: Any, text: str, anchor: str = "") -> list[int]:
    """Return the ids of a text that stands behind an anchor, which is not part of them."""

    def encoded(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False, verbose=False)
        return ids

    before, whole = encoded(anchor) if anchor else [], encoded(anchor + text)
    return whole[len(before) :] if whole[: len(before)] == before else encoded(text)


def _any_of(spellings: set[str]) -> str:
    return "|".join(re.escape(s) for s in sorted(spellings, key=len, reverse=True)) or "(?!)"


def _first_character_of(spellings: set[str]) -> re.Pattern[str]:
    # A look-ahead, so that spellings which overlap are all found; a single character cannot be cut.
    return re.compile(rf"(?={_any_of({s for s in spellings if len(s) > 1})}).", re.DOTALL)
