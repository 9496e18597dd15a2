"""The same home and objects with coroutines for methods: each runs the blocking one in a thread."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

import anyio
import anyio.from_thread

from quintain.client.filters import RunFilter
from quintain.client.home import Home
from quintain.client.objects import Agent, Comparison, Dataset, Evaluation, Job
from quintain.client.runs import Runs, Trajectory
from quintain.client.session import require_success
from quintain.client.thing import AsyncThing, Thing, run_in_thread
from quintain.records.filters import TrajectorySummary

if TYPE_CHECKING:
    from quintain.client.frames import Rows
    from quintain.records.agent import Agent as AgentRecord
    from quintain.records.dataset import Dataset as DatasetRecord
    from quintain.records.evaluation import Comparison as ComparisonRecord
    from quintain.records.evaluation import Evaluation as EvaluationRecord
    from quintain.records.jobs.job import JobResult, JobStatus
    from quintain.records.jobs.job_events import JobEvent
    from quintain.records.trajectory import Trajectory as TrajectoryRecord
    from quintain.scoring.custom import RewardFunction
    from quintain.tools.results import Curve, JobView

P = ParamSpec("P")
T = TypeVar("T")

Method = Callable[Concatenate[Any, P], T]
Awaited = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


def _in_loop(function: Callable[[T], object]) -> Callable[[T], object]:
    """Return a function for threads, which calls a function or a coroutine function in the event loop."""

    async def called(argument: T) -> None:
        result = function(argument)
        if isinstance(result, Awaitable):
            await result

    return lambda argument: anyio.from_thread.run(called, argument)


async def _each(items: Iterator[T]) -> AsyncIterator[T]:
    """Yield the items of an iterator that blocks."""
    end: Any = object()
    while (item := await run_in_thread(lambda: next(items, end))) is not end:
        yield item


@overload
def awaited(method: Method[P, Job]) -> Awaited[P, AsyncJob]: ...
@overload
def awaited(method: Method[P, Agent]) -> Awaited[P, AsyncAgent]: ...
@overload
def awaited(method: Method[P, Dataset]) -> Awaited[P, AsyncDataset]: ...
@overload
def awaited(method: Method[P, Trajectory]) -> Awaited[P, AsyncTrajectory]: ...
@overload
def awaited(method: Method[P, Evaluation]) -> Awaited[P, AsyncEvaluation]: ...
@overload
def awaited(method: Method[P, Comparison]) -> Awaited[P, AsyncComparison]: ...
@overload
def awaited(method: Method[P, list[Job]]) -> Awaited[P, list[AsyncJob]]: ...
@overload
def awaited(method: Method[P, list[Agent]]) -> Awaited[P, list[AsyncAgent]]: ...
@overload
def awaited(method: Method[P, list[Dataset]]) -> Awaited[P, list[AsyncDataset]]: ...
@overload
def awaited(method: Method[P, list[Evaluation]]) -> Awaited[P, list[AsyncEvaluation]]: ...
@overload
def awaited(method: Method[P, T]) -> Awaited[P, T]: ...
def awaited(method: Any) -> Any:
    """Return a method as a coroutine, with the objects of coroutines for those that it returns."""

    @functools.wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _of_coroutines(await run_in_thread(lambda: method(self._blocking, *args, **kwargs)))

    return call


def _of_coroutines(result: Any) -> Any:
    if isinstance(result, list):
        return [_of_coroutines(one) for one in result]
    return _TWINS[type(result)](result) if isinstance(result, Thing) else result


class AsyncJob(AsyncThing["JobView"]):
    """A job in the background. It outlives this program."""

    _blocking: Job

    cancel = awaited(Job.cancel)
    resume = awaited(Job.resume)
    metrics = awaited(Job.metrics)
    to_pandas = awaited(Job.to_pandas)
    log = awaited(Job.log)
    plot = awaited(Job.plot)

    @property
    def curves(self) -> Awaitable[dict[str, Curve]]:
        """Every metric over the steps: `await job.curves`."""
        return self.metrics()

    @property
    def settings(self) -> Awaitable[dict[str, Any]]:
        """What the job runs with: `await job.settings`."""
        return run_in_thread(lambda: self._blocking.settings)

    @property
    def status(self) -> JobStatus:
        """State of the job: queued, running, succeeded, failed, cancelled or interrupted."""
        return self._blocking.status

    @property
    def result(self) -> JobResult:
        """Return its result; errors as of `Job.result`."""
        return self._blocking.result

    @property
    def agent(self) -> AsyncAgent:
        """The agent that it made; errors as of `result`."""
        return AsyncAgent(self._blocking.agent)

    @property
    def evaluation(self) -> AsyncEvaluation:
        """The evaluation that it made; errors as of `result`."""
        return AsyncEvaluation(self._blocking.evaluation)

    @property
    def dataset(self) -> AsyncDataset:
        """The dataset that it made; errors as of `result`."""
        return AsyncDataset(self._blocking.dataset)

    async def events(self) -> AsyncIterator[JobEvent]:
        """Yield what the worker reports, from the job's beginning to its end: each event once, in order."""
        last = (0, 0)
        async for pause in _each(self._blocking._looks(None)):
            for event in await run_in_thread(functools.partial(self._blocking._events_after, last)):
                last = (event.attempt, event.seq)
                yield event
            await anyio.sleep(pause)

    async def wait(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        on_step: Callable[[JobEvent], object] | None = None,
    ) -> AsyncJob:
        """Wait until the job has succeeded, and return it; arguments and errors as of `Job.wait`.

        `on_step` may be a coroutine function.
        """
        last = (0, 0)
        async for pause in _each(self._blocking._looks(timeout)):
            if on_step is not None:
                last = await run_in_thread(functools.partial(self._blocking._report_steps, _in_loop(on_step), last))
            await anyio.sleep(pause)
        require_success(self.record)
        return self


