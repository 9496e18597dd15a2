"""The scorer `regex`: whether the last message matches the task's pattern; see `checkers.patterns`."""

from __future__ import annotations

from quintain.checkers.patterns import check_pattern
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.scoring.outcomes.final_message import final_messages
from quintain.scoring.outcomes.whole_run_scores import of_check


class RegexScorer:
    """1 where `checker.pattern` is found in the last message (`full`: is all of it), 0 where not, else unscored."""

    name = "regex"

    def score(self, trajectory: Trajectory) -> Score:
        """Search the last message."""
        return of_check(trajectory, self.name, check_pattern(trajectory.task, final_messages(trajectory)))
