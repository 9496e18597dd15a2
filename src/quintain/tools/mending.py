"""Values that a stranger's loop hands over, as JSON that a record can hold; what had to be changed is told."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import date
from numbers import Integral, Real
from typing import Any

from pydantic import ValidationError

from quintain.importers.transcripts.transcript import make_call
from quintain.records.record import explain, shown
from quintain.records.tags import fault_of
from quintain.records.trajectory import Task, Usage

_LEVELS = 60
"""Levels of nesting that stay; a run as a whole may have 100."""
_MEMBERS = 200_000
"""Members of one value that stay; values that share their members can unfold without end."""
_MAX_BITS = 4096
"""Of a whole number; Python writes out no number of more than some 14,000."""
_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Mender:
    """Makes values fit; `tell` is told of each change, in words that may quote the value."""

    tell: Callable[[str], None]

    def text(self, value: Any, name: str) -> str:
        """The value as text; None is no text."""
        if value is None:
            return ""
        if not isinstance(value, str):
            self.tell(f"{name} is of type {type(value).__name__}, no text; its text was taken")
        return self.said(value, name)

    def said(self, value: Any, name: str) -> str:
        """What `str` makes of a value; nothing where that fails."""
        try:
            return self.whole(str(value), name)
        except Exception as error:  # a stranger's `__str__`
            self.tell(f"{name} is of type {type(value).__name__}, whose text cannot be made ({type(error).__name__})")
            return ""

    def truth(self, value: Any, name: str) -> bool:
        """Is the value true? No where it does not tell, such as an array."""
        try:
            return bool(value)
        except Exception as error:  # a stranger's `__bool__`
            self.tell(f"{name} is of type {type(value).__name__}, neither true nor false ({type(error).__name__})")
            return False

    def whole(self, text: str, name: str) -> str:
        """The text with U+FFFD for every half of a character."""
        if text.isascii() or _HALF.search(text) is None:
            return str(text)
        self.tell(f"{name} holds half a character, which is no Unicode text; U+FFFD stands for it")
        return _HALF.sub("\ufffd", text)

    def number(self, value: Any, name: str) -> float | None:
        """The value as a number; None where it is none, or not finite."""
        if value is None:
            return None
        try:
            number = float(value)
        except Exception as error:  # a stranger's `__float__`
            self.tell(f"{name} is of type {type(value).__name__}, no number ({type(error).__name__}), so it is unknown")
            return None
        if math.isfinite(number):
            return number
        self.tell(f"{name} is {number}; numbers must be finite, so it is unknown")
        return None

    def value(self, value: Any, name: str) -> Any:
        """The value as JSON has it."""
        return _Unfolding(self, name).value(value, _LEVELS)

    def written(self, value: Any, name: str) -> str:
        """Text as it is, any other value as its JSON."""
        return self.whole(value, name) if isinstance(value, str) else json.dumps(
            self.value(value, name), ensure_ascii=False
        )  # fmt: skip

    def calls(self, calls: Any) -> list[dict[str, Any]]:
        """Tool calls, as `action` makes them; what is none is left out."""
        made: list[dict[str, Any]] = []
        for place, call in enumerate(self.members(calls, "calls")):
            try:
                tool, arguments, *rest = call
                if isinstance(arguments, str):
                    arguments = self.whole(arguments, f"calls[{place}]")
                else:
                    arguments = self.value(arguments, f"calls[{place}]")
                made.append(make_call(self.text(tool, "tool"), arguments, *(rest and [self.call_id(rest[0])])))
            except (TypeError, ValueError) as error:
                self.tell(
                    f"calls[{place}] is no (tool, arguments, id) and was left out: {type(error).__name__}: {error}"
                )
        return made

    def members(self, several: Any, name: str) -> list[Any]:
        """What a list holds; nothing where it is none."""
        if several is None or isinstance(several, list | tuple | Set):
            return list(several or ())
        try:
            return list(several)
        except Exception as error:  # a stranger's `__iter__`
            self.tell(f"{name} is of type {type(several).__name__}, no list ({type(error).__name__}); left out")
            return []

    def call_id(self, value: Any) -> str | None:
        """The id of a call; ids are text, all others are none."""
        return self.whole(value, "call_id") if isinstance(value, str) else None

    def usage(self, usage: Any) -> dict[str, Any] | None:
        """What a turn cost, as `Usage` has it; None where it cannot be read."""
        if usage is None:
            return None
        try:
            return Usage.model_validate(usage).model_dump(exclude_none=True)
        except ValidationError as error:
            self.tell(f"{explain(error, 'usage')}; left out")
            return None

    def tags(self, *given: Any) -> tuple[str, ...]:
        """The tags of several places that may be used, each once."""
        tags: dict[str, None] = {}
        for some in given:
            for tag in [some] if isinstance(some, str) else self.members(some, "tags"):
                if fault := fault_of(tag):
                    self.tell(f"a tag {fault}; left out")
                else:
                    tags[tag] = None
        return tuple(tags)

    def task(self, task: Any) -> Task:
        """What was asked; what is no field of a task is kept in its metadata."""
        if not isinstance(task, Mapping):
            return Task(prompt=self.text(task, "task"))
        fields: dict[str, Any] = {}
        metadata = self.value(task.get("metadata") or {}, "task.metadata")
        metadata = metadata if isinstance(metadata, dict) else {"metadata": metadata}
        for name, value in task.items():
            if name in {"id", "prompt", "type", "difficulty", "environment"}:
                if value is not None:
                    fields[name] = self.text(value, f"task.{name}")
            elif name != "metadata":
                self.tell(f"task.{name} is no field of a task; kept in its metadata")
                metadata[self.said(name, "task")] = self.value(value, f"task.{name}")
        return Task(metadata=metadata, **fields)


@dataclass
class _Unfolding:
    """One value on its way; tells of each kind of change once."""

    mender: Mender
    name: str
    left: int = _MEMBERS
    deep: bool = False
    large: bool = False

    def value(self, value: Any, levels: int) -> Any:
        self.left -= 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.mender.whole(value, self.name)
        if isinstance(value, Integral):  # numpy's too
            whole = int(value)
            return whole if whole.bit_length() <= _MAX_BITS else shown(whole)
        if isinstance(value, Real):
            return self.mender.number(value, self.name)
        if isinstance(value, Mapping):
            if self._has_room(levels):
                return {self.key(key): self.value(inner, levels - 1) for key, inner in self._first(value.items())}
            return "..."
        if isinstance(value, list | tuple | Set):
            return [self.value(inner, levels - 1) for inner in self._first(value)] if self._has_room(levels) else "..."
        return value.isoformat() if isinstance(value, date) else self.mender.said(value, self.name)

    def key(self, key: Any) -> str:
        return self.mender.said(key, self.name)

    def _has_room(self, levels: int) -> bool:
        if levels <= 0 and not self.deep:
            self.deep = True
            self.mender.tell(f"{self.name} is nested deeper than {_LEVELS} levels; what lies deeper was left out")
        return levels > 0 and self.left > 0

    def _first(self, members: Iterable[Any]) -> Iterable[Any]:
        for member in members:
            if self.left <= 0:
                if not self.large:
                    self.large = True
                    self.mender.tell(f"{self.name} holds more than {_MEMBERS:,} values; the rest was left out")
                return
            yield member
