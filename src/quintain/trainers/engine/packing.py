"""Packing of the rows of a forward pass into one sequence in which each shared prefix occurs once.

The rows form a trie over their token ids. Sorted by their tokens, neighbours share the longest prefixes, so that one comparison
a row builds the trie: a row adds the tokens behind its longest common prefix with the previous row, as one segment that attends
to itself causally and to the prefix in full. The total is sum(lengths) - sum(common prefixes) tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.trainers.data.streams import Example, TokenRow, common_prefix

Range = tuple[int, int]
"""Consecutive rows of the packed sequence, the second number excluded."""


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of the packed sequence; each attends to the ancestors and to its segment up to itself."""

    start: int
    end: int
    ancestors: tuple[Range, ...] = ()
    """Ranges of the tokens before the segment, in their order."""


def path_slice(path: Sequence[Range], start: int, end: int) -> tuple[Range, ...]:
    """Return the ranges of the tokens start..end of a path, counted along the path."""
    kept, offset = [], 0
    for a, b in path:
        low, high = max(start - offset, 0), min(end - offset, b - a)
        if low < high:
            kept.append((a + low, a + high))
        offset += b - a
    return tuple(kept)


@dataclass(frozen=True, eq=False)
class Plan:
    """A packed sequence of n computed tokens, and the rows in it that predict the N supervised tokens.

    The N order is that of `streams.streams_of`: rows as given, places rising in each.
    """

    token_ids: torch.Tensor
    """int64 [n]"""
    positions: torch.Tensor
    """int64 [n]; the place of each token in its row."""
    row_lengths: torch.Tensor
    """int64 [n]; the length of each token's row; of shared tokens, that of one of their rows."""
    segments: tuple[Segment, ...]
    """They cover the n tokens in order."""
    select: torch.Tensor
    """int64 [m], rising and unique: the packed rows whose final hidden state is needed; m < N at shared targets and where
    rows branch."""
    source: torch.Tensor
    """int64 [N]; which entry of `select` predicts each supervised token."""
    target: torch.Tensor
    """int64 [N]; the supervised token ids."""

    def to(self, device: torch.device) -> Plan:
        """Return the plan with its tensors on a device."""
        moved: dict[str, Any] = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, torch.Tensor)}
        return replace(self, **moved)

    def padded(self, multiple: int) -> Plan:
        """Return the plan with a length that `multiple` divides: one more row, of the first token, that nothing reads."""
        n = len(self.token_ids)
        extra = -n % multiple
        if not extra:
            return self
        return replace(
            self,
            token_ids=torch.cat([self.token_ids, self.token_ids[:1].expand(extra)]),
            positions=torch.cat([self.positions, torch.arange(extra)]),
            row_lengths=torch.cat([self.row_lengths, torch.full((extra,), extra)]),
            segments=(*self.segments, Segment(n, n + extra)),
        )


def pack(rows: Sequence[TokenRow], *, share: bool = True) -> Plan:
    """Lay rows out as one packed sequence.

    Tokens behind a row's last predicting token are left out: no supervised token sees them.
    """
    inputs = [_inputs(row) for row in rows]
    order, common = _sorted(inputs, share=share)
    segments: list[Segment] = []
    paths: list[tuple[Range, ...]] = [()] * len(rows)
    path: tuple[Range, ...] = ()
    n = 0
    for i, shared in zip(order, common, strict=True):
        path = path_slice(path, 0, shared)
        end = n + len(inputs[i]) - shared
        if end > n:
            if path and path[-1][1] == n:  # the row before is a prefix of this one: its segment goes on
                segments[-1] = replace(segments[-1], end=end)
                path = (*path[:-1], (path[-1][0], end))
            else:
                segments.append(Segment(n, end, path))
                path = (*path, (n, end))
        paths[i], n = path, end
    source = _joined([_predictors(row, path) for row, path in zip(rows, paths, strict=True)])
    select, inverse = np.unique(source, return_inverse=True)
    return Plan(
        token_ids=torch.from_numpy(_joined([inputs[i][shared:] for i, shared in zip(order, common, strict=True)])),
        positions=torch.from_numpy(
            _joined([np.arange(shared, len(inputs[i])) for i, shared in zip(order, common, strict=True)])
        ),
        row_lengths=torch.from_numpy(
            _joined([np.full(len(inputs[i]) - shared, len(rows[i])) for i, shared in zip(order, common, strict=True)])
        ),
        segments=tuple(segments),
        select=torch.from_numpy(select),
        source=torch.from_numpy(inverse.astype(np.int64)),
        target=torch.from_numpy(_joined([row.token_ids[row.places] for row in rows])),
    )


