"""Size of a dataset: tokens where a preview counted them, else a range from the length of the text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from quintain.datasets.recorded_calls import calls_of_run
from quintain.datasets.rows import read_rows, trajectories_of
from quintain.datasets.step_labels import step_values_of, unweighted_reason
from quintain.errors import QuintainError
from quintain.records.dataset import Dataset, DatasetRow, GroupRow, Row, StepValues, TextRow
from quintain.records.hyperparameters.methods import RetrieverConfig
from quintain.records.jobs.preview import Sample, Statistics
from quintain.records.trajectory import Actor, Step, Trajectory, text_of
from quintain.tools.data.preview import preview_spec
from quintain.tools.services import Services

_SAMPLE_ROWS = 200
_SAMPLE_BYTES = 8 * 2**20
"""Of the training split, its first rows: enough for shares and means, read in well under a second."""

CHARACTERS_A_TOKEN = (1.0, 6.0)
"""Tokenizers of some hundred tokens write about 2 characters of runs as one, large ones 3 to 4: the factor fits both."""

_SCORED_RUNS = 20
"""Runs whose steps all weigh alike that are kept, to try a scorer of steps on."""

_SIGHT = ("max_length", "chunk", "chunk_overlap", "step_weighting", "min_reward")
"""Settings that change which tokens of a row are seen."""


class TokenCounts(NamedTuple):
    """Tokens of a dataset as a preview counted them."""

    tokens: int
    """Of the training split, rows cut as training would."""
    trained_tokens: int
    validation_tokens: int
    token_rows: int
    longest: int
    """Tokens of the longest run, before anything is cut."""
    cut_rows: int
    """Dataset rows of which something falls off."""
    dropped_rows: int
    """Dataset rows that give no example."""


class DataFacts(NamedTuple):
    """Size and shape of a dataset."""

    rows: int
    """Of the training split."""
    validation_rows: int
    runs: float
    """Runs (or texts) of the training split: a pair has two, a group several."""
    characters: int
    """Text of the training split, from the rows that were looked at."""
    agent_share: float
    """Share of it that the agent wrote."""
    shared_share: float
    """Share of the text of a step's rows that another of them begins with too: tools, prompts, the same task."""
    counted: TokenCounts | None
    sight: Mapping[str, Any] = {}
    """Named settings that change which tokens are seen: a preview counts by them."""
    weightless: Mapping[str, int] = {}
    """Reason -> runs of the sample whose step values rank none of their steps."""
    alike: tuple[Trajectory, ...] = ()
    """Some of those runs."""
    sampled: int = 0
    """Runs of the sample with a place for step values: single runs and groups."""
    prompts: frozenset[str] = frozenset()
    """System prompts of the runs of the sample; empty where a run has none."""

    @property
    def examples(self) -> int:
        """Rows that give an example, as far as they were counted."""
        return self.rows - (self.counted.dropped_rows if self.counted else 0)

    @property
    def tokens_range(self) -> tuple[int, int]:
        """Return the minimum and maximum of tokens in the text."""
        fewest, most = CHARACTERS_A_TOKEN
        return round(self.characters / most), round(self.characters / fewest)


def look_at_data(
    services: Services, dataset: Dataset, model: str, method: str, settings: Mapping[str, Any], batch_size: int
) -> DataFacts:
    """Measure a dataset.

    The `batch_size` rows of an optimizer step share what they begin with.
    """
    rows = dataset.splits.get("train", 0)
    sample = _sample(dataset, rows)
    negatives = int(settings.get("hard_negatives", RetrieverConfig.model_fields["hard_negatives"].default))
    pieces = [_calls(row, negatives) if method == "retriever" else _pieces(row) for row in sample]
    total = sum(piece.length for row in pieces for piece in row)
    scale = rows / len(sample) if sample else 0.0
    stepped = [run for row in sample for run in _with_step_values(row)]
    reasons = [(unweighted_reason(step_values_of(run, values)), run) for run, values in stepped]
    return DataFacts(
        rows=rows,
        validation_rows=dataset.splits.get("validation", 0),
        runs=scale * sum(map(len, pieces)),
        characters=round(total * scale),
        agent_share=sum(piece.by_agent for row in pieces for piece in row) / total if total else 0.0,
        shared_share=_shared(pieces, batch_size),
        counted=_counted(services, dataset, model, method, settings),
        sight=_sight(settings),
        weightless=Counter(reason for reason, _ in reasons if reason),
        alike=tuple(run for reason, run in reasons if reason)[:_SCORED_RUNS],
        sampled=len(stepped),
        prompts=frozenset(_system_prompt(run) for row in sample for run in trajectories_of(row)),
    )


