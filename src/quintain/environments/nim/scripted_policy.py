"""A scripted policy for `quintain/nim`: it reads the heaps and moves to a lost position whenever there is one."""

from __future__ import annotations

from functools import partial

from quintain.environments.nim.positions import best_move
from quintain.environments.scripted_policy import Move, Script, ScriptedPolicy
from quintain.errors import InvalidInput

_HEAPS = "Heaps:"


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
