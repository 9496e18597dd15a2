"""The home folder as an object: every tool as a method, and things by their ids."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from quintain.client.aio.methods.tools import AsyncToolMethods
from quintain.client.aio.objects import AsyncAgent, AsyncComparison, AsyncDataset, AsyncEvaluation, AsyncJob
from quintain.client.aio.runs import AsyncRuns, AsyncTrajectory
from quintain.client.aio.waiting import BLOCKING, run
from quintain.client.filters import RunFilter
from quintain.client.session import Session, ids_of
from quintain.records.job import UNFINISHED

if TYPE_CHECKING:
    from quintain.client.frames import Rows
    from quintain.scoring.custom import RewardFunction


class AsyncHome(AsyncToolMethods[AsyncJob, AsyncDataset, AsyncAgent, AsyncTrajectory, AsyncComparison]):
    """A home folder with its runs, datasets, jobs and agents. It opens at the first call, and any thread may use it."""

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        """Use a home folder.

        Args:
            path: The folder; None: that of QUINTAIN_HOME, else the default one.

        Raises:
            InvalidInput: an environment variable QUINTAIN_... has an invalid value.
        """
        super().__init__(Session(path, blocking=BLOCKING))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the database; jobs go on."""
        await run(self.session.close)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.session.settings.home)!r})"

    async def job(self, id: str) -> AsyncJob:
        """Return a job by its id.

        Raises:
            NotFound: there is no such job.
        """
        job = AsyncJob(self, id)
        await job.load()
        return job

    async def agent(self, reference: str) -> AsyncAgent:
        """Return an agent by its id or name, of which the newest version counts.

        Raises:
            NotFound: there is no such agent.
        """
        found = await self._read(lambda services: services.store.agents.get(reference))
        return AsyncAgent(self, found.id or reference, found)

    async def dataset(self, reference: str) -> AsyncDataset:
        """Return a dataset by its id or name.

        Raises:
            NotFound: there is no such dataset.
        """
        found = await self._read(lambda services: services.store.datasets.get(reference))
        return AsyncDataset(self, found.id, found)

    async def trajectory(self, id: str) -> AsyncTrajectory:
        """Return a run by its id.

        Raises:
            NotFound: there is no such run, or it was forgotten.
        """
        run = AsyncTrajectory(self, id)
        await run.load()
        return run

    async def evaluation(self, id: str) -> AsyncEvaluation:
        """Return an evaluation by its id.

        Raises:
            NotFound: there is no such evaluation.
        """
        evaluation = AsyncEvaluation(self, id)
        await evaluation.load()
        return evaluation

    async def comparison(self, id: str) -> AsyncComparison:
        """Return a comparison by its id.

        Raises:
            NotFound: there is no such comparison.
        """
        comparison = AsyncComparison(self, id)
        await comparison.load()
        return comparison

    def runs(self, *, sort: str | None = None, limit: int | None = None, **filter: Unpack[RunFilter]) -> AsyncRuns:
        """Return the runs that meet all conditions, such as `outcome="success"`, newest first.

        Args:
            sort: `reward`, or a scorer's stored values; `-NAME`: worst first.
            limit: Runs at most.
            **filter: Conditions; none: every run.
        """
        return AsyncRuns(self, filter, sort=sort, limit=limit)

    async def agents(self, *, limit: int = 50) -> list[AsyncAgent]:
        """Return the newest agents."""
        found = await self._read(lambda services: services.store.agents.page(limit=limit).items)
        return [AsyncAgent(self, one.id or one.name, one) for one in found]

    async def datasets(self, *, limit: int = 50) -> list[AsyncDataset]:
        """Return the newest datasets."""
        found = await self._read(lambda services: services.store.datasets.page(limit=limit).items)
        return [AsyncDataset(self, one.id, one) for one in found]

    async def jobs(
        self,
        *,
        status: Literal["queued", "running", "succeeded", "failed", "cancelled", "interrupted"] | None = None,
        limit: int = 50,
    ) -> list[AsyncJob]:
        """Return the newest jobs; `list_jobs` selects by kind, too."""
        return await self.list_jobs(status=status, limit=limit)

    @overload
    async def record(
        self,
        runs: Mapping[str, Any] | None = None,
        *,
        messages: list[dict[str, Any]] | None = None,
        task: str | Mapping[str, Any] | None = None,
        tools: list[dict[str, Any]] | None = None,
        agent: str | None = None,
        outcome: str | Mapping[str, Any] | None = None,
        tags: list[str] | None = None,
    ) -> AsyncTrajectory: ...
    @overload
    async def record(
        self, runs: Rows, *, agent: str | None = None, tags: list[str] | None = None
    ) -> list[AsyncTrajectory]: ...
    async def record(self, runs: Any = None, **shared: Any) -> AsyncTrajectory | list[AsyncTrajectory]:
        """Store one run, or each row of a DataFrame, a `datasets.Dataset` or a list.

        Args:
            runs: A run or rows of runs: the arguments of `record_trajectory` (`messages`, `task`, `outcome`, ...), or a whole
                trajectory with `steps`. None: the run is given by the other arguments.
            **shared: Arguments of `record_trajectory` for every run that does not have them itself.

        Raises:
            InvalidInput: a row is malformed; the rows before it are stored.
            UnknownField: a column is no argument of `record_trajectory`.
        """
        if runs is None or isinstance(runs, Mapping):
            return await self._recorded(runs or {}, shared)
        from quintain.client.frames import runs_of

        return [await self._recorded(row, shared) for row in await run(lambda: list(runs_of(runs)))]

    async def _recorded(self, row: Mapping[str, Any], shared: Mapping[str, Any]) -> AsyncTrajectory:
        whole = {"trajectory": dict(row)} if "steps" in row else dict(row)
        return await self._run("record_trajectory", {**shared, **whole})

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

    async def _job(self, tool: str, arguments: Mapping[str, Any]) -> AsyncJob:
        job = AsyncJob(self, (await self._call(tool, arguments)).job_id)
        await job.load()
        return job

    async def _jobs(self, tool: str, arguments: Mapping[str, Any]) -> list[AsyncJob]:
        jobs = [AsyncJob(self, one.job_id) for one in (await self._call(tool, arguments)).items]
        for job in () if self.session.blocking else jobs:
            await job.load()
        return jobs

    async def _evaluation(self, tool: str, arguments: Mapping[str, Any]) -> AsyncJob:
        """Start an evaluation; without a suite on what the agent was trained for."""
        if arguments["environment"] is None and arguments["dataset_id"] is None:
            from quintain.tools.evaluation.default_suites import default_suite

            (agent,) = ids_of([arguments["agent"]])
            arguments = {**arguments, **await self._read(lambda services: default_suite(services, agent))}
        return await self._job(tool, arguments)

    async def _dataset(self, tool: str, arguments: Mapping[str, Any]) -> AsyncDataset:
        if arguments["path"] is not None:
            from quintain.client.frames import file_of

            path = await self._read(lambda services: file_of(services, arguments["path"]))
            arguments = {**arguments, "path": path}
        dataset = AsyncDataset(self, (await self._call(tool, arguments)).dataset_id)
        await dataset.load()
        return dataset

    async def _agent(self, tool: str, arguments: Mapping[str, Any]) -> AsyncAgent:
        agent = (await self._call(tool, arguments)).agent
        return AsyncAgent(self, agent.id, agent)

    async def _run(self, tool: str, arguments: Mapping[str, Any]) -> AsyncTrajectory:
        return AsyncTrajectory(self, (await self._call(tool, arguments)).trajectory_id)

    async def _comparison(self, tool: str, arguments: Mapping[str, Any]) -> AsyncComparison:
        comparison = AsyncComparison(self, (await self._finished(tool, arguments)).comparison_id)
        await comparison.load()
        return comparison

    async def _finished(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool until its job has ended, and return its result."""
        result = await self._call(tool, arguments)
        while result.job_id is not None and result.status in UNFINISHED:
            await AsyncJob(self, result.job_id).wait()
            result = await self._call(tool, arguments)
        return result
