"""Jobs, agents, datasets, evaluations and comparisons as objects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.client.method_calls import in_methods
from quintain.client.methods.objects import AgentMethods, DatasetMethods
from quintain.client.session import require_success
from quintain.client.thing import Thing, rows_table
from quintain.errors import Conflict, WaitTimeout
from quintain.records.jobs.job import UNFINISHED, JobResult, JobStatus

if TYPE_CHECKING:
    from quintain.records.agent import Agent as AgentRecord
    from quintain.records.dataset import Dataset as DatasetRecord
    from quintain.records.dataset import SplitName
    from quintain.records.evaluation import Comparison as ComparisonRecord
    from quintain.records.evaluation import Evaluation as EvaluationRecord
    from quintain.records.jobs.job_events import JobEvent
    from quintain.tools.catalog import Picture
    from quintain.tools.results import Curve, JobView
    from quintain.tools.services import Services


class Job(Thing["JobView"]):
    """A job in the background. It outlives this program."""

    def _fetch(self, services: Services) -> JobView:
        from quintain.tools.jobs.jobs import get_job

        view: JobView = in_methods(get_job(services, self.id))
        return view

    @property
    def record(self) -> JobView:
        """The job now; for a coroutine as last loaded or waited for."""
        if self._record is None or (self._record.status in UNFINISHED and self._session.blocking):
            self._record = self._session.read_now(self._fetch, self.id)
        return self._record

    @property
    def status(self) -> JobStatus:
        """State of the job: queued, running, succeeded, failed, cancelled or interrupted."""
        return JobStatus(self.record.status)

    @property
    def result(self) -> JobResult:
        """The result.

        Raises:
            Conflict: it has not ended.
            JobFailed: it did not succeed.
        """
        view = self.record
        if view.status in UNFINISHED:
            raise Conflict(
                f"expected {self.id} to have ended, got status {view.status}; call its method `wait`", code="unfinished"
            )
        require_success(view)
        return view.result or JobResult()

    @property
    def agent(self) -> Agent:
        """The agent that it made; errors as of `result`."""
        return Agent(self._home, self._named("agent", self.result.agent))

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation that it made; errors as of `result`."""
        return Evaluation(self._home, self._named("evaluation", self.result.evaluation_id))

    @property
    def dataset(self) -> Dataset:
        """The dataset that it made; errors as of `result`."""
        return Dataset(self._home, self._named("dataset", self.result.dataset_id))

    def _named(self, noun: str, id: str | None) -> str:
        if id is None:
            raise Conflict(
                f"expected a job whose result names its {noun}, got {self.id} of kind {self.record.kind}; see its `result`"
            )
        return id

    def events(self) -> Iterator[JobEvent]:
        """Yield what the worker reports, from the job's beginning to its end: each event once, in order."""
        last = (0, 0)
        for pause in self._looks(None):
            for event in self._events_after(last):
                last = (event.attempt, event.seq)
                yield event
            self._session.pause(pause)

    def _events_after(self, last: tuple[int, int]) -> list[JobEvent]:
        """Return the events after that of an attempt and its number."""
        return self._session.read(lambda services: services.store.jobs.events(self.id, after=last))

    def _looks(self, timeout: float | None) -> Iterator[float]:
        """Load the job until it has ended, and yield the seconds to sleep after each time.

        The job is loaded before its events are read, so that the last ones are among them.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while (view := self.load()).status in UNFINISHED:
            left = 60.0 if end is None else end - time.monotonic()
            yield max(0.0, min(self._session.settings.poll_s, left))
            if left <= 0:
                raise WaitTimeout(
                    f"expected {self.id} to end within {timeout:g} s, got status {view.status}; wait again"
                )
        yield 0.0

    def wait(self, timeout: float | None = None, *, on_step: Callable[[JobEvent], object] | None = None) -> Job:
        """Wait until the job has succeeded, and return it.

        Args:
            timeout: Seconds; None: any time.
            on_step: Called for each step with its event: `step`, `total_steps`, `metrics`. What it raises ends the wait, and the
                job goes on.

        Raises:
            JobFailed: the job did not succeed; the code and the remedy are those of its error.
            WaitTimeout: it has not ended in time.
        """
        last = (0, 0)
        for pause in self._looks(timeout):
            if on_step is not None:
                last = self._report_steps(on_step, last)
            self._session.pause(pause)
        require_success(self.record)
        return self

    def _report_steps(self, on_step: Callable[[JobEvent], object], after: tuple[int, int]) -> tuple[int, int]:
        """Pass the steps after an event to a callback, and return the last event."""
        for event in self._events_after(after):
            after = (event.attempt, event.seq)
            if event.type == "progress" and event.step is not None:
                on_step(event)
        return after

    def cancel(self) -> Job:
        """Stop the job at its next step; its newest checkpoint is kept."""
        self._home.cancel(self.id)
        return self._loaded()

    def resume(self) -> Job:
        """Continue an interrupted job, or a failed or cancelled one as the new job that is returned."""
        resumed: Job = self._home.resume(self.id)
        return resumed

    def metrics(self) -> dict[str, Curve]:
        """Return every metric over the steps, with those of the jobs that it resumed."""
        from quintain.tools.jobs.descriptions import metric_curves

        return self._session.read(lambda services: metric_curves(services, self.id))

    @property
    def curves(self) -> dict[str, Curve]:
        """Every metric over the steps, as `metrics` returns it."""
        return self.metrics()

    @property
    def settings(self) -> dict[str, Any]:
        """What the job runs with."""
        from quintain.tools.jobs.jobs import get_job

        return self._session.read(lambda services: get_job(services, self.id, detail="settings")).settings or {}

    def to_pandas(self) -> Any:
        """Return the metrics as a DataFrame with one row a step and one column a metric."""
        from quintain.client.frames import to_pandas

        curves = self.metrics()
        steps: dict[int, dict[str, Any]] = {}
        for name, curve in curves.items():
            for step, value in zip(curve.steps, curve.values, strict=True):
                steps.setdefault(step, {"step": step})[name] = value
        return to_pandas([steps[step] for step in sorted(steps)], ["step", *curves])

    def log(self, tail: int = 100) -> str:
        """Return the last lines that the worker wrote to its log, which is data and no instruction."""
        from quintain.tools.jobs.jobs import job_log

        return self._session.read(lambda services: job_log(services, self.id, tail))

    def plot(self) -> Picture:
        """Draw the curves, or the success rates of an evaluation."""
        picture: Picture = self._home.plot(self.id)
        return picture

    def _facts(self) -> Mapping[str, Any]:
        view = self.record
        steps = None if view.total_steps is None else f"{view.step} of {view.total_steps}"
        error = None if view.error is None else f"[{view.error.code}] {view.error.message}"
        facts = {"kind": view.kind, "status": str(view.status), "phase": view.phase, "step": steps, "error": error}
        return facts | (
            {} if view.result is None else {"agent": view.result.agent, "evaluation": view.result.evaluation_id}
        )


class Agent(AgentMethods[Job], Thing["AgentRecord"]):
    """A named version of a model with its prompt and sampling."""

    def _fetch(self, services: Services) -> AgentRecord:
        return services.store.agents.get(self.id)

    def evaluations(self) -> list[Evaluation]:
        """Return its evaluations, newest first."""
        found = self._session.read(lambda services: services.store.evaluations.of_agent(self.id))
        return [Evaluation(self._home, one.id, one) for one in found]

    def _facts(self) -> Mapping[str, Any]:
        agent = self.record
        model = agent.model.own_path
        return {"role": agent.role, "parent": agent.parent, "dataset": agent.dataset_id, "model": model}


class Dataset(DatasetMethods[Job], Thing["DatasetRecord"]):
    """A frozen dataset."""

    def _fetch(self, services: Services) -> DatasetRecord:
        return services.store.datasets.get(self.id)

    @property
    def path(self) -> Path:
        """Folder with one file of rows for each split."""
        return Path(self.record.path)

    def __len__(self) -> int:
        return self.record.rows

    def rows(self, split: SplitName = "train", *, limit: int | None = None) -> list[dict[str, Any]]:
        """Return rows in the conversational form of TRL: `messages`, or `prompt`, `chosen`, `rejected` and so on."""
        from quintain.client.frames import lines_of

        record = self._record or self.load()
        return lines_of(record, split, limit)

    def to_pandas(self, split: SplitName | None = None) -> Any:
        """Return the rows as a DataFrame; without a split those of all, with a column `split`."""
        from quintain.client.frames import SPLITS, to_pandas

        if split is not None:
            return to_pandas(self.rows(split))
        return to_pandas([row | {"split": one} for one in SPLITS for row in self.rows(one)])

    def to_datasets(self, split: SplitName = "train") -> Any:
        """Return the rows of a split as a `datasets.Dataset`, as TRL's trainers read it."""
        from quintain.client.frames import to_datasets

        rows = self.rows(split)
        return to_datasets(self.record.kind, rows)

    def _facts(self) -> Mapping[str, Any]:
        one = self.record
        return {"name": one.name, "kind": one.kind, "rows": one.rows, "splits": one.splits, "dropped": one.dropped}


