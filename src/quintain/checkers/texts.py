"""Normalize answers to plain text: ASCII digits and signs, without LaTeX and Markdown."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_SIGNS = str.maketrans(
    {**dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-"), "\u066b": ".", "\u066c": ",", "。": "."}
)
_GROUPED = re.compile(r"(?<=\d)[\u00a0\u2009\u202f'’](?=\d{3}(?!\d))")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_STYLED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|operatorname|hbox)\s*\{([^{}]*)\}")
_MATH = re.compile(r"\$\$?([^$\n]*?[^$\s])\$\$?(?!\d)")
_FRACTION = re.compile(r"\\[dtc]?frac\s*")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_MOST_BOXES = 50
_REPLACED = (
    (re.compile("(?<![\u0370-\u03ff])π(?![\u0370-\u03ff])"), " pi "),
    (re.compile(r"\\boxed\b|\\fbox\b"), " "),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?"), " degrees "),
    (re.compile(r"\\(?:left|right|displaystyle|bigl?|bigr)(?![a-zA-Z])|\\!"), ""),
    (re.compile(r"\\[,;: ]|\\q?quad\b|~"), " "),
    (re.compile(r"\\(?:times|cdot|ast)(?![a-zA-Z])|[×⋅·]"), "*"),
    (re.compile(r"\\(?:neq|ne|not\s*=)(?![a-zA-Z])"), "≠"),
    (re.compile(r"\\(?:geq?|geqslant)(?![a-zA-Z])"), "≥"),
    (re.compile(r"\\(?:leq?|leqslant)(?![a-zA-Z])"), "≤"),
    (re.compile(r"\\gt(?![a-zA-Z])"), ">"),
    (re.compile(r"\\lt(?![a-zA-Z])"), "<"),
    (re.compile(r"\\pm(?![a-zA-Z])"), "±"),
    (re.compile(r"\\infty(?![a-zA-Z])|∞"), "infinity"),
    (re.compile(r"\\in(?![a-zA-Z])"), " in "),
    (re.compile(r"\\(?:approx|simeq)(?![a-zA-Z])"), "≈"),
    (re.compile(r"\\sqrt\s*\{([^{}]{0,500})\}"), r"sqrt(\1)"),
    (re.compile(r"\\sqrt\s*(\d|[a-zA-Z](?![a-zA-Z]))"), r"sqrt(\1)"),
    (re.compile(r"\^\s*\{([^{}]*)\}"), r"^(\1)"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\([%$#&_{}])"), r"\1"),
    (re.compile(r"\\[()\[\]]"), " "),
    (re.compile(r"\\([A-Za-z]+)"), r"\1"),
    (re.compile(r"\*\*|__|`"), ""),
    (re.compile(r"(?<!\w)_([^_\n]{1,200})_(?!\w)"), r"\1"),
    (re.compile(r"√\s*(\d+)"), r"sqrt(\1)"),
    (re.compile(r"(?<![\w)])\*(?=[^*\s])|(?<=[^*\s])\*(?![\w(\\*\s.])"), ""),
)


def plain(text: str) -> str:
    """Return the text in ASCII digits and signs, without LaTeX and Markdown, with spaces collapsed within each line."""
    text = _GROUPED.sub("", text.translate(_SIGNS))
    text = _RAISED.sub(lambda raised: "^(" + raised.group().translate(_SUPERSCRIPT) + ")", text)
    text = "".join(map(_spelt, text)) if not text.isascii() else text
    text = unicodedata.normalize("NFKC", text).translate(_SIGNS).replace("⁄", "/")
    for _ in range(3):  # styles in styles
        text = _STYLED.sub(r"\1", text)
    text = _fractions(text)
    text = _MATH.sub(r"\1", text)
    for pattern, put in _REPLACED:
        text = pattern.sub(put, text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def braced_text(text: str, start: int) -> tuple[str, int] | None:
    """Return the content of the braces that open at `start` and the position after them; None if they are not closed."""
    if start >= len(text) or text[start] != "{":
        return None
    depth = 0
    for place in range(start, min(len(text), start + 10_000)):
        if text[place] == "{" and text[place - 1 : place] != "\\":
            depth += 1
        elif text[place] == "}" and text[place - 1] != "\\":
            depth -= 1
            if depth == 0:
                return text[start + 1 : place], place + 1
    return None


def boxes(text: str) -> Iterator[tuple[int, int, str]]:
    r"""Yield start, end and content of the last 50 closed `\boxed{...}` or bare `\boxed 5`, in order; braces may be nested."""
    for found in list(_BOX.finditer(text))[-_MOST_BOXES:]:
        inside = braced_text(text, found.end())
        if inside is not None:
            yield found.start(), inside[1], inside[0]
        elif bare := re.match(r"-?\d+", text[found.end() :]):
            yield found.start(), found.end() + bare.end(), bare.group()


def without_open_box(text: str) -> str:
    """Return the text without an unclosed last box, whose answer may have been cut off."""
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    return text if start < 0 or braced_text(text, text.index("{", start)) else text[:start]


def _spelt(character: str) -> str:
    """Return digits of other scripts as ASCII, and one-character fractions as two numbers."""
    if character.isascii():
        return character
    value = unicodedata.decimal(character, None)
    if value is not None:
        return str(value)
    if unicodedata.decomposition(character).startswith("<fraction>"):
        return " " + unicodedata.normalize("NFKC", character).replace("⁄", "/")
    return character


def _fractions(text: str) -> str:
    r"""Write `\frac{a}{b}` and `\frac12` as `(a)/(b)`, outer fractions first."""
    for _ in range(20):
        found = _FRACTION.search(text)
        if found is None:
            break
        above = _argument(text, found.end())
        below = _argument(text, above[1]) if above else None
        if above is None or below is None:
            text = text[: found.start()] + text[found.end() :]
        else:
            text = f"{text[: found.start()]} ({above[0]})/({below[0]}){text[below[1] :]}"
    return text


def _argument(text: str, start: int) -> tuple[str, int] | None:
    start += len(text[start:]) - len(text[start:].lstrip())
    if inside := braced_text(text, start):
        return inside
    return (text[start], start + 1) if start < len(text) and text[start].isalnum() else None
