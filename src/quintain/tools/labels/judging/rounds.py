"""A person's round: one form after the other, every answer stored at once, so that one who stops has lost nothing.

A part of an answer that cannot be taken, such as half a correction, is asked once more by itself; what was good is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, Field

from quintain.errors import QuintainError
from quintain.hints import Hint
from quintain.records.judging import BatchItem, JudgingBatch
from quintain.tools.labels.judging.answers import checked_correction, run_changed, take
from quintain.tools.labels.judging.batches import Shown, show_item
from quintain.tools.labels.judging.forms import CORRECTION_LINES, answer_of, correction_of, entries, faults, message
from quintain.tools.labels.judging.results import RejectedItem
from quintain.tools.labels.judging.taking import Submitted, Taking
from quintain.tools.services import Services
from quintain.tools.spec import Answer, Question


class Place(BaseModel):
    """Where a round stands; the state of its questions."""

    batch: str
    item: str
    done: Submitted
    again: str | None = Field(default=None, description="Why a part of the item is asked once more.")
    lines: tuple[str, ...] = Field(default=(), description="The lines that are asked once more.")
    kept: dict[str, str] = Field(default_factory=dict, description="What was put into the other lines; not stored yet.")


def first_question(batch: JudgingBatch, shown: Sequence[Shown]) -> Question:
    """The question that a round begins with."""
    return _question(batch, shown[0], Place(batch=batch.id, item=shown[0].item.item_id, done=Submitted()))


def next_question(services: Services, batch: JudgingBatch, place: Place, answer: Answer) -> Question | Submitted:
    """Take an answer.

    Args:
        services: Where it is stored.
        batch: Of the round.
        place: Where the round stood when the question was asked.
        answer: To it.

    Returns:
        The next question; at the end of the round what was rejected, with the warnings.
    """
    items = [item.item_id for item in batch.items]
    at, done = items.index(place.item), place.done
    item = batch.items[at]
    seen = show_item(services, batch, item)
    if answer.action == "lost" and seen is not None and (place.again or item.item_id not in batch.answered):
        return _question(batch, seen, place)
    if answer.action == "accept" or place.kept:
        values = answer.values if answer.action == "accept" else {}
        if seen is None:
            reason = Hint("[run_changed] ", run_changed(item.item_id))
            done = done.with_more(Submitted(rejected=[RejectedItem(item_id=item.item_id, reason=reason)]))
        else:
            came = _taken(services, batch, seen, place, values)
            if isinstance(came, Place) and answer.action == "accept":
                return _question(services.store.judging.get(batch.id), seen, came)
            done = came.done if isinstance(came, Place) else came
    if answer.action in {"decline", "cancel", "failed"}:
        return done
    batch = services.store.judging.get(batch.id)
    for later in batch.items[at + 1 :]:
        if later.item_id not in batch.answered and (seen := show_item(services, batch, later)) is not None:
            return _question(batch, seen, Place(batch=batch.id, item=later.item_id, done=done))
    return done


def _question(batch: JudgingBatch, seen: Shown, place: Place) -> Question:
    lines = entries(batch, seen)
    if place.again is not None:
        lines = tuple(entry for entry in lines if entry.name in place.lines)
    return Question(message(batch, seen, place.again), lines, place.model_dump_json())


def _taken(
    services: Services, batch: JudgingBatch, seen: Shown, place: Place, values: Mapping[str, str]
) -> Submitted | Place:
    """What came of an answer; a place: a part of it is to be asked once more."""
    item, done = seen.item, place.done
    if place.again is not None and not place.kept:
        return _with_correction(services, batch, seen, place, values)
    values = {**place.kept, **values}
    if wrong := faults(batch, seen, values):
        reason = "; ".join(wrong.values())
        if place.again is None:
            good = {name: value for name, value in values.items() if name not in wrong}
            return place.model_copy(update={"again": reason, "lines": tuple(wrong), "kept": good or {"note": ""}})
        return done.with_more(_rejected(item, f"[invalid_input] {reason}"))
    # An answer that came before, as when a client repeats a call, stays as it is.
    if item.item_id not in batch.answered:
        done = done.with_more(take(services, batch, [answer_of(batch, seen, values)], by="form"))
    place = place.model_copy(update={"done": done, "kept": {}})
    return _with_correction(services, services.store.judging.get(batch.id), seen, place, values)


def _with_correction(
    services: Services, batch: JudgingBatch, seen: Shown, place: Place, values: Mapping[str, str]
) -> Submitted | Place:
    """Take the correction of an answer whose other parts are stored."""
    if batch.mode not in {"score", "steps"}:
        return place.done
    try:
        given = correction_of(seen, values)
        if given is None:
            return place.done
        checked_correction(Taking(services, batch, "form", Submitted()), seen.runs[0], given)
    except QuintainError as error:
        if place.again is None:
            return place.model_copy(update={"again": str(error), "lines": CORRECTION_LINES})
        return place.done.with_more(_rejected(seen.item, str(error)))
    if seen.item.item_id in batch.corrections:
        return place.done
    return place.done.with_more(take(services, batch, [{"item_id": seen.item.item_id, "correction": given}], by="form"))


def _rejected(item: BatchItem, reason: str) -> Submitted:
    return Submitted(rejected=[RejectedItem(item_id=item.item_id, reason=reason)])


def read_place(state: str) -> Place:
    """Where a round stands, from the state of its question."""
    return Place.model_validate(json.loads(state))
