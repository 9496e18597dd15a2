"""The home folder as an object: every tool as a method, and things by their ids."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from quintain.client.filters import RunFilter
from quintain.client.methods.data import DataMethods
from quintain.client.methods.evaluate import EvaluateMethods
from quintain.client.methods.jobs import JobsMethods
from quintain.client.methods.label import LabelMethods
from quintain.client.methods.train import TrainMethods
from quintain.client.objects import Agent, Comparison, Dataset, Evaluation, Job
from quintain.client.runs import Runs, Trajectory
from quintain.client.session import Session
from quintain.errors import QuintainError
from quintain.records.filters import Item, Page
from quintain.records.record import left_out

if TYPE_CHECKING:
    from quintain.client.frames import Rows
    from quintain.scoring.custom import RewardFunction


class Home(DataMethods, LabelMethods, TrainMethods, JobsMethods, EvaluateMethods):
    """A home folder with its runs, datasets, jobs and agents. It opens at the first call, and any thread may use it."""

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        """Use a home folder.

        Args:
            path: The folder; None: that of QUINTAIN_HOME, else the default one.

        Raises:
            InvalidInput: an environment variable QUINTAIN_... has an invalid value.
        """
        super().__init__(Session(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; jobs go on."""
        self.session.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.session.settings.home)!r})"

    def job(self, id: str) -> Job:
        """Return a job by its id.

        Raises:
            NotFound: there is no such job.
        """
        return Job(self, id)._loaded()

    def agent(self, reference: str) -> Agent:
        """Return an agent by its id or name, of which the newest version counts.

        Raises:
            NotFound: there is no such agent.
        """
        found = self.session.read(lambda services: services.store.agents.get(reference))
        return Agent(self, found.id or reference, found)

    def dataset(self, reference: str) -> Dataset:
        """Return a dataset by its id or name.

        Raises:
            NotFound: there is no such dataset.
        """
        found = self.session.read(lambda services: services.store.datasets.get(reference))
        return Dataset(self, found.id, found)

    def trajectory(self, id: str) -> Trajectory:
        """Return a run by its id.

        Raises:
            NotFound: there is no such run, or it was forgotten.
        """
        return Trajectory(self, id)._loaded()

    def evaluation(self, id: str) -> Evaluation:
        """Return an evaluation by its id.

        Raises:
            NotFound: there is no such evaluation.
        """
        return Evaluation(self, id)._loaded()

    def comparison(self, id: str) -> Comparison:
        """Return a comparison by its id.

        Raises:
            NotFound: there is no such comparison.
        """
        return Comparison(self, id)._loaded()

    def runs(self, *, sort: str | None = None, limit: int | None = None, **filter: Unpack[RunFilter]) -> Runs:
        """Return the runs that meet all conditions, such as `outcome="success"`, newest first.

        Args:
            sort: `reward`, or a scorer's stored values; `-NAME`: worst first.
            limit: Runs at most.
            **filter: Conditions; none: every run.

        Raises:
            InvalidInput: a condition is unknown or has an invalid value.
        """
        return Runs(self, filter, sort=sort, limit=limit)

    def agents(self, *, limit: int = 50) -> list[Agent]:
        """Return the newest agents."""
        found = _readable(self.session.read(lambda services: services.store.agents.page(limit=limit)))
        return [Agent(self, one.id_or_name, one) for one in found]

    def datasets(self, *, limit: int = 50) -> list[Dataset]:
        """Return the newest datasets."""
        found = _readable(self.session.read(lambda services: services.store.datasets.page(limit=limit)))
        return [Dataset(self, one.id, one) for one in found]

    def evaluations(self, *, limit: int = 50) -> list[Evaluation]:
        """Return the newest evaluations."""
        found = _readable(self.session.read(lambda services: services.store.evaluations.page(limit=limit)))
        return [Evaluation(self, one.id, one) for one in found]

    def comparisons(self, *, limit: int = 50) -> list[Comparison]:
        """Return the newest comparisons."""
        found = _readable(self.session.read(lambda services: services.store.evaluations.page_comparisons(limit=limit)))
        return [Comparison(self, one.id, one) for one in found]

    def jobs(
        self,
        *,
        status: Literal["queued", "running", "succeeded", "failed", "cancelled", "interrupted"] | None = None,
        limit: int = 50,
    ) -> list[Job]:
        """Return the newest jobs; `list_jobs` selects by kind, too."""
        return self.list_jobs(status=status, limit=limit)

    @overload
    def record(
        self,
        runs: Mapping[str, Any] | None = None,
        *,
        messages: list[dict[str, Any]] | None = None,
        task: str | Mapping[str, Any] | None = None,
        tools: list[dict[str, Any]] | None = None,
        agent: str | None = None,
        outcome: str | Mapping[str, Any] | None = None,
        tags: list[str] | None = None,
    ) -> Trajectory: ...
    @overload
    def record(self, runs: Rows, *, agent: str | None = None, tags: list[str] | None = None) -> list[Trajectory]: ...
    def record(self, runs: Any = None, **shared: Any) -> Trajectory | list[Trajectory]:
        """Store one run, or each row of a DataFrame, a `datasets.Dataset` or a list.

        Args:
            runs: A run or rows of runs: the arguments of `record_trajectory` (`messages`, `task`, `outcome`, ...), or a whole
                trajectory with `steps`. None: the run is given by the other arguments.
            **shared: Arguments of `record_trajectory` for every run that does not have them itself.

        Raises:
            InvalidInput: a row is malformed, which is named; the rows before it are stored.
            UnknownField: a column is not an argument of `record_trajectory`.
        """
        if runs is None or isinstance(runs, Mapping):
            return self._recorded(runs or {}, shared)
        from quintain.client.frames import runs_of

        stored: list[Trajectory] = []
        for row in list(runs_of(runs)):
            try:
                stored.append(self._recorded(row, shared))
            except QuintainError as error:
                before = f"rows before it are stored: {len(stored)}"
                raise type(error)(f"row {len(stored)}: {error.message} ({before})", code=error.code) from error
        return stored

    def _recorded(self, row: Mapping[str, Any], shared: Mapping[str, Any]) -> Trajectory:
        whole = {"trajectory": dict(row)} if "steps" in row else dict(row)
        return self._run("record_trajectory", {**shared, **whole})

    def register_scorer(self, name: str, function: RewardFunction) -> None:
        """Make a function from a `quintain.records.trajectory.Trajectory` to a score in 0..1, or None, a scorer of this program.

        None: the run cannot be scored. The record lacks the methods of the client's `Trajectory`; it has `run.task.prompt`, `run.outcome`,
        and `run.agent_steps` with `message` and `actions` (`tool`, `args`).

        Raises:
            InvalidInput: the name or the function is not valid.
            Conflict: a built-in or installed scorer has the name.
        """
        from quintain.scoring.registry import register

        register(name, function)


def _readable(page: Page[Item]) -> tuple[Item, ...]:
    """Return the records of a page, with a warning that names those that this version cannot read."""
    if page.unreadable:
        warnings.warn(f"left out {left_out(page.unreadable)}", stacklevel=3)
    return page.items
