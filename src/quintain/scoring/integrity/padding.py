"""Padding: words of a reply that say nothing, as a share of it."""

from __future__ import annotations

import re

from quintain.scoring.integrity.repetition import repeated_share
from quintain.scoring.integrity.text import prose_of, words

_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
    a an the this that these those it its he she they we you i is are was were be been being am do does did has have had
    will would can could should may might must shall not no nor and or but if then than so as at by for from in into of on
    onto over to up with about after before between through under when where which who whom whose what why how there here
    all any both each few more most other some such only own same very just also because while during until again further
    once our your his her their my me him them us
        """,
    )
)
_FILLER = re.compile(
    r"\b(?:it is (?:important|worth|crucial|essential) (?:to (?:note|mention|understand|remember|consider)|noting|"
    r"mentioning)|as (?:previously|already) "
    r"(?:mentioned|stated|noted|discussed)|as (?:mentioned|stated|noted|discussed) (?:above|earlier|before)|"
    r"in (?:conclusion|summary|other words|essence)|"
    r"to (?:summarize|reiterate|recap|elaborate(?: further)?)|needless to say|at the end of the day|(?:let me|let us|"
    r"let's) (?:think|consider|reflect|double-?check|"
    r"verify|re-?examine|reconsider)|having said that|that being said|for (?:the sake of )?(?:completeness|clarity|"
    r"thoroughness)|all things considered|"
    r"furthermore|moreover|additionally|in addition)\b[^.!?\n]*",
    re.IGNORECASE,
)
_LATIN = re.compile(r"[a-z]{2,}")
SALAD = 12
"""Words in a row without one function word from which on English is a list of words and no sentence."""


def padding_share(text: str) -> float:
    """Share of a reply's words that are a mere list of words, filler phrases or repetition, 0..1; code and tables do not count.

    The list of words is told by English function words, so in other languages only repetition is seen.
    """
    prose = prose_of(text)
    said = words(prose)
    if len(said) < SALAD:
        return 0.0
    filler = sum(len(words(found.group())) for found in _FILLER.finditer(prose))
    return min(1.0, max(_salad(said) / len(said), filler / len(said), repeated_share(said)))


def _salad(said: list[str]) -> int:
    total = run = 0
    for word in [*said, "the"]:
        if word not in _FUNCTION_WORDS and _LATIN.fullmatch(word):
            run += 1
            continue
        total += run if run >= SALAD else 0
        run = 0
    return total
