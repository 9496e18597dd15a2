"""Where a run is valued: at the last token of what the agent wrote, or of each of its steps.

A hidden state is read through the very rows that log-probs are computed from: a marked token is one whose predecessor is
read. So each row gets one more token at its end, which no model ever sees the effect of, and the token behind the end of a
turn is marked. What the environment answers to the last step is not read: it often says how the run ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quintain.records.trajectory import Actor, Step, Trajectory
from quintain.trainers.data.streams import TokenRow
from quintain.trainers.rendering.renderer import Renderer

_FILLER = 0
"""Token id at the end of a row; nothing that is read depends on it."""


class Reading(NamedTuple):
    """A run as rows to be read."""

    rows: tuple[TokenRow, ...]
    """Marked where something is read; `step_index` there is the place of the step in the trajectory."""
    dropped: str | None
    """Why it cannot be read: `nothing_written`, `too_long` or `template_refused`."""


def read_run(renderer: Renderer, run: Trajectory, max_length: int) -> Reading:
    """A run to be read once, at the last token that the agent wrote.

    Args:
        renderer: Writes runs as tokens.
        run: Every step counts as the agent's, whether it may be trained on or not.
        max_length: Tokens of a row; a run that does not fit is not read at all, since its end would be missing.

    Raises:
        InvalidInput: as `Renderer.render`.
    """
    reading = read_steps(renderer, run, max_length)
    if reading.dropped:
        return reading
    last = reading.rows[-1]  # where the template rewrites history it holds the whole run as the agent saw it last
    return Reading((_marked(last, last.places[-1:]),), None)


def read_steps(renderer: Renderer, run: Trajectory, max_length: int) -> Reading:
    """A run to be read at the last token of each of the agent's steps; arguments as of `read_run`."""
    steps = tuple(step if step.actor is not Actor.AGENT else _to_be_read(step) for step in run.steps)
    if not any(step.train for step in steps if step.actor is Actor.AGENT):
        return Reading((), "nothing_written")
    rendering = renderer.render(run.model_copy(update={"steps": steps}), max_length - 1)
    if rendering.dropped or rendering.truncated_turns:
        reason = "nothing_written" if rendering.dropped == "nothing_supervised" else rendering.dropped
        return Reading((), reason or "too_long")
    return Reading(tuple(_marked(_longer(row), _ends(row) + 1) for row in rendering.rows), None)


def with_labels(row: TokenRow, labels: Mapping[int, Sequence[float]], n_heads: int) -> TokenRow:
    """The row with labels at the steps that have one, and marked nowhere else.

    Args:
        row: Of `read_steps`.
        labels: Place of a step in the trajectory -> what each head shall say there, NaN where unknown.
        n_heads: K.
    """
    label = np.full((len(row), n_heads), np.nan, np.float32)
    for place in row.places:
        if (given := labels.get(int(row.step_index[place]))) is not None:
            label[place] = given
    kept = np.flatnonzero(np.isfinite(label).any(1))
    return replace(_marked(row, kept), label=label)


def _to_be_read(step: Step) -> Step:
    wrote = bool(step.message or step.thought or step.actions or (step.sampled and step.sampled.token_ids))
    return step.model_copy(update={"train": wrote and step.extra.get("acted") is not False, "copied_context": False})


def _ends(row: TokenRow) -> NDArray[np.intp]:
    """The last token of each step that the agent wrote."""
    places = row.places
    steps = row.step_index[places]
    return places[np.append(steps[1:] != steps[:-1], True)]


def _longer(row: TokenRow) -> TokenRow:
    """The row with one more token, and each token carrying the step of the one before it."""
    return TokenRow(
        token_ids=np.append(row.token_ids, np.int32(_FILLER)),
        supervised=np.append(row.supervised, False),
        step_index=np.concatenate([row.step_index[:1], row.step_index]),
        weight=np.append(row.weight, np.float32(0)),
    )


def _marked(row: TokenRow, places: NDArray[np.intp]) -> TokenRow:
    supervised = np.zeros(len(row), np.bool_)
    supervised[places] = True
    return replace(row, supervised=supervised, weight=supervised.astype(np.float32))
