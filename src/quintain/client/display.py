"""What notebooks show of an object: a table of names and values, or of rows. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from quintain.records.record import clip

_CHARS = 200
"""Characters of a value."""


def fields_table(title: str, fields: Mapping[str, Any]) -> str:
    """Return the fields that have a value, as HTML."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{_cell(value)}</td></tr>"
        for name, value in fields.items()
        if value is not None and value != () and value != {}
    )
    return f"<table><caption style='text-align:left'><b>{escape(title)}</b></caption>{rows}</table>"


def rows_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows under their columns, as HTML."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return escape(clip(text, _CHARS))
