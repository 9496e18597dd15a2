"""A prompt and a list of answers to it, each with its model and its rating or rank (UltraFeedback, Nectar).

Answers may be texts, with their ratings and models in lists of the same length. Each answer is a run of the group of its
prompt. Its rating is its reward; where answers have a rank alone, the reward is minus the rank, so that the first of them
has the highest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.outcome_fields import outcome_of
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import build_chat_run, first_name, matching_share, row_importer
from quintain.importers.training_data.alpaca import ASKED, instruction_messages
from quintain.importers.training_data.prompt_answers import fingerprint, parse_messages, with_completion
from quintain.importers.values import as_number, dicts_in, nonblank, score_fields, transpose_columns
from quintain.records.trajectory import AgentInfo

_LISTS = ("completions", "answers", "responses", "candidates", "outputs", "generations", "response", "output")
_TEXTS = ("response", "answer", "completion", "output", "text", "content")
_RATINGS = ("reward", "score", "overall_score", "rating")
_BESIDE = {
    **{f"{name}{end}": name for name in ("reward", "score", "rating", "model") for end in ("", "s")},
    **{"generation_models": "model", "correctness": "is_correct", "is_correct": "is_correct"},
}
"""Lists beside the texts of answers, and what their values state of each."""
_STATED = {"model", "generator", "rank", "is_correct", *_RATINGS}

_ELSEWHERE = frozenset({"messages", "conversations", "chosen", "labels"})
_RATED = (
    "answers of one prompt are a run each, the worse ones too: dpo makes pairs of them, and for sft "
    "`curation={'best_per_task': 1}` keeps the best"
)
_OWN_SYSTEM = "system prompts of single answers are left out, so that the answers of one prompt can be compared"


def _detect(probe: Probe) -> float:
    """Match rows with a prompt and several answers."""
    return 0.9 * matching_share(probe, lambda row: _is_asked(row) and len(_answers(row)) > 1, *_LISTS)


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    asked = {**row, "question": row.get("question", row.get("problem"))}
    prompt = parse_messages("user", row.get("prompt"), report) or instruction_messages(asked)
    columns = {key: value for key, value in row.items() if key not in {"prompt", "problem", *ASKED, *_LISTS, *_BESIDE}}
    columns["task_id"] = first_name(row, ("task_id", "prompt_id"))
    for place, answer in enumerate(_answers(row)):
        rating = next((number for name in _RATINGS if (number := as_number(answer.get(name))) is not None), None)
        rank = as_number(answer.get("rank"))
        reward = -rank if rating is None and rank is not None else rating
        if reward is not None:
            report.note(_RATED)
        if nonblank(answer.get("custom_system_prompt")):
            report.note(_OWN_SYSTEM)
        yield from build_chat_run(
            with_completion(prompt, parse_messages("assistant", _text(answer), report)),
            columns,
            line,
            report,
            agent=AgentInfo(model=nonblank(answer.get("model"), answer.get("generator"))),
            outcome=outcome_of(answer).model_copy(update={"reward": reward, "scores": score_fields(answer)}),
            group_id=f"preference-{fingerprint(prompt)}",
            episode_key=str(place),
        )


IMPORTER = row_importer("answers", "Answers of one prompt", _detect, _row)


def _is_asked(row: dict[str, Any]) -> bool:
    """Whether a row asks; one with a chat, a chosen answer or labels of steps is another format's."""
    asked = isinstance(row.get("prompt"), str | list) or any(nonblank(row.get(name)) for name in (*ASKED, "problem"))
    return asked and row.keys().isdisjoint(_ELSEWHERE)


def _answers(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the answers of a row; [] if it has no list of texts, or of objects with a text each.

    A list named `answers` may be the right ones, if nothing states who wrote them or how good they are.
    """
    for name in _LISTS:
        held = transpose_columns(row.get(name))
        answers = dicts_in(held)
        if isinstance(held, list) and held and all(map(nonblank, held)):
            lists = {key: row[key] for key in _BESIDE if isinstance(row.get(key), list) and len(row[key]) == len(held)}
            stated = ({_BESIDE[key]: values[place] for key, values in lists.items()} for place in range(len(held)))
            answers = [{"response": text, **about} for text, about in zip(held, stated, strict=True)]
        if answers and all(map(_text, answers)) and (name != "answers" or not answers[0].keys().isdisjoint(_STATED)):
            return answers
    return []


def _text(answer: dict[str, Any]) -> str | None:
    return nonblank(*(answer.get(name) for name in _TEXTS))
