"""Answers that compare runs: choices between two, and rankings, as preferences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from quintain.errors import InvalidInput
from quintain.records.judging import BatchItem, JudgingBatch, Vote
from quintain.records.preference import Preference, PreferenceSource
from quintain.scoring.calibration.agreement import flipped
from quintain.scoring.judges.verdicts import read_preference, read_ranking
from quintain.tools.labels.judging.batches import Shown
from quintain.tools.labels.judging.taking import Submission, Taking


def take_back_words(taking: Taking, item: BatchItem) -> None:
    """A rater who cannot judge after all prefers nothing; what they said of the same runs in the other order stays."""
    batch, preferences = taking.batch, taking.services.store.preferences
    if item.item_id not in batch.answered and item.item_id not in taking.done.accepted:
        return
    if batch.mode == "group":
        _withdraw(taking, item.trajectory_ids)
        return
    if _last_vote(taking, item.item_id) is None:
        return
    taking.done.votes[item.item_id] = None
    _withdraw(taking, item.trajectory_ids)
    other = _swapped(batch, item)
    if other and (vote := _last_vote(taking, other)) is not None:
        a, b = item.trajectory_ids
        word = _preference(taking, a, b, flipped(vote), "")
        preferences.add_many([word], taking.services.clock())


def _last_vote(taking: Taking, item_id: str) -> Vote | None:
    """The vote on an item that stands."""
    if item_id in taking.done.votes:
        return taking.done.votes[item_id]
    return next(reversed(taking.batch.votes.get(item_id, ())), None)


def source_of(batch: JudgingBatch) -> PreferenceSource:
    """Whose word a preference of this batch is."""
    return "person" if batch.judge == "person" else "assistant"


def take_words(taking: Taking, seen: Shown, given: Submission, warnings: list[str]) -> None:
    """Store the preferences that an answer comes to.

    Raises:
        InvalidInput: it cannot be read.
    """
    item, reason = seen.item, given.rationale or ""
    if taking.batch.mode == "group":
        words = _of_ranking(taking, item, _ranking(seen, given), reason)
    else:
        vote = _vote_of(seen, given)
        words = [_compared(taking, item, vote, reason, warnings)]
        taking.done.votes[item.item_id] = vote
    taking.services.store.preferences.add_many(words, taking.services.clock())


def _withdraw(taking: Taking, ids: Sequence[str]) -> None:
    """Take back what the rater said of these runs by this rubric."""
    batch, preferences = taking.batch, taking.services.store.preferences
    preferences.withdraw(
        {
            one.id
            for one in preferences.among(ids)
            if one.rater == batch.rater and one.step is None and one.rubric == batch.rubric.name and one.id
        }
    )


def _compared(taking: Taking, item: BatchItem, vote: Vote, reason: str, warnings: list[str]) -> Preference:
    """The word on a pair. Where both orders were shown and the answers contradict, it is a tie (Zheng et al. 2023, 3.4)."""
    batch, (a, b) = taking.batch, item.trajectory_ids
    other = _swapped(batch, item)
    said = _last_vote(taking, other) if other else None
    if said is not None and said != flipped(vote):
        warnings.append(f"contradicts {other}, which shows the same runs in the other order: the pair counts as a tie")
        return _preference(taking, a, b, "tie", f"the answers to both orders contradict. {reason}".strip())
    word = _preference(taking, a, b, vote, reason)
    if said is None and item.item_id not in batch.answered:
        before = (known for known in taking.services.store.preferences.among([a, b]) if known.rater == batch.rater)
        if any(known.step is None and known.chosen != word.chosen for known in before):
            warnings.append("another batch has another answer of this rater on the same runs; the newest stands")
    return word


def _vote_of(seen: Shown, given: Submission) -> Vote:
    """Which place the answer prefers.

    Raises:
        InvalidInput: it names none.
    """
    document = {"better": given.better, "quotes": given.quotes}
    read = read_preference(document, [view.passages for view in seen.views])
    if read.better is None:
        raise InvalidInput(f"{read.failed}; correct it and submit the item again")
    return read.better


def _swapped(batch: JudgingBatch, item: BatchItem) -> str | None:
    """The item that shows the same runs in the other order, if there is one."""
    if item.repeats is not None:
        return item.repeats
    return next((other.item_id for other in batch.items if other.repeats == item.item_id), None)


def _ranking(seen: Shown, given: Submission) -> tuple[tuple[int, ...], ...]:
    document = {"ranking": given.ranking, "quotes": given.quotes}
    read = read_ranking(document, len(seen.runs), [view.passages for view in seen.views])
    if read.failed is not None:
        raise InvalidInput(f"{read.failed}; correct it and submit the item again")
    return read.places


def _of_ranking(taking: Taking, item: BatchItem, ranking: Sequence[Sequence[int]], reason: str) -> list[Preference]:
    """The word on every two runs of a group; those that share a place are ties."""
    ids = item.trajectory_ids
    place = {run: rank for rank, runs in enumerate(ranking) for run in runs}
    found: list[Preference] = []
    for one, other in combinations(range(len(ids)), 2):
        better: Vote = "tie" if place[one] == place[other] else "a" if place[one] < place[other] else "b"
        found.append(_preference(taking, ids[one], ids[other], better, reason))
    return found


def _preference(taking: Taking, a: str, b: str, better: Vote, reason: str) -> Preference:
    batch = taking.batch
    return Preference(
        a=a,
        b=b,
        better=better,
        source=source_of(batch),
        rater=batch.rater,
        rubric=batch.rubric.name,
        reason=taking.note(reason),
    )
