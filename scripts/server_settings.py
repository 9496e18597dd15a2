"""Write docs/reference/server-settings.md from the operator's settings: `python -m scripts.server_settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from quintain.settings import Settings

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "server-settings.md"

_HEAD = """\
# Server settings

Every environment variable that configures the server, the CLI and the Python client, with default and meaning.
Generated from `settings.py` by `python -m scripts.server_settings`.

An invalid value is refused at the start, with the variable and the remedy. `quintain doctor` names misspelt variables,
folders that are not there and URLs that cannot be used.

| variable | default | meaning |
|---|---|---|
"""


def page() -> str:
    """Return the page: one row a variable."""
    rows = (_row(name, field) for name, field in sorted(Settings.model_fields.items()))
    return _HEAD + "".join(rows)


def _row(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    names = (
        [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [f"QUINTAIN_{name.upper()}"]
    )
    variables = ", ".join(f"`{variable}`" for variable in names)
    default = "the user's data folder" if field.default_factory else _written(field.default)
    return f"| {variables} | {default} | {(field.description or '').replace('|', chr(92) + '|')} |\n"


def _written(value: Any) -> str:
    if value is None or value in {"", ()}:
        return "none"
    if isinstance(value, bool):
        return "`1`" if value else "`0`"
    return f"`{','.join(value) if isinstance(value, tuple) else value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
