"""What the generated methods call: a tool by its name, and its result as an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from quintain.client.sync.waiting import run

if TYPE_CHECKING:
    from quintain.client.session import Session
    from quintain.tools.services import Services

T = TypeVar("T")
JobT = TypeVar("JobT")
DatasetT = TypeVar("DatasetT")
AgentT = TypeVar("AgentT")
RunT = TypeVar("RunT")
ComparisonT = TypeVar("ComparisonT")


class Calls(Generic[JobT, DatasetT, AgentT, RunT, ComparisonT]):
    """Calls tools in one home. A subclass decides which objects their results become."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def _call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool and return its record."""
        return run(lambda: self.session.call(tool, arguments))

    def _read(self, function: Callable[[Services], T]) -> T:
        """Call a function with the open home."""
        return run(lambda: self.session.read(function))

    def _job(self, tool: str, arguments: Mapping[str, Any]) -> JobT:
        raise NotImplementedError

    def _jobs(self, tool: str, arguments: Mapping[str, Any]) -> list[JobT]:
        raise NotImplementedError

    def _evaluation(self, tool: str, arguments: Mapping[str, Any]) -> JobT:
        raise NotImplementedError

    def _dataset(self, tool: str, arguments: Mapping[str, Any]) -> DatasetT:
        raise NotImplementedError

    def _agent(self, tool: str, arguments: Mapping[str, Any]) -> AgentT:
        raise NotImplementedError

    def _run(self, tool: str, arguments: Mapping[str, Any]) -> RunT:
        raise NotImplementedError

    def _comparison(self, tool: str, arguments: Mapping[str, Any]) -> ComparisonT:
        raise NotImplementedError

    def _finished(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        raise NotImplementedError
