"""Examination of one dataset row: its training example, and what is cut off."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from quintain.errors import InvalidInput
from quintain.records.dataset import BenchmarkRow, DatasetRow, GroupRow, PairRow, Row, StepLabelRow, TextRow
from quintain.records.trajectory import Actor, Trajectory
from quintain.trainers.data.examples import ExampleBatch, ExampleMaker
from quintain.trainers.data.streams import Example, TokenRow
from quintain.trainers.rendering.renderer import Renderer

_UNCUT = 2**31
"""A row length above that of any run."""


class SingleTurnSize(NamedTuple):
    """Tokens of a chunk with a single agent turn; see `quintain.trainers.data.chunking`."""

    opening: int
    """Tokens before the agent's first turn: system prompt, tools, task."""
    turn: int
    """Tokens of the turn, and of the text between it and the previous one."""


@dataclass(frozen=True)
class Member:
    """A run (or text) of a dataset row, and its token rows."""

    name: str
    """`chosen`, `rejected` or `run 2` if a row has several runs; else empty."""
    trajectory: Trajectory | None
    """None for plain text."""
    rows: list[TokenRow]
    """Rows for training; empty if the run is left out."""
    uncut: list[TokenRow]
    """Rows without a length limit; the same list if nothing is cut."""
    lost: dict[int, int] = field(default_factory=dict)
    """Trainable step that is cut off -> its tokens."""
    alone: tuple[SingleTurnSize, ...] = ()
    """Size of each cut-off step in a separate chunk."""

    @property
    def length(self) -> int:
        """Tokens of the longest row, before cutting."""
        return max(map(len, self.uncut), default=0)


@dataclass(frozen=True)
class ExaminedRow:
    """A dataset row as training uses it."""

    example: Example | None
    dropped: str | None
    members: list[Member]
    left_out: Counter[str] = field(default_factory=Counter)
    """Reason -> runs left out of a group."""
    unweighted: Counter[str] = field(default_factory=Counter)
    """Reason -> runs whose steps all weigh alike despite step weights."""
    refusal: str | None = None
    """Error with which training would fail at this row."""

    @property
    def is_cut(self) -> bool:
        """Whether something is cut off."""
        return any(member.lost for member in self.members)


class TurnPlace(NamedTuple):
    """Position of an agent turn in a token row."""

    step: int
    start: int
    end: int


def examine(maker: ExampleMaker, row: Row, factor: float | str = 1.0) -> ExaminedRow:
    """Create the example of a row exactly as training does, and find what is cut off."""
    batch, row = ExampleBatch(), as_trained(row)
    try:
        maker.take(row, batch, factor)
        example, dropped = next(iter(batch.examples), None), next(iter(batch.dropped), None)
        whole = batch.truncated_turns or (dropped or "").endswith("too_long") or batch.left_out_members["too_long"]
        members = _members(maker, row, example, uncut=bool(whole))
    except InvalidInput as error:
        return ExaminedRow(None, error.code, [], refusal=error.message)
    return ExaminedRow(example, dropped, members, batch.left_out_members, batch.unweighted)


def as_trained(row: Row) -> Row:
    """Return the row as training uses it: for step labels, a run whose unlabelled steps are masked."""
    if not isinstance(row, StepLabelRow):
        return row
    labels = iter(row.labels)
    steps = tuple(
        step.model_copy(update={"train": False}) if step.actor is Actor.AGENT and next(labels) is None else step
        for step in row.trajectory.steps
    )
    return DatasetRow(trajectory=row.trajectory.model_copy(update={"steps": steps}))


def named_runs(row: Row) -> list[tuple[str, Trajectory | None]]:
    """Return the runs of a row with their names; a text has none."""
    match row:
        case PairRow():
            return [("chosen", row.chosen), ("rejected", row.rejected)]
        case GroupRow():
            return [(f"run {i}", run) for i, run in enumerate(row.trajectories, 1)]
        case TextRow() | BenchmarkRow():
            return [("", None)]
    return [("", row.trajectory)]


