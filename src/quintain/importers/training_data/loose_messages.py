"""Chat messages that are separate rows: one chat of each conversation that a column names, else one a file.

Without such a column, a chat also begins where the positions of the messages begin anew. Messages that name their
parents, as those of OpenAssistant, are trees: each branch is a chat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.importers.files.spooled_list import Spool
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Report
from quintain.importers.row_reader import SESSIONS, first_name
from quintain.importers.values import as_name, as_number, parse_time

MEMORY_BYTES = 2**20
"""Bytes of a file after which further messages wait in a temporary file."""
_MAX_MESSAGES = 100_000
"""Message limit of one chat."""
_POSITIONS = ("turn", "turn_index", "message_index", "order", "position")
_TIMES = ("timestamp", "created_at", "time", "date")
"""Columns by which the messages of a conversation are put in order, if all of its messages have one of them."""
_PARENTS = {"parent_id": ("message_id", "id"), "parentId": ("id",), "parent_message_id": ("message_id", "id")}
"""Columns of the message before, and of the message's own id."""
_OWN = frozenset({"role", "content", "name", "type", "model", *_POSITIONS, *_TIMES})
"""Columns of a message that name no conversation."""
_MAX_VALUES = 1_000


class _Held(NamedTuple):
    line: int
    name: str | None
    parent: str | None
    """Its id, and that of the message before, if it states them."""
    order: tuple[str, float | datetime] | None
    """Column that orders the messages, and its value."""
    message: Any
    """The message, or its place in the spool."""


@dataclass
class _Chat:
    shared: dict[str, Any]
    """Columns that have one value in all messages."""
    stated: dict[str, tuple[Any, int] | None] = field(default_factory=dict)
    """Column -> its value and line if only one message has it; None: several have."""
    messages: list[_Held] = field(default_factory=list)


class LooseMessages:
    """Messages by conversation, in bounded memory."""

    def __init__(self, log: LogFile) -> None:
        """Begin without messages."""
        self._log = log
        self._spool = Spool()
        self._chats: dict[str | int, _Chat] = {}
        """Chats by the names of their conversations, or by their numbers."""
        self._n = 0
        self._before: float | None = None
        """Position of the last message of no named conversation."""
        self._values: dict[str, set[Any]] = {}
        """Column -> its values in messages of no named conversation."""

    def add(self, line: int, message: Any) -> None:
        """Add a message.

        Raises:
            InvalidInput: one chat has too many messages.
        """
        session, columns = first_name(message, SESSIONS), _short_columns(message)
        chat = self._chats.setdefault(self._number(message) if session is None else session, _Chat(columns))
        if len(chat.messages) >= _MAX_MESSAGES:
            raise InvalidInput(
                f"{self._log.path.name} has a chat of more than {_MAX_MESSAGES:,} messages; split it into parts"
            )
        chat.shared = dict(chat.shared.items() & columns.items())
        for name, value in columns.items():
            if value != "":
                chat.stated[name] = None if name in chat.stated else (value, line)
        if session is None:
            for name, value in columns.items():
                if len(values := self._values.setdefault(name, set())) <= _MAX_VALUES:
                    values.add(value)
        is_long = self._log.reading.unpacked > MEMORY_BYTES
        held = self._spool.put(message, self._log.reading.unpacked) if is_long else message
        chat.messages.append(_Held(line, *_place(message), _order(message), held))

    def chats(self, report: Report) -> Iterator[tuple[int, dict[str, Any], Iterator[Any]]]:
        """Yield the first line of each chat, its columns and its messages in order.

        Columns of a chat are those with one value in all messages, and those that its last message alone has: an outcome.
        """
        for session, chat in self._chats.items():
            begins, messages = chat.messages[0].line, chat.messages
            named = {} if isinstance(session, int) else {SESSIONS[0]: session}
            if branches := _branches(messages):
                for branch in branches:
                    leaf = {"attempt": branch[-1].name} if len(branches) > 1 else {}
                    yield branch[0].line, {**chat.shared, **named, **leaf}, self._read(branch)
                continue
            if isinstance(session, int) and not self._n:
                self._note_columns(len(messages), report)
                yield begins, {}, self._read(messages)
            else:
                orders = [held.order for held in messages]
                if None not in orders and len({order[0] for order in orders if order}) == 1:
                    messages = sorted(messages, key=lambda held: held.order or ())
                at_end = {name: one[0] for name, one in chat.stated.items() if one and one[1] == messages[-1].line}
                yield begins, {**at_end, **chat.shared, **named}, self._read(messages)

    def _number(self, message: Any) -> int:
        """Return the number of the chat of a message of no named conversation: a lower position than before begins one."""
        position = next((n for name in _POSITIONS if (n := _number(message.get(name))) is not None), None)
        if position is not None and self._before is not None and position < self._before:
            self._n += 1
        self._before = position
        return self._n

    def _read(self, messages: list[_Held]) -> Iterator[Any]:
        for held in messages:
            message = self._spool.get(held.message) if isinstance(held.message, int) else held.message
            yield {name: value for name, value in message.items() if name not in SESSIONS}

    def _note_columns(self, n: int, report: Report) -> None:
        """Add a note on columns that may name conversations: each value is that of two messages or more on average."""
        named = [name for name, values in self._values.items() if 1 < len(values) <= min(n // 2, _MAX_VALUES)]
        if named:
            report.note(
                f"{n:,} rows of one message each were read as one chat; if they are of several, rename the column that names "
                f"the conversation to {SESSIONS[0]} (of {', '.join(map(repr, named[:3]))}?), or name it by export_dataset(path=..., "
                f"columns={{{SESSIONS[0]!r}: ...}})"
            )


def _short_columns(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns beside the message itself whose values are short."""
    plain = {name: value for name, value in message.items() if name not in _OWN and name not in SESSIONS}
    return {
        name: value
        for name, value in plain.items()
        if isinstance(value, int | float) or (isinstance(value, str) and len(value) <= 200)
    }


def _place(message: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the id of a message and that of the message before, if it has columns for both."""
    for column, names in _PARENTS.items():
        if column in message and (name := first_name(message, names)) is not None:
            return name, as_name(message[column])
    return None, None


def _branches(messages: list[_Held]) -> list[list[_Held]]:
    """Return the messages from a first one to each last one; [] if no message names another one of these as its parent."""
    known = {held.name: held for held in messages if held.name is not None}
    parents = {held.parent for held in messages if held.parent in known}
    branches = []
    for leaf in messages if parents else ():
        if leaf.name not in parents:
            branch = {leaf.line: leaf}
            held = known.get(leaf.parent or "")
            while held is not None and held.line not in branch:
                branch[held.line] = held
                held = known.get(held.parent or "")
            branches.append(list(reversed(branch.values())))
    return branches


def _order(message: Mapping[str, Any]) -> tuple[str, float | datetime] | None:
    for name in _POSITIONS:
        if name in message and (number := _number(message[name])) is not None:
            return name, number
    for name in _TIMES:
        if name in message and (when := parse_time(message[name])) is not None:
            return name, when
    return None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, str) and value.isdecimal() else as_number(value)
