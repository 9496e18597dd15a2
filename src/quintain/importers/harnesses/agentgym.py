"""AgentGym's AgentTraj-L and ETO's rows: text turns of an environment, with loss marks.

The first human turn contains the environment's instructions, the agent's `OK` follows, then comes the task. What the
environment answers is a human turn that begins with `Observation:`; it stays a turn, since that text is the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import build_chat_run, first_name, matching_share, row_importer
from quintain.importers.training_data.chat_records import COLUMNS
from quintain.importers.training_data.sharegpt import turns_in, turns_to_messages
from quintain.importers.values import dicts_in
from quintain.records.trajectory import Task

_UNDERSTOOD = re.compile(r"\s*ok(ay)?\b", re.IGNORECASE)
_SHORT = 80
"""Length limit of a first answer that only acknowledges the instructions, such as ETO's `OK. I'll follow your instructions`."""
_LOOKED_AT = 6
"""Number of first turns among which the environment must have answered."""


def _detect(probe: Probe) -> float:
    """Match turns with loss marks under an `item_id`, or a conversation that opens with instructions and `OK`."""
    marked = matching_share(probe, lambda row: has_marks(row, "item_id"), *COLUMNS)
    return max(0.95 * marked, 0.88 * matching_share(probe, _opens_with_ok, *COLUMNS))


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    turns = turns_in(row)
    if turns is None:
        raise InvalidInput("expected a conversation of `from` and `value`")
    yield from environment_run(turns, row, line, report)


IMPORTER = row_importer("agentgym", "AgentGym and ETO trajectories", _detect, _row)


def environment_run(turns: list[Any], row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    """Build the run of a row that first explains an environment; the task is the user turn after the agent's `OK`."""
    messages = list(turns_to_messages(turns, report))
    begun = opens_with_ok(messages)
    if begun:
        messages[1].setdefault("loss", False)
    prompt = str(messages[2]["content"]) if begun and len(messages) > 2 and messages[2]["role"] == "user" else ""
    task_id = first_name(row, ("item_id", "id", "task_id"))
    yield from build_chat_run(
        messages,
        {key: row.get(key) for key in ("reward", "model", "success", "system")},
        line,
        report,
        task=Task(id=task_id, prompt=prompt, environment=_environment(task_id)),
    )


def opens_with_ok(messages: list[dict[str, Any]]) -> bool:
    """Whether the agent's first turn only acknowledges the instructions."""
    if len(messages) < 2 or [message["role"] for message in messages[:2]] != ["user", "assistant"]:
        return False
    answer = messages[1]["content"]
    if messages[1].get("loss") is False or (
        isinstance(answer, str) and answer.strip(" .!\n").lower() in {"ok", "okay"}
    ):
        return True
    later = [message["content"] for message in messages[2:_LOOKED_AT] if message["role"] == "user"]
    observed = any(isinstance(content, str) and content.startswith("Observation:") for content in later)
    return observed and isinstance(answer, str) and len(answer) <= _SHORT and _UNDERSTOOD.match(answer) is not None


def _environment(task_id: str | None) -> str | None:
    """Return `webshop` for `webshop_3`."""
    name, _, number = (task_id or "").rpartition("_")
    return name if number.isdigit() and name else None


def has_marks(row: dict[str, Any], id_field: str) -> bool:
    """Whether a row has turns with loss marks under an id."""
    return id_field in row and any("loss" in turn for turn in dicts_in(turns_in(row)))


def _opens_with_ok(row: dict[str, Any]) -> bool:
    turns = turns_in(row)
    return turns is not None and (
        "item_id" in row or opens_with_ok(list(turns_to_messages(turns[:_LOOKED_AT], Report())))
    )
