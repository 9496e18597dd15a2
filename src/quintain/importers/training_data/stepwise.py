"""TRL's stepwise supervision (PRM): a prompt, the steps of an answer, and a label for each step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import matching_share, row_importer, task_of
from quintain.importers.run_builder import build_run
from quintain.importers.training_data.prompt_answers import parse_messages
from quintain.importers.transcripts.chat_messages import read_turns
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_score


def _detect(probe: Probe) -> float:
    """Match rows with a prompt, a list of completions and a list of labels."""
    return 0.96 * matching_share(probe, _is_stepwise, "completions")


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    completions, labels = row.get("completions"), row.get("labels")
    if not isinstance(completions, list) or not isinstance(labels, list) or len(completions) != len(labels):
        raise InvalidInput("expected `completions` and `labels`, two lists of equal length")
    transcript = Transcript()
    read_turns(parse_messages("user", row.get("prompt"), report), transcript, report.refuse)
    for completion, label in zip(completions, labels, strict=True):
        if not isinstance(completion, str):
            raise InvalidInput(f"expected text in each completion, got {type(completion).__name__}")
        transcript.add_agent_turn(completion, reward=as_score(label))
    yield from build_run(transcript, report, line, task=task_of(row))


IMPORTER = row_importer("stepwise", "Stepwise supervision (PRM)", _detect, _row)


def _is_stepwise(row: dict[str, Any]) -> bool:
    return isinstance(row.get("completions"), list) and isinstance(row.get("labels"), list) and "prompt" in row
