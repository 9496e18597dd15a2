"""A preview as one HTML page that needs no network. Every stored text is escaped: it was written by others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from quintain.records.jobs.preview import Histogram, PreviewReport, PreviewRow, Span
from quintain.records.record import counted
from quintain.records.text import printable

_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1d2733;background:#fff}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin-top:2rem}
.verdict{padding:.7rem 1rem;border-left:5px solid #2e8b57;background:#e9f6ee}.verdict.fix{border-color:#c0392b;background:#fdecea}
li{margin:.3rem 0}table{border-collapse:collapse}td,th{padding:.15rem .8rem .15rem 0;text-align:left;font-variant-numeric:tabular-nums}
.bar{display:inline-block;height:.8em;background:#2f6db5;vertical-align:baseline}
.row{border:1px solid #d5dbe2;border-radius:6px;margin:1rem 0}.row header{padding:.4rem .8rem;background:#f2f5f8;font-size:.9rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0;padding:.8rem;font:13px/1.55 ui-monospace,monospace}
span{unicode-bidi:isolate}.t{background:#bfe8cd;color:#0b3d1f;border-radius:3px}.m{color:#5b6673}.system{color:#7a4fa3}.user{color:#1f5fa8}
.observation{color:#8a5a00}.template{color:#98a2ad}.agent{color:#2f6b45}.cut{text-decoration:line-through;background:#fdecea}
.key span{padding:0 .3rem;margin-right:.5rem}
@media(prefers-color-scheme:dark){body{background:#14191f;color:#dde3ea}.row{border-color:#333d48}.row header{background:#1d242c}
.verdict{background:#16301f}.verdict.fix,.cut{background:#3a1b18}.t{background:#1f5b36;color:#dff5e7}.m{color:#98a2ad}
.system{color:#c3a1e6}.user{color:#8fbcf0}.observation{color:#e0b25c}.template{color:#6f7a86}.agent{color:#8fd0a8}}
"""

_KEY = (
    ("t", "trained"),
    ("m agent", "agent, masked"),
    ("m system", "system"),
    ("m user", "user"),
    ("m observation", "observation"),
    ("m template", "template"),
    ("m cut", "falls off"),
)

_LISTED = 8
"""Entries of a finding that are written out."""


def preview_page(report: PreviewReport) -> str:
    """Return the page: verdict, warnings, counts, lengths, and the shown rows with trained text highlighted."""
    statistics = report.statistics
    title = f"{report.dataset_id} as {report.agent} will see it"
    fix = "" if statistics.verdict.startswith("Ready") else " fix"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{_safe(title)}</title><style>{_STYLE}</style></head><body>",
        f'<h1>{_safe(title)}</h1><p class="verdict{fix}">{_safe(statistics.verdict)}</p>',
        _list(statistics.warnings),
        "<h2>Counts</h2>",
        _table(describe_counts(report)),
        f"<h2>Lengths before anything is cut</h2>{_bars(statistics.lengths)}",
        '<h2>Rows</h2><p class="key">',
        *(f'<span class="{kind}">{name}</span>' for kind, name in _KEY),
        "</p>",
        *map(_row, report.rows),
    ]
    if report.more_parts:
        parts.append(f"<p>Of these dataset rows {counted(report.more_parts, 'more token row')} can be shown.</p>")
    return "".join([*parts, "</body></html>\n"])


def describe_counts(report: PreviewReport) -> Iterator[tuple[str, str]]:
    """Yield the counts as names and values for display."""
    statistics = report.statistics
    yield "trained as", f"{statistics.method}, kind {statistics.kind}, turns written as {statistics.style!r}"
    yield "tokens of a row", f"{statistics.max_length} (the model's context is {statistics.context_tokens})"
    for split, of in statistics.splits.items():
        share = f" ({of.trained_tokens / of.total_tokens:.1%})" if of.total_tokens else ""
        yield f"{split}: rows", f"{of.rows} in {counted(of.token_rows, 'token row')}"
        yield f"{split}: tokens", f"{of.trained_tokens} of {of.total_tokens} trained{share}"
        lose = f"{counted(of.truncated_rows, 'row')} {'loses' if of.truncated_rows == 1 else 'lose'}"
        yield f"{split}: cut", f"{lose} {counted(of.lost_steps, 'turn')}, {counted(of.lost_tokens, 'trained token')}"
        turns = counted(of.trained_turns, "trained turn")
        yield f"{split}: stop token in the loss", f"{of.turns_with_stop} of {turns}"
        for what, reasons in (("dropped", of.dropped), ("left out of groups", of.left_out_members)):
            if reasons:
                yield f"{split}: {what}", ", ".join(f"{reason} {n}" for reason, n in sorted(reasons.items()))
    for name, value in statistics.checks.items():
        yield name.replace("_", " "), _describe(value)


def _describe(value: Any) -> str:
    """Return a finding as text, long lists cut."""
    if isinstance(value, Mapping):
        parts = [
            f"{name} ({_describe(of)})" if isinstance(of, Mapping | list) else f"{name} {of}"
            for name, of in value.items()
        ]
    else:
        parts = [str(item) for item in value] if isinstance(value, list) else [str(value)]
    more = [f"and {len(parts) - _LISTED} more"] if len(parts) > _LISTED else []
    return ", ".join(parts[:_LISTED] + more)


def describe_row(row: PreviewRow) -> str:
    """Return a one-line heading of a row."""
    parts = [f"row {row.row}", row.part, row.id or ""]
    if row.dropped:
        return ", ".join([*filter(None, parts), f"not trained: {row.dropped}"])
    parts.append(f"{row.trained_tokens} of {row.tokens} tokens trained, stop token in {row.stop_tokens} turns")
    if row.lost_steps:
        parts.append(f"steps {', '.join(map(str, row.lost_steps))} fall off")
    return ", ".join(filter(None, parts))


def _row(row: PreviewRow) -> str:
    spans = "".join(map(_span, row.spans))
    return f'<section class="row"><header>{_safe(describe_row(row))}</header><pre>{spans}</pre></section>'


def _span(span: Span) -> str:
    kind = "t" if span.trained else f"m {span.by}"
    labels = [span.by, *([f"step {span.step}"] if span.step is not None else [])]
    labels += [f"weight {span.weight:g}"] if span.trained else ["falls off" if span.cut else "masked"]
    labels += [f"advantage {span.advantage:g}"] if span.advantage is not None else []
    return (
        f'<span class="{kind}{" cut" if span.cut else ""}" title="{_safe(", ".join(labels))}">{_safe(span.text)}</span>'
    )


def _list(items: Iterable[str]) -> str:
    found = "".join(f"<li>{_safe(item)}</li>" for item in items)
    return f"<ul>{found}</ul>" if found else ""


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return "<table>" + "".join(f"<tr><th>{_safe(a)}</th><td>{_safe(b)}</td></tr>" for a, b in rows) + "</table>"


def _bars(lengths: Histogram) -> str:
    most = max(lengths.counts, default=1)
    rows = [
        f"<tr><td>{i * lengths.bin_tokens} to {(i + 1) * lengths.bin_tokens - 1}</td><td>{n}</td>"
        f'<td><i class="bar" style="width:{20 * n / most:.2f}rem"></i></td></tr>'
        for i, n in enumerate(lengths.counts)
    ]
    summary = f"median {lengths.median}, 90% {lengths.p90}, 99% {lengths.p99}, longest {lengths.longest} tokens"
    return f"<p>{summary}</p><table>{''.join(rows)}</table>"


def _safe(text: str) -> str:
    return escape(printable(text), quote=True)
