"""Preview of a dataset: counts over all rows as training renders them, and a few rows in full.

Only the tokenizer is loaded, never the weights. Rows are streamed, so memory grows only by a few hashes and numbers a row.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from quintain.datasets.rows import read_rows
from quintain.records.dataset import ROW_OF_KIND, Row, SplitName
from quintain.records.jobs.job import PreviewSpec
from quintain.records.jobs.preview import (
    MAX_SHOWN,
    Histogram,
    PreviewReport,
    PreviewRow,
    Statistics,
)
from quintain.records.protocols import Reporter
from quintain.records.wording import clip
from quintain.trainers.data.examples import ExampleMaker
from quintain.trainers.models.loading import open_tokenizer
from quintain.trainers.preview.faults import Faults
from quintain.trainers.preview.row import examine
from quintain.trainers.preview.spans import row_with_spans
from quintain.trainers.preview.survey import Survey
from quintain.trainers.preview.verdict import conclude

_REPORT_EVERY = 250
"""Rows between two progress reports."""

_MOST_BINS = 20
_HELD_BACK: tuple[SplitName, ...] = ("validation", "test")


def preview(spec: PreviewSpec, inputs: Path, reporter: Reporter) -> PreviewReport | None:
    """Count all rows of a dataset as training would render them, and show some.

    Returns:
        None if it was stopped.
    """
    reporter.phase("loading_tokenizer")
    opened = open_tokenizer(spec.agent.model)
    maker = ExampleMaker.of(opened.tokenizer, spec.agent.template, spec.config, opened.context_tokens)
    reporter.phase("counting")
    remembered = Path(spec.cache_dir) / f"{spec.key}.json"
    statistics = _recall(remembered, maker)
    if statistics is None:
        survey = Survey(spec, maker, opened.context_tokens, Faults(maker.renderer))
        if not _count_rows(survey, inputs, reporter):
            return None
        statistics = statistics_of(survey)
    reporter.phase("showing")
    rows, more = _shown(spec, inputs, maker, statistics)
    return PreviewReport(
        dataset_id=spec.dataset_id,
        agent=spec.agent.id_or_name,
        job_id="",
        statistics=statistics,
        rows=tuple(rows),
        more_parts=more,
    )


def _recall(path: Path, maker: ExampleMaker) -> Statistics | None:
    """Return the statistics of an earlier preview with the same tokenizer and template, if any."""
    try:
        statistics = Statistics.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return statistics if statistics.fingerprint == maker.renderer.fingerprint else None


def _count_rows(survey: Survey, inputs: Path, reporter: Reporter) -> bool:
    """Count all rows; return False if the preview was stopped."""
    spec, maker, done = survey.spec, survey.maker, 0
    for split in ("train", *_HELD_BACK):
        if f"{split}.jsonl" not in spec.dataset_files:
            continue
        rows = zip(_rows(spec, inputs, split), maker.factors(_rows(spec, inputs, split)), strict=False)
        for line, (row, factor) in enumerate(rows, 1):
            if reporter.should_stop():
                return False
            survey.add(split, line, row, examine(maker, row, factor))
            done += 1
            if done % _REPORT_EVERY == 0 or done == spec.dataset_rows:
                reporter.progress(done, spec.dataset_rows, {})
    return True


def _rows(spec: PreviewSpec, inputs: Path, split: SplitName) -> Iterator[Row]:
    return read_rows(inputs, split, kind=spec.dataset_kind)


def statistics_of(survey: Survey) -> Statistics:
    """Return the statistics of a survey of all rows."""
    survey.faults.conclude()
    conclusion = conclude(survey)
    spec, maker = survey.spec, survey.maker
    return Statistics(
        fingerprint=maker.renderer.fingerprint,
        style=maker.renderer.style,
        kind=spec.dataset_kind,
        method=spec.config.method,
        max_length=maker.max_length,
        context_tokens=survey.context,
        splits=survey.splits,
        lengths=histogram(survey.lengths),
        checks=_checks(survey),
        warnings=conclusion.warnings,
        verdict=conclusion.verdict,
        places={
            "longest": _first_by(survey.length_of, lambda length: -length),
            "shortest": _first_by(survey.length_of, lambda length: length),
            "truncated": _first_by(survey.lost_tokens, lambda lost: -lost),
        },
    )


def _checks(survey: Survey) -> dict[str, Any]:
    faults = survey.faults
    checks: dict[str, Any] = {
        name: {"times": f.times, "rows": f.rows, "lines": f.first_rows} for name, f in sorted(faults.found.items())
    }
    checks["tools"] = {
        "defined": len(faults.defined),
        "calls": faults.calls,
        "called": {clip(name): n for name, n in faults.called.most_common(50)},
        "never_called": [clip(name) for name in sorted(set(faults.defined) - set(faults.called))[:50]],
    }
    if survey.shared:
        checks["pairs"] = {
            "mean_shared_prefix": round(float(np.mean(survey.shared)), 4),
            "equal_sides": survey.train.dropped.get("equal_sides", 0),
        }
    if survey.sizes:
        zero = survey.train.dropped.get("no_variance", 0)
        checks["groups"] = {"sizes": {str(n): survey.sizes[n] for n in sorted(survey.sizes)}, "zero_variance": zero}
    return checks | ({"labels": dict(survey.labels)} if survey.labels else {})


def _first_by(sizes: Mapping[int, int], order: Callable[[int], int]) -> tuple[int, ...]:
    """Return the first places in this order of their sizes; of equal ones the earlier."""
    return tuple(heapq.nsmallest(MAX_SHOWN, sizes, key=lambda place: (order(sizes[place]), place)))


def histogram(lengths: Counter[int]) -> Histogram:
    """Return lengths in at most 20 bins of width 1, 2 or 5 times a power of ten; percentiles are lengths that occur."""
    n = lengths.total()
    if not n:
        return Histogram()
    ordered, longest = sorted(lengths), max(lengths)
    width = next(w for w in (m * 10**p for p in range(12) for m in (1, 2, 5)) if longest // w < _MOST_BINS)
    counts = [0] * (longest // width + 1)
    for length, number in lengths.items():
        counts[length // width] += number
    reached = np.cumsum([lengths[length] for length in ordered])
    median, p90, p99 = (ordered[int(np.searchsorted(reached, share * n))] for share in (0.5, 0.9, 0.99))
    return Histogram(n=n, bin_tokens=width, counts=tuple(counts), median=median, p90=p90, p99=p99, longest=longest)


def _shown(
    spec: PreviewSpec, inputs: Path, maker: ExampleMaker, statistics: Statistics
) -> tuple[list[PreviewRow], int]:
    """Return the token rows of the requested dataset rows in the requested order, and how many more there are."""
    sample, n = spec.sample, statistics.splits["train"].rows
    if sample.show == "first":
        places = list(range(min(sample.rows, n)))
    elif sample.show == "random":
        places = sorted(random.Random(f"preview/{sample.seed}").sample(range(n), min(sample.rows, n)))
    else:
        places = list(statistics.places[sample.show][: sample.rows])
    if not places:
        return [], 0
    wanted, found = set(places), dict[int, tuple[Row, float | str]]()
    factors = iter(maker.factors(_rows(spec, inputs, "train")))
    with (inputs / "train.jsonl").open("rb") as file:
        for place, (line, factor) in enumerate(zip(file, factors, strict=False)):
            if place in wanted:
                found[place] = ROW_OF_KIND[spec.dataset_kind].model_validate_json(line), factor
                if len(found) == len(wanted):
                    break
    rows: list[PreviewRow] = []
    more = 0
    for place in places:
        row, factor = found[place]
        parts = row_with_spans(examine(maker, row, factor), place + 1, maker.renderer)
        rows += parts.rows
        more += parts.left_out
    return rows, more
