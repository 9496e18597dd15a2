"""A prompt and its answers, each as text, a chat message or a list of messages (both forms of TRL)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.protocol import Report
from quintain.importers.training_data.chat_records import answer_of, is_message
from quintain.importers.training_data.sharegpt import is_turn, turns_to_messages
from quintain.importers.transcripts.chat_messages import MASKS
from quintain.importers.values import as_written, nonblank, transpose_columns

_SPEAKER = re.compile(r"\n\n(Human|Assistant):")


def parse_messages(role: str, value: Any, report: Report) -> list[Any]:
    """Return the messages of a value: text or a number with this role, a response, a message or turn, or a list of them.

    Text that is JSON of messages counts as those, and any other JSON as text.
    """
    text = as_written(value)
    value = transpose_columns(text or value)
    if nonblank(value) is not None:
        return _dialog(value) or [{"role": role, "content": value}]
    values = value if isinstance(value, list) else [value]
    if values and all(is_turn(turn) for turn in values):
        return list(turns_to_messages(values, report))
    messages = [each for each in values if isinstance(each, Mapping) and (is_message(each) or "role" in each)]
    return messages or answer_of(value) or ([{"role": role, "content": text}] if text else [])


def with_completion(prompt: Sequence[Any], completion: Sequence[Any]) -> list[Any]:
    """Join prompt and completion into one chat; agent turns of the prompt are context and not in the loss."""
    context = [{**m, "weight": 0} if m.get("role") == "assistant" and m.keys().isdisjoint(MASKS) else m for m in prompt]
    return [*context, *completion]


def split_shared_prompt(chosen: Sequence[Any], rejected: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Split two chats into their common beginning and their continuations (TRL's implicit prompt).

    Raises:
        InvalidInput: they are the same chat.
    """
    shared = 0
    while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
        shared += 1
    if shared == len(chosen) == len(rejected):
        raise InvalidInput("expected two different answers, got equal chosen and rejected")
    # An answer of the agent is never part of the prompt, even where one answer begins as the other does.
    while shared and (shared == min(len(chosen), len(rejected)) or chosen[shared - 1].get("role") == "assistant"):
        shared -= 1
    return list(chosen[:shared]), list(chosen[shared:]), list(rejected[shared:])


def fingerprint(*values: Any) -> str:
    """Return a short stable hash of values."""
    serialized = json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(serialized.encode()).hexdigest()[:16]


def _dialog(dialog: str) -> list[Any]:
    """Split a text of `Human:` and `Assistant:` turns (Anthropic's HH-RLHF) into messages; empty for other text.

    A last turn without words is the place of the answer.
    """
    if not dialog.lstrip().startswith("Human:") or "\n\nAssistant:" not in dialog:
        return []
    _, *turns = _SPEAKER.split("\n\n" + dialog.lstrip())
    roles = {"Human": "user", "Assistant": "assistant"}
    pairs = list(zip(turns[::2], turns[1::2], strict=True))
    pairs = pairs if pairs[-1][1].strip() else pairs[:-1]
    return [{"role": roles[speaker], "content": words.strip()} for speaker, words in pairs]
