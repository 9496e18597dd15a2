"""Answers that compare runs: choices between two, and rankings, as preferences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from quintain.errors import InvalidInput
from quintain.records.labels.judging import BatchItem, JudgingBatch, Vote
from quintain.records.labels.preference import Preference, PreferenceSource
from quintain.scoring.calibration.agreement import flipped
from quintain.scoring.judges.answer_parsing import read_preference, read_ranking
from quintain.tools.labels.judging.batches import ShownItem
from quintain.tools.labels.judging.results import AnswerContext, Submission


def withdraw_preferences(context: AnswerContext, item: BatchItem) -> None:
    """Withdraw the preferences of a skipped item; the answer on the same runs in the other order stays."""
    batch, store = context.batch, context.services.store.preferences
    if item.item_id not in batch.answered and item.item_id not in context.done.accepted:
        return
    if batch.mode == "group":
        _withdraw(context, item.trajectory_ids)
        return
    if _last_vote(context, item.item_id) is None:
        return
    context.done.votes[item.item_id] = None
    _withdraw(context, item.trajectory_ids)
    other = _swapped(batch, item)
    if other and (vote := _last_vote(context, other)) is not None:
        a, b = item.trajectory_ids
        store.add_many([_preference(context, a, b, flipped(vote), "")], context.services.clock())


def _last_vote(context: AnswerContext, item_id: str) -> Vote | None:
    """Return the newest vote on an item, unless it was withdrawn."""
    if item_id in context.done.votes:
        return context.done.votes[item_id]
    return next(reversed(context.batch.votes.get(item_id, ())), None)


def source_of(batch: JudgingBatch) -> PreferenceSource:
    """Return the source of the preferences of this batch."""
    return "person" if batch.judge == "person" else "assistant"


def store_preferences(
    context: AnswerContext, shown_item: ShownItem, submission: Submission, warnings: list[str]
) -> None:
    """Store the preferences in an answer."""
    item, reason = shown_item.item, submission.rationale or ""
    if context.batch.mode == "group":
        preferences = _of_ranking(context, item, _ranking(shown_item, submission), reason)
    else:
        vote = _vote_of(shown_item, submission)
        preferences = [_compared(context, item, vote, reason, warnings)]
        context.done.votes[item.item_id] = vote
    context.services.store.preferences.add_many(preferences, context.services.clock())


def _withdraw(context: AnswerContext, ids: Sequence[str]) -> None:
    """Withdraw the rater's preferences on these runs by this rubric."""
    batch, store = context.batch, context.services.store.preferences
    store.withdraw(
        {
            one.id
            for one in store.among(ids)
            if one.rater == batch.rater and one.step is None and one.rubric == batch.rubric.name and one.id
        }
    )


def _compared(context: AnswerContext, item: BatchItem, vote: Vote, reason: str, warnings: list[str]) -> Preference:
    """Return the preference on a pair: a tie where the answers to both orders contradict (Zheng et al. 2023, 3.4)."""
    batch, (a, b) = context.batch, item.trajectory_ids
    other = _swapped(batch, item)
    other_vote = _last_vote(context, other) if other else None
    if other_vote is not None and other_vote != flipped(vote):
        warnings.append(f"contradicts {other}, which shows the same runs in the other order: the pair counts as a tie")
        return _preference(context, a, b, "tie", f"the answers to both orders contradict. {reason}".strip())
    preference = _preference(context, a, b, vote, reason)
    if other_vote is None and item.item_id not in batch.answered:
        before = (known for known in context.services.store.preferences.among([a, b]) if known.rater == batch.rater)
        if any(known.step is None and known.chosen != preference.chosen for known in before):
            warnings.append("another batch has another answer of this rater on the same runs; the newest counts")
    return preference


def _vote_of(shown_item: ShownItem, submission: Submission) -> Vote:
    """Which place the answer prefers."""
    document = {"better": submission.better, "quotes": submission.quotes}
    read = read_preference(document, [view.passages for view in shown_item.views])
    if read.failed is not None:
        raise InvalidInput(f"{read.failed}; correct it and submit the item again")
    return read.better


def _swapped(batch: JudgingBatch, item: BatchItem) -> str | None:
    """The item that shows the same runs in the other order, if there is one."""
    if item.repeats is not None:
        return item.repeats
    return next((other.item_id for other in batch.items if other.repeats == item.item_id), None)


def _ranking(shown_item: ShownItem, submission: Submission) -> tuple[tuple[int, ...], ...]:
    document = {"ranking": submission.ranking, "quotes": submission.quotes}
    read = read_ranking(document, len(shown_item.runs), [view.passages for view in shown_item.views])
    if read.failed is not None:
        raise InvalidInput(f"{read.failed}; correct it and submit the item again")
    return read.places


def _of_ranking(
    context: AnswerContext, item: BatchItem, ranking: Sequence[Sequence[int]], reason: str
) -> list[Preference]:
    """Return a preference on every two runs of a group; those that share a place are ties."""
    ids = item.trajectory_ids
    place = {run: rank for rank, runs in enumerate(ranking) for run in runs}
    found: list[Preference] = []
    for one, other in combinations(range(len(ids)), 2):
        better: Vote = "tie" if place[one] == place[other] else "a" if place[one] < place[other] else "b"
        found.append(_preference(context, ids[one], ids[other], better, reason))
    return found


def _preference(context: AnswerContext, a: str, b: str, better: Vote, reason: str) -> Preference:
    batch = context.batch
    return Preference(
        a=a,
        b=b,
        better=better,
        source=source_of(batch),
        rater=batch.rater,
        rubric=batch.rubric.name,
        reason=context.note(reason),
    )
