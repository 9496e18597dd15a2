"""The scorer `checker`: the verdict of the task's own checker, of whichever type."""

from __future__ import annotations

from quintain.checkers.answers import expected_answers
from quintain.checkers.declared import TYPES, checker_type
from quintain.records.protocols import Scorer
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.scoring.outcomes.answer_scorers import AnswerScorer, JsonScorer, OutcomeScorer, RegexScorer
from quintain.scoring.outcomes.unit_tests import OpenSandbox, UnitTestScorer
from quintain.scoring.outcomes.whole_run_scores import unscored


class CheckerScorer:
    """Score by `task.metadata["checker"]`: `answer`, `json`, `regex`, `unit_tests` or `environment` (the outcome).

    A task without a checker that states an expected answer is checked by `answer`; one that states neither is unscored.
    """

    name = "checker"

    def __init__(self, open_sandbox: OpenSandbox | None = None) -> None:
        """Configure how the sandbox of `unit_tests` is opened; None: without one."""
        scorers = (AnswerScorer(), JsonScorer(), RegexScorer(), UnitTestScorer(open_sandbox), OutcomeScorer())
        self._scorers: dict[str, Scorer] = dict(zip(TYPES, scorers, strict=True))

    def score(self, trajectory: Trajectory) -> Score:
        """Return the verdict of the task's checker."""
        kind = checker_type(trajectory.task)
        if kind is None and expected_answers(trajectory.task):
            kind = "answer"
        if kind is None:
            remedy = (
                f"record task.metadata.checker = {{'type': ...}}, of type {', '.join(TYPES)}, or task.metadata.answer"
            )
            return unscored(trajectory, self.name, f"the task has no checker and states no answer; {remedy}")
        if kind not in self._scorers:
            return unscored(
                trajectory, self.name, f"the task's checker is {kind[:60]!r}; valid types: {', '.join(TYPES)}"
            )
        verdict = self._scorers[kind].score(trajectory)
        return verdict.model_copy(update={"scorer": self.name})
