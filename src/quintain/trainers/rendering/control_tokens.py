"""Control tokens as they are spelled in text.

Text that people or tools wrote can hold the spelling of a control token (`<|im_end|>`), by accident or to take over the
conversation. It must never become one. So `Spellings.defuse` cuts such spellings after their first character with `CUT`
before the chat template sees them, and `encode` tokenises the pieces apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

CUT = "\ufdd0"
"""A Unicode noncharacter, meant for internal use; in stored text it is replaced by U+FFFD."""


@dataclass(frozen=True)
class Spellings:
    """The control tokens of one tokenizer and chat template."""

    own: re.Pattern[str]
    """In what the agent wrote: special tokens only, since tags such as `<think>` may be its own."""
    foreign: re.Pattern[str]
    """In all other text: special tokens, and added tokens that the template itself uses."""
    end: re.Pattern[str]
    """A special token after which nothing but white space comes."""

    first: re.Pattern[str]
    """A special token."""

    @staticmethod
    def of(tokenizer: Any, template: str) -> Spellings:
        """Read them from the tokenizer's added tokens."""
        added = tokenizer.added_tokens_decoder.values()
        special = {token.content for token in added if token.special} | set(tokenizer.all_special_tokens)
        used = {token.content for token in added if token.content in template and not token.content.isspace()}
        return Spellings(
            own=_first_character_of(special),
            foreign=_first_character_of(special | used),
            end=re.compile(rf"(?:{_any_of(special)})(?=\s*\Z)"),
            first=re.compile(_any_of(special)),
        )

    def opens_with_control_token(self, text: str) -> bool:
        """Does a text begin with a special token, white space aside?"""
        return self.first.match(text.lstrip()) is not None

    def without_first(self, text: str) -> str:
        """What stands behind the special token that a text begins with; empty where it begins with none."""
        found = self.first.match(text)
        return text[found.end() :] if found else ""

    def defuse(self, value: Any, *, own: bool) -> Any:
        """The value with a `CUT` in every control token that its strings spell.

        Args:
            value: A message or tool schema, or any part of one.
            own: True for what the agent wrote.
        """
        if isinstance(value, str):
            return (self.own if own else self.foreign).sub(rf"\g<0>{CUT}", value.replace(CUT, "\ufffd"))
        if isinstance(value, dict):
            return {self.defuse(key, own=own): self.defuse(item, own=own) for key, item in value.items()}
        return [self.defuse(item, own=own) for item in value] if isinstance(value, (list, tuple)) else value


def encode(tokenizer: Any, text: str) -> list[int]:
    """Ids of rendered text: control tokens of the template are recognised, those that were cut are plain text."""
    pieces = [piece for piece in text.split(CUT) if piece]
    return [i for piece in pieces for i in tokenizer.encode(piece, add_special_tokens=False, verbose=False)]


def _any_of(spellings: set[str]) -> str:
    return "|".join(re.escape(s) for s in sorted(spellings, key=len, reverse=True)) or "(?!)"


def _first_character_of(spellings: set[str]) -> re.Pattern[str]:
    # A look-ahead, so that spellings which overlap are all found; a single character cannot be cut.
    return re.compile(rf"(?={_any_of({s for s in spellings if len(s) > 1})}).", re.DOTALL)
