"""Answers of ToolBench and StableToolBench: a search for a chain of calls, with the chain that it ended with.

The messages before each of its calls are a list of their own; the longest is the whole chain. `win` only means that the
chain ended with an answer, so the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.importer import row_importer
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import build_chat_run, matching_share
from quintain.importers.transcripts.field_values import as_dict, as_list, as_text, dicts_in, nonblank
from quintain.records.trajectory import Outcome, Task


def _detect(probe: Probe) -> float:
    """Match an answer with its search."""
    return 0.96 * matching_share(probe, _is_answer, "answer_generation")


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    answer = as_dict(row.get("answer_generation"))
    chains = [dicts_in(messages) for messages in as_list(answer.get("train_messages"))]
    if not chains:
        raise InvalidInput("expected `train_messages`, got a search that found no chain")
    longest = max(chains, key=len)
    yield from build_chat_run(
        longest,
        {"functions": answer.get("function"), "win": row.get("win")},
        line,
        report,
        task=Task(prompt=as_text(answer.get("query")).strip()),
        outcome=Outcome(exit_status=nonblank(answer.get("finish_type"))),
    )


IMPORTER = row_importer("toolbench", "ToolBench answers", _detect, _row)


def _is_answer(row: dict[str, Any]) -> bool:
    return {"query", "function", "valid_data"} <= as_dict(row.get("answer_generation")).keys() and "win" in row
