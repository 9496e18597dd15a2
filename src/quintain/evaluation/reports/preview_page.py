"""A preview of a dataset as text, and as one HTML page that needs no network. Every stored text is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from quintain.evaluation.reports.report import Report, Section, Table, as_html
from quintain.records.jobs.preview import Histogram, PreviewReport, PreviewRow, Span
from quintain.records.text import printable
from quintain.records.wording import counted

_LEGEND = (
    ("agent trained", "trained"),
    ("agent", "agent, masked"),
    ("system", "system"),
    ("user", "user"),
    ("observation", "observation"),
    ("template", "template"),
    ("cut", "falls off"),
)
_LISTED = 8
"""Entries of a finding that are written out."""
_BAR_WIDTH = 40


def preview_page(report: PreviewReport) -> str:
    """Return the page: verdict, warnings, counts, lengths, and the shown rows with trained text highlighted."""
    statistics = report.statistics
    sections = (
        Section(statistics.verdict, statistics.warnings),
        Section("Counts", table=Table(("", ""), tuple(describe_counts(report)))),
        _lengths(statistics.lengths),
    )
    legend = "".join(f'<span class="span {kind}">{name}</span>' for kind, name in _LEGEND)
    parts = ['<section class="card"><h2>Rows</h2>', f'<p class="xray-legend">{legend}</p></section>']
    parts += map(_row, report.rows)
    if report.more_parts:
        parts.append(f"<p>Of these dataset rows {counted(report.more_parts, 'more token row')} can be shown.</p>")
    title = f"{report.dataset_id} as {report.agent} will see it"
    return as_html(Report(title, sections), below="\n".join(parts))


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
    """Return a finding as text, long lists cut and empty ones left out."""
    if not isinstance(value, Mapping):
        return _cut([str(item) for item in value] if isinstance(value, list | tuple) else [str(value)])
    parts = [
        f"{name.replace('_', ' ')} {_cut([f'{key} {n}' for key, n in of.items()]) if isinstance(of, Mapping) else _describe(of)}"
        for name, of in value.items()
        if of not in ([], (), {})
    ]
    return "; ".join(parts)


def _cut(parts: Sequence[str]) -> str:
    more = [f"and {len(parts) - _LISTED} more"] if len(parts) > _LISTED else []
    return ", ".join([*parts[:_LISTED], *more])


def describe_row(row: PreviewRow) -> str:
    """Return a one-line heading of a row."""
    parts = [f"row {row.row}", row.part, row.id or ""]
    if row.dropped:
        return ", ".join([*filter(None, parts), f"not trained: {row.dropped}"])
    parts.append(f"{row.trained_tokens} of {row.tokens} tokens trained, stop token in {row.stop_tokens} turns")
    if row.lost_steps:
        parts.append(f"steps {', '.join(map(str, row.lost_steps))} fall off")
    return ", ".join(filter(None, parts))


def _lengths(lengths: Histogram) -> Section:
    most = max(lengths.counts, default=1)
    rows = tuple(
        (f"{i * lengths.bin_tokens} to {(i + 1) * lengths.bin_tokens - 1}", str(n), "█" * round(_BAR_WIDTH * n / most))
        for i, n in enumerate(lengths.counts)
    )
    summary = f"median {lengths.median}, 90% {lengths.p90}, 99% {lengths.p99}, longest {lengths.longest} tokens"
    return Section("Lengths before anything is cut", (summary,), Table(("tokens", "rows", ""), rows))


def _row(row: PreviewRow) -> str:
    spans = "".join(map(_span, row.spans))
    heading = escape(printable(describe_row(row)))
    return f'<section class="xray"><header>{heading}</header><pre class="spans" dir="auto">{spans}</pre></section>'


def _span(span: Span) -> str:
    kinds = [span.by, *(["trained"] if span.trained else []), *(["cut"] if span.cut else [])]
    labels = [span.by, *([f"step {span.step}"] if span.step is not None else [])]
    labels += [f"weight {span.weight:g}"] if span.trained else ["falls off" if span.cut else "masked"]
    labels += [f"advantage {span.advantage:g}"] if span.advantage is not None else []
    return f'<span class="span {" ".join(kinds)}" title="{", ".join(labels)}">{escape(printable(span.text))}</span>'
