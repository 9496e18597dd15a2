"""Tables and facts as plain text within the width of the terminal.

A table is shown in columns where they fit: text wraps between words, and a column that may be cut ends in an ellipsis. Where
they do not fit, each row becomes a block of named lines. An id never breaks, because people copy it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console

from quintain.cli.command_lines import render_for_terminal
from quintain.records.text import printable
from quintain.records.wording import number_text

_PIPE_WIDTH = 200
"""Columns where the output goes to a file or a pipe, and COLUMNS is not set."""
_CUT_WIDTH = 12
"""Least width of a column that may be cut."""
_FOLD_WIDTH = 16
"""Least width of a column whose words may go on below."""
_TALLEST = 4
"""Lines of a row in columns; a row that needs more makes blocks of the table."""
_GAP = "  "
_BETWEEN = "   "


class Column(NamedTuple):
    """A column of a table."""

    name: str
    cut: bool = False
    """Whether a long cell is cut with an ellipsis; otherwise it wraps between words."""
    fold: bool = False
    """Whether a word may go on below, as a path may, whose end tells files apart."""
    right: bool = False
    """Whether cells are aligned to the right, as numbers are."""


def text_width() -> int:
    """Return the columns of the terminal, or COLUMNS."""
    return shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns


def print_table(console: Console, columns: Sequence[Column | str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table within the width of the terminal; with no column names, without a header."""
    for line in table_lines(columns, rows, text_width()):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def table_lines(columns: Sequence[Column | str], rows: Sequence[Sequence[object]], width: int) -> list[str]:
    """Return the lines of a table, each of at most `width` columns unless a single word is wider."""
    named = [Column(one) if isinstance(one, str) else one for one in columns]
    cells = [[_cell(value) for value in row] for row in rows]
    head = [[column.name for column in named]] if any(column.name for column in named) else []
    widths = _widths(named, [*head, *cells], width)
    if widths is not None:
        shaped = [_wrapped(named, widths, row) for row in [*head, *cells]]
        if max((len(lines) for row in shaped for lines in row), default=1) <= _TALLEST:
            return [line for row in shaped for line in _row_lines(named, widths, row)]
    return [line for row in cells for line in _block(named, row, width)]