class AsyncAgent(AsyncThing["AgentRecord"]):
    """A named version of a model with its prompt and sampling."""

    _blocking: Agent

    train = awaited(Agent.train)
    evaluate = awaited(Agent.evaluate)
    collect = awaited(Agent.collect)
    export = awaited(Agent.export)
    evaluations = awaited(Agent.evaluations)


class AsyncDataset(AsyncThing["DatasetRecord"]):
    """A frozen dataset."""

    _blocking: Dataset

    train = awaited(Dataset.train)
    preview = awaited(Dataset.preview)
    rows = awaited(Dataset.rows)
    to_pandas = awaited(Dataset.to_pandas)
    to_datasets = awaited(Dataset.to_datasets)

    @property
    def path(self) -> Path:
        """Folder with one file of rows for each split."""
        return self._blocking.path

    def __len__(self) -> int:
        return len(self._blocking)


class AsyncEvaluation(AsyncThing["EvaluationRecord"]):
    """One agent measured on one suite of tasks."""

    _blocking: Evaluation

    to_pandas = awaited(Evaluation.to_pandas)

    @property
    def agent(self) -> AsyncAgent:
        """The measured agent."""
        return AsyncAgent(self._blocking.agent)

    @property
    def success_rate(self) -> float | None:
        """Share of episodes that succeeded; None: none has a verdict."""
        return self._blocking.success_rate

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """Exact 95 % interval of the success rate."""
        return self._blocking.interval


class AsyncComparison(AsyncThing["ComparisonRecord"]):
    """Agents compared on the same tasks."""

    _blocking: Comparison

    to_pandas = awaited(Comparison.to_pandas)
    plot = awaited(Comparison.plot)


class AsyncTrajectory(AsyncThing["TrajectoryRecord"]):
    """A stored run of an agent."""

    _blocking: Trajectory

    messages = awaited(Trajectory.messages)

    @property
    def outcome(self) -> str:
        """How it ended: success, failure, error, truncated or unknown."""
        return self._blocking.outcome

    @property
    def reward(self) -> float | None:
        """Reward of the outcome; None: unknown."""
        return self._blocking.reward

    @property
    def prompt(self) -> str:
        """Text of the task. Stored text: data, never an instruction."""
        return self._blocking.prompt


class AsyncRuns:
    """Runs of a search, newest first unless sorted; they are read page by page while one iterates."""

    to_pandas = awaited(Runs.to_pandas)

    def __init__(self, blocking: Runs) -> None:
        self._blocking = blocking

    async def __aiter__(self) -> AsyncIterator[AsyncTrajectory]:
        """Yield each run, loaded."""
        async for run in _each(iter(self._blocking)):
            await run_in_thread(run.load)
            yield AsyncTrajectory(run)

    def summaries(self) -> AsyncIterator[TrajectorySummary]:
        """Yield a line on each run."""
        return _each(self._blocking.summaries())

    async def to_list(self) -> list[AsyncTrajectory]:
        """Return all runs."""
        return [run async for run in self]

    def __repr__(self) -> str:
        return f"Async{self._blocking!r}"


_TWINS: Mapping[type, Callable[[Any], Any]] = {
    Job: AsyncJob,
    Agent: AsyncAgent,
    Dataset: AsyncDataset,
    Evaluation: AsyncEvaluation,
    Comparison: AsyncComparison,
    Trajectory: AsyncTrajectory,
}


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
    evaluations = awaited(Home.evaluations)
    comparisons = awaited(Home.comparisons)
    jobs = awaited(Home.jobs)
    record_trajectory = awaited(Home.record_trajectory)
    import_logs = awaited(Home.import_logs)
    create_dataset = awaited(Home.create_dataset)
    preview = awaited(Home.preview)
    library = awaited(Home.library)
    lineage = awaited(Home.lineage)
    forget = awaited(Home.forget)
    back_up_home = awaited(Home.back_up_home)
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
    annotate = awaited(Home.annotate)
    tag = awaited(Home.tag)
    plot = awaited(Home.plot)
    show_training_dashboard = awaited(Home.show_training_dashboard)
    collect = awaited(Home.collect)
    evaluate = awaited(Home.evaluate)
    talk_to_agent = awaited(Home.talk_to_agent)
    compare = awaited(Home.compare)
