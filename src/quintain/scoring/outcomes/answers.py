"""The scorer `answer`: whether the answer that the agent stated last is the expected one; see `checkers.answers`."""

from __future__ import annotations

from quintain.checkers.answers import check_answer
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.scoring.outcomes.final_message import asked, final_messages
from quintain.scoring.outcomes.whole_run_scores import of_check


class AnswerScorer:
    """Exact and numeric answer match: 1 or 0; unscored where no answer is expected or the run has no message."""

    name = "answer"

    def score(self, trajectory: Trajectory) -> Score:
        """Compare the run's last answer with the expected one."""
        checked = check_answer(trajectory.task, final_messages(trajectory), asked(trajectory))
        return of_check(trajectory, self.name, checked)