def _cell(value: object) -> str:
    """Return a value as the text of a cell, on one line."""
    return " ".join(printable(render_for_terminal(value) if isinstance(value, str) else _number(value)).split())


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return the width of each column, the widest ones reduced until the table fits, or None if it cannot."""
    if not rows:
        return [0] * len(columns)
    natural = [max(cell_len(row[place]) for row in rows) for place in range(len(columns))]
    least = [_least(column, natural[place], [row[place] for row in rows]) for place, column in enumerate(columns)]
    widths = natural
    excess = sum(widths) + len(_GAP) * (len(columns) - 1) - width
    while excess > 0:
        reducible = [place for place, one in enumerate(widths) if one > least[place]]
        if not reducible:
            return None
        widest = max(reducible, key=lambda place: widths[place])
        widths[widest] -= 1
        excess -= 1
    return widths


def _least(column: Column, natural: int, cells: Sequence[str]) -> int:
    if column.cut or column.fold:
        return min(natural, _CUT_WIDTH if column.cut else _FOLD_WIDTH)
    return max((cell_len(word) for text in cells for word in text.split()), default=0)


def _wrapped(columns: Sequence[Column], widths: Sequence[int], row: Sequence[str]) -> list[list[str]]:
    found = []
    for column, width, cell in zip(columns, widths, row, strict=True):
        if column.cut:
            found.append([cut(cell, width)])
        else:
            found.append(_wrap(cell, width))
    return found


def cut(text: str, width: int) -> str:
    """Return the first line of a text in at most `width` columns, with an ellipsis where it goes on."""
    line = " ".join(text.split())
    return line if cell_len(line) <= width else set_cell_size(line, max(width - 1, 0)).rstrip() + "…"


def _wrap(text: str, width: int) -> list[str]:
    """Return the lines of a text, broken between words; a word wider than a line goes on below."""
    lines: list[str] = []
    for word in text.split():
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines += [word] if cell_len(word) <= width else chop_cells(word, max(width, 2))
    return lines or [""]


def _row_lines(columns: Sequence[Column], widths: Sequence[int], row: Sequence[list[str]]) -> Iterator[str]:
    for line in range(max(map(len, row), default=0)):
        parts = []
        for column, width, lines in zip(columns, widths, row, strict=True):
            text = lines[line] if line < len(lines) else ""
            space = " " * (width - cell_len(text))
            parts.append(space + text if column.right else text + space)
        yield _GAP.join(parts).rstrip()


def _block(columns: Sequence[Column], row: Sequence[str], width: int) -> Iterator[str]:
    """Yield the first cell, and below it the others by name, as many on a line as fit."""
    yield from _wrap(row[0], width)
    line = ""
    for column, cell in zip(columns[1:], row[1:], strict=True):
        if not cell:
            continue
        text = f"{column.name}: {cell}" if column.name else cell
        longer = f"{line}{_BETWEEN}{text}" if line else text
        if cell_len(longer) <= width - len(_GAP):
            line = longer
            continue
        if line:
            yield _GAP + line
        *above, line = _hanging(text, width - len(_GAP))
        yield from (_GAP + one for one in above)
        if above:  # a text of several lines ends its line
            yield _GAP + line
            line = ""
    if line:
        yield _GAP + line


def _hanging(text: str, width: int) -> list[str]:
    first, *rest = _wrap(text, width)
    return [first, *(_GAP + line for line in _wrap(" ".join(rest), width - len(_GAP)))] if rest else [first]


def _number(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return "" if value is None else number_text(value) if isinstance(value, float) else str(value)


def print_facts(console: Console, facts: Mapping[str, Any]) -> None:
    """Print named values: nested ones indented, lists of objects as tables. What is empty or null is left out."""
    for line in fact_lines(facts, text_width()):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def fact_lines(facts: Mapping[str, Any], width: int) -> Iterator[str]:
    """Yield the lines of named values; a long text may be wider than `width`, so that it can be copied whole."""
    for name, value in facts.items():
        if value in (None, "", [], {}, ()):
            continue
        title = name.replace("_", " ")
        if isinstance(value, Mapping):
            yield from _group(title, value, width)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield from _listed(title, value, width)
        else:
            text = printable(render_for_terminal(value) if isinstance(value, str) else _fact(value))
            yield from [f"{title}: {text}"] if "\n" not in text else [f"{title}:", *_indented(text.splitlines())]


def _group(title: str, value: Mapping[str, Any], width: int) -> Iterator[str]:
    if all(_is_plain(one) for one in value.values()):
        pairs = (f"{name} {_fact(one)}" for name, one in value.items() if one is not None)
        line = printable(f"{title}: {', '.join(pairs)}")
        if cell_len(line) <= width:
            yield line
            return
    yield f"{title}:"
    yield from _indented(fact_lines(value, width - len(_GAP)))


def _listed(title: str, values: Sequence[Any], width: int) -> Iterator[str]:
    if all(_is_plain(one) for one in values):
        line = printable(f"{title}: {', '.join(map(_fact, values))}")
        yield from (
            [line] if cell_len(line) <= width else [f"{title}:", *_indented(printable(_fact(one)) for one in values)]
        )
        return
    yield f"{title}:"
    if all(isinstance(one, Mapping) and all(map(_is_plain, one.values())) for one in values):
        names = list(dict.fromkeys(name for one in values for name, cell in one.items() if cell is not None))
        rows = [["" if one.get(name) is None else _fact(one[name]) for name in names] for one in values]
        yield from _indented(table_lines([name.replace("_", " ") for name in names], rows, width - len(_GAP)))
        return
    for one in values:
        yield from _indented(fact_lines(one if isinstance(one, Mapping) else {"": one}, width - len(_GAP)))
        yield ""


def _indented(lines: Iterator[str] | Sequence[str] | Any) -> Iterator[str]:
    for line in lines:
        yield _GAP + line


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _fact(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return render_for_terminal(value) if isinstance(value, str) else _number(value)
