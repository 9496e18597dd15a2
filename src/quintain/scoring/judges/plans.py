"""What to ask to judge runs, and what the answers come to. Pairs and groups are asked about twice, in both orders.

A judge that contradicts itself when the order is turned round has no preference that can be used: that is a tie, and is
counted (position bias, Wang et al. 2023, arXiv 2305.17926; Zheng et al. 2023, arXiv 2306.05685, section 3.4).

Where a run holds text that may ask for a verdict, everything is asked once more without it (`counterfactual`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from quintain.records.judging import JudgingMode, Rubric
from quintain.records.preference import Preference, PreferenceSource
from quintain.records.score import Score
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Trajectory
from quintain.scoring.judges.counterfactual import moved_by, settled, summary
from quintain.scoring.judges.questions import (
    GROUP_MOST,
    Question,
    group_question,
    pair_question,
    score_question,
    steps_question,
)
from quintain.scoring.judges.showing import BUDGET_CHARS, ShownRun, show_run
from quintain.scoring.judges.valuing import valued_names
from quintain.scoring.judges.verdicts import (
    PairAnswer,
    RankingAnswer,
    read_preference,
    read_ranking,
    read_verdict,
    score_of,
)

ALL_PAIRS_UP_TO = 5
"""Runs of a task that are all compared with each other; of more, each is compared with its next two in a shuffled ring."""


@dataclass(frozen=True)
class JudgingItem:
    """One thing to judge: the runs, as they are shown, and the questions about them."""

    mode: JudgingMode
    rubric: Rubric
    ids: tuple[str, ...]
    views: tuple[ShownRun, ...]
    questions: tuple[Question, ...]
    """One, or for pairs and groups two: the second shows the runs in the opposite order. Where the item is `twice` to be judged,
    the same without what may ask for a verdict follow."""

    @property
    def twice(self) -> bool:
        """Does a run hold text that may ask for a verdict?"""
        return any(view.bare is not None for view in self.views)

    @property
    def demands(self) -> tuple[str, ...]:
        """Where such text stands."""
        if len(self.views) == 1:
            return self.views[0].demands
        return tuple(
            f"{where} of {run_id}" for run_id, view in zip(self.ids, self.views, strict=True) for where in view.demands
        )


@dataclass(frozen=True)
class Judged:
    """What the answers about an item come to."""

    scores: tuple[Score, ...] = ()
    preferences: tuple[Preference, ...] = ()
    failed: str | None = None
    """Why there is no judgement."""
    inconsistent: int = 0
    """Pairs on which the judge contradicted itself when the order was turned round; ties now."""
    moved: int = 0
    """Runs, or pairs of runs, on which it was moved by text that may address it; they have no verdict."""


@dataclass(frozen=True)
class Rater:
    """Who judges."""

    name: str
    """As `Score.rater`."""
    source: PreferenceSource


def item_of(
    runs: Sequence[Trajectory], mode: JudgingMode, rubric: Rubric, *, budget_chars: int = BUDGET_CHARS
) -> JudgingItem:
    """What to ask about these runs: one run in the modes `score` and `steps`, two in `pairwise`, several in `group`.

    Args:
        runs: With ids; in the order in which they are shown first.
        mode: What to ask.
        rubric: What to go by.
        budget_chars: Of a question; runs that are shown together share it.
    """
    each = budget_chars // len(runs) if mode == "group" and len(runs) > 2 else budget_chars
    labels = {"pairwise": ("RUN A", "RUN B"), "group": [f"RUN {n}" for n in range(1, len(runs) + 1)]}.get(
        mode, ("RUN",)
    )
    criteria = valued_names(mode, rubric)

    def shown(order: Sequence[Trajectory]) -> tuple[ShownRun, ...]:
        named = zip(order, labels, strict=True)
        return tuple(show_run(run, budget_chars=each, label=label, criteria=criteria) for run, label in named)

    views = shown(runs)
    orders = [views] if len(runs) == 1 else [views, shown(runs[::-1])]
    if any(view.bare is not None for view in views):
        orders += [tuple(view.stripped() for view in order) for order in orders]
    questions = tuple(_asked(order, mode, rubric) for order in orders)
    return JudgingItem(mode, rubric, tuple(run.id or "" for run in runs), views, questions)


def _asked(views: Sequence[ShownRun], mode: JudgingMode, rubric: Rubric) -> Question:
    if mode == "score":
        return score_question(views[0], rubric)
    if mode == "steps":
        return steps_question(views[0], rubric)
    return pair_question(views[0], views[1], rubric) if mode == "pairwise" else group_question(views, rubric)


def conclude(item: JudgingItem, answers: Sequence[str], rater: Rater) -> Judged:
    """Read the answers to an item's questions, in their order, as scores or preferences."""
    if item.mode in {"score", "steps"}:
        scores = [_score(item, answer, rater) for answer in answers]
        score = settled(scores[0], scores[1], item.demands) if item.twice else scores[0]
        failed = summary(score.reason)
        return Judged(scores=(score,), failed=failed, moved=int(failed != score.reason))
    each = _of_pair if item.mode == "pairwise" else _of_group
    if not item.twice:
        return each(item, answers, rater)
    return _compared(item, each(item, answers[:2], rater), each(item, answers[2:], rater))


