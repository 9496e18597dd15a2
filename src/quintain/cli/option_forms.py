"""How a command writes the arguments of its tool, kept in `option_forms.json` so that a hint imports no tool.

`python -m scripts.make_tool_reference` writes the file from the catalog; a test compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).with_suffix(".json")

Shape = Literal["value", "flag", "switch", "list", "settings", "columns", "mix", "document", "yaml"]


@dataclass(frozen=True)
class OptionForm:
    """One option or positional argument of a command, which gives one argument of the tool or a member of it."""

    argument: str
    member: str | None
    flag: str | None
    """`--name`; None: positional."""
    shape: Shape
    tool_default: Any
    """The tool's default, where the command has another one."""

    def encode(self, value: Any) -> list[str]:
        """Return the words of a command line that decode to the value; `...` becomes a placeholder."""
        if self.shape in ("flag", "switch"):
            return [(self.flag or "").split("/")[self.shape == "switch"]] if value is (self.shape == "flag") else []
        words = self._texts(value)
        return words if self.flag is None else [word for text in words for word in (self.flag, text)]

    def _texts(self, value: Any) -> list[str]:
        name = (self.member or self.argument).upper()
        if value is ...:
            return [name]
        if self.shape == "list":
            return [name.removesuffix("S") if one is ... else str(one) for one in value]
        if self.shape == "settings":
            return [f"{key}={json.dumps(one)}" for key, one in value.items()]
        if self.shape == "columns":
            return [f"{key}={one}" for key, one in value.items()]
        is_flat = isinstance(value, Mapping) and all(isinstance(one, int | float) for one in value.values())
        if is_flat and self.shape in ("mix", "value"):
            return [",".join(f"{key}={weight:g}" for key, weight in value.items())]
        return [str(value)] if isinstance(value, str | int | float) else [json.dumps(value)]


@cache
def stored_forms() -> dict[str, list[OptionForm]]:
    """Return the forms of each command's options, positional ones first."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))
    return {command: [OptionForm(*row) for row in found] for command, found in rows.items()}
