"""Judging runs, whoever answers: what to ask, what was asked already, what the answers come to, and what it cost.

Two files say what is done. `judged.jsonl` in the job's folder gets a line for each item before its outputs are written;
`outputs/` holds scores and preferences. An item is done when both stand, or when it failed and has
nothing to hand over. Killed in between, it is asked again, and answered from the cache.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quintain.endpoints.client import Spent
from quintain.endpoints.faults import BUSY, STOPPED, UNANSWERED
from quintain.errors import QuintainError, Unavailable
from quintain.jobs.directory import open_appending
from quintain.records.job import JobResult, JudgeSpec, ScoreSpec
from quintain.records.judging import JudgingMode, Rubric
from quintain.records.record import clip
from quintain.records.seams import Reporter
from quintain.records.trajectory import Trajectory
from quintain.scoring.judges.plans import Judged, JudgingItem, Rater, comparisons, conclude, item_of, unanswered
from quintain.scoring.judges.questions import Question, question_key
from quintain.scoring.judges.showing import BUDGET_CHARS
from quintain.worker.judging.answer_cache import AnswerCache
from quintain.worker.request_ledger import append_line, cost_report, iterate_lines
from quintain.worker.run_inputs import RunInputs, open_run_inputs

LEAST_CHARS = 3000
"""A run that does not fit a model when it is cut to so many characters is not judged."""
BROKEN_AFTER = 20
"""Items in a row without an answer, after which the judge counts as out of order."""

AskMany = Callable[[Sequence[Question]], list[str | QuintainError]]
"""Asks each question and gives back answers, or why there is none; raises where no question can be answered."""


@dataclass(frozen=True)
class Judging:
    """What is judged, by what, and by whom."""

    mode: JudgingMode
    rubric: Rubric
    rater: Rater
    model: Mapping[str, Any]
    """What an answer depends on besides the question."""
    ask: AskMany
    cache: AnswerCache
    locks: dict[str, threading.Lock] = field(default_factory=dict)
    """Key of a question -> the lock of who asks it."""

    def judge(self, batch: Sequence[tuple[Trajectory, ...]]) -> list[Verdicts]:
        """Judge several items, shorter and shorter as long as they do not fit the model."""
        found: dict[int, Verdicts] = {}
        budget = BUDGET_CHARS
        left = dict(enumerate(batch))
        while left:
            items = {at: item_of(runs, self.mode, self.rubric, budget_chars=budget) for at, runs in left.items()}
            answers, cached = self._answers(list(items.values()))
            for (at, item), given in zip(items.items(), answers, strict=True):
                fault = next((answer for answer in given if isinstance(answer, QuintainError)), None)
                if fault is not None and fault.code == "too_long" and budget > LEAST_CHARS:
                    continue
                found[at] = self._verdicts(item, given, fault, cached)
                del left[at]
            budget = max(LEAST_CHARS, budget // 2)
        return [found[at] for at in range(len(batch))]

    def _answers(self, items: Sequence[JudgingItem]) -> tuple[list[list[str | QuintainError]], set[str]]:
        """Answers to the questions of each item, and the keys of those that were answered before.

        Who asks a question holds its lock, so that runs of equal content, which often stand side by side, are paid once.
        """
        keys = {
            question: question_key(question, self.rubric, self.mode, self.model)
            for item in items
            for question in item.questions
        }
        with ExitStack() as held:
            for key in sorted(set(keys.values())):  # sorted: two threads never wait for each other
                held.enter_context(self.locks.setdefault(key, threading.Lock()))
            known: dict[Question, str | QuintainError] = {}
            for question, key in keys.items():
                if (remembered := self.cache.get(key)) is not None:
                    known[question] = remembered
            before = {keys[question] for question in known}
            new = [question for question in keys if question not in known]
            known |= zip(new, self.ask(new), strict=True) if new else ()
            self._remember(items, keys, known, before)
        return [[known[question] for question in item.questions] for item in items], before

    def _remember(
        self,
        items: Sequence[JudgingItem],
        keys: Mapping[Question, str],
        known: Mapping[Question, str | QuintainError],
        before: Set[str],
    ) -> None:
        """Keep new answers that can be read: what cannot is asked for again by the next job."""
        for item in items:
            for question in item.questions:
                answer, key = known[question], keys[question]
                if isinstance(answer, str) and key not in before and _is_readable(item, answer, self.rater):
                    self.cache.put(key, answer, item.ids)

    def _verdicts(
        self, item: JudgingItem, given: Sequence[str | QuintainError], fault: QuintainError | None, cached: set[str]
    ) -> Verdicts:
        keys = [question_key(question, self.rubric, self.mode, self.model) for question in item.questions]
        n_cached = sum(key in cached for key in keys)
        if fault is not None:
            return Verdicts(item, unanswered(item, str(fault.message), self.rater), n_cached, fault.code)
        judged = conclude(item, [answer for answer in given if isinstance(answer, str)], self.rater)
        return Verdicts(item, judged, n_cached)


@dataclass(frozen=True)
class Verdicts:
    """An item and what became of it."""

    item: JudgingItem
    judged: Judged
    cached: int
    """Questions that were answered before."""
    code: str | None = None
    """Of the error, where a question got no answer."""


def _is_readable(item: JudgingItem, answer: str, rater: Rater) -> bool:
    return conclude(item, [answer] * len(item.questions), rater).failed is None


@dataclass
class Tally:
    """What was judged so far, earlier attempts of the job included."""

    items: int = 0
    scored: int = 0
    preferences: int = 0
    ties: int = 0
    inconsistent: int = 0
    cached: int = 0
    shortened: int = 0
    injections: int = 0
    twice: int = 0
    moved: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    spent: Spent = field(default_factory=Spent)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Count an item by its line in `judged.jsonl`."""
        self.items += 1
        for name in (
            "scored",
            "preferences",
            "ties",
            "inconsistent",
            "cached",
            "shortened",
            "injections",
            "twice",
            "moved",
        ):
            setattr(self, name, getattr(self, name) + int(entry.get(name, 0)))
        if entry["failed"]:
            self.failed[entry["failed"]] += 1

    def report(self, usd: float | None) -> dict[str, Any]:
        """The counts, for people."""
        common = dict(self.failed.most_common(10))
        other = self.failed.total() - sum(common.values())
        return {
            "scored": self.scored,
            "preferences": self.preferences,
            "ties": self.ties,
            "order_inconsistent": self.inconsistent,
            "failed": common | ({"other reasons": other} if other else {}),
            "shortened": self.shortened,
            "addressed_the_judge": self.injections,
            "judged_twice": self.twice,
            "moved_by_text": self.moved,
            "answers_from_cache": self.cached,
            **self.spent.model_dump(exclude={"in_flight"}),
            **cost_report(usd, self.spent.in_flight),
        }