def _score(item: JudgingItem, answer: str, rater: Rater) -> Score:
    view = item.views[0]
    verdict = read_verdict(answer, item.rubric, view.n_steps, mode=item.mode, steps=view.steps)
    return score_of(verdict, item.rubric, item.ids[0], rater=rater.name, view=view)


def _compared(item: JudgingItem, shown: Judged, bare: Judged) -> Judged:
    """The preferences without what may ask for a verdict, as far as those with it are the same."""
    if failed := bare.failed or shown.failed:
        return Judged(failed=failed)
    pairs = zip(shown.preferences, bare.preferences, strict=True)
    same = tuple(without for with_it, without in pairs if with_it.better == without.better)
    moved = len(bare.preferences) - len(same)
    failed = None if same else summary(moved_by(item.demands))
    return Judged(preferences=same, failed=failed, inconsistent=bare.inconsistent, moved=moved)


def unanswered(item: JudgingItem, reason: str, rater: Rater) -> Judged:
    """What is left of an item that got no answer: runs are unscored for the reason, pairs and groups have no preference."""
    if item.mode in {"score", "steps"}:
        score = Score(trajectory_id=item.ids[0], scorer="judge", status="unscored", reason=reason, rater=rater.name)
        return Judged(scores=(score,), failed=reason)
    return Judged(failed=reason)


def comparisons(ids: Sequence[str], mode: JudgingMode, seed: int = 0) -> Iterator[tuple[str, ...]]:
    """Which runs of one task are shown together, shuffled by the seed so that no place goes with age or quality.

    Args:
        ids: Runs of one task; their order does not matter.
        mode: `pairwise`: all pairs up to `ALL_PAIRS_UP_TO` runs, else a ring in which each run meets four others; `group`:
            all of them, in groups as even as they can be of at most `GROUP_MOST`.
        seed: Of the shuffle.
    """
    shuffled = sorted(ids)
    random.Random(stable_seed(seed, mode, *shuffled)).shuffle(shuffled)
    n = len(shuffled)
    if n < 2:
        return
    if mode == "group":
        parts = -(-n // GROUP_MOST)
        for k in range(parts):
            yield tuple(shuffled[k * n // parts : (k + 1) * n // parts])
    elif n <= ALL_PAIRS_UP_TO:
        yield from combinations(shuffled, 2)
    else:
        for i, run in enumerate(shuffled):
            yield run, shuffled[(i + 1) % n]
            yield run, shuffled[(i + 2) % n]


def _of_pair(item: JudgingItem, answers: Sequence[str], rater: Rater) -> Judged:
    first, second = read = [read_preference(answer) for answer in answers]
    if failed := _first_failure(read):
        return Judged(failed=failed)
    turned = {"a": "b", "b": "a", "tie": "tie"}[second.better or "tie"]
    consistent = first.better == turned
    preference = Preference(
        a=item.ids[0],
        b=item.ids[1],
        better=(first.better or "tie") if consistent else "tie",
        source=rater.source,
        rater=rater.name,
        rubric=item.rubric.name,
        reason=_reason(first.rationale if consistent else "", consistent, item),
    )
    return Judged(preferences=(preference,), inconsistent=int(not consistent))


def _of_group(item: JudgingItem, answers: Sequence[str], rater: Rater) -> Judged:
    n = len(item.ids)
    read = [read_ranking(answer, n) for answer in answers]
    if failed := _first_failure(read):
        return Judged(failed=failed)
    first, second = _places(read[0], n), _places(read[1], n)[::-1]
    preferences, inconsistent = [], 0
    for i, j in combinations(range(n), 2):
        one, other = _sign(first[j] - first[i]), _sign(second[j] - second[i])
        consistent = one == other
        inconsistent += not consistent
        better = {1: "a", -1: "b", 0: "tie"}[one if consistent else 0]
        margin = abs(first[j] + second[j] - first[i] - second[i]) / (2 * (n - 1))
        preferences.append(
            Preference.model_validate(
                {
                    "a": item.ids[i],
                    "b": item.ids[j],
                    "better": better,
                    "source": rater.source,
                    "rater": rater.name,
                    "margin": margin if better != "tie" else None,
                    "rubric": item.rubric.name,
                    "reason": _reason(read[0].rationale if consistent else "", consistent, item),
                }
            )
        )
    return Judged(preferences=tuple(preferences), inconsistent=inconsistent)


def _places(answer: RankingAnswer, n: int) -> list[float]:
    """Each run's rank from 0 for the best to n - 1; runs that share a place share the mean of their ranks."""
    ranks = [0.0] * n
    at = 0
    for place in answer.places:
        for run in place:
            ranks[run] = at + (len(place) - 1) / 2
        at += len(place)
    return ranks


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _first_failure(answers: Sequence[PairAnswer | RankingAnswer]) -> str | None:
    return next((f"the judgement failed: {answer.failed}" for answer in answers if answer.failed), None)


def _reason(rationale: str, consistent: bool, item: JudgingItem) -> str:
    notes = [rationale] if rationale else []
    if not consistent:
        notes.append("[order] The judge contradicted itself when the order was turned round, which counts as a tie.")
    if any(view.injections for view in item.views):
        notes.append("[injection] A run addresses its judge; what it says there was withheld or marked as data.")
    if item.twice:
        notes.append(f"[twice] Compared with and without text that may ask for a verdict in {', '.join(item.demands)}.")
    if any(len(view.steps) < view.n_steps for view in item.views):
        notes.append("[shortened] The judge did not see all steps.")
    return " ".join(notes)