def turns_of(row: TokenRow) -> Iterator[TurnPlace]:
    """Yield the agent's turns in a token row in order, masked ones included."""
    if not len(row):
        return
    borders = [0, *(np.flatnonzero(np.diff(row.step_index)) + 1).tolist(), len(row)]
    for start, end in pairwise(borders):
        step = int(row.step_index[start])
        if step >= 0:
            yield TurnPlace(step, start, end)


def stops(rows: Sequence[TokenRow], renderer: Renderer, *, is_text: bool) -> tuple[int, int]:
    """Return the number of trained turns, and of those with a stop token in the loss; a text is one turn."""
    if is_text:
        last = rows[-1] if rows else None
        ends = (
            last is not None
            and bool(last.supervised[-1])
            and int(last.token_ids[-1]) == renderer.tokenizer.eos_token_id
        )
        return len(rows[:1]), int(ends)
    turns = stopped = 0
    for row in rows:
        places = row.places
        steps = row.step_index[places]
        ends = places[np.append(np.flatnonzero(np.diff(steps)), len(steps) - 1)] if len(places) else places
        following = np.append(row.step_index, -2)[ends + 1]
        # The last token of a turn may be masked although earlier ones are trained.
        whole = following != row.step_index[ends]
        goes_on = whole & (following >= 0)  # in the next step, where a template writes both as one turn
        turns += len(ends) - int(goes_on.sum())
        stopped += sum(int(row.token_ids[end]) in renderer.end_ids for end in ends[whole & ~goes_on])
    return turns, stopped


def digest(rows: Sequence[TokenRow]) -> str:
    """Return a hash of ids, mask, weights and advantages of token rows."""
    sha256 = hashlib.sha256()
    for row in rows:
        for stream in (row.token_ids, row.supervised, row.weight, row.advantage):
            sha256.update(b"-" if stream is None else stream.tobytes() + b"|")
    return sha256.hexdigest()[:16]


def _members(maker: ExampleMaker, row: Row, example: Example | None, *, uncut: bool) -> list[Member]:
    """Return each run with its token rows; of runs outside of the example only if something is cut."""
    runs = named_runs(row)
    rows_of: dict[int, list[TokenRow]] = {}
    for token_row, member in zip(example.rows, example.member, strict=True) if example else ():
        rows_of.setdefault(member, []).append(token_row)
    kept = iter(rows_of[member] for member in sorted(rows_of))
    members = []
    complete = len(rows_of) == len(runs)
    for name, run in runs:
        rows: list[TokenRow] = []
        if example is not None and (complete or (run is not None and maker.fits(run))):
            rows = next(kept)
        chunked = len(rows) > 1 and getattr(maker.config, "chunk", False)
        if run is None or not (uncut or chunked):
            members.append(Member(name, run, rows, rows))
            continue
        whole = maker.renderer.render(run, _UNCUT).rows
        # A step that is masked in a row, such as the shared prefix of a pair, is not lost.
        standing = {int(step) for token_row in rows for step in np.unique(token_row.step_index)}
        lost = {step: n for step, n in _trained_steps(whole).items() if step not in standing}
        members.append(Member(name, run, rows, whole, lost, tuple(_alone(whole, lost))))
    return members


def _alone(whole: Sequence[TokenRow], lost: Collection[int]) -> Iterator[SingleTurnSize]:
    opening = next((turn.start for row in whole for turn in turns_of(row)), 0)
    for row in whole:
        end = opening
        for turn in turns_of(row):
            if turn.step in lost and row.supervised[turn.start : turn.end].any():
                yield SingleTurnSize(opening, turn.end - end)
            end = turn.end


def _trained_steps(rows: Sequence[TokenRow]) -> dict[int, int]:
    """Return step -> its tokens in the loss."""
    counts: Counter[int] = Counter()
    for row in rows:
        steps, numbers = np.unique(row.step_index[row.places], return_counts=True)
        counts.update(dict(zip(steps.tolist(), numbers.tolist(), strict=True)))
    return dict(counts)
