"""Rows of a prompt and its completion, as text or as messages (TRL, OpenAI's old fine-tuning files)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import build_chat_run, is_sentence, matching_share, row_importer, task_of
from quintain.importers.run_builder import NO_RUN
from quintain.importers.training_data.prompt_answers import parse_messages, with_completion
from quintain.importers.values import as_written
from quintain.records.wording import clip

_ANSWERS = ("completion", "response")
_ELSEWHERE = frozenset(
    {"chosen", "label", "kto_tag", "is_good", "labels", "messages", "data_source", "example_id", "task_id"}
)


def _detect(probe: Probe) -> float:
    """Match rows with both; rows that mostly have only a prompt match too, to be rejected with a reason."""
    asked = matching_share(probe, lambda row: isinstance(row.get("prompt"), str | list), "prompt")
    return max(
        0.88 * matching_share(probe, lambda row: _has(row, "completion"), "prompt"),
        0.75 * matching_share(probe, lambda row: _has(row, "response"), "prompt"),
        0.4 * matching_share(probe, lambda row: "prompt" in row and "completion" in row, "prompt"),
        0.35 * asked if asked >= 0.5 else 0.0,
    )


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    prompt = parse_messages("user", row.get("prompt"), report)
    if len(prompt) == 1 and isinstance(row["prompt"], str) and is_sentence(row.get("context")):
        prompt = [
            {**prompt[0], "content": f"{row['prompt']}\n{row['context']}"}
        ]  # what it is about, as in Dolly's rows
    answers = [parse_messages("assistant", row.get(key), report) for key in _ANSWERS]
    answer = next((answer for answer in answers if answer), None)
    if answer is None:
        texts = [key for key, value in row.items() if key != "prompt" and is_sentence(value)]
        texts.sort(key=lambda key: -len(row[key]))
        raise InvalidInput(_unanswered(texts) if texts else NO_RUN)
    columns = {key: value for key, value in row.items() if key not in {"prompt", "context", "answer", *_ANSWERS}}
    right = row.get("answer")  # beside a response this is what it should have been
    metadata = {"answer": right} if isinstance(right, str | int | float) and right != "" else {}
    task = task_of(row).model_copy(update={"metadata": metadata})
    yield from build_chat_run(with_completion(prompt, answer), columns, line, report, task=task)


IMPORTER = row_importer("prompt_completion", "Prompt and completion", _detect, _row)


def _unanswered(texts: list[str]) -> str:
    names = ", ".join(clip(name) for name in texts[:4])
    return (
        f"expected an answer in {' or '.join(_ANSWERS)}, got a prompt beside {names}; if one of them is the answer, rename "
        "it in a copy of the file"
    )


def _has(row: dict[str, Any], answer: str) -> bool:
    given = row.get(answer)
    held = isinstance(given, str | list | dict) or as_written(given) is not None
    return held and isinstance(row.get("prompt"), str | list) and not _ELSEWHERE & row.keys()
