"""Positions at which a run is valued: the last token of the agent's text, or of each of its steps.

Hidden states are read through the same rows as log-probs: the predecessor of a marked token is read. So each row gets one more
token at its end, on which nothing depends, and the token behind the end of a turn is marked. The observation after the last step is
not read, because it often reveals the outcome.
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
"""Token id at the end of a row; no read state depends on it."""


class Reading(NamedTuple):
    """Rows of a run with marked positions."""

    rows: tuple[TokenRow, ...]
    """Supervised where a state is read; `step_index` there is the step in the trajectory."""
    dropped: str | None
    """Why the run cannot be read: `nothing_written`, `too_long` or `template_refused`."""


def read_run(renderer: Renderer, run: Trajectory, max_length: int) -> Reading:
    """Mark a run at the last token of the agent; not one of more than `max_length` tokens, because its end would be missing."""
    reading = read_steps(renderer, run, max_length)
    if reading.dropped:
        return reading
    last = reading.rows[-1]  # if the template rewrites history, it is the whole run as the agent last saw it
    return Reading((_marked(last, last.places[-1:]),), None)


def read_steps(renderer: Renderer, run: Trajectory, max_length: int) -> Reading:
    """Mark a run at the last token of each agent step, masked ones too; see `read_run`."""
    steps = tuple(step if step.actor is not Actor.AGENT else _to_be_read(step) for step in run.steps)
    if not any(step.train for step in steps if step.actor is Actor.AGENT):
        return Reading((), "nothing_written")
    rendering = renderer.render(run.model_copy(update={"steps": steps}), max_length - 1)
    if rendering.dropped or rendering.truncated_turns:
        reason = "nothing_written" if rendering.dropped == "nothing_supervised" else rendering.dropped
        return Reading((), reason or "too_long")
    return Reading(tuple(_marked(_longer(row), _ends(row) + 1) for row in rendering.rows), None)


def with_labels(row: TokenRow, labels: Mapping[int, Sequence[float]], n_heads: int) -> TokenRow:
    """Return the row with the targets of each head by step of the trajectory, NaN where unknown, marked at those steps only."""
    label = np.full((len(row), n_heads), np.nan, np.float32)
    for place in row.places:
        if (targets := labels.get(int(row.step_index[place]))) is not None:
            label[place] = targets
    kept = np.flatnonzero(np.isfinite(label).any(1))
    return replace(_marked(row, kept), label=label)


def with_parts(row: TokenRow, parts: Mapping[str, float], names: Sequence[str]) -> TokenRow:
    """Return the row of a whole run with the values of its parts as labels, NaN where unknown."""
    targets = [np.nan, *(parts.get(name, np.nan) for name in names[1:])]
    return row.with_supervised("label", np.tile(np.asarray(targets, np.float32), (row.n_supervised, 1)))


def _to_be_read(step: Step) -> Step:
    wrote = bool(step.message or step.thought or step.actions or (step.sampled and step.sampled.token_ids))
    return step.model_copy(update={"train": wrote and step.extra.get("acted") is not False, "copied_context": False})


def _ends(row: TokenRow) -> NDArray[np.intp]:
    """Return the last token of each agent step."""
    places = row.places
    steps = row.step_index[places]
    return places[np.append(steps[1:] != steps[:-1], True)]


def _longer(row: TokenRow) -> TokenRow:
    """Return the row with one more token, each token with the step of its predecessor."""
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
