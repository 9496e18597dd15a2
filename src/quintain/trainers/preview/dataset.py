"""Preview of a dataset: counts over all rows as training renders them, and a few rows in full.

Only the tokenizer is loaded, never the weights. Rows are streamed, so memory grows only by a few hashes and numbers a row.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quintain.datasets.rows import read_rows, trajectories_of
from quintain.datasets.selection import agent_digest, is_held_out
from quintain.datasets.split_leaks import LeakCheck
from quintain.datasets.splits import task_key
from quintain.records.dataset import ROW_OF_KIND, LabelledRow, Row, SplitName, TextRow
from quintain.records.job import PreviewSpec
from quintain.records.preview import (
    MAX_SHOWN,
    Histogram,
    PreviewReport,
    PreviewRow,
    SplitCounts,
    Statistics,
)
from quintain.records.protocols import Reporter
from quintain.records.record import clip
from quintain.trainers.data.examples import ExampleMaker
from quintain.trainers.models import open_tokenizer
from quintain.trainers.preview.faults import Faults
from quintain.trainers.preview.row import ExaminedRow, examine, stops
from quintain.trainers.preview.spans import row_with_spans
from quintain.trainers.preview.verdict import CutTurnSizes, Evidence, conclude

_REPORT_EVERY = 250
"""Rows between two progress reports."""

_MOST_BINS = 20
_HELD_BACK: tuple[SplitName, ...] = ("validation", "test")


def preview(spec: PreviewSpec, inputs: Path, reporter: Reporter) -> PreviewReport | None:
    """Count all rows of a dataset as training would render them, and show some.

    Args:
        spec: Dataset, agent and the settings of the training.
        inputs: The dataset's checked files.
        reporter: Receives progress, and can stop the preview.

    Returns:
        None if it was stopped.

    Raises:
        NotFound: The model does not exist.
        InvalidInput: The model's files are damaged, or its template is unfit.
    """
    reporter.phase("loading_tokenizer")
    opened = open_tokenizer(spec.agent.model)
    maker = ExampleMaker.of(opened.tokenizer, spec.agent.template, spec.config, opened.context_tokens)
    reporter.phase("counting")
    remembered = Path(spec.cache_dir) / f"{spec.key}.json"
    statistics = _recall(remembered, maker)
    if statistics is None:
        survey = _survey(spec, inputs, maker, reporter)
        if survey is None:
            return None
        statistics = survey.statistics(spec, maker, opened.context_tokens)
    reporter.phase("showing")
    rows, more = _shown(spec, inputs, maker, statistics)
    return PreviewReport(
        dataset_id=spec.dataset_id,
        agent=spec.agent.id or spec.agent.name,
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


def _survey(spec: PreviewSpec, inputs: Path, maker: ExampleMaker, reporter: Reporter) -> _Survey | None:
    survey, done = _Survey(Faults(maker.renderer)), 0
    for split in ("train", *_HELD_BACK):
        if f"{split}.jsonl" not in spec.dataset_files:
            continue
        rows = zip(_rows(spec, inputs, split), maker.factors(_rows(spec, inputs, split)), strict=False)
        for line, (row, factor) in enumerate(rows, 1):
            if reporter.should_stop():
                return None
            survey.add(split, line, row, examine(maker, row, factor), maker)
            done += 1
            if done % _REPORT_EVERY == 0 or done == spec.dataset_rows:
                reporter.progress(done, spec.dataset_rows, {})
    return survey


def _rows(spec: PreviewSpec, inputs: Path, split: SplitName) -> Iterator[Row]:
    return read_rows(inputs, split, kind=spec.dataset_kind)


@dataclass
class _Survey:
    """All counts, updated row by row."""

    faults: Faults
    splits: dict[str, SplitCounts] = field(default_factory=dict)
    lengths: Counter[int] = field(default_factory=Counter)
    length_of: dict[int, int] = field(default_factory=dict)
    """Place of a row -> tokens of its longest run."""
    lost_tokens: dict[int, int] = field(default_factory=dict)
    """Place of a row that is cut -> tokens that are cut off."""
    tokens_seen: set[bytes] = field(default_factory=set)
    agent_text_seen: set[bytes] = field(default_factory=set)
    tasks_seen: set[bytes] = field(default_factory=set)
    labels: Counter[str] = field(default_factory=Counter)
    leaks: LeakCheck = field(default_factory=LeakCheck)
    cut_turns: CutTurnSizes = field(default_factory=CutTurnSizes)
    shared: list[float] = field(default_factory=list)
    sizes: Counter[int] = field(default_factory=Counter)

    def add(self, split: SplitName, line: int, row: Row, examined: ExaminedRow, maker: ExampleMaker) -> None:
        """Count one row."""
        self._count(split, row, examined, maker)
        if examined.refusal:
            self.faults.found["refused"].add(line, 1, examined.refusal)
        tokens = _hash([r.token_ids.tobytes() for m in examined.members for r in m.rows])
        tasks = {_hash([_task(row, run).encode()]) for run in trajectories_of(row) or (None,)}
        if runs := trajectories_of(row):
            self.leaks.add(task_key(runs[0]), row, split)
        if split != "train":
            known = [
                name
                for name, is_known in (("tasks", tasks & self.tasks_seen), ("tokens", tokens in self.tokens_seen))
                if is_known
            ]
            for name in known[:1]:
                self.faults.found[f"leaked_{name}"].add(line, 1, split)
            return
        self.tasks_seen |= tasks
        self._look_for_repeats(line, row, tokens if examined.example else None)
        for member in examined.members:
            self.faults.look(member, line)
            if member.length:
                self.lengths[member.length] += 1
            self.cut_turns.add(member.alone)
        if any(map(is_held_out, trajectories_of(row))):
            self.faults.found["held_out"].add(line)
        if longest := max((member.length for member in examined.members), default=0):
            self.length_of[line - 1] = longest
        if examined.is_cut:
            self.lost_tokens[line - 1] = sum(sum(member.lost.values()) for member in examined.members)
        self._count_shape(row, examined)

    def _count(self, split: str, row: Row, examined: ExaminedRow, maker: ExampleMaker) -> None:
        counts = self.splits.get(split, SplitCounts())
        example = examined.example
        turned = [stops(m.rows, maker.renderer, is_text=isinstance(row, TextRow)) for m in examined.members]
        lost = [member.lost for member in examined.members]
        self.splits[split] = SplitCounts(
            rows=counts.rows + 1,
            token_rows=counts.token_rows + (len(example.rows) if example else 0),
            total_tokens=counts.total_tokens + (example.n_tokens if example else 0),
            trained_tokens=counts.trained_tokens + (example.n_supervised if example else 0),
            truncated_rows=counts.truncated_rows + examined.is_cut,
            lost_steps=counts.lost_steps + sum(map(len, lost)),
            lost_tokens=counts.lost_tokens + sum(sum(tokens.values()) for tokens in lost),
            dropped=_plus(counts.dropped, {examined.dropped: 1} if examined.dropped else {}),
            left_out_members=_plus(counts.left_out_members, examined.left_out),
            unweighted=_plus(counts.unweighted, examined.unweighted),
            trained_turns=counts.trained_turns + sum(turns for turns, _ in turned),
            turns_with_stop=counts.turns_with_stop + sum(stopped for _, stopped in turned),
        )

    def _look_for_repeats(self, line: int, row: Row, tokens: bytes | None) -> None:
        runs = trajectories_of(row)
        # Equal text on another task is not a repetition: "Done." ends many runs.
        agent_text = (
            _hash([part.encode() for run in runs for part in (_task(row, run), agent_digest(run))]) if runs else None
        )
        if tokens is not None and tokens in self.tokens_seen:
            self.faults.found["same_tokens"].add(line)
        elif agent_text is not None and agent_text in self.agent_text_seen:
            self.faults.found["same_agent_text"].add(line)
        self.tokens_seen |= {tokens} if tokens is not None else set()
        self.agent_text_seen |= {agent_text} if agent_text is not None else set()

    def _count_shape(self, row: Row, examined: ExaminedRow) -> None:
        if isinstance(row, LabelledRow):
            self.labels["desirable" if row.desirable else "undesirable"] += 1
        sides = {member.name: member.rows for member in examined.members}
        if sides.get("chosen") and sides.get("rejected"):
            chosen, rejected = sides["chosen"][0].token_ids, sides["rejected"][0].token_ids
            n = min(len(chosen), len(rejected))
            differing = np.flatnonzero(chosen[:n] != rejected[:n])
            self.shared.append((int(differing[0]) if len(differing) else n) / max(len(chosen), len(rejected)))
        elif "run 1" in sides:
            self.sizes[len(sides)] += 1

    def statistics(self, spec: PreviewSpec, maker: ExampleMaker, context: int) -> Statistics:
        """Return the statistics."""
        self.faults.conclude()
        evidence = Evidence(
            kind=spec.dataset_kind,
            config=spec.config,
            context=context,
            max_length=maker.max_length,
            train=self.splits.get("train", SplitCounts()),
            longest=max(self.lengths, default=0),
            labels=self.labels,
            faults=self.faults,
            cut_turns=self.cut_turns,
            leaking_tasks=self.leaks.tasks,
            notes=spec.dataset_notes,
        )
        conclusion = conclude(evidence)
        return Statistics(
            fingerprint=maker.renderer.fingerprint,
            style=maker.renderer.style,
            kind=spec.dataset_kind,
            method=spec.config.method,
            max_length=maker.max_length,
            context_tokens=context,
            splits=self.splits,
            lengths=histogram(self.lengths),
            checks=self._checks(evidence),
            warnings=conclusion.warnings,
            verdict=conclusion.verdict,
            places={
                "longest": _first_by(self.length_of, lambda length: -length),
                "shortest": _first_by(self.length_of, lambda length: length),
                "truncated": _first_by(self.lost_tokens, lambda lost: -lost),
            },
        )

    def _checks(self, evidence: Evidence) -> dict[str, Any]:
        faults = self.faults
        checks: dict[str, Any] = {
            name: {"times": f.times, "rows": f.rows, "lines": f.first_rows} for name, f in sorted(faults.found.items())
        }
        checks["tools"] = {
            "defined": len(faults.defined),
            "calls": faults.calls,
            "called": {clip(name): n for name, n in faults.called.most_common(50)},
            "never_called": [clip(name) for name in sorted(set(faults.defined) - set(faults.called))[:50]],
        }
        if self.shared:
            checks["pairs"] = {
                "mean_shared_prefix": round(float(np.mean(self.shared)), 4),
                "equal_sides": evidence.train.dropped.get("equal_sides", 0),
            }
        if self.sizes:
            zero = evidence.train.dropped.get("no_variance", 0)
            checks["groups"] = {"sizes": {str(n): self.sizes[n] for n in sorted(self.sizes)}, "zero_variance": zero}
        return checks | ({"labels": dict(self.labels)} if self.labels else {})


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


def _task(row: Row, run: Any) -> str:
    return row.text if isinstance(row, TextRow) else task_key(run)


def _hash(parts: list[bytes]) -> bytes:
    return hashlib.blake2b(b"|".join(parts), digest_size=12).digest()


def _plus(counts: dict[str, int], more: Any) -> dict[str, int]:
    return dict(Counter(counts) + Counter(more)) if more else counts
