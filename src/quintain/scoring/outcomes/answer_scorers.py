"""The scorers of one answer or outcome: `outcome`, `answer`, `json` and `regex`. The checks are in `checkers`."""

from __future__ import annotations

from quintain.checkers.answers import check_answer
from quintain.checkers.json_equality import check_json
from quintain.checkers.patterns import check_pattern
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.scoring.outcomes.final_message import final_messages, prompts_of_run
from quintain.scoring.outcomes.whole_run_scores import of_check, unscored


class OutcomeScorer:
    """1 for success, 0 for failure and for a run cut short; an unknown or errored outcome is unscored, never 0."""

    name = "outcome"

    def score(self, trajectory: Trajectory) -> Score:
        """Return the verdict as a number in 0..1, higher is better."""
        run = trajectory.identified().id or ""
        status = trajectory.outcome.status
        value = status.verdict
        if value is None:
            return unscored(trajectory, self.name, f"the outcome is {status.value}, which is no verdict")
        feedback = f"The outcome is {status.value}."
        return Score(trajectory_id=run, scorer=self.name, status="scored", value=value, feedback=feedback)


class AnswerScorer:
    """Exact and numeric answer match: 1 or 0; unscored where no answer is expected or the run has no message."""

    name = "answer"

    def score(self, trajectory: Trajectory) -> Score:
        """Compare the run's last answer with the expected one."""
        checked = check_answer(trajectory.task, final_messages(trajectory), prompts_of_run(trajectory))
        return of_check(trajectory, self.name, checked)


class JsonScorer:
    """1 where the answer is the expected JSON, 0 where it is another one or none; unscored where none is expected."""

    name = "json"

    def score(self, trajectory: Trajectory) -> Score:
        """Compare the last message with what the task expects."""
        return of_check(trajectory, self.name, check_json(trajectory.task, final_messages(trajectory)))


class RegexScorer:
    """1 where `checker.pattern` is found in the last message (`full`: is all of it), 0 where not, else unscored."""

    name = "regex"

    def score(self, trajectory: Trajectory) -> Score:
        """Search the last message."""
        return of_check(trajectory, self.name, check_pattern(trajectory.task, final_messages(trajectory)))
