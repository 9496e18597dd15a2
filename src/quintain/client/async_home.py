"""The home folder whose methods are coroutines."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from quintain.client.coroutines import AsyncRuns, AsyncTrajectory, awaited
from quintain.client.filters import RunFilter
from quintain.client.home import Home

if TYPE_CHECKING:
    from quintain.client.frames import Rows
    from quintain.scoring.custom import RewardFunction


class AsyncHome:
    """A home folder with its runs, datasets, jobs and agents. It opens at the first call."""

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        """Use a home folder; arguments and errors as of `Home`."""
        self._blocking = Home(path)
        self.session = self._blocking.session
        self.session.blocking = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Async{self._blocking!r}"

    aclose = awaited(Home.close)

    def runs(self, *, sort: str | None = None, limit: int | None = None, **filter: Unpack[RunFilter]) -> AsyncRuns:
        """Return the runs that meet all conditions, as `Home.runs`."""
        return AsyncRuns(self._blocking.runs(sort=sort, limit=limit, **filter))

    def register_scorer(self, name: str, function: RewardFunction) -> None:
        """Make a function a scorer of this program, as `Home.register_scorer`."""
        self._blocking.register_scorer(name, function)

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
    async def record(self, runs: Any = None, **shared: Any) -> Any:
        """Store one run, or each row of a DataFrame, a `datasets.Dataset` or a list, as `Home.record`."""
        return await self._record(runs, **shared)

    _record = awaited(Home.record)

    job = awaited(Home.job)
    agent = awaited(Home.agent)
    dataset = awaited(Home.dataset)
    trajectory = awaited(Home.trajectory)
    evaluation = awaited(Home.evaluation)
    comparison = awaited(Home.comparison)
    agents = awaited(Home.agents)
    datasets = awaited(Home.datasets)
    jobs = awaited(Home.jobs)
    record_trajectory = awaited(Home.record_trajectory)
    import_logs = awaited(Home.import_logs)
    create_dataset = awaited(Home.create_dataset)
    preview = awaited(Home.preview)
    library = awaited(Home.library)
    lineage = awaited(Home.lineage)
    forget = awaited(Home.forget)
    score = awaited(Home.score)
    record_preferences = awaited(Home.record_preferences)
    calibrate = awaited(Home.calibrate)
    judging_batch = awaited(Home.judging_batch)
    submit_scores = awaited(Home.submit_scores)
    plan = awaited(Home.plan)
    train = awaited(Home.train)
    register_agent = awaited(Home.register_agent)
    export_agent = awaited(Home.export_agent)
    list_jobs = awaited(Home.list_jobs)
    cancel = awaited(Home.cancel)
    resume = awaited(Home.resume)
    plot = awaited(Home.plot)
    show_training_dashboard = awaited(Home.show_training_dashboard)
    collect = awaited(Home.collect)
    evaluate = awaited(Home.evaluate)
    talk_to_agent = awaited(Home.talk_to_agent)
    compare = awaited(Home.compare)
