"""A chat in one cell: lines that begin with the name of their speaker, as in `Customer: ...` and `Bot: ...`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from quintain.errors import InvalidInput
from quintain.records.wording import shown

SPEAKERS = ("user", "assistant")
"""Names in `columns` that state who speaks in the text of the column `messages`."""


def chat_reader(columns: Mapping[str, str], marks: Mapping[str, str]) -> Callable[[Mapping[str, Any]], Any] | None:
    """Return what reads the column `messages` of a row as chat messages; None if no speakers are stated.

    A line without a speaker goes on with the message before it; lines before the first speaker are left out.
    What it returns raises `InvalidInput` for a text without a line of the agent.
    """
    column = columns.get("messages")
    if column is None or not any(name in marks for name in SPEAKERS):
        return None
    if absent := [name for name in SPEAKERS if name not in marks]:
        raise InvalidInput(
            f"columns: expected both speakers of {column!r}, got no {absent[0]}; state how its lines begin, such as "
            '`columns={"messages": "transcript", "user": "Customer", "assistant": "Bot"}`'
        )
    roles = {marks[name].strip().removesuffix(":").casefold(): name for name in SPEAKERS}
    begins = re.compile(rf"^[ \t]*({'|'.join(map(re.escape, roles))})[ \t]*:[ \t]*", re.IGNORECASE | re.MULTILINE)

    def read(row: Mapping[str, Any]) -> Any:
        text = row.get(column)
        if not isinstance(text, str):
            return text
        _, *parts = begins.split(text)
        lines = zip(parts[::2], parts[1::2], strict=True)
        messages = [{"role": roles[name.casefold()], "content": words.strip()} for name, words in lines]
        if not any(message["role"] == "assistant" for message in messages):
            named = " and ".join(f"{marks[name]}:" for name in SPEAKERS)
            raise InvalidInput(f"expected lines that begin with {named}, got none of the agent in {shown(text[:80])}")
        return messages

    return read
