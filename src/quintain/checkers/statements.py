"""Find the answer that a message states. The last statement counts; a quotation of the question is not a statement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from quintain.checkers.quantities import DENIED, NUMBER
from quintain.checkers.texts import boxes

_PHRASE = re.compile(
    r"####[ \t]*"
    r"|<(?:final_)?answer>"
    r"|\banswers?\b[*_\s\"']{0,4}(?:(?:to|of|for|here|that)\b[^.\n:=]{0,60}?)?"
    r"(?:\s*[:：=]|\s+(?:is|are|was|equals|will\s+be|would\s+be|should\s+be|must\s+be|=)\b(?:\s*[:：])?)[*_ \t]*"
    r"|(?:答案|答え)[*_\s]{0,4}(?:是|为|為|は|[:：])[ \t]*"
    r"|\b(?:Antwort|Ergebnis|r[ée]ponse|respuesta|risposta|resposta|ответ)\b[*_\s]{0,4}(?:\s*[:：]|\s+(?:ist|est|es|è|é)\b)[*_ \t]*",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[^\s.])[.!?。](?=\s|$|[*\"'”)\]]+(?:\s|$))")
_BETWEEN_BOXES = re.compile(r"^[\s$,;.\\()\[\]]*(?:or|and|或)?[\s$,;.\\()\[\]]*$")
_INSTEAD = re.compile(
    r"(?:[,;]\s*(?:but\s+|rather\s+|instead\s+)?|\s+but\s+|\s[-–—]\s*)(?:(?:it|that)(?:'s| is)\s+)?(?=\S)",
    re.IGNORECASE,
)
"""Separates a rejected answer from the given one."""
_REFUSES = re.compile(r"(?i)(?:not|n't|neither|unknown|unclear)\b")
_QUESTION = re.compile(
    r"[\s>*#-]*(?:so,?\s+|but\s+|and\s+)?(?:is|are|was|does|do|did|can|could|would|should|what|which|how|why|who|when|where)\b",
    re.IGNORECASE,
)
_AFFIRMED = re.compile(r"\s*(?:yes|yep|yeah|correct|right|indeed)\b", re.IGNORECASE)
_DOUBTED = re.compile(
    r"(?:\b(?:if|whether|suppose|assuming|unless|doubt|deny|false|wrong|incorrect|untrue|unlikely|impossible)"
    r"|(?:\bnot|n't|\bnever)\s+(?:think|believe|say|mean|sure|certain|true|clear|the case))"
    r"\s+(?:that\s+|if\s+|whether\s+)?(?:the\s+|my\s+|our\s+)?(?:final\s+|correct\s+|right\s+)?$",
    re.IGNORECASE,
)
"""Words before "the answer is 42" that keep it from being a statement."""
_DOUBTS = re.compile(
    r"(?:\b(?:doubt|deny)|(?:\bnot|n't|\bnever)\s+(?:think|believe|say|mean|sure|certain|true|clear)"
    r"|\b(?:false|wrong|incorrect|untrue)\s+that)\b",
    re.IGNORECASE,
)
_COPULA = re.compile(r"(?<=[^\x00-\x7f]|\d)\s?(?:です|でした|である|だ|입니다|이다|है)$")
_QUOTES = "\"'“”‘’«»>`"
_MIN_CONTEXT, _MOST_PHRASES = 15, 200
_MAX_STATEMENT, _MAX_INSTEAD = 2_000, 200


class Statement(NamedTuple):
    """A stated answer and its position in the message."""

    start: int
    end: int
    clause: str
    """The answer up to the end of its sentence."""
    line: str
    """The answer up to the end of its line."""


def last_statement(message: str, prompt: str) -> Statement | None:
    r"""Return the last statement of an answer in a message.

    Markers: `#### x`, `\boxed{x}`, `<answer>x</answer>`, `answer: x`, `the answer is x`, and the like in some other languages.

    Args:
        message: The agent's message.
        prompt: The task's prompt; text that repeats it is not a statement.
    """
    source = " ".join(prompt.split()).casefold()
    found = sorted((*_phrases(message), *_boxed(message)), key=lambda statement: statement.start)
    return next((s for s in reversed(found) if not is_quoted(message, s.start, s.end, source)), None)


def last_numbers(message: str, prompt: str) -> str | None:
    """Return the last sentence with a number that does not repeat the prompt, for messages that state no answer.

    Args:
        message: The agent's message.
        prompt: The task's prompt.
    """
    source = " ".join(prompt.split()).casefold()
    for start, end in reversed(list(_pieces(message))):
        begin = max(start, end - _MAX_STATEMENT)
        numbers = [
            number
            for number in NUMBER.finditer(message, begin, end)
            if not DENIED.search(message[max(begin, number.start() - 60) : number.start()])
        ]
        if numbers and not _asks(message, begin, end):
            last = numbers[-1]
            doubted = _DOUBTS.search(message, begin, last.start())
            if not doubted and not is_quoted(message, last.start(), last.end(), source):
                return message[begin:end].strip()
    return None


def _asks(message: str, start: int, end: int) -> bool:
    """Whether a sentence is a question that the next word does not affirm."""
    if message[end : end + 1] not in {"?", "？"} or _AFFIRMED.match(message, end + 1):
        return False
    return bool(_QUESTION.match(message[start:end].strip()))


def is_quoted(message: str, start: int, end: int, source: str) -> bool:
    """Whether a part of the message only repeats the prompt.

    Args:
        message: The message.
        start: Where the part begins.
        end: Where it ends.
        source: The prompt, in lower case, spaces collapsed.
    """
    line_start = message.rfind("\n", 0, start) + 1
    if message[line_start:start].lstrip().startswith(">") or message[start:end].lstrip().startswith(">"):
        return True
    begin = max(message.rfind(mark, line_start, start) for mark in _QUOTES) + 1
    begin = max(begin, line_start)
    for sentence_end in _SENTENCE_END.finditer(message, begin, start):
        begin = sentence_end.end()
    while (
        len(_flat(message[begin:end])) < _MIN_CONTEXT and begin > 0
    ):  # "#### 42" alone is too short to compare: include the text before it
        begin = max(0, begin - _MIN_CONTEXT)
    part = _flat(message[begin:end])
    return len(part) >= _MIN_CONTEXT and part in source


def _flat(text: str) -> str:
    return " ".join(text.split()).casefold().strip(_QUOTES + " .,!")


def _phrases(message: str) -> Iterator[Statement]:
    for found in list(_PHRASE.finditer(message))[-_MOST_PHRASES:]:
        if _DOUBTED.search(message[max(0, found.start() - 60) : found.start()]):
            continue
        if found.group().startswith("<"):
            close = re.compile(r"</(?:final_)?answer>", re.IGNORECASE).search(message, found.end())
            end = close.start() if close else min(len(message), found.end() + _MAX_STATEMENT)
            inside = message[found.end() : end].strip()
            if inside:
                yield Statement(found.start(), end, inside, inside)
            continue
        start = found.end()
        end = _line_end(message, start)
        if not message[start:end].strip(" \t*_:`$\\[("):  # the answer is below its heading
            following = re.compile(r"\S").search(message, end)
            start = following.start() if following else end
            end = _line_end(message, start)
        end = min(end, start + _MAX_STATEMENT)
        line = message[start:end].strip()
        if not line:
            continue
        stop = None if found.group().startswith("#") else _SENTENCE_END.search(line)
        clause = _COPULA.sub("", line[: stop.start() + _is_factorial(line, stop)] if stop else line)
        if _REFUSES.match(clause):  # "not 41, it is 42" states what comes after the comma, "not 41" nothing
            instead = _INSTEAD.search(clause[:_MAX_INSTEAD])
            if instead is None or not clause.lower().startswith("not"):
                continue
            clause = line = clause[instead.end() :]
        yield Statement(found.start(), end, clause, line)


def _is_factorial(text: str, end: re.Match[str]) -> bool:
    """Whether the mark at the end of a sentence may also be the sign of a factorial, as in "It is 5!"."""
    return end.group().startswith("!") and text[end.start() - 1].isdigit()


def _boxed(message: str) -> Iterator[Statement]:
    """Yield boxed answers; adjacent boxes form one statement of several answers."""
    held: Statement | None = None
    for start, end, inside in boxes(message):
        if held is not None and _BETWEEN_BOXES.match(message[held.end : start]):
            joined = f"{held.clause}, {inside}"
            held = Statement(held.start, end, joined, joined)
            continue
        if held is not None:
            yield held
        held = Statement(start, end, inside, inside)
    if held is not None:
        yield held


def _line_end(message: str, start: int) -> int:
    end = message.find("\n", start)
    return len(message) if end < 0 else end


def _pieces(message: str) -> Iterator[tuple[int, int]]:
    """Yield the sentences of a message; a line break ends one too."""
    start = 0
    for stop in re.finditer(r"\n|(?<=[^\s.])[.!?。](?=\s|$)", message):
        yield start, stop.start()
        start = stop.end()
    yield start, len(message)