class _Piece(NamedTuple):
    """A run: its opening, and its number of characters."""

    opening: tuple[str, ...]
    length: int
    by_agent: int


def _sample(dataset: Dataset, rows: int) -> list[Row]:
    path = Path(dataset.path) / "train.jsonl"
    mean = path.stat().st_size / max(1, rows) if path.is_file() else 1.0
    most = max(1, min(_SAMPLE_ROWS, int(_SAMPLE_BYTES / max(mean, 1.0))))
    return list(islice(read_rows(Path(dataset.path), "train", kind=dataset.kind), most))


def _with_step_values(row: Row) -> list[tuple[Trajectory, StepValues]]:
    """Return the runs of a row that weigh steps, with the row's values of their steps."""
    if isinstance(row, DatasetRow):
        return [(row.trajectory, row.step_values)]
    if isinstance(row, GroupRow):
        return list(zip(row.trajectories, row.step_values or [()] * len(row.trajectories), strict=True))
    return []


def _pieces(row: Row) -> list[_Piece]:
    if isinstance(row, TextRow):
        return [_Piece((), len(row.text), len(row.text))]
    return [_piece(run) for run in trajectories_of(row)]


def _system_prompt(run: Trajectory) -> str:
    return "\n".join(text_of(step.message) for step in run.steps if step.actor is Actor.SYSTEM)


def _calls(row: Row, negatives: int) -> list[_Piece]:
    """Return the calls of a run: the texts that a retriever reads for each."""
    calls = calls_of_run(row.trajectory).calls if isinstance(row, DatasetRow) else ()
    sizes = [sum(map(len, (call.need, call.document, *call.uncalled[:negatives]))) for call in calls]
    return [_Piece((), size, size) for size in sizes]


def _piece(run: Trajectory) -> _Piece:
    tools = json.dumps(run.tools, ensure_ascii=False) if run.tools else ""
    heard = takewhile(lambda step: step.actor is not Actor.AGENT, run.steps)
    opening = (tools, *(text_of(step.message) for step in heard))
    spoken = sum(_written(step) for step in run.steps if step.actor is Actor.AGENT)
    answered = sum(len(text_of(observation.content)) for step in run.steps for observation in step.observations)
    others = sum(len(text_of(step.message)) for step in run.steps if step.actor is not Actor.AGENT)
    return _Piece(opening, len(tools) + others + spoken + answered, spoken)


def _written(step: Step) -> int:
    calls = (len(action.tool) + len(json.dumps(action.args, ensure_ascii=False)) for action in step.actions)
    return len(step.thought or "") + len(text_of(step.message)) + sum(calls)


def _shared(rows: list[list[_Piece]], batch_size: int) -> float:
    """Return the share of text that an earlier run of the same step begins with too."""
    saved = total = 0
    for start in range(0, len(rows), batch_size):
        seen: set[tuple[str, ...]] = set()
        for piece in (piece for row in rows[start : start + batch_size] for piece in row):
            total += piece.length
            common = max((n for n in range(len(piece.opening), 0, -1) if piece.opening[:n] in seen), default=0)
            saved += sum(map(len, piece.opening[:common]))
            seen.update(piece.opening[:n] for n in range(1, len(piece.opening) + 1))
    return saved / total if total else 0.0


def _counted(
    services: Services, dataset: Dataset, model: str, method: str, settings: Mapping[str, Any]
) -> TokenCounts | None:
    """Return the counts of a cached preview of this dataset and model, with the settings or those that change what is seen."""
    for asked in (settings, _sight(settings)):
        with suppress(QuintainError, OSError, ValidationError):
            spec = preview_spec(services, dataset.id, model, method, asked, Sample())
            report = Statistics.model_validate_json((Path(spec.cache_dir) / f"{spec.key}.json").read_bytes())
            train = report.splits["train"]
            held = report.splits.get("validation")
            return TokenCounts(
                tokens=train.total_tokens,
                trained_tokens=train.trained_tokens,
                validation_tokens=held.total_tokens if held else 0,
                token_rows=train.token_rows,
                longest=report.lengths.longest,
                cut_rows=train.truncated_rows,
                dropped_rows=sum(train.dropped.values()),
            )
    return None


def _sight(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: settings[name] for name in _SIGHT if name in settings}
