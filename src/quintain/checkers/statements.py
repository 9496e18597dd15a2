"""Find the answer that a message states, by its marker. The last one counts; a quotation of the question is not a statement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from quintain.checkers.quantities import NUMBER
from quintain.checkers.texts import boxes

_MARKER = re.compile(
    r"####[ \t]*|<(?:final_)?answer>|\banswers?\b[^.\n:：=?]{0,60}?(?:\s*[:：=]|\s(?:is|are)\b(?:\s*[:：])?)[*_ \t]*",
    re.IGNORECASE,
)
"""Markers that prompts ask for."""
_CLOSING_TAG = re.compile(r"</(?:final_)?answer>", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[^\s.])[.!?。？](?=\s|$|[*\"'”)\]]+(?:\s|$))")
_BETWEEN_BOXES = re.compile(r"^[\s$,;.\\()\[\]]*(?:or|and|或)?[\s$,;.\\()\[\]]*$")
_QUOTES = "\"'“”‘’«»>`"
_MIN_CONTEXT, _MOST_MARKERS = 15, 200
_MAX_STATEMENT = 2_000


class Statement(NamedTuple):
    """A stated answer and its position in the message."""

    start: int
    end: int
    clause: str
    """The answer up to the end of its sentence."""
    line: str
    """The answer up to the end of its line."""


def last_statement(message: str, prompt: str) -> Statement | None:
    r"""Return the last marked answer of a message that is not a question.

    Markers: `#### x`, `\boxed{x}`, `<answer>x</answer>`, `answer: x`, `the answer is x`.

    Text that repeats the prompt is not a statement.
    """
    source = " ".join(prompt.split()).casefold()
    found = sorted((*_marked(message), *_boxed(message)), key=lambda statement: statement.start)
    return next((s for s in reversed(found) if not is_quoted(message, s.start, s.end, source)), None)


def last_numbers(message: str, prompt: str) -> str | None:
    """Return the last sentence with a number that is neither a question nor repeats the prompt, for messages without a marker."""
    source = " ".join(prompt.split()).casefold()
    for start, end in reversed(list(_sentences(message))):
        begin = max(start, end - _MAX_STATEMENT)
        numbers = list(NUMBER.finditer(message, begin, end))
        if numbers and message[end : end + 1] not in {"?", "？"}:
            last = numbers[-1]
            if not is_quoted(message, last.start(), last.end(), source):
                return message[begin:end].strip()
    return None


def is_quoted(message: str, start: int, end: int, source: str) -> bool:
    """Whether a part of the message only repeats the source, which is the prompt in lower case, spaces collapsed."""
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


def _marked(message: str) -> Iterator[Statement]:
    for found in list(_MARKER.finditer(message))[-_MOST_MARKERS:]:
        if found.group().startswith("<"):
            close = _CLOSING_TAG.search(message, found.end())
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
        stop = None if found.group().startswith("#") else _SENTENCE_END.search(line)
        if line and not (stop and stop.group() in "?？"):
            clause = line[: stop.start() + _is_factorial(line, stop)] if stop else line
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


def _sentences(message: str) -> Iterator[tuple[int, int]]:
    """Yield the sentences of a message; a line break ends one too."""
    start = 0
    for stop in re.finditer(r"\n|(?<=[^\s.])[.!?。？](?=\s|$)", message):
        yield start, stop.start()
        start = stop.end()
    yield start, len(message)
