"""Instruction rows of Alpaca (`instruction`, `input`, `output`; also the last two alone), AlpacaEval, Dolly and ms-swift (`query`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import build_chat_run, is_sentence, matching_share, row_importer
from quintain.importers.run_builder import NO_RUN
from quintain.importers.values import as_list, as_written, nonblank, parse_json_text

_MAX_COLUMNS = 25
"""Column limit of a row; an object with more is something else, such as the strings of a user interface."""

ASKED = ("instruction", "query", "question", "input", "context")
"""Columns that are asked, in this order."""
_PAIR_COLUMNS = 3
"""Column limit of a row with an input and an output alone."""


def _detect(probe: Probe) -> float:
    """Match rows with `instruction` and `output` or `response`, without steps or preferences; an input for an instruction."""
    if probe.document is not None and not is_sentence(probe.document.get("instruction")):
        return 0.0  # one object of labels, such as a program's texts by their names
    return max(
        0.9 * matching_share(probe, _is_alpaca, "instruction"),
        0.8 * matching_share(probe, _is_dolly, "instruction", "query"),
        0.6 * matching_share(probe, _is_pair, "input"),
    )


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    answer = as_written(row.get("output")) or as_written(row.get("response"))
    if answer is None:
        raise InvalidInput(NO_RUN)
    left = {k: v for k, v in row.items() if k not in {*ASKED, "output", "response", "history"}}
    messages = [*instruction_messages(row), {"role": "assistant", "content": answer}]
    yield from build_chat_run(messages, left, line, report)


IMPORTER = row_importer("alpaca", "Alpaca instructions", _detect, _row)


def instruction_messages(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages before the answer: the history, then instruction and input on separate lines.

    Raises:
        InvalidInput: nothing is asked.
    """
    asked = dict.fromkeys(part for key in ASKED if (part := nonblank(row.get(key))))
    if not asked:
        raise InvalidInput("expected an instruction or an input")
    messages = []
    for exchange in as_list(parse_json_text(row.get("history"))):
        if isinstance(exchange, list) and len(exchange) == 2:
            messages += [{"role": "user", "content": exchange[0]}, {"role": "assistant", "content": exchange[1]}]
    return [*messages, {"role": "user", "content": "\n".join(asked)}]


def _is_alpaca(row: dict[str, Any]) -> bool:
    answered = isinstance(row.get("output"), str) or as_written(row.get("output")) is not None
    asked = isinstance(row.get("instruction"), str) and answered and len(row) <= _MAX_COLUMNS
    return asked and not {"messages", "conversations", "chosen"} & row.keys() and not _is_labelled(row)


def _is_dolly(row: dict[str, Any]) -> bool:
    asked = isinstance(row.get("instruction", row.get("query")), str) and isinstance(row.get("response"), str)
    return asked and len(row) <= _MAX_COLUMNS and not {"chosen", "task_id"} & row.keys() and not _is_labelled(row)


def _is_labelled(row: dict[str, Any]) -> bool:
    """Whether a label says if the answer is good; any other label is a class."""
    return any(isinstance(row.get(name), bool) for name in ("label", "kto_tag"))


def _is_pair(row: dict[str, Any]) -> bool:
    return len(row) <= _PAIR_COLUMNS and is_sentence(row.get("input")) and nonblank(row.get("output")) is not None
