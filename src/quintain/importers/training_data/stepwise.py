"""Step labels for process reward models: TRL's rows (`prompt`, `completions`, `labels`), Math-Shepherd's and PRM800K's.

A step is good (1) or bad (0); a neutral rating of PRM800K is no label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import matching_share, row_importer, task_of
from quintain.importers.run_builder import build_run
from quintain.importers.training_data.prompt_answers import parse_messages
from quintain.importers.transcripts.chat_messages import read_turns
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_dict, as_list, as_score, as_text, dicts_in, nonblank

_MARK = "\u043a\u0438"
"""Ends each step in the input of Math-Shepherd; in its label `+` or `-` does."""
_LABELLED = re.compile(r" ([+-])(?:\n|\Z)")
_FIRST = "Step 1:"
_RATINGS = {1: 1.0, -1: 0.0}


class _Steps(NamedTuple):
    prompt: Any
    texts: list[Any]
    labels: list[float | None]


def _detect(probe: Probe) -> float:
    """Match a prompt, a list of completions and a list of labels, and the two data sets by their marks."""
    return max(
        0.96 * matching_share(probe, _is_stepwise, "completions"),
        0.96 * matching_share(probe, lambda row: _is_shepherd(row) or _is_prm800k(row), "label"),
    )


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    read = _shepherd if _is_shepherd(row) else _prm800k if _is_prm800k(row) else _stepwise
    prompt, texts, labels = read(row)
    transcript = Transcript()
    read_turns(parse_messages("user", prompt, report), transcript, report.refuse)
    for text, label in zip(texts, labels, strict=True):
        if not isinstance(text, str):
            raise InvalidInput(f"expected text in each completion, got {type(text).__name__}")
        transcript.add_agent_turn(text, reward=label)
    yield from build_run(transcript, report, line, task=task_of(row))


IMPORTER = row_importer("stepwise", "Stepwise supervision (PRM)", _detect, _row)


def _stepwise(row: dict[str, Any]) -> _Steps:
    completions, labels = row.get("completions"), row.get("labels")
    if not isinstance(completions, list) or not isinstance(labels, list) or len(completions) != len(labels):
        raise InvalidInput("expected `completions` and `labels`, two lists of equal length")
    return _Steps(row.get("prompt"), completions, [as_score(label) for label in labels])


def _shepherd(row: dict[str, Any]) -> _Steps:
    pieces = _LABELLED.split(row["label"])
    asked, begin, first = pieces[0].partition(_FIRST)
    return _Steps(asked.strip(), [begin + first, *pieces[2:-1:2]], [float(mark == "+") for mark in pieces[1::2]])


def _prm800k(row: dict[str, Any]) -> _Steps:
    """Return the chosen completion of each step, one that a person wrote, or the one at which the labeller stopped."""
    texts, labels = list[Any](), list[float | None]()
    for step in dicts_in(as_dict(row["label"]).get("steps")):
        completions, chosen = dicts_in(step.get("completions")), step.get("chosen_completion")
        place = chosen if isinstance(chosen, int) and 0 <= chosen < len(completions) else 0
        written = step.get("human_completion") if chosen is None else None
        written = {"text": as_dict(written).get("text", written), "rating": 1} if written else {}
        taken = written or (completions[place] if completions else {})
        rating = taken.get("rating")
        if text := nonblank(taken.get("text")):
            texts.append(text)
            labels.append(_RATINGS.get(rating) if isinstance(rating, int) else None)
    return _Steps(as_dict(row["question"]).get("problem"), texts, labels)


def _is_stepwise(row: dict[str, Any]) -> bool:
    return isinstance(row.get("completions"), list) and isinstance(row.get("labels"), list) and "prompt" in row


def _is_shepherd(row: dict[str, Any]) -> bool:
    label = as_text(row.get("label"))
    return _MARK in as_text(row.get("input")) and _FIRST in label and _LABELLED.search(label) is not None


def _is_prm800k(row: dict[str, Any]) -> bool:
    return "problem" in as_dict(row.get("question")) and bool(as_list(as_dict(row.get("label")).get("steps")))