class Journal:
    """`judged.jsonl`: a line for each item that was judged."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "judged.jsonl"
        self._descriptor = open_appending(self._path)
        self._entries = {tuple(entry["ids"]): entry for entry in map(json.loads, iterate_lines(self._path))}
        self._standing = _standing(directory / "outputs")

    def tally(self) -> Tally:
        """What stands already."""
        tally = Tally()
        for ids, entry in self._entries.items():
            if self.is_done(ids):
                tally.add(entry)
        return tally

    def is_done(self, ids: tuple[str, ...]) -> bool:
        """Was this judged, and handed over?"""
        entry = self._entries.get(ids)
        if entry is None:
            return False
        handed_over = entry["scored"] or entry["preferences"] or len(ids) == 1
        return not handed_over or ids in self._standing or self._has_pairs(ids, entry["preferences"])

    def write(self, verdicts: Verdicts) -> dict[str, Any]:
        """Note an item, before its outputs are written."""
        judged, views = verdicts.judged, verdicts.item.views
        entry = {
            "ids": list(verdicts.item.ids),
            "scored": sum(score.value is not None for score in judged.scores),
            "preferences": len(judged.preferences),
            "ties": sum(preference.better == "tie" for preference in judged.preferences),
            "inconsistent": judged.inconsistent,
            "cached": verdicts.cached,
            "shortened": sum(view.shortened for view in views),
            "injections": sum(bool(view.injections) for view in views),
            "twice": int(verdicts.item.twice),
            "moved": judged.moved,
            "failed": clip(judged.failed, 300) if judged.failed else None,
        }
        append_line(self._descriptor, entry)
        return entry

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _has_pairs(self, ids: tuple[str, ...], n: int) -> bool:
        """Were as many preferences handed over as the item came to? Pairs on which the judge was moved by a text have none."""
        pairs = {tuple(sorted((a, b))) for i, a in enumerate(ids) for b in ids[i + 1 :]}
        return 0 < n <= len(pairs & self._standing)


def run_judging(
    spec: JudgeSpec | ScoreSpec,
    directory: Path,
    reporter: Reporter,
    verdicts: Callable[[Iterator[tuple[Trajectory, ...]]], Iterator[Verdicts]],
    spent: Callable[[], Spent],
    usd: Callable[[Spent], float | None],
) -> JobResult:
    """Judge what is left to judge, hand it over, and say what it came to.

    Args:
        spec: Of the job.
        directory: The job's folder.
        reporter: Hears what happens.
        verdicts: Judges items, in any order.
        spent: What the job has used up, its earlier attempts included.
        usd: What that costs.
    """
    runs = open_run_inputs(spec.runs)
    journal = Journal(directory)
    tally = journal.tally()
    planned, alone, items = _planned(runs, spec, journal)
    reporter.phase("judging")
    in_a_row = 0
    try:
        for found in verdicts(items):
            tally.spent = spent()
            if found.code == STOPPED:
                continue
            entry = journal.write(found)
            for score in found.judged.scores:
                reporter.output("score", score)
            for preference in found.judged.preferences:
                reporter.output("preference", preference)
            tally.add(entry)
            in_a_row = in_a_row + 1 if found.code == BUSY else 0
            metrics: dict[str, float | None] = {
                "failed": float(tally.failed.total()),
                "requests": float(tally.spent.requests),
                "usd": usd(tally.spent),
            }
            reporter.progress(tally.items, planned, metrics)
            if in_a_row >= BROKEN_AFTER:
                raise Unavailable(
                    f"{found.judged.failed}; {BROKEN_AFTER} items in a row got no answer. What was judged is kept: continue "
                    "with resume_job when the endpoint answers again"
                )
    finally:
        journal.close()
    tally.spent = spent()
    if reporter.should_stop() and tally.items < planned:
        return JobResult(report={"judged": tally.items, "planned": planned} | tally.report(usd(tally.spent)))
    facts = {"mode": spec.mode, "rubric": spec.rubric.name if spec.rubric else None, "runs": spec.runs.n}
    if alone:
        facts["alone_in_their_task"] = alone
        reporter.warn("alone", f"{alone} of {spec.runs.n} runs have no other run of their task to be compared with")
    unscored = tally.failed.total()
    return JobResult(n=tally.items - unscored, n_error=unscored, report=facts | tally.report(usd(tally.spent)))


def ask_through(complete: Callable[[Question], str]) -> AskMany:
    """Ask one question after another; errors that concern one question stand in for its answer, others are raised."""

    def ask(questions: Sequence[Question]) -> list[str | QuintainError]:
        answers: list[str | QuintainError] = []
        for question in questions:
            try:
                answers.append(complete(question))
            except QuintainError as error:
                if error.code not in UNANSWERED:
                    raise
                answers.append(error)
        return answers

    return ask


def _planned(
    runs: RunInputs, spec: JudgeSpec | ScoreSpec, journal: Journal
) -> tuple[int, int, Iterator[tuple[Trajectory, ...]]]:
    """How many items there are, how many runs cannot be compared, and the items that are left."""
    if spec.mode in {"score", "steps"}:
        return runs.n, 0, ((run,) for run in runs.stream() if not journal.is_done((run.id or "",)))
    tasks = runs.by_task()
    alone = sum(len(ids) < 2 for ids in tasks.tasks.values())
    groups = [group for ids in tasks.tasks.values() for group in comparisons(ids, spec.mode, spec.seed)]
    return len(groups), alone, (tasks.read(group) for group in groups if not journal.is_done(group))


def _standing(outputs: Path) -> set[tuple[str, ...]]:
    """Runs with a score, and pairs with a preference, that an earlier attempt has handed over."""
    scores = (json.loads(line)["record"] for line in iterate_lines(outputs / "score.jsonl"))
    found: set[tuple[str, ...]] = {(score["trajectory_id"],) for score in scores}
    for line in iterate_lines(outputs / "preference.jsonl"):
        record = json.loads(line)["record"]
        found.add(tuple(sorted((record["a"], record["b"]))))
    return found
