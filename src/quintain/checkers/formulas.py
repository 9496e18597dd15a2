"""Formulas in answers: which texts are formulas, and the same in LaTeX, whoever wrote them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction

from quintain.checkers.math_equality import equal_formulas
from quintain.checkers.quantities import SYMBOLS
from quintain.checkers.units import Unit, unit_of

_MAX_CHARS = 2000
_MAX_END, _MOST_WORDS = 400, 20
_SIGNS = str.maketrans(
    {
        **{
            "≤": r"\leq ",
            "≥": r"\geq ",
            "≠": r"\neq ",
            "∞": r"\infty ",
            "∪": r"\cup ",
            "∩": r"\cap ",
            "∅": r"\emptyset ",
        },
        **{"∈": r"\in ", "±": r"\pm ", "·": r"\cdot ", "×": r"\times ", "÷": "/", "⋅": r"\cdot ", "π": r"\pi "},
        **{
            "ℝ": r"\mathbb{R}",
            "ℤ": r"\mathbb{Z}",
            "ℕ": r"\mathbb{N}",
            "ℚ": r"\mathbb{Q}",
            "ℂ": r"\mathbb{C}",
            "⁄": "/",
        },
        **{"−": "-", "–": "-", "√": r"\sqrt ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta "},
    }
)
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_REWRITES = (
    (re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mbox|operatorname|hbox)\s*\{([^{}]*)\}"), r" \1 "),
    (
        re.compile(
            r"\\(?:left|right|displaystyle|limits|[bB]igl?|[bB]igr)(?![A-Za-z])|(?<!\\)\\!|\$|\*\*|`|(?<!\\)\\[()\[\]]"
        ),
        "",
    ),
    (re.compile(r"(?<!\\)\\[,;: ]|\\q?quad(?![A-Za-z])|~"), " "),
    (re.compile(r"\\[dt]binom(?![A-Za-z])"), r"\\binom"),
    (re.compile(r"\\binom\s*(\w)\s*(\w)"), r"\\binom{\1}{\2}"),
    (re.compile(r"\\varnothing(?![A-Za-z])"), r"\\emptyset"),
    (re.compile(r"\\(?:lvert|rvert|vert)(?![A-Za-z])"), "|"),
    (re.compile(r"<="), r"\\leq "),
    (re.compile(r">="), r"\\geq "),
    (re.compile(r"!="), r"\\neq "),
    (re.compile(rf"(?<![A-Za-z\\])({'|'.join(sorted(SYMBOLS - {'e', 'i', 'π', 'mu', 'mod'}))})(?![A-Za-z])"), r"\\\1"),
    (re.compile(r"\\sqrt\s*\(([^()]*)\)"), r"\\sqrt{\1}"),
    (re.compile(r"\\sqrt\s*(\d+)"), r"\\sqrt{\1}"),
    (re.compile(r"\^\s*\(([^()]*)\)"), r"^{\1}"),
    (re.compile(r"\s*\*\s*"), r" \\cdot "),
)
_TEXT_AFTER = re.compile(
    r"(?<=\S)\s*\\(?:text|textrm|mathrm|mbox)\s*\{\s*(?!or\b|and\b)([A-Za-z°][^{}]*)\}\s*(\^\s*\{?\s*-?\d\s*\}?)?[\s.$]*$"
)
"""A unit, or what is counted, set off as text after the formula."""
_IN_BASE = re.compile(r"(?<![\w.])([0-9A-Fa-f]{1,100})_\s*(?:\{\s*(\d{1,2})\s*\}|(\d))")
_DEGREES = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*(?:\^\s*\{?\s*\\circ\s*\}?|°)")
_COMMAND = re.compile(r"\\(?:begin|end)\s*\{[a-z]+\*?\}|\\[A-Za-z]+|\\.|_\s*(?:\{[^{}]*\}|\w)")
_CONNECTIVE = re.compile(r"(?<![A-Za-z])(?:or|and|in)(?![A-Za-z])")
_WORD = re.compile(r"(?<![A-Za-z])[A-Za-z]{3,}|(?<![^\s,;])[A-Za-z]{2}(?![^\s,;])")
_MATHEMATICAL = re.compile(r"\\[A-Za-z]|[=<>|^!_*{]|\d\s*[A-Za-z]|[A-Za-z]\s*[-+/]|[-+/]\s*[A-Za-z]|^[(\[].*,.*[)\]]$")
_NUMERIC = re.compile(r"[\w)}]\s?!|\\(?!cdot|times)[A-Za-z]")
_RELATION = re.compile(
    r"[<>=,;]|(?<![A-Za-z\\])(?:or|and)(?![A-Za-z])|\\(?:leq?|geq?|neq?|lt|gt|pm|in|approx)(?![A-Za-z])"
)
_SET = re.compile(r"\\(?:[lg]eq?|neq?|cup|cap|infty|emptyset|mathbb|in)(?![A-Za-z])|[<>\[]|\\\{|^\{")
_INLINE = re.compile(r"\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)


def same_formula(expected: str, stated: str, *, is_number: bool = False) -> bool | None:
    """Whether the formula of a statement is the expected one.

    Args:
        expected: Answer of the task, as written.
        stated: The agent's statement, likewise, sentences and all.
        is_number: The expected answer is a plain number, which a formula meets by its value (`5!` is 120), but neither a sum
            that nobody worked out nor a bound.

    Returns:
        None where the answer may be right: a formula that cannot be read or decided, or a set in words.
    """
    gold = latex(expected)
    if gold is None:
        return False
    found = [form for text in _candidates(stated) if (form := latex(text)) is not None]
    if is_number:
        found = [form for form in found if _NUMERIC.search(form[0]) and not _RELATION.search(form[0])]
    if not found:
        return None if not is_number and _SET.search(gold[0]) and not re.search(r"\d", stated) else False
    verdicts = [_compare(gold, form) for form in found]
    return True if True in verdicts else None if None in verdicts else False


def is_formula(text: str) -> bool:
    """Whether a text is a formula, rather than words, a number, a date or a range."""
    found = latex(text)
    return found is not None and bool(_MATHEMATICAL.search(found[0]) or _IN_BASE.search(text))


def latex(text: str) -> tuple[str, Unit | None] | None:
    """The formula that a text consists of in LaTeX, and the unit after it; None: the text is prose."""
    if len(text) > _MAX_CHARS:
        return None
    text = _RAISED.sub(lambda raised: "^{" + raised.group().translate(_SUPERSCRIPT) + "}", text)
    text = unicodedata.normalize("NFKC", text.translate(_SIGNS))
    text, unit = _without_unit(text)
    text = _DEGREES.sub(r"(\\frac{\1\\pi}{180})", text)
    for pattern, put in _REWRITES:
        text = pattern.sub(put, text)
    text = _IN_BASE.sub(_in_ten, " ".join(text.split()).strip(" .,;"))
    tail = re.search(r"(?<=[\s\d}])[A-Za-z][^\\=<>]{1,30}$", text)
    if unit is None and tail is not None and (read := _unit(tail.group())) is not None:
        text, unit = text[: tail.start()].strip(), read
    bare = _CONNECTIVE.sub(" ", _COMMAND.sub(" ", text))
    if not text or _WORD.search(bare) or not re.search(r"[A-Za-z\d]|\\[A-Za-z]", text):
        return None
    return text, unit


def _without_unit(text: str) -> tuple[str, Unit | None]:
    """A formula without the text after it, and the unit that this text names."""
    found = _TEXT_AFTER.search(text)
    if found is None:
        return text, None
    unit = _unit(found[1] + (found[2] or ""))
    return (text[: found.start()], unit) if unit or re.match(r"[A-Za-z]{3}", found[1]) else (text, None)


def _unit(text: str) -> Unit | None:
    read = unit_of(re.sub(r"[{}]", "", text))
    return None if read is None or read[1].strip() else read[0]


def _in_ten(numeral: re.Match[str]) -> str:
    """A numeral such as `101_2` in base ten; itself where its digits are not of its base."""
    base = int(numeral[2] or numeral[3])
    try:
        return str(int(numeral[1], base)) if 2 <= base <= 16 else numeral.group()
    except ValueError:
        return numeral.group()


def _candidates(stated: str) -> Iterator[str]:
    """Where the formula of a statement may be: all of it, its end without prose, after its last `=`, in its only dollar signs."""
    text = stated.strip(" .!") if not re.search(r"[\w)}]!$", stated.strip()) else stated.strip()
    parts = [text, *_formula_at_end(text)]
    inline = [next(filter(None, found.groups())) for found in _INLINE.finditer(text)]
    if len(inline) == 1:
        parts.append(inline[0])
    parts += [part.rpartition("=")[2] for part in parts if not re.search(r"[<>!]=|,|\bor\b", part)]
    for part in dict.fromkeys(part.strip() for part in parts):
        if part:
            yield part


def _formula_at_end(text: str) -> Iterator[str]:
    """Yield the longest end of a sentence that is a formula, of at most `_MOST_WORDS` words."""
    starts = [found.start() for found in re.finditer(r"\S+", text[-_MAX_END:])][-_MOST_WORDS:]
    ends = (text[-_MAX_END:][start:] for start in starts)
    if (longest := next((end for end in ends if latex(end) is not None), None)) is not None:
        yield longest


def _compare(gold: tuple[str, Unit | None], answer: tuple[str, Unit | None]) -> bool | None:
    """Whether two formulas with their units are equal; a unit that one side leaves out does not count."""
    (left, unit), (right, other) = gold, answer
    if unit and other and unit != other:
        if unit.kind != other.kind:
            return False
        ratio: Fraction = other.size / unit.size
        if unit.offset or other.offset:
            return None
        right = rf"({right}) \cdot \frac{{{ratio.numerator}}}{{{ratio.denominator}}}"
    return equal_formulas(left, right)
