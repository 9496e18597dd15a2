"""Ask a judge about runs: the questions that were not answered before, the controls first, each question once."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from quintain.endpoints.faults import STOPPED, UNANSWERED
from quintain.errors import QuintainError
from quintain.records.labels.judging import JudgeControl, JudgingMode, Rubric
from quintain.records.trajectory import Trajectory
from quintain.scoring.judges.datamarking import N_MARKS, mark_of
from quintain.scoring.judges.empty_run_control import Control
from quintain.scoring.judges.judging_items import (
    JudgedItem,
    JudgingItem,
    Rater,
    conclude,
    control_from,
    item_of,
    outcome_without_answer,
)
from quintain.scoring.judges.questions import Question, question_key
from quintain.scoring.judges.shown_run import BUDGET_CHARS
from quintain.worker.policies.request_ledger import AnswerCache

LEAST_CHARS = 3000
"""A run that does not fit a model when it is cut to so many characters is not judged."""

AskMany = Callable[[Sequence[Question]], list[str | QuintainError]]
"""Asks each question and returns the answers, or why there is none; raises where no question can be answered."""


@dataclass(frozen=True)
class Judging:
    """The judge, its criteria, and how it is asked."""

    mode: JudgingMode
    rubric: Rubric
    rater: Rater
    model: Mapping[str, Any]
    """Whatever an answer depends on besides the question."""
    ask: AskMany
    cache: AnswerCache
    control: JudgeControl = "task"
    draw_mark: Callable[[], str] = lambda: mark_of(secrets.randbelow(N_MARKS))
    """Returns the datamark of the next call."""
    locks: dict[str, threading.Lock] = field(default_factory=dict)
    """Key of a question -> the lock of whoever asks it."""

    def judge(self, batch: Sequence[tuple[Trajectory, ...]]) -> list[Verdicts]:
        """Judge several items, shorter and shorter as long as they do not fit the model."""
        found: dict[int, Verdicts] = {}
        budget = BUDGET_CHARS
        left = dict(enumerate(batch))
        while left:
            items = {at: self._item(runs, budget) for at, runs in left.items()}
            controls = self._controls(list(items.values()))
            answers, cached = self._answers([_Asked.of_item(item, self.rater) for item in items.values()])
            for (at, item), texts, control in zip(items.items(), answers, controls, strict=True):
                faults = [answer for answer in (*texts, control) if isinstance(answer, QuintainError)]
                fault = faults[0] if faults else None
                if fault is not None and fault.code == "too_long" and budget > LEAST_CHARS:
                    continue
                found[at] = self._verdicts(item, texts, control, cached)
                del left[at]
            budget = max(LEAST_CHARS, budget // 2)
        return [found[at] for at in range(len(batch))]

    def _item(self, runs: tuple[Trajectory, ...], budget: int) -> JudgingItem:
        return item_of(runs, self.mode, self.rubric, self.draw_mark(), control=self.control, budget_chars=budget)

    def _controls(self, items: Sequence[JudgingItem]) -> list[Control | QuintainError | None]:
        """Return each item's control; an error where the judge was stopped before it answered.

        Controls are asked before the runs and under locks of their own: all runs of a task share one, and would else wait for
        each other.
        """
        asked = [_Asked.of_control(item) for item in items if item.control is not None]
        answers = iter(self._answers(asked)[0] if asked else ())
        return [self._control(item, next(answers)) if item.control is not None else None for item in items]

    def _control(self, item: JudgingItem, replies: Sequence[str | QuintainError]) -> Control | QuintainError | None:
        fault = next((answer for answer in replies if isinstance(answer, QuintainError)), None)
        if fault is None:
            return control_from(item, [answer for answer in replies if isinstance(answer, str)])
        return fault if fault.code in {STOPPED, "too_long"} else Control(failed=str(fault.message))

    def _answers(self, asked: Sequence[_Asked]) -> tuple[list[list[str | QuintainError]], set[str]]:
        """Return the answers to each sequence of questions, and the keys of those that were answered before.

        The caller that asks a question takes its lock, so that runs of equal content, which often follow each other, are paid once.
        """
        keys = [[self._key(question) for question in one.questions] for one in asked]
        questions = {
            key: (question, one)
            for one, own in zip(asked, keys, strict=True)
            for key, question in zip(own, one.questions, strict=True)
        }
        with ExitStack() as stack:
            for key in sorted(questions):  # sorted: two threads never wait for each other
                stack.enter_context(self.locks.setdefault(key, threading.Lock()))
            known: dict[str, str | QuintainError] = {}
            for key in questions:
                if (cached := self.cache.get(key)) is not None:
                    known[key] = cached
            before = set(known)
            new = [key for key in questions if key not in known]
            known |= zip(new, self.ask([questions[key][0] for key in new]), strict=True) if new else ()
            for key in new:
                answer, one = known[key], questions[key][1]
                if isinstance(answer, str) and one.is_readable(answer):  # others are asked again by the next job
                    self.cache.put(key, answer, one.ids)
        return [[known[key] for key in own] for own in keys], before

    def _key(self, question: Question) -> str:
        return question_key(question, self.rubric, self.mode, self.model)

    def _verdicts(
        self,
        item: JudgingItem,
        replies: Sequence[str | QuintainError],
        control: Control | QuintainError | None,
        cached: set[str],
    ) -> Verdicts:
        n_cached = sum(self._key(question) in cached for question in item.questions)
        for answer in (*replies, control):
            if isinstance(answer, QuintainError):
                return Verdicts(
                    item, outcome_without_answer(item, str(answer.message), self.rater), n_cached, code=answer.code
                )
        texts = [answer for answer in replies if isinstance(answer, str)]
        known = None if isinstance(control, QuintainError) else control
        return Verdicts(item, conclude(item, texts, self.rater, known), n_cached, known)


@dataclass(frozen=True)
class _Asked:
    """Questions that are asked together."""

    questions: tuple[Question, ...]
    ids: tuple[str, ...]
    """Runs that the answers are about."""
    is_readable: Callable[[str], bool]

    @classmethod
    def of_item(cls, item: JudgingItem, rater: Rater) -> _Asked:
        """Return the questions about an item's runs."""

        def is_readable(answer: str) -> bool:
            return conclude(item, [answer] * len(item.questions), rater).failed is None

        return cls(item.questions, item.ids, is_readable)

    @classmethod
    def of_control(cls, item: JudgingItem) -> _Asked:
        """Return the questions about an item's control."""
        control = item.control
        assert control is not None

        def is_readable(answer: str) -> bool:
            read = control_from(item, [answer] * len(control.questions))
            return read is not None and read.failed is None

        return cls(control.questions, item.ids, is_readable)


@dataclass(frozen=True)
class Verdicts:
    """An item and what the judge gave it."""

    item: JudgingItem
    judged: JudgedItem
    cached: int
    """Questions that were answered before."""
    control: Control | None = None
    code: str | None = None
    """Of the error, where a question got no answer."""


def ask_through(complete: Callable[[Question], str]) -> AskMany:
    """Ask one question after another; return errors of one question in place of its answer, raise others."""

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
