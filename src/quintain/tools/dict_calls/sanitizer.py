"""Sanitizing of recorded values: any Python value becomes JSON that a record accepts, and each change is reported."""

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
from quintain.records.tags import tag_error
from quintain.records.trajectory import Task, Usage
from quintain.records.wording import explain, shown

_LEVELS = 60
"""Levels of nesting that are kept; a run as a whole may have 100."""
_MEMBERS = 200_000
"""Members of one value that are kept; a value that shares its members can expand exponentially."""
_MAX_BITS = 4096
"""Bits of an integer; Python refuses to print integers of more than about 14,000 bits."""
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Sanitizer:
    """Converts values to JSON; `report` receives a message for each change, which may quote the value."""

    report: Callable[[str], None]

    def text(self, value: Any, name: str) -> str:
        """Return the value as text; None becomes the empty string."""
        if value is None:
            return ""
        if not isinstance(value, str):
            self.report(f"{name} is of type {type(value).__name__}, expected text; converted with str()")
        return self.to_str(value, name)

    def to_str(self, value: Any, name: str) -> str:
        """Return `str(value)`; the empty string where that raises."""
        try:
            return self.replace_surrogates(str(value), name)
        except Exception as error:  # a foreign `__str__`
            self.report(
                f"{name} is of type {type(value).__name__}, which str() cannot convert ({type(error).__name__})"
            )
            return ""

    def to_bool(self, value: Any, name: str) -> bool:
        """Return the truth value; False where it is ambiguous, as for an array."""
        try:
            return bool(value)
        except Exception as error:  # a foreign `__bool__`
            self.report(
                f"{name} is of type {type(value).__name__}, whose truth value is ambiguous ({type(error).__name__})"
            )
            return False

    def replace_surrogates(self, text: str, name: str) -> str:
        """Return the text with U+FFFD in place of every lone surrogate."""
        if text.isascii() or _SURROGATE.search(text) is None:
            return str(text)
        self.report(f"{name} contains a lone surrogate; replaced by U+FFFD")
        return _SURROGATE.sub("\ufffd", text)

    def number(self, value: Any, name: str) -> float | None:
        """Return the value as a finite float, else None."""
        if value is None:
            return None
        try:
            number = float(value)
        except Exception as error:  # a foreign `__float__`
            self.report(
                f"{name} is of type {type(value).__name__}, expected a number ({type(error).__name__}); left unknown"
            )
            return None
        if math.isfinite(number):
            return number
        self.report(f"{name} is {number}; expected a finite number; left unknown")
        return None

    def value(self, value: Any, name: str) -> Any:
        """Return the value as JSON."""
        return _Conversion(self, name).value(value, _LEVELS)

    def to_json_text(self, value: Any, name: str) -> str:
        """Return text unchanged and any other value as JSON text."""
        return self.replace_surrogates(value, name) if isinstance(value, str) else json.dumps(
            self.value(value, name), ensure_ascii=False
        )  # fmt: skip

    def calls(self, calls: Any) -> list[dict[str, Any]]:
        """Return tool calls as `action` builds them; malformed ones are left out."""
        actions: list[dict[str, Any]] = []
        for place, call in enumerate(self.members(calls, "calls")):
            try:
                tool, arguments, *rest = call
                if isinstance(arguments, str):
                    arguments = self.replace_surrogates(arguments, f"calls[{place}]")
                else:
                    arguments = self.value(arguments, f"calls[{place}]")
                actions.append(make_call(self.text(tool, "tool"), arguments, *(rest and [self.call_id(rest[0])])))
            except (TypeError, ValueError) as error:
                self.report(f"calls[{place}] expected (tool, arguments, id); left out: {type(error).__name__}: {error}")
        return actions

    def members(self, several: Any, name: str) -> list[Any]:
        """Return the members of a list, tuple or set; nothing for any other value."""
        if several is None or isinstance(several, list | tuple | Set):
            return list(several or ())
        try:
            return list(several)
        except Exception as error:  # a foreign `__iter__`
            self.report(
                f"{name} is of type {type(several).__name__}, expected a list ({type(error).__name__}); left out"
            )
            return []

    def call_id(self, value: Any) -> str | None:
        """Return the id of a call; None unless it is text."""
        return self.replace_surrogates(value, "call_id") if isinstance(value, str) else None

    def usage(self, usage: Any) -> dict[str, Any] | None:
        """Return the token usage of a turn; None where it does not validate."""
        if usage is None:
            return None
        try:
            return Usage.model_validate(usage).model_dump(exclude_none=True)
        except ValidationError as error:
            self.report(f"{explain(error, 'usage')}; left out")
            return None

    def tags(self, *values: Any) -> tuple[str, ...]:
        """Return the valid tags of all arguments without repeats."""
        tags: dict[str, None] = {}
        for some in values:
            for tag in [some] if isinstance(some, str) else self.members(some, "tags"):
                if fault := tag_error(tag):
                    self.report(f"a tag {fault}; left out")
                else:
                    tags[tag] = None
        return tuple(tags)

    def task(self, task: Any) -> Task:
        """Return the task; unknown fields are kept in its metadata."""
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
                self.report(f"task.{name} is not a field of a task; kept in its metadata")
                metadata[self.to_str(name, "task")] = self.value(value, f"task.{name}")
        return Task(metadata=metadata, **fields)


@dataclass
class _Conversion:
    """The conversion of one value; reports each kind of change once."""

    sanitizer: Sanitizer
    name: str
    left: int = _MEMBERS
    deep: bool = False
    large: bool = False

    def value(self, value: Any, levels: int) -> Any:
        self.left -= 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.sanitizer.replace_surrogates(value, self.name)
        if isinstance(value, Integral):  # numpy's too
            whole = int(value)
            return whole if whole.bit_length() <= _MAX_BITS else shown(whole)
        if isinstance(value, Real):
            return self.sanitizer.number(value, self.name)
        if isinstance(value, Mapping):
            if self._has_room(levels):
                return {self.key(key): self.value(inner, levels - 1) for key, inner in self._first(value.items())}
            return "..."
        if isinstance(value, list | tuple | Set):
            return [self.value(inner, levels - 1) for inner in self._first(value)] if self._has_room(levels) else "..."
        return value.isoformat() if isinstance(value, date) else self.sanitizer.to_str(value, self.name)

    def key(self, key: Any) -> str:
        return self.sanitizer.to_str(key, self.name)

    def _has_room(self, levels: int) -> bool:
        if levels <= 0 and not self.deep:
            self.deep = True
            self.sanitizer.report(f"{self.name} is nested deeper than {_LEVELS} levels; deeper levels were left out")
        return levels > 0 and self.left > 0

    def _first(self, members: Iterable[Any]) -> Iterable[Any]:
        for member in members:
            if self.left <= 0:
                if not self.large:
                    self.large = True
                    self.sanitizer.report(f"{self.name} contains more than {_MEMBERS:,} values; the rest was left out")
                return
            yield member
