"""Judges that answer by a rule: what they read in a question, and answers of the form that is asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

MARKS = re.compile("[\ue000-\uf8ff]")


def readable(question: str) -> str:
    """The question with spaces for its datamark."""
    return MARKS.sub(" ", question)


def recorded(question: str) -> str:
    """The recorded text of a question, without marks and prefixes."""
    return "\n".join(line[2:] for line in readable(question).split("\n") if line.startswith("| "))


def by_run(question: str) -> list[str]:
    """The recorded text of each run of a question."""
    return [recorded(part) for part in question.split("----- BEGIN RUN")[1:]]


def scored(names: Iterable[str], value: float, *quotes: str, rationale: str = "seen") -> str:
    """An answer that values every criterion alike."""
    mark = {"quotes": list(quotes), "value": value}
    return json.dumps({"scores": dict.fromkeys(names, mark), "rationale": rationale})


def stepped(names: Iterable[str], values: dict[int, float | None], quotes: dict[int, str]) -> str:
    """An answer that values every criterion of a step alike."""
    steps = {
        str(step): None if value is None else {"quotes": [quotes.get(step, "")], "scores": dict.fromkeys(names, value)}
        for step, value in values.items()
    }
    return json.dumps({"steps": steps})
