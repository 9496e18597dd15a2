"""Short runs are better: 1 for one turn of the agent, less for more."""

from __future__ import annotations

from quintain.records.trajectory import Trajectory


def brevity(run: Trajectory) -> float | None:
    """Return a value from 0 to 1, higher is better. None: this run cannot be scored, which is not zero."""
    turns = len(run.agent_steps)
    return 1 / turns if turns else None
