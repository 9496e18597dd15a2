"""AgentInstruct (AgentTuning) rows: tasks of six environments as text, `from`, `loss` and `value` or `role` and `content`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.harnesses.agentgym import environment_run, has_marks
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import matching_share, row_importer
from quintain.importers.training_data.chat_records import COLUMNS, is_chat
from quintain.importers.training_data.sharegpt import turns_in
from quintain.importers.values import as_text, dicts_in, transpose_columns

_ID = re.compile(r"(os|db|kg|alfworld|webshop|mind2web)_\d+")


def _detect(probe: Probe) -> float:
    """Match turns with loss marks under an `id`, or a chat under the id of one of its environments, such as `os_42`."""
    return max(0.95 * matching_share(probe, _has_marks, *COLUMNS), 0.9 * matching_share(probe, _is_named, *COLUMNS))


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    turns = turns_in(row)
    if turns is None:
        chat = transpose_columns(row.get("conversations"))
        if not is_chat(chat):
            raise InvalidInput("expected a conversation of `from` and `value` or of `role` and `content`")
        turns = [
            {**message, "from": as_text(message.get("role")), "value": message.get("content")}
            for message in dicts_in(chat)
        ]
    yield from environment_run(turns, row, line, report)


IMPORTER = row_importer("agentinstruct", "AgentInstruct trajectories", _detect, _row)


def _has_marks(row: dict[str, Any]) -> bool:
    return "item_id" not in row and has_marks(row, "id")


def _is_named(row: dict[str, Any]) -> bool:
    named = _ID.fullmatch(as_text(row.get("id"))) is not None and "item_id" not in row
    # Without marks or roles, and with a reward, it is a row of ETO.
    has_turns = turns_in(row) is not None and "reward" not in row
    return named and (has_turns or is_chat(transpose_columns(row.get("conversations"))))
