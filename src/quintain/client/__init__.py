"""The typed Python client: a home folder, and its jobs, agents, datasets and runs as objects.

    import quintain as q

    with q.open() as home:
        job = home.train("sft", model="starter", dataset="good-runs")
        print(job.wait().agent.evaluate().wait().evaluation.success_rate)

`aopen` gives the same objects with coroutines for methods. Errors are exceptions of `quintain`.
"""

from __future__ import annotations

from os import PathLike

from quintain.client.coroutines import (
    AsyncAgent,
    AsyncComparison,
    AsyncDataset,
    AsyncEvaluation,
    AsyncHome,
    AsyncJob,
    AsyncRuns,
    AsyncTrajectory,
)
from quintain.client.home import Home
from quintain.client.objects import Agent, Comparison, Dataset, Evaluation, Job
from quintain.client.runs import Runs, Trajectory
from quintain.records.jobs.job_events import JobEvent

__all__ = [
    "Agent",
    "AsyncAgent",
    "AsyncComparison",
    "AsyncDataset",
    "AsyncEvaluation",
    "AsyncHome",
    "AsyncJob",
    "AsyncRuns",
    "AsyncTrajectory",
    "Comparison",
    "Dataset",
    "Evaluation",
    "Home",
    "Job",
    "JobEvent",
    "Runs",
    "Trajectory",
    "aopen",
    "open",
]


def open(path: str | PathLike[str] | None = None) -> Home:
    """Return a home folder, whose methods block.

    Args:
        path: The folder; None: that of QUINTAIN_HOME, else the default one.

    Raises:
        InvalidInput: an environment variable QUINTAIN_... has an invalid value.
    """
    return Home(path)


def aopen(path: str | PathLike[str] | None = None) -> AsyncHome:
    """Return a home folder, whose methods are coroutines for asyncio or trio, for `async with`; errors as of `open`.

    Args:
        path: As of `open`.
    """
    return AsyncHome(path)
