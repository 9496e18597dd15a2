"""Stored runs as objects, one by one and as the result of a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

from quintain.client.thing import Thing, rows_table
from quintain.errors import InvalidInput
from quintain.records.filters import TrajectorySummary

if TYPE_CHECKING:
    from quintain.client.filters import RunFilter
    from quintain.records.trajectory import Trajectory as TrajectoryRecord
    from quintain.tools.services import Services

_PAGE = 200
"""Runs that a search reads at once."""
_SHOWN = 10
_COLUMNS = ("run", "outcome", "reward", "turns", "agent", "task")
"""Rows and columns of the table that a notebook shows."""


class Trajectory(Thing["TrajectoryRecord"]):
    """A stored run of an agent."""

    def _fetch(self, services: Services) -> TrajectoryRecord:
        return services.store.trajectories.get(self.id)

    @property
    def outcome(self) -> str:
        """How it ended: success, failure, error, truncated or unknown."""
        return str(self.record.outcome.status)

    @property
    def reward(self) -> float | None:
        """Reward of the outcome; None: unknown."""
        return self.record.outcome.reward

    @property
    def prompt(self) -> str:
        """Text of the task. Stored text: data, never an instruction."""
        return self.record.task.prompt

    def messages(self) -> list[dict[str, Any]]:
        """Return the run as chat messages, with the arguments of calls as objects."""
        from quintain.exporters.chat_turns import Losses, chat_message, turns_of

        record = self._record or self.load()
        return [chat_message(turn, as_text=False) for turn in turns_of(record, Losses())]

    def _facts(self) -> Mapping[str, Any]:
        one = self.record
        return _shown(self.outcome, self.reward, len(one.agent_steps), one.agent.name, self.prompt)


def _shown(outcome: str, reward: float | None, turns: int, agent: str, prompt: str) -> dict[str, Any]:
    return {"outcome": outcome, "reward": reward, "turns": turns, "agent": agent, "prompt": prompt[:80]}


class Runs:
    """Runs of a search, newest first unless sorted; they are read page by page while one iterates."""

    def __init__(
        self,
        home: Any,
        filter: RunFilter,
        *,
        sort: str | None = None,
        limit: int | None = None,
    ) -> None:
        if limit is not None and limit < 0:
            raise InvalidInput(f"limit: expected a number of runs from 0, got {limit}; correct limit")
        home.session.check("search_trajectories", {"filter": filter or None, "sort": sort})
        self._home, self._filter, self._sort, self._limit = home, filter, sort, limit

    def __iter__(self) -> Iterator[Trajectory]:
        """Yield each run; its steps are read when they are first needed."""
        for summary in self.summaries():
            run = Trajectory(self._home, summary.id)
            run._listed = _shown(str(summary.outcome), summary.reward, summary.steps, summary.agent, summary.prompt)
            yield run

    def summaries(self) -> Iterator[TrajectorySummary]:
        """Yield a line on each run."""
        left, cursor = self._limit, None
        while left is None or left > 0:
            arguments = {"filter": self._filter or None, "sort": self._sort, "cursor": cursor}
            page = self._home.session.call("search_trajectories", arguments | {"limit": min(_PAGE, left or _PAGE)})
            yield from page.items
            left, cursor = None if left is None else left - len(page.items), page.next_cursor
            if cursor is None:
                return

    def __len__(self) -> int:
        """Return how many there are."""
        if self._limit == 0:
            return 0
        found = self._home.session.call("search_trajectories", {"filter": self._filter or None, "limit": 1})
        count: int = sum(1 for _ in self.summaries()) if found.count is None else found.count
        return count if self._limit is None else min(count, self._limit)

    @overload
    def __getitem__(self, place: int) -> Trajectory: ...
    @overload
    def __getitem__(self, place: slice) -> list[Trajectory]: ...
    def __getitem__(self, place: int | slice) -> Trajectory | list[Trajectory]:
        """Return a run by its place from 0 on, or those of a slice."""
        if isinstance(place, slice):
            return list(self)[place]
        if place >= 0 and (found := list(islice(self, place, place + 1))):
            return found[0]
        raise IndexError(f"expected a place from 0 and below {len(self)}, got {place}")

    def to_list(self) -> list[Trajectory]:
        """Return all runs."""
        return list(self)

    def to_pandas(self) -> Any:
        """Return one row a run: id, agent, environment, task, outcome, reward, steps, tags, ..."""
        from quintain.client.frames import to_pandas

        rows = [summary.model_dump() for summary in self.summaries()]
        return to_pandas(rows, list(TrajectorySummary.model_fields))

    def _repr_html_(self) -> str:
        limit = _SHOWN + 1 if self._limit is None else min(self._limit, _SHOWN + 1)
        first = list(Runs(self._home, self._filter, sort=self._sort, limit=limit).summaries())
        rows = [(run.id, run.outcome, run.reward, run.steps, run.agent, run.prompt) for run in first[:_SHOWN]]
        more = "<p>There are more: iterate, or call <code>to_pandas()</code>.</p>" if len(first) > _SHOWN else ""
        return f"<b>{escape(repr(self))}</b>" + rows_table(_COLUMNS, rows) + more

    def __repr__(self) -> str:
        conditions = ", ".join(f"{name}={value!r}" for name, value in self._filter.items())
        return f"{type(self).__name__}({conditions})"
