"""Questions about runs, and the scores and preferences that the answers give. Pairs and groups are asked in both orders.

A judge that contradicts itself when the order is reversed has no usable preference: that is a tie, and is counted (position bias,
Wang et al. 2023, arXiv 2305.17926; Zheng et al. 2023, arXiv 2306.05685, section 3.4). Single runs are compared with a control
(`control`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from quintain.records.labels.judging import JudgeControl, JudgingMode, Rubric, Vote
from quintain.records.labels.preference import Preference, PreferenceSource
from quintain.records.score import Score
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Trajectory
from quintain.scoring.judges.answer_parsing import RankingAnswer, read_preference, read_ranking, read_verdict
from quintain.scoring.judges.crediting import is_withheld, score_of
from quintain.scoring.judges.empty_run_control import ASKED, Control, control_of, read_control
from quintain.scoring.judges.questions import GROUP_MOST, Question, ask
from quintain.scoring.judges.shown_run import BUDGET_CHARS, ShownRun, show_run

ALL_PAIRS_UP_TO = 5
"""Number of runs of a task up to which all are compared with each other; of more, each is compared with its next two in a ring."""


@dataclass(frozen=True)
class ControlQuestions:
    """The questions about the run without the agent's words, and how that run is shown."""

    scope: JudgeControl
    view: ShownRun
    questions: tuple[Question, ...]
    """The same question `ASKED` times."""


@dataclass(frozen=True)
class JudgingItem:
    """The runs that are judged together, as they are shown, and the questions about them."""

    mode: JudgingMode
    rubric: Rubric
    ids: tuple[str, ...]
    views: tuple[ShownRun, ...]
    questions: tuple[Question, ...]
    """One, or for pairs and groups two: the second shows the runs in the opposite order."""
    control: ControlQuestions | None = None


@dataclass(frozen=True)
class JudgedItem:
    """The scores or preferences that the answers about an item give."""

    scores: tuple[Score, ...] = ()
    preferences: tuple[Preference, ...] = ()
    failed: str | None = None
    """Why there is no judgement."""
    inconsistent: int = 0
    """Pairs on which the judge contradicted itself when the order was reversed; they are ties."""
    votes: tuple[tuple[Vote, Vote], ...] = ()
    """The answer on each pair in either order, by place: `a` was shown first."""
    withheld: int = 0
    """Runs that lost credit which the control gets too."""


@dataclass(frozen=True)
class Rater:
    """Who judges."""

    name: str
    """As `Score.rater`."""
    source: PreferenceSource


def item_of(
    runs: Sequence[Trajectory],
    mode: JudgingMode,
    rubric: Rubric,
    mark: str,
    *,
    control: JudgeControl = "off",
    budget_chars: int = BUDGET_CHARS,
) -> JudgingItem:
    """Return the questions about one run in the modes `score` and `steps`, two in `pairwise`, several in `group`.

    The mark is the datamark of this call, drawn at random. Only single runs have a control. The budget is of a question: runs that
    are shown together share it.
    """
    each = budget_chars // len(runs) if mode == "group" and len(runs) > 2 else budget_chars
    labels = {"pairwise": ("RUN A", "RUN B"), "group": [f"RUN {n}" for n in range(1, len(runs) + 1)]}.get(
        mode, ("RUN",)
    )

    def views_of(order: Sequence[Trajectory]) -> tuple[ShownRun, ...]:
        return tuple(show_run(run, budget_chars=each, label=label) for run, label in zip(order, labels, strict=True))

    views = views_of(runs)
    orders = [views] if len(runs) == 1 else [views, views_of(runs[::-1])]
    questions = tuple(ask(mode, order, rubric, mark) for order in orders)
    item = JudgingItem(mode, rubric, tuple(run.id or "" for run in runs), views, questions)
    if control == "off" or mode not in {"score", "steps"}:
        return item
    view = show_run(control_of(runs[0], control), budget_chars=each, label="RUN")
    asked = ask(mode, [view], rubric, mark)
    repeats = tuple(asked._replace(repeat=n) for n in range(ASKED))
    return replace(item, control=ControlQuestions(control, view, repeats))


def control_from(item: JudgingItem, answers: Sequence[str]) -> Control | None:
    """Read the answers to an item's control questions; None for an item without a control."""
    if item.control is None:
        return None
    return read_control(answers, item.rubric, item.mode, item.control.view, item.control.scope)


