"""TRL's stepwise supervision (PRM): a prompt, the steps of an answer, and whether each of them is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.logfile import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.runs import run_of
from quintain.importers.training_data.answers import said_by
from quintain.importers.training_data.rows import likeness, runs, task_of
from quintain.importers.transcripts.chat import read_turns
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.transcripts.values import worth


@dataclass(frozen=True)
class Stepwise:
    """Reads rows of steps with labels; a label becomes the reward of its step."""

    name: str = "stepwise"
    title: str = "Stepwise supervision (PRM)"

    def detect(self, probe: Probe) -> float:
        """Rows with a prompt, a list of completions and a list of labels."""
        return 0.96 * likeness(probe, _is_stepwise, "completions")

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """One run a row, one step a completion."""
        return runs(log, report, self._row)

    def _row(self, row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
        completions, labels = row.get("completions"), row.get("labels")
        if not isinstance(completions, list) or not isinstance(labels, list) or len(completions) != len(labels):
            raise InvalidInput("needs `completions` and `labels`, two lists of one length")
        transcript = Transcript()
        read_turns(said_by("user", row.get("prompt"), report), transcript, report.refuse)
        for completion, label in zip(completions, labels, strict=True):
            if not isinstance(completion, str):
                raise InvalidInput(f"a completion is {type(completion).__name__}; each step must be text")
            transcript.act(completion, reward=worth(label))
        yield from run_of(transcript, report, line, format=self.name, task=task_of(row))


def _is_stepwise(row: dict[str, Any]) -> bool:
    return isinstance(row.get("completions"), list) and isinstance(row.get("labels"), list) and "prompt" in row
