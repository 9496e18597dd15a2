"""Reports as Markdown and as one self-contained HTML page. Stored text is untrusted and therefore escaped."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from html import escape

from quintain.evaluation.reports.report import Report, Table
from quintain.records.text import printable

_MARKUP = re.compile(r"([\\`*_\[\]<>#|~&$]|^[-+=])")

_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1d2733;background:#fff}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin-top:2rem}table{border-collapse:collapse;font-size:.92em}
td,th{padding:.2rem .9rem .2rem 0;text-align:left;border-bottom:1px solid #e1e6eb;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
td{unicode-bidi:isolate}img{max-width:100%}
@media(prefers-color-scheme:dark){body{background:#14191f;color:#dde3ea}td,th{border-color:#333d48}img{background:#fff}}
"""


def as_markdown(report: Report) -> str:
    """Render the report as Markdown with markup and HTML in its texts escaped."""
    blocks = [f"# {_markdown(report.title)}"]
    for section in report.sections:
        blocks.append(f"## {_markdown(section.heading)}")
        blocks += [_markdown(line) for line in section.lines]
        if section.table is not None:
            blocks.append("\n".join(_markdown_rows(section.table)))
    return "\n\n".join(blocks) + "\n"


def as_html(report: Report, picture: bytes | None = None) -> str:
    """Render the report as one page.

    Args:
        report: The report.
        picture: A PNG shown above the sections, or None.
    """
    title = _html(report.title)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">",
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>",
    ]
    if picture is not None:
        parts.append(
            f'<img alt="Forest plot and learning curves" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
        )
    for section in report.sections:
        parts.append(f"<h2>{_html(section.heading)}</h2>")
        parts += [f"<p>{_html(line)}</p>" for line in section.lines]
        if section.table is not None:
            parts += _html_rows(section.table)
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _markdown_rows(table: Table) -> Iterator[str]:
    header, *rows = ([*map(_markdown, row)] for row in (table.header, *table.rows))
    for cells in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(cells)} |"


def _html_rows(table: Table) -> Iterator[str]:
    yield "<table>"
    if any(table.header):
        yield f"<tr>{''.join(f'<th>{_html(cell)}</th>' for cell in table.header)}</tr>"
    for row in table.rows:
        yield f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in row)}</tr>"
    yield "</table>"


def _markdown(text: str) -> str:
    """Escape text for one line of Markdown."""
    return _MARKUP.sub(r"\\\1", " ".join(printable(text).split()))


def _html(text: str) -> str:
    return escape(printable(text))
