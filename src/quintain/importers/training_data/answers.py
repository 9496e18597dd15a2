"""A prompt and a list of answers to it, each with its model and its rating or rank (UltraFeedback, Nectar).

Each answer is a run of the group of its prompt. Its rating is its reward; where answers have a rank alone, the reward is
minus the rank, so that the first of them has the highest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import build_chat_run, first_name, matching_share, row_importer
from quintain.importers.training_data.alpaca import ASKED, instruction_messages
from quintain.importers.training_data.prompt_answers import fingerprint, parse_messages, with_completion
from quintain.importers.values import as_number, dicts_in, nonblank, score_fields, transpose_columns
from quintain.records.trajectory import AgentInfo, Outcome

_LISTS = ("completions", "answers", "responses", "candidates", "outputs")
_TEXTS = ("response", "answer", "completion", "output", "text", "content")
_RATINGS = ("reward", "score", "overall_score", "rating")

_OWN_SYSTEM = "system prompts of single answers are left out, so that the answers of one prompt can be compared"


def _detect(probe: Probe) -> float:
    """Match rows with a prompt and several answers that are objects."""
    return 0.9 * matching_share(probe, lambda row: len(_answers(row)) > 1 and _is_asked(row), *_LISTS)


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    prompt = parse_messages("user", row.get("prompt"), report) or instruction_messages(row)
    columns = {key: value for key, value in row.items() if key not in {"prompt", *ASKED, *_LISTS}}
    columns["task_id"] = first_name(row, ("task_id", "prompt_id"))
    for place, answer in enumerate(_answers(row)):
        rating = next((number for name in _RATINGS if (number := as_number(answer.get(name))) is not None), None)
        rank = as_number(answer.get("rank"))
        if nonblank(answer.get("custom_system_prompt")):
            report.note(_OWN_SYSTEM)
        yield from build_chat_run(
            with_completion(prompt, parse_messages("assistant", _text(answer), report)),
            columns,
            line,
            report,
            agent=AgentInfo(model=nonblank(answer.get("model"), answer.get("generator"))),
            outcome=Outcome(
                reward=-rank if rating is None and rank is not None else rating, scores=score_fields(answer)
            ),
            group_id=f"preference-{fingerprint(prompt)}",
            episode_key=str(place),
        )


IMPORTER = row_importer("answers", "Answers of one prompt", _detect, _row)


def _is_asked(row: dict[str, Any]) -> bool:
    return isinstance(row.get("prompt"), str | list) or any(nonblank(row.get(name)) for name in ASKED)


def _answers(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the answers of a row; [] if it has no list of objects with a text each."""
    lists = (dicts_in(transpose_columns(row.get(name))) for name in _LISTS)
    return next((answers for answers in lists if answers and all(map(_text, answers))), [])


def _text(answer: dict[str, Any]) -> str | None:
    return nonblank(*(answer.get(name) for name in _TEXTS))
