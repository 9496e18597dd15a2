"""What the generated methods call: a tool by its name, and its result as an object."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from quintain.client.aio.waiting import run

if TYPE_CHECKING:
    from quintain.client.session import Session
    from quintain.tools.services import Services

T = TypeVar("T")
JobT = TypeVar("JobT")
DatasetT = TypeVar("DatasetT")
AgentT = TypeVar("AgentT")
RunT = TypeVar("RunT")
ComparisonT = TypeVar("ComparisonT")


class AsyncCalls(ABC, Generic[JobT, DatasetT, AgentT, RunT, ComparisonT]):
    """Calls tools in one home. A subclass decides which objects their results become."""

    def __init__(self, session: Session) -> None:
        self.session = session

    async def _call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool and return its record."""
        return await run(lambda: self.session.call(tool, arguments))

    async def _read(self, function: Callable[[Services], T]) -> T:
        """Call a function with the open home."""
        return await run(lambda: self.session.read(function))

    @abstractmethod
    async def _job(self, tool: str, arguments: Mapping[str, Any]) -> JobT:
        """Call a tool whose result is a job."""

    @abstractmethod
    async def _jobs(self, tool: str, arguments: Mapping[str, Any]) -> list[JobT]:
        """Call a tool whose result is several jobs."""

    @abstractmethod
    async def _evaluation(self, tool: str, arguments: Mapping[str, Any]) -> JobT:
        """Call a tool whose result is the job of an evaluation."""

    @abstractmethod
    async def _dataset(self, tool: str, arguments: Mapping[str, Any]) -> DatasetT:
        """Call a tool whose result is a dataset."""

    @abstractmethod
    async def _agent(self, tool: str, arguments: Mapping[str, Any]) -> AgentT:
        """Call a tool whose result is an agent."""

    @abstractmethod
    async def _run(self, tool: str, arguments: Mapping[str, Any]) -> RunT:
        """Call a tool whose result is a run."""

    @abstractmethod
    async def _comparison(self, tool: str, arguments: Mapping[str, Any]) -> ComparisonT:
        """Call a tool whose result is a comparison."""

    @abstractmethod
    async def _finished(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool whose result is what its finished job gives."""
