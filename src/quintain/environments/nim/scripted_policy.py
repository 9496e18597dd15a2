"""A scripted policy for `quintain/nim`: it reads the heaps and moves to a lost position whenever there is one.

Bouton 1901 (Ann. Math. 3:35-39) has the theory of these positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from operator import xor

from quintain.environments.scripted_policy import Move, Script, ScriptedPolicy
from quintain.errors import InvalidInput

_HEAPS = "Heaps:"


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


def _script(prompt: str) -> Script:
    misere, text = "last stone loses" in prompt, prompt
    while True:
        _, found, numbers = text.rpartition(_HEAPS)
        if not found:
            raise InvalidInput(
                f"expected a position of quintain/nim, got {text[:80]!r}; take tasks from the environment"
            )
        heaps = [int(number) for number in numbers.split()]
        place, stones = best_move(heaps, misere=misere)
        left = [size - stones if i == place else size for i, size in enumerate(heaps)]
        text = yield Move(f"Leave {' '.join(map(str, left))}.", "take", {"heap": place + 1, "stones": stones})


Expert = partial(ScriptedPolicy, _script)
"""A `Policy` for `quintain/nim` that wins from every position that can be won."""
