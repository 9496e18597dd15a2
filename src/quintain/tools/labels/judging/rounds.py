"""A person's round: one form after the other, every answer stored at once, so that one who stops has lost nothing.

A part of an answer that cannot be taken, such as half a correction, is asked once more by itself; what was good is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, Field

from quintain.errors import QuintainError
from quintain.next_step import Hint
from quintain.records.labels.judging import BatchItem, JudgingBatch
from quintain.tools.labels.judging.answers import checked_correction, run_changed, store_answers
from quintain.tools.labels.judging.batches import ShownItem, show_item
from quintain.tools.labels.judging.forms import CORRECTION_LINES, answer_of, correction_of, entries, faults, message
from quintain.tools.labels.judging.results import RejectedItem
from quintain.tools.labels.judging.submissions import AnswerContext, SubmissionReport
from quintain.tools.services import Services
from quintain.tools.spec import Answer, Question


class RoundState(BaseModel):
    """Progress of a round, kept in its questions."""

    batch: str
    item: str
    done: SubmissionReport
    again: str | None = Field(default=None, description="Why a part of the item is asked once more.")
    lines: tuple[str, ...] = Field(default=(), description="The lines that are asked once more.")
    kept: dict[str, str] = Field(default_factory=dict, description="What was put into the other lines; not stored yet.")


def first_question(batch: JudgingBatch, shown: Sequence[ShownItem]) -> Question:
    """The question that a round begins with."""
    return _question(batch, shown[0], RoundState(batch=batch.id, item=shown[0].item.item_id, done=SubmissionReport()))


def next_question(
    services: Services, batch: JudgingBatch, state: RoundState, answer: Answer
) -> Question | SubmissionReport:
    """Take an answer.

    Args:
        services: Where it is stored.
        batch: Of the round.
        state: Where the round stood when the question was asked.
        answer: To it.

    Returns:
        The next question; at the end of the round what was rejected, with the warnings.
    """
    items = [item.item_id for item in batch.items]
    at, done = items.index(state.item), state.done
    item = batch.items[at]
    shown_item = show_item(services, batch, item)
    if answer.action == "lost" and shown_item is not None and (state.again or item.item_id not in batch.answered):
        return _question(batch, shown_item, state)
    if answer.action == "accept" or state.kept:
        values = answer.values if answer.action == "accept" else {}
        if shown_item is None:
            reason = Hint("[run_changed] ", run_changed(item.item_id))
            done = done.with_more(SubmissionReport(rejected=[RejectedItem(item_id=item.item_id, reason=reason)]))
        else:
            came = _taken(services, batch, shown_item, state, values)
            if isinstance(came, RoundState) and answer.action == "accept":
                return _question(services.store.judging.get(batch.id), shown_item, came)
            done = came.done if isinstance(came, RoundState) else came
    if answer.action in {"decline", "cancel", "failed"}:
        return done
    batch = services.store.judging.get(batch.id)
    for later in batch.items[at + 1 :]:
        if later.item_id not in batch.answered and (shown_item := show_item(services, batch, later)) is not None:
            return _question(batch, shown_item, RoundState(batch=batch.id, item=later.item_id, done=done))
    return done


def _question(batch: JudgingBatch, shown_item: ShownItem, state: RoundState) -> Question:
    lines = entries(batch, shown_item)
    if state.again is not None:
        lines = tuple(entry for entry in lines if entry.name in state.lines)
    return Question(message(batch, shown_item, state.again), lines, state.model_dump_json())


def _taken(
    services: Services, batch: JudgingBatch, shown_item: ShownItem, state: RoundState, values: Mapping[str, str]
) -> SubmissionReport | RoundState:
    """Store an answer. Return the report, or the state in which a part of it is asked once more."""
    item, done = shown_item.item, state.done
    if state.again is not None and not state.kept:
        return _with_correction(services, batch, shown_item, state, values)
    values = {**state.kept, **values}
    if wrong := faults(batch, shown_item, values):
        reason = "; ".join(wrong.values())
        if state.again is None:
            good = {name: value for name, value in values.items() if name not in wrong}
            return state.model_copy(update={"again": reason, "lines": tuple(wrong), "kept": good or {"note": ""}})
        return done.with_more(_rejected(item, f"[invalid_input] {reason}"))
    # An answer that came before, as when a client repeats a call, stays as it is.
    if item.item_id not in batch.answered:
        done = done.with_more(store_answers(services, batch, [answer_of(batch, shown_item, values)], by="form"))
    state = state.model_copy(update={"done": done, "kept": {}})
    return _with_correction(services, services.store.judging.get(batch.id), shown_item, state, values)


def _with_correction(
    services: Services, batch: JudgingBatch, shown_item: ShownItem, state: RoundState, values: Mapping[str, str]
) -> SubmissionReport | RoundState:
    """Take the correction of an answer whose other parts are stored."""
    if batch.mode not in {"score", "steps"}:
        return state.done
    try:
        correction = correction_of(shown_item, values)
        if correction is None:
            return state.done
        checked_correction(AnswerContext(services, batch, "form", SubmissionReport()), shown_item.runs[0], correction)
    except QuintainError as error:
        if state.again is None:
            return state.model_copy(update={"again": str(error), "lines": CORRECTION_LINES})
        return state.done.with_more(_rejected(shown_item.item, str(error)))
    if shown_item.item.item_id in batch.corrections:
        return state.done
    return state.done.with_more(
        store_answers(services, batch, [{"item_id": shown_item.item.item_id, "correction": correction}], by="form")
    )


def _rejected(item: BatchItem, reason: str) -> SubmissionReport:
    return SubmissionReport(rejected=[RejectedItem(item_id=item.item_id, reason=reason)])


def read_state(state: str) -> RoundState:
    """Return the progress of a round from the state of its question."""
    return RoundState.model_validate(json.loads(state))