def computed_tokens(rows: Sequence[TokenRow], *, share: bool = True) -> int:
    """Return the length of the packed sequence of the rows, without building it."""
    inputs = [_inputs(row) for row in rows]
    return sum(map(len, inputs)) - (sum(_sorted(inputs, share=True)[1]) if share else 0)


def micro_batches(examples: Sequence[Example], batch_tokens: int, *, share: bool = True) -> list[list[Example]]:
    """Split the examples of a step into forward passes of at most `batch_tokens` computed tokens.

    First-fit decreasing on the computed size of each example, then back into the given order. An example stays whole, so
    that its rows can share their prefixes, unless it is larger than the budget and divisible: then consecutive members
    make parts, each with members counted from 0 and the weight of the whole. An indivisible example above the budget is a pass by itself.
    """
    parts = [part for example in examples for part in _parts(example, batch_tokens, share=share)]
    sizes = [computed_tokens(part.rows, share=share) for part in parts]
    batches: list[list[int]] = []
    room: list[int] = []
    for i in sorted(range(len(parts)), key=lambda i: -sizes[i]):  # stable: equal sizes stay in order
        place = next((b for b, left in enumerate(room) if sizes[i] <= left), None)
        if place is None:
            batches.append([i])
            room.append(batch_tokens - sizes[i])
        else:
            batches[place].append(i)
            room[place] -= sizes[i]
    return [[parts[i] for i in sorted(batch)] for batch in sorted(batches, key=min)]


def _parts(example: Example, batch_tokens: int, *, share: bool) -> list[Example]:
    whole = not example.divisible or example.n_members == 1
    if whole or computed_tokens(example.rows, share=share) <= batch_tokens:
        return [example]
    groups: list[list[int]] = []
    for member in range(example.n_members):
        if groups and computed_tokens(_rows_of(example, [*groups[-1], member]), share=share) <= batch_tokens:
            groups[-1].append(member)
        else:
            groups.append([member])
    return [_part(example, members) for members in groups]


def _part(example: Example, members: list[int]) -> Example:
    return replace(
        example,
        rows=_rows_of(example, members),
        member=tuple(m - members[0] for m in example.member if m in members),
        value=tuple(example.value[m] for m in members),
        cost=tuple(example.cost[m] for m in members) if example.cost else (),
    )


def _rows_of(example: Example, members: list[int]) -> tuple[TokenRow, ...]:
    return tuple(row for row, member in zip(example.rows, example.member, strict=True) if member in members)


def _inputs(row: TokenRow) -> NDArray[np.int64]:
    """Return the tokens that the model must see: those before the last supervised one."""
    places = row.places
    return row.token_ids[: places[-1] if len(places) else 0].astype(np.int64)


def _sorted(inputs: Sequence[NDArray[np.int64]], *, share: bool) -> tuple[list[int], list[int]]:
    """Return an order of the rows, and the number of tokens that each shares with the previous one."""
    order = list(range(len(inputs)))
    if not share:
        return order, [0] * len(order)
    keys = [row.astype(">i8").tobytes() for row in inputs]  # big-endian bytes sort as the ids do
    order.sort(key=keys.__getitem__)
    common = [common_prefix(inputs[a], inputs[b]) for a, b in pairwise(order)]
    return order, [0, *common][: len(order)]


def _predictors(row: TokenRow, path: tuple[Range, ...]) -> NDArray[np.int64]:
    """Return the packed rows that predict the supervised tokens of a row on a path."""
    return _joined([np.arange(start, end) for start, end in path])[row.places - 1]


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)


def group_by_length(rows: Sequence[TokenRow], limit: float) -> list[list[int]]:
    """Group rows at least three quarters as long as the longest of their group; rows above a limit are alone."""
    groups: list[list[int]] = []
    for i in sorted(range(len(rows)), key=lambda i: -len(rows[i])):
        if groups and 0.75 * len(rows[groups[-1][0]]) <= len(rows[i]) and len(rows[groups[-1][0]]) <= limit:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
