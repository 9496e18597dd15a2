"""Splitting of long trajectories at step borders.

A chunk is a shorter trajectory: the opening (everything before the first agent turn), some earlier steps as masked context, and the
steps that the chunk trains. It is rendered like any trajectory, so its length is counted after templating.

A trajectory is a sequence of blocks: an agent turn with its observations, and the user and system turns before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quintain.records.trajectory import Trajectory
from quintain.trainers.data.streams import TokenRow
from quintain.trainers.rendering.renderer import Renderer, Rendering

_FIRST_GUESS = 8
"""Blocks to try for the first chunk; later chunks start with the number of the previous one."""


def chunk(
    renderer: Renderer, trajectory: Trajectory, max_length: int, *, overlap: int, weight: float = 1.0
) -> Rendering:
    """Render a trajectory as rows of at most `max_length` tokens that train each trainable step exactly once.

    A trajectory that fits is rendered whole. Otherwise each chunk takes as many steps as fit. It repeats
    `overlap` earlier agent turns with their observations, masked; if its first step does not fit, the overlap is
    halved until it does. A step that is too long with the opening alone is left out and counted in `truncated_turns`.

    Returns:
        The rows, with `step_index` of the whole trajectory; `too_long` if no step fits.
    """
    whole = renderer.render(trajectory, max_length, weight)
    if not whole.truncated_turns:
        return whole
    turns = trajectory.agent_places
    blocks = _Blocks(renderer, trajectory, turns, max_length, weight)
    rows: list[TokenRow] = []
    truncated, guess, start = 0, _FIRST_GUESS, blocks.trained_from(0)
    while start < len(turns):
        context = min(overlap, start)
        found, end = blocks.longest(start, context, guess)
        while end == start and context:
            context //= 2
            found, end = blocks.longest(start, context, 1)
        rows += found
        truncated += end == start
        guess = max(end - start, 1)
        start = blocks.trained_from(max(end, start + 1))
    return Rendering(rows, truncated, None if rows else "too_long")


@dataclass(frozen=True)
class _Blocks:
    """A trajectory in blocks."""

    renderer: Renderer
    trajectory: Trajectory
    turns: list[int]
    """Step index of the agent turn that each block ends with."""
    max_length: int
    weight: float

    def trained_from(self, block: int) -> int:
        """Return the first block from `block` on with loss; the number of blocks if there is none."""
        return next((b for b in range(block, len(self.turns)) if self._trained(b)), len(self.turns))

    def longest(self, start: int, context: int, guess: int) -> tuple[list[TokenRow], int]:
        """Return the rows of the longest chunk from block `start` on, and the block after it.

        A rendered step does not depend on later ones, so a trial that is too long shows how much fits.

        Args:
            start: First block with loss.
            context: Blocks before it to repeat.
            guess: Number of blocks to try; doubled while all fit.

        Returns:
            No rows and `start` if the first block does not fit.
        """
        while True:
            tried = min(start + guess, len(self.turns))
            rows = self._rows(start, context, tried)
            kept = {int(step) for row in rows for step in row.step_index[row.places]}
            end = next((b for b in range(start, tried) if self._trained(b) and self.turns[b] not in kept), tried)
            if end < tried or tried == len(self.turns):
                break
            guess *= 2
        if start < end < tried:
            rows = self._rows(start, context, end)
        return (rows if end > start else []), end

    def _trained(self, block: int) -> bool:
        return self.renderer.trains(self.trajectory.steps[self.turns[block]])

    def _rows(self, start: int, context: int, end: int) -> list[TokenRow]:
        """Render blocks `start` to `end`, exclusive, after the opening and `context` earlier blocks."""
        steps, opening = self.trajectory.steps, self.turns[0]
        borders = (opening, *(turn + 1 for turn in self.turns))
        indices = [*range(opening), *range(borders[start - context], borders[end])]
        shown = [
            steps[i].model_copy(update={"train": False}) if opening <= i < borders[start] else steps[i] for i in indices
        ]
        part = self.trajectory.model_copy(update={"steps": tuple(shown)})
        # -1 (no step) indexes the last entry and stays -1.
        of_whole = np.asarray([*indices, -1], np.int32)
        rendering = self.renderer.render(part, self.max_length, self.weight)
        return [replace(row, step_index=of_whole[row.step_index]) for row in rendering.rows]
