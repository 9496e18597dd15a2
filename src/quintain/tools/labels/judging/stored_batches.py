"""A batch that was given out before, with its answers, so that a judge who was interrupted goes on where they were."""

from __future__ import annotations

from pydantic import Field

from quintain.next_step import Hint, call
from quintain.records.labels.judging import JudgingBatch, JudgingMode, Rubric
from quintain.records.record import Record
from quintain.records.score import Score
from quintain.scoring.judges.rubrics import RUBRICS
from quintain.tools.labels.judging.batches import ShownItem, show_item
from quintain.tools.labels.judging.forms import judging_items
from quintain.tools.labels.judging.results import JudgingItem
from quintain.tools.labels.rubric_names import used_rubrics
from quintain.tools.services import Services


class StoredAnswer(Record):
    """The newest answer of the batch's rater to one item."""

    scores: dict[str, float] = Field(default_factory=dict, description="Criterion -> value in 0..1. Empty: none.")
    rationale: str = ""
    skipped: bool = Field(default=False, description="Whether the rater could not judge it, or withdrew the answer.")


class StoredBatch(Record):
    """`judging://{batch_id}`: the items as they were given out; those that can no longer be judged are left out."""

    batch_id: str
    rater: str
    mode: JudgingMode
    rubric: Rubric
    items: tuple[JudgingItem, ...]
    answered: dict[str, StoredAnswer] = Field(description="Item -> its answer, of those that have one.")
    next_step: Hint


class RubricList(Record):
    """`judging://rubrics`: the rubrics that are built in, and those that were used, the newest of each name."""

    items: tuple[Rubric, ...]


def stored_batch(services: Services, batch_id: str) -> StoredBatch:
    """Return a batch of a home folder, blind as it was given out."""
    batch = services.store.judging.get(batch_id)
    shown = [view for item in batch.items if (view := show_item(services, batch, item)) is not None]
    return StoredBatch(
        batch_id=batch.id,
        rater=batch.rater,
        mode=batch.mode,
        rubric=batch.rubric,
        items=judging_items(batch, shown),
        answered={
            one.item.item_id: _answer(services, batch, one) for one in shown if one.item.item_id in batch.answered
        },
        next_step=Hint("Store answers to open items with ", call("submit_scores", batch_id=batch.id, scores=...), "."),
    )


def _answer(services: Services, batch: JudgingBatch, shown: ShownItem) -> StoredAnswer:
    """Return the newest answer to an item; of pairs and groups, which are stored as preferences, an empty one."""
    if len(shown.runs) > 1:
        return StoredAnswer()
    own = [score for score in services.store.scores.current_of(shown.runs[0].id or "") if _is_of(score, batch)]
    if not own:
        return StoredAnswer()
    values = {one.name: one.value for one in own[0].components if one.value is not None}
    return StoredAnswer(scores=values, rationale=own[0].feedback, skipped=own[0].takes_back)


def _is_of(score: Score, batch: JudgingBatch) -> bool:
    return score.rater == batch.rater and score.rubric == batch.rubric.name


def rubric_list(services: Services) -> RubricList:
    """Return the rubrics that a batch can name."""
    found = dict(RUBRICS)
    for used in used_rubrics(services):
        found.setdefault(used.name, used)
    return RubricList(items=tuple(found.values()))