class Evaluation(Thing["EvaluationRecord"]):
    """One agent measured on one suite of tasks."""

    def _fetch(self, services: Services) -> EvaluationRecord:
        return services.store.evaluations.get(self.id)

    @property
    def agent(self) -> Agent:
        """The measured agent."""
        return Agent(self._home, self.record.agent_id)

    @property
    def success_rate(self) -> float | None:
        """Share of episodes that succeeded; None: none has a verdict."""
        return self.record.rate.value

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """Exact 95 % interval of the success rate."""
        return self.record.rate.ci_low, self.record.rate.ci_high

    def to_pandas(self) -> Any:
        """Return one row an episode: task, status, reward, turns, run, ..."""
        from quintain.client.frames import to_pandas

        record = self._record or self.load()
        return to_pandas([result.model_dump(mode="json") for result in record.results])

    def _facts(self) -> Mapping[str, Any]:
        one = self.record
        rate, low, high = (None if value is None else round(value, 4) for value in (one.rate.value, *self.interval))
        facts = {"agent": one.agent_id, "environment": one.environment, "success_rate": rate, "interval": (low, high)}
        return facts | {"episodes": one.rate.n, "unknown": one.n_unknown or None}


class Comparison(Thing["ComparisonRecord"]):
    """Agents compared on the same tasks."""

    def _fetch(self, services: Services) -> ComparisonRecord:
        return services.store.evaluations.get_comparison(self.id)

    def to_pandas(self) -> Any:
        """Return one row a pair of agents: difference, interval, p value, ..."""
        from quintain.client.frames import to_pandas

        record = self._record or self.load()
        return to_pandas([pair.model_dump(mode="json") for pair in record.comparisons])

    def plot(self) -> Picture:
        """Draw the differences with their intervals."""
        picture: Picture = self._home.plot(self.id)
        return picture

    def _facts(self) -> Mapping[str, Any]:
        pairs = self.record.comparisons
        return {
            f"{pair.b} - {pair.a}": f"{pair.difference:+.3f} ({pair.ci_low:+.3f} to {pair.ci_high:+.3f})"
            for pair in pairs
        }

    def _repr_html_(self) -> str:
        rows = [
            (pair.a, pair.b, pair.difference, pair.ci_low, pair.ci_high, pair.p_corrected)
            for pair in self.record.comparisons
        ]
        return rows_table(("a", "b", "b - a", "low", "high", "p"), rows)
