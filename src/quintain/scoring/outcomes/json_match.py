"""The scorer `json`: whether the agent answered with the expected JSON; see `checkers.json_equality`."""

from __future__ import annotations

from quintain.checkers.json_equality import check_json
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.scoring.outcomes.final_message import final_messages
from quintain.scoring.outcomes.whole_run_scores import of_check


class JsonScorer:
    """1 where the answer is the expected JSON, 0 where it is another one or none; unscored where none is expected."""

    name = "json"

    def score(self, trajectory: Trajectory) -> Score:
        """Compare the last message with what the task expects."""
        return of_check(trajectory, self.name, check_json(trajectory.task, final_messages(trajectory)))
