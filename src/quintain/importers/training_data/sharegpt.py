"""ShareGPT rows: `conversations` of `from` and `value`, with tools as JSON text (also LLaMA-Factory's format)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import build_chat_run, matching_share, row_importer
from quintain.importers.training_data.chat_records import COLUMNS
from quintain.importers.transcripts.chat_messages import MASKS, ROLES
from quintain.importers.transcripts.tool_tags import RESULT_SEPARATOR
from quintain.importers.values import parse_json_text, transpose_columns

_KNOWN = {"from", "value", *MASKS}
_BEFORE_CALL = re.compile(
    r"(?P<content>.*?)<tool_call>(?P<calls>.*)</tool_call>\s*|(?P<thought>\s*<think>.*?</think>\s*)(?P<rest>.*)",
    re.DOTALL,
)
"""Content that LLaMA-Factory allows before a call: text before its tags, or a thought."""


def _detect(probe: Probe) -> float:
    """Match rows of turns with `from` and `value`, without preferences."""
    return 0.85 * matching_share(probe, _is_sharegpt, *COLUMNS)


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    turns = turns_in(row)
    if turns is None:
        raise InvalidInput("expected a conversation of `from` and `value`")
    yield from build_chat_run(list(turns_to_messages(turns, report)), row, line, report)


IMPORTER = row_importer("sharegpt", "ShareGPT conversations", _detect, _row)


def _is_sharegpt(row: dict[str, Any]) -> bool:
    return turns_in(row) is not None and not {"chosen", "rejected", "kto_tag"} & row.keys()


def is_turn(value: Any) -> bool:
    """Whether a value is a turn with `from` and `value`."""
    return isinstance(value, Mapping) and isinstance(value.get("from"), str) and "value" in value


def turns_in(row: Mapping[str, Any]) -> list[Any] | None:
    """Return the turns of a row; None if it has none of this kind."""
    for key in ("conversations", "conversation", "messages"):
        turns = transpose_columns(row.get(key))
        if isinstance(turns, list) and turns and all(is_turn(turn) for turn in turns[:3]):
            return turns
    return None


def turns_to_messages(turns: list[Any], report: Report) -> Iterator[dict[str, Any]]:
    """Yield chat messages; a `function_call` turn becomes tool calls with the text before them.

    Other fields of a turn are counted, except those that repeat its value or its role: their names mean different things
    in different datasets.
    """
    asked = 0
    for turn in turns:
        if not is_turn(turn):
            report.skip("turn without from and value")
            continue
        role = "assistant" if turn["from"] == "function_call" else ROLES.get(turn["from"], turn["from"])
        message = {key: turn[key] for key in MASKS if turn.get(key) is not None}
        for key, value in turn.items():
            is_repeated = value == turn["value"] or (isinstance(value, str) and ROLES.get(value) == role)
            if key not in _KNOWN and value not in (None, "", [], {}) and not is_repeated:
                report.skip(f"field:{key}")
        content, calls = _split_call_turn(turn["value"]) if turn["from"] == "function_call" else (turn["value"], [])
        results = content.split(RESULT_SEPARATOR) if role == "tool" and isinstance(content, str) else []
        if len(results) == asked > 1:
            yield from ({**message, "role": role, "content": result} for result in results)
        else:
            yield {**message, "role": role, "content": content, **({"tool_calls": calls} if calls else {})}
        asked = len(calls)


def _split_call_turn(value: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Split a call turn into its text and its calls; a turn without calls is text."""
    if calls := _calls(value):
        return None, calls
    found = _BEFORE_CALL.fullmatch(value) if isinstance(value, str) else None
    calls = _calls(found["calls"] or found["rest"]) if found else []
    return (found["content"] or found["thought"], calls) if found and calls else (value, [])


def _calls(value: Any) -> list[dict[str, Any]]:
    """Return the JSON calls of a turn, one or a list; empty if it is not JSON, and then it stays text."""
    value = parse_json_text(value)
    calls = value if isinstance(value, list) else [value]
    if not calls or not all(isinstance(call, Mapping) and isinstance(call.get("name"), str) for call in calls):
        return []
    return [{"id": call.get("id"), "function": call} for call in calls]