def conclude(item: JudgingItem, answers: Sequence[str], rater: Rater, control: Control | None = None) -> JudgedItem:
    """Read the answers to an item's questions as scores or preferences; without a control nothing is subtracted."""
    if item.mode in {"pairwise", "group"}:
        return _of_several(item, answers, rater)
    (view,), (answer,) = item.views, answers
    verdict = read_verdict(
        answer,
        item.rubric,
        view.n_steps,
        mode=item.mode,
        steps=view.steps,
        purpose="credit",
        passages=view.passages,
    )
    score = score_of(verdict, item.rubric, item.ids[0], rater=rater.name, view=view, control=control)
    return JudgedItem(scores=(score,), failed=score.reason, withheld=int(is_withheld(score)))


def outcome_without_answer(item: JudgingItem, reason: str, rater: Rater) -> JudgedItem:
    """Return the outcome of an item without an answer: runs are unscored for the reason, pairs and groups have no preference."""
    if item.mode in {"score", "steps"}:
        by = {"scorer": "judge", "rater": rater.name, "rubric": item.rubric.name}
        score = Score(trajectory_id=item.ids[0], status="unscored", reason=reason, **by)
        return JudgedItem(scores=(score,), failed=reason)
    return JudgedItem(failed=reason)


def comparisons(ids: Sequence[str], mode: JudgingMode, seed: int = 0) -> Iterator[tuple[str, ...]]:
    """Yield the runs of one task that are shown together, shuffled by the seed so that no place goes with age or quality.

    In mode `pairwise` these are all pairs up to `ALL_PAIRS_UP_TO` runs, else a ring in which each run meets four others; in `group`
    all of them, in groups as even as they can be of at most `GROUP_MOST`.
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


def _of_several(item: JudgingItem, answers: Sequence[str], rater: Rater) -> JudgedItem:
    """Return a preference on every two runs; a pair is a group of two whose preference has no margin."""
    n, is_pair = len(item.ids), item.mode == "pairwise"
    texts = [view.passages for view in item.views]
    read = [
        read_preference(answer, order, purpose="credit")
        if is_pair
        else read_ranking(answer, n, order, purpose="credit")
        for answer, order in zip(answers, (texts, texts[::-1]), strict=True)
    ]
    if failed := next((answer.failed for answer in read if answer.failed), None):
        return JudgedItem(failed=f"the judgement failed: {failed}")
    first, second = _places(read[0], n), _places(read[1], n)[::-1]
    preferences, inconsistent, votes = [], 0, []
    for i, j in combinations(range(n), 2):
        one, other = _sign(first[j] - first[i]), _sign(second[j] - second[i])
        consistent = one == other
        inconsistent += not consistent
        better = _VOTES[one if consistent else 0]
        votes.append((_VOTES[one], _VOTES[-other]))  # the second order shows run j first
        margin = abs(first[j] + second[j] - first[i] - second[i]) / (2 * (n - 1))
        preferences.append(
            Preference.model_validate(
                {
                    "a": item.ids[i],
                    "b": item.ids[j],
                    "better": better,
                    "source": rater.source,
                    "rater": rater.name,
                    "margin": None if is_pair or better == "tie" else margin,
                    "rubric": item.rubric.name,
                    "reason": _reason(read[0].rationale if consistent else "", consistent, item),
                }
            )
        )
    return JudgedItem(preferences=tuple(preferences), inconsistent=inconsistent, votes=tuple(votes))


_VOTES: dict[int, Vote] = {1: "a", -1: "b", 0: "tie"}
"""Sign of the first one's lead -> the better one."""


def _places(answer: RankingAnswer, n: int) -> list[float]:
    """Return each run's rank from 0 for the best to n - 1; runs that share a place share the mean of their ranks."""
    ranks = [0.0] * n
    at = 0
    for place in answer.places:
        for run in place:
            ranks[run] = at + (len(place) - 1) / 2
        at += len(place)
    return ranks


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _reason(rationale: str, consistent: bool, item: JudgingItem) -> str:
    notes = [rationale] if rationale else []
    if not consistent:
        notes.append("[order] The judge contradicted itself when the order was reversed, which counts as a tie.")
    if any(len(view.steps) < view.n_steps for view in item.views):
        notes.append("[shortened] The judge did not see all steps.")
    return " ".join(notes)
