"""Calls of the generated methods: a tool by its name, and its result as an object."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any

from quintain.client.method_calls import explain_for_python
from quintain.client.objects import Agent, Comparison, Dataset, Job
from quintain.client.runs import Trajectory
from quintain.client.session import Session, ids_of
from quintain.next_step import Hint
from quintain.records.jobs.job import UNFINISHED


class Calls:
    """Calls tools in one home."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def _answer(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool whose result becomes an object, and issue its warnings as those of the line that called."""
        answer = self.session.call(tool, arguments)
        for warning in getattr(answer, "warnings", ()):
            text = warning if isinstance(warning, Hint) else explain_for_python(warning, tool)
            warnings.warn(text, stacklevel=_level_of_caller())
        return answer

    def _job(self, tool: str, arguments: Mapping[str, Any]) -> Job:
        answer = self._answer(tool, arguments)
        return Job(self, answer.job_id, answer=answer)._loaded()

    def _jobs(self, tool: str, arguments: Mapping[str, Any]) -> list[Job]:
        jobs = []
        for one in self.session.call(tool, arguments).items:
            jobs.append(Job(self, one.job_id))
            jobs[-1]._listed = {"work": one.label, "status": one.status}
        for job in () if self.session.blocking else jobs:
            job.load()
        return jobs

    def _evaluation(self, tool: str, arguments: Mapping[str, Any]) -> Job:
        """Start an evaluation; without a suite on what the agent was trained for."""
        if arguments["environment"] is None and arguments["dataset_id"] is None:
            from quintain.tools.evaluation.suites import default_suite

            (agent,) = ids_of([arguments["agent"]])
            arguments = {**arguments, **self.session.read(lambda services: default_suite(services, agent))}
        return self._job(tool, arguments)

    def _dataset(self, tool: str, arguments: Mapping[str, Any]) -> Dataset:
        if arguments["path"] is not None:
            from quintain.client.frames import file_of

            path = self.session.read(lambda services: file_of(services, arguments["path"]))
            arguments = {**arguments, "path": path}
        answer = self._answer(tool, arguments)
        return Dataset(self, answer.dataset_id, answer=answer)._loaded()

    def _agent(self, tool: str, arguments: Mapping[str, Any]) -> Agent:
        answer = self._answer(tool, arguments)
        return Agent(self, answer.agent.id, answer.agent, answer)

    def _run(self, tool: str, arguments: Mapping[str, Any]) -> Trajectory:
        answer = self._answer(tool, arguments)
        return Trajectory(self, answer.trajectory_id, answer=answer)

    def _comparison(self, tool: str, arguments: Mapping[str, Any]) -> Comparison:
        answer = self._finished(tool, arguments)
        return Comparison(self, answer.comparison_id, answer=answer)._loaded()

    def _finished(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool until its job has ended, and return its result."""
        result = self.session.call(tool, arguments)
        while result.job_id is not None and result.status in UNFINISHED:
            Job(self, result.job_id).wait()
            result = self.session.call(tool, arguments)
        return result


def _level_of_caller() -> int:
    """Return the level of the frame outside this package in the stack of the function that asks."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("quintain."):
        frame, level = frame.f_back, level + 1
    return level
