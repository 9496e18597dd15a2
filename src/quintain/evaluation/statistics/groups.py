"""Significance groups of a leaderboard: agents that share a letter do not differ significantly."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def letters(names: Sequence[str], different: Collection[tuple[str, str]]) -> dict[str, str]:
    """The compact letter display of pairwise comparisons, by insert and absorb (Piepho 2004, JCGS 13:456-466).

    Two agents share no letter exactly where their pair is in `different`; not to be told apart is not transitive, so an
    agent can have several letters.

    Args:
        names: Agents, best first; the best has the letter a.
        different: Pairs that differ significantly, in either order.
    """
    columns: list[frozenset[str]] = [frozenset(names)]
    for one, other in different:
        split: list[frozenset[str]] = []
        for column in columns:
            split += [column - {one}, column - {other}] if {one, other} <= column else [column]
        columns = _absorbed(split)
    place = {name: i for i, name in enumerate(names)}
    columns.sort(key=lambda column: sorted(place[name] for name in column))
    return {name: "".join(_letter(i) for i, column in enumerate(columns) if name in column) for name in names}


def _absorbed(columns: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    distinct = list(dict.fromkeys(columns))
    return [column for column in distinct if not any(column < other for other in distinct)]


def _letter(i: int) -> str:
    return chr(ord("a") + i) if i < 26 else f"({i + 1})"
