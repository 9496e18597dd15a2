"""What keeps recorded text apart from ours: marks before its lines, a fence that it cannot close, and nothing hidden in it."""

from __future__ import annotations

import hashlib
import re
import unicodedata

_SPECIAL = re.compile(
    r"<\|([^|<>\n]{1,60})\|>|<(/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|think))>|\[(/?(?:INST|SYS|AVAILABLE_TOOLS|TOOL_CALLS))\]",
    re.IGNORECASE,
)
_BREAKS = re.compile(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_UNPLAIN = re.compile(r"[^ -~\n]")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_JOINERS = frozenset("\u200c\u200d")  # which some scripts and emoji need


def fence(body: str, label: str) -> str:
    """The text between two lines that it cannot hold: they carry the start of its own SHA-256."""
    mark = hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()[:16]
    return f"----- BEGIN {label} {mark} -----\n{body}\n----- END {label} {mark} -----"


def quoted(text: str) -> str:
    """The text with `| ` before each line, so that none of its lines can be taken for one of ours."""
    return "\n".join(f"| {line}" for line in neutral(text).split("\n"))


def neutral(text: str) -> str:
    """The text with one kind of line break, hidden characters written out, and template marks broken up."""
    text = _BREAKS.sub("\n", text)
    text = _UNPLAIN.sub(lambda character: _visible(character[0]), text)
    return _SPECIAL.sub(lambda mark: f"{mark[0][0]} {mark[0][1:-1]} {mark[0][-1]}", text)


def _visible(character: str) -> str:
    if character in "\n\t" or character in _JOINERS or unicodedata.category(character) not in _HIDDEN:
        return character
    return f"<U+{ord(character):04X}>"
