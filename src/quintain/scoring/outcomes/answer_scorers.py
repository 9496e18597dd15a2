"""The scorers of one answer or outcome: `outcome`, `answer`, `json`, `regex`, and `checker`, which takes the task's own of them."""

from __future__ import annotations

from dataclasses import dataclass

from quintain.checkers.check import CHECKS, kind_of_check
from quintain.checkers.declared import TYPES
from quintain.records.protocols import Scorer
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.scoring.outcomes.final_message import final_messages, prompts_of_run
from quintain.scoring.outcomes.unit_tests import OpenSandbox, UnitTestScorer
from quintain.scoring.outcomes.whole_run_scores import score_of_check, unscored


class OutcomeScorer:
    """1 for success, 0 for failure and for a run cut short; an unknown or errored outcome is unscored, never 0."""

    name = "outcome"

    def score(self, trajectory: Trajectory) -> Score:
        """Return the verdict as a number in 0..1, higher is better."""
        run = trajectory.identified().id or ""
        status = trajectory.outcome.status
        value = status.verdict
        if value is None:
            return unscored(trajectory, self.name, f"the outcome is {status.value}, which is not a verdict")
        feedback = f"The outcome is {status.value}."
        return Score(trajectory_id=run, scorer=self.name, status="scored", value=value, feedback=feedback)


@dataclass
class TextScorer:
    """1 where the agent's last message passes a check of `checkers`, 0 where not; unscored where the task states nothing to check."""

    name: str
    """`answer`, `json` or `regex`."""

    def score(self, trajectory: Trajectory) -> Score:
        """Check the run's last messages."""
        messages, prompts = final_messages(trajectory), prompts_of_run(trajectory)
        return score_of_check(trajectory, self.name, CHECKS[self.name](trajectory.task, messages, prompts))


class CheckerScorer:
    """Score by `task.metadata["checker"]`: `answer`, `json`, `regex`, `unit_tests` or `environment` (the outcome).

    A task without a checker that states an expected answer is checked by `answer`; one that states neither is unscored.
    """

    name = "checker"

    def __init__(self, open_sandbox: OpenSandbox | None = None) -> None:
        """Take how the sandbox of `unit_tests` is opened; None: without one."""
        self._scorers: dict[str, Scorer] = {kind: TextScorer(kind) for kind in CHECKS}
        self._scorers |= {"unit_tests": UnitTestScorer(open_sandbox), "environment": OutcomeScorer()}

    def score(self, trajectory: Trajectory) -> Score:
        """Return the verdict of the task's checker."""
        kind, types = kind_of_check(trajectory.task), ", ".join(TYPES)
        if kind is None:
            remedy = f"record task.metadata.checker = {{'type': ...}}, of type {types}, or task.metadata.answer"
            return unscored(trajectory, self.name, f"the task has no checker and states no answer; {remedy}")
        if kind not in self._scorers:
            return unscored(trajectory, self.name, f"the task's checker is {kind[:60]!r}; valid types: {types}")
        return self._scorers[kind].score(trajectory).model_copy(update={"scorer": self.name})
