"""Answers to twins: two items that show the same runs, one of them without what may ask for a verdict.

They count together (`rewards.judging.counterfactual`): the answer to the one without, if the other says the same. Until both are
answered a run is unscored, and a pair or group has no preference.
"""

from __future__ import annotations

from collections.abc import Iterator

from quintain.records.judging import BatchItem, Half
from quintain.records.score import TAKEN_BACK, Score
from quintain.records.trajectory import OutcomeStatus
from quintain.scoring.judges.counterfactual import settled
from quintain.tools.labels.judging.batches import Shown
from quintain.tools.labels.judging.taking import Taking


def score_together(taking: Taking, seen: Shown, score: Score | None, outcome: OutcomeStatus | None) -> Score | None:
    """Note an answer to a twin; the score that both answers come to, None: the other has no verdict yet."""
    item = seen.item
    before = taking.half(item.item_id)
    kept = score or (before and before.score)  # who only states an outcome leaves the verdict as it is
    taking.done.halves[item.item_id] = Half(score=kept, outcome=outcome.value if outcome else None)
    other = taking.other_half(item)
    if score is None or other is None or other.score is None:
        return None
    shown, bare = (other.score, score) if item.bare else (score, other.score)
    taken_back = next((one for one in (bare, shown) if one.takes_back), None)
    return taken_back or settled(shown, bare, seen.views[0].demands)


def same_outcome(taking: Taking, item: BatchItem) -> bool:
    """Do the answers to both twins state one outcome?"""
    one, other = taking.done.halves.get(item.item_id), taking.other_half(item)
    return one is not None and other is not None and one.outcome == other.outcome


def waiting(taking: Taking) -> Iterator[tuple[BatchItem, Score | None]]:
    """Twins that were answered without the other, and how a run of theirs stands until then."""
    batch, done = taking.batch, taking.done
    for item in batch.items:
        if item.twin is None or item.item_id not in done.accepted:
            continue
        half, other = done.halves.get(item.item_id), taking.other_half(item)
        if batch.mode in {"score", "steps"}:
            if half is not None and half.score is not None and (other is None or other.score is None):
                yield item, half.score if half.score.takes_back else _pending(half.score, item, batch.id)
        elif item.twin not in done.accepted and item.twin not in batch.answered:
            yield item, None


def _pending(score: Score, item: BatchItem, batch_id: str) -> Score:
    reason = f"one of its two views is judged; its value counts when {item.twin} of {batch_id} is judged, too"
    kept = score.model_dump(include={"trajectory_id", "scorer", "rater", "rubric"})
    return Score(**kept, status="unscored", reason=reason)


def wordless(half: Half) -> Half:
    """The answer as it may be kept: what a judge wrote can quote a run, and goes with the score alone."""
    if half.score is None:
        return half
    reason = TAKEN_BACK if half.score.takes_back else half.score.reason
    return half.model_copy(update={"score": half.score.model_copy(update={"feedback": "", "reason": reason})})
