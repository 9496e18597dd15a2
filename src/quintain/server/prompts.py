"""Prompts that a person picks in a client: what an assistant is asked to do, with the tools to do it by. See `prompts.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from mcp.types import Prompt, PromptArgument


class _Part(TypedDict):
    argument: str
    text: str


@dataclass(frozen=True)
class PromptSpec:
    """A prompt; its arguments are strings."""

    listing: Prompt
    text: str
    text_of_job: str | None = None
    """The text where the argument `run` is a job."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, _Part] = field(default_factory=dict)
    """Name in the text -> its replacement if an argument is given."""

    def render(self, arguments: Mapping[str, str]) -> str:
        """Return the text with its arguments."""
        values = {**self.defaults, **arguments}
        parts = {
            name: part["text"].format(**values) if values.get(part["argument"]) else ""
            for name, part in self.parts.items()
        }
        text = self.text_of_job if self.text_of_job and values["run"].startswith("job-") else self.text
        return text.format(**values, **parts)


def _spec(
    name: str, title: str, description: str, arguments: list[dict[str, str | bool]], **texts: object
) -> PromptSpec:
    listed = [PromptArgument.model_validate({"required": False, **argument}) for argument in arguments]
    return PromptSpec(Prompt(name=name, title=title, description=description, arguments=listed), **texts)  # type: ignore[arg-type]


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PROMPTS = {name: _spec(name, **table) for name, table in _TABLES.items()}
