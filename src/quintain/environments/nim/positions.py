"""Positions of Nim: which are lost, and the moves to them (Bouton 1901, Ann. Math. 3:35-39)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import xor


def is_lost(heaps: Sequence[int], *, misere: bool) -> bool:
    """Whether the player to move loses against perfect play.

    The exclusive or of the heaps is 0. Where no heap has more than one stone, it is the parity of the stones that counts, and
    in misere play, where the last stone loses, it is the other one.
    """
    balanced = reduce(xor, heaps, 0) == 0
    return balanced != (misere and max(heaps, default=0) <= 1)


def best_move(heaps: Sequence[int], *, misere: bool) -> tuple[int, int]:
    """Return the index of a heap and the stones to take: to a lost position if there is one, else one from the largest heap."""
    for place, size in enumerate(heaps):
        for stones in range(1, size + 1):
            if is_lost([*heaps[:place], size - stones, *heaps[place + 1 :]], misere=misere):
                return place, stones
    return max(range(len(heaps)), key=lambda place: heaps[place]), 1
