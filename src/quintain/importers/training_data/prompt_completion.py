"""Rows of a prompt and its completion, as text or as messages (TRL, OpenAI's old fine-tuning files)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.logfile import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.runs import NO_RUN
from quintain.importers.training_data.answers import answered, said_by
from quintain.importers.training_data.rows import chat_run, likeness, runs

_ANSWERS = ("completion", "response")
_ELSEWHERE = frozenset({"chosen", "label", "kto_tag", "labels", "messages", "data_source", "example_id", "task_id"})


@dataclass(frozen=True)
class PromptCompletion:
    """Reads rows of `prompt` and `completion`."""

    name: str = "prompt_completion"
    title: str = "Prompt and completion"

    def detect(self, probe: Probe) -> float:
        """Rows with both; rows that only have a prompt are known too, to be refused with the reason."""
        return max(
            0.88 * likeness(probe, lambda row: _has(row, "completion"), "prompt"),
            0.75 * likeness(probe, lambda row: _has(row, "response"), "prompt"),
            0.4 * likeness(probe, lambda row: "prompt" in row and "completion" in row, "prompt"),
            0.35 * likeness(probe, lambda row: isinstance(row.get("prompt"), str | list), "prompt"),
        )

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """One run a row."""
        return runs(log, report, self._row)

    def _row(self, row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
        prompt = said_by("user", row.get("prompt"), report)
        answers = [said_by("assistant", row.get(key), report) for key in _ANSWERS]
        answer = next((answer for answer in answers if answer), None)
        if answer is None:
            raise InvalidInput(NO_RUN)
        columns = {key: value for key, value in row.items() if key not in {"prompt", *_ANSWERS}}
        yield from chat_run(answered(prompt, answer), columns, line, report, format=self.name)


def _has(row: dict[str, Any], answer: str) -> bool:
    held = isinstance(row.get("prompt"), str | list) and isinstance(row.get(answer), str | list | dict)
    return held and not _ELSEWHERE & row.keys()
