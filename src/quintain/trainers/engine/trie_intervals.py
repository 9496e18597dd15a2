"""Visibility in a packed trie as intervals of the packed order, for kernels that take a mask or the bounds of sequences.

The packed order visits the trie depth first, so the descendants of a token are the tokens behind it up to some place: key k is
visible to the queries q with k <= q < until[k]. These are the Euler intervals of the trie, with the place as the time of entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quintain.trainers.engine.packing import Range, Segment


class Intervals(NamedTuple):
    """Queries of a packed sequence of n tokens, and the queries that see each key."""

    rows: NDArray[np.int64]
    """int64 [m], rising: the tokens inside of the segments, which are the queries."""
    until: NDArray[np.int64]
    """int64 [n]; the queries in k..until[k] see key k. 0: none does."""
    position: NDArray[np.int64]
    """int64 [n]; the place of each visible key on its path."""
    own_end: NDArray[np.int64]
    """int64 [n]; the end of the segment of each query, 0 at other tokens."""


class Part(NamedTuple):
    """Consecutive queries that attend to consecutive keys."""

    queries: Range
    """Numbers of queries, which are places in `Intervals.rows`."""
    keys: Range


def intervals(segments: Sequence[Segment], n: int) -> Intervals:
    """Return the intervals of the segments of a packed sequence of n tokens, in one walk over their ranges."""
    until, position, own_end = (np.zeros(n, np.int64) for _ in range(3))
    for segment in segments:
        offset = 0
        for start, end in (*segment.ancestors, (segment.start, segment.end)):
            until[start:end] = segment.end
            position[start:end] = np.arange(offset, offset + end - start)
            offset += end - start
        own_end[segment.start : segment.end] = segment.end
    return Intervals(np.flatnonzero(own_end), until, position, own_end)


def causal_parts(segments: Sequence[Segment], visible: Intervals) -> list[Part]:
    """Return each segment as queries and as keys, in their order: the diagonal blocks of the mask."""
    return [Part(_numbers(visible, s.start, s.end), (s.start, s.end)) for s in segments]


def prefix_calls(visible: Intervals) -> list[list[Part]]:
    """Return the blocks of the mask off the diagonal, which are full, in as few calls as their order permits.

    Keys with the same queries behind their segment form a part. The queries of two parts are disjoint or nested, so first fit
    needs as many calls as there are parts on the longest path.

    Returns:
        Calls; in each, queries and keys rise and do not overlap.
    """
    starts = np.flatnonzero(
        np.diff(visible.until, prepend=-1).astype(bool) | np.diff(visible.own_end, prepend=-1).astype(bool)
    )
    calls: list[list[Part]] = []
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(visible.until)], strict=True):
        behind = int(visible.own_end[start]) or end
        queries = _numbers(visible, behind, int(visible.until[start]))
        if queries[0] >= queries[1]:
            continue
        call = next((call for call in calls if call[-1].queries[1] <= queries[0]), None)
        if call is None:
            calls.append(call := [])
        call.append(Part(queries, (start, end)))
    return calls


def sequence_bounds(parts: Sequence[Part], n_queries: int, n_keys: int) -> tuple[list[int], list[int]]:
    """Return the bounds of sequences that cover all queries and keys, in the form of `cu_seq_q` and `cu_seq_k`.

    Queries between parts form sequences without keys, and keys between parts sequences without queries.
    """
    queries, keys = [0], [0]

    def extend(query: int, key: int) -> None:
        if (query, key) != (queries[-1], keys[-1]):
            queries.append(query)
            keys.append(key)

    for part in parts:
        extend(part.queries[0], keys[-1])
        extend(queries[-1], part.keys[0])
        extend(part.queries[1], part.keys[1])
    extend(n_queries, keys[-1])
    extend(queries[-1], n_keys)
    return queries, keys


def _numbers(visible: Intervals, start: int, end: int) -> Range:
    """Return the numbers of the queries among the tokens start..end."""
    first, last = np.searchsorted(visible.rows, (start, end)).tolist()
    return first, last
