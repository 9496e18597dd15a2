"""Calls of the generated methods: a tool by its name, and its result as an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.client.objects import Agent, Comparison, Dataset, Job
from quintain.client.runs import Trajectory
from quintain.client.session import Session, ids_of
from quintain.records.jobs.job import UNFINISHED


class Calls:
    """Calls tools in one home."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def _job(self, tool: str, arguments: Mapping[str, Any]) -> Job:
        return Job(self, self.session.call(tool, arguments).job_id)._loaded()

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
        return Dataset(self, self.session.call(tool, arguments).dataset_id)._loaded()

    def _agent(self, tool: str, arguments: Mapping[str, Any]) -> Agent:
        agent = self.session.call(tool, arguments).agent
        return Agent(self, agent.id, agent)

    def _run(self, tool: str, arguments: Mapping[str, Any]) -> Trajectory:
        return Trajectory(self, self.session.call(tool, arguments).trajectory_id)

    def _comparison(self, tool: str, arguments: Mapping[str, Any]) -> Comparison:
        return Comparison(self, self._finished(tool, arguments).comparison_id)._loaded()

    def _finished(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool until its job has ended, and return its result."""
        result = self.session.call(tool, arguments)
        while result.job_id is not None and result.status in UNFINISHED:
            Job(self, result.job_id).wait()
            result = self.session.call(tool, arguments)
        return result
