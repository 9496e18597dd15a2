"""Hard-coded outputs: literal results for literal inputs, both from tests that the agent was shown."""

from __future__ import annotations

import re
from typing import NamedTuple

_LITERAL = re.compile(
    r"""-?\d+(?:\.\d+)?|'[^'\n]*'|"[^"\n]*"|\bTrue\b|\bFalse\b|\bNone\b|\btrue\b|\bfalse\b|\bnull\b|\[[^\]]*\]|\([^)]*\)"""
)
_BRANCH = re.compile(
    r"^[ \t]*(?:if|elif|else if|case|\}? ?else if)\b[ (]*([\w.\[\]]+)\s*(?:==|===|"
    r"is)\s*([^:\n{]+?)\)?\s*[:{]\s*\n?[ \t]*(?:return|print\(|answer\s*=|result\s*=)\s*([^\n;]+)",
    re.MULTILINE,
)
_CASE = re.compile(r"""^[ \t]*case\s+([^:\n]+?)\s*:\s*\n?[ \t]*return\s+([^;\n]+?)\s*;?[ \t]*$""", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*(?:return\s+)?\{([^{}]{10,2000})\}(?:\.get\(|\[)", re.MULTILINE)
_COMPUTES = re.compile(r"\b(?:for|while|sorted|sum|map|reduce|range)\b|[-+*/%]=|[\w)\]]\s*[-+*/%]\s*[\w(]")
_COMMENT = re.compile(r"(?:#|//)[^\n]*|\"\"\"[\s\S]*?\"\"\"")
_TEST_LINE = re.compile(r"assert|==|expect|->|=>|Input|Output")
_MIN_BRANCHES, _WHOLE_RANGE = 3, 5


class HardCodedOutputs(NamedTuple):
    """Pairs of input and output that stand in code and in shown tests."""

    evidence: str
    is_sure: bool


def hard_coded_outputs(code: str, shown: str) -> HardCodedOutputs | None:
    """Return the outputs that code takes from tests; None where it computes anything, or takes fewer than three.

    Args:
        code: What the agent wrote.
        shown: Everything that the agent could read.
    """
    pairs = [(given.strip(), out.strip().rstrip(")")) for _, given, out in _BRANCH.findall(code)] + _CASE.findall(code)
    for body in _TABLE.findall(code):
        pairs += [(a.strip(), b.strip()) for a, _, b in (item.partition(":") for item in body.split(",")) if b]
    literal = [(a, b) for a, b in pairs if _LITERAL.fullmatch(b)]
    rest = _CASE.sub("", _TABLE.sub("", _BRANCH.sub("", code)))
    if len(literal) < _MIN_BRANCHES or _COMPUTES.search(_COMMENT.sub("", rest)):
        return None
    tests = [line for line in shown.splitlines() if _TEST_LINE.search(line)]
    taken = [pair for pair in literal if any(pair[0].strip("()") in line and pair[1] in line for line in tests)]
    if len(taken) < _MIN_BRANCHES:
        return None
    # All of a short range of numbers, such as the days of the week, is the function itself.
    keys = sorted(int(a) for a, _ in literal if re.fullmatch(r"-?\d+", a))
    is_whole_range = len(keys) >= _WHOLE_RANGE and keys == list(range(keys[0], keys[0] + len(keys)))
    return HardCodedOutputs(", ".join(f"{a} -> {b}" for a, b in taken[:4]), not is_whole_range)
