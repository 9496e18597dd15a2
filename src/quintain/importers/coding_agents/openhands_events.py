"""Write the events of OpenHands as turns: what both generations of them have in common."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.tool_schemas import inferred_tools
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_dict, as_text, nonblank

_WITHOUT_PARAMETERS = "the log has tools without their parameters: these are inferred from the calls (names only)"
_CONDENSED = "the context was condensed: the model no longer saw some turns before the summary"


class EventStream(ABC):
    """Writes events as turns in order."""

    def __init__(self, report: Report, model: str | None = None) -> None:
        self.script, self.report, self.model = Transcript(), report, model
        self.tools: list[dict[str, Any]] = []
        self.version: str | None = None
        self.agent_class: str | None = None
        self._calls: dict[Any, str] = {}
        """Event id of an action -> id of its call."""

    @abstractmethod
    def write(self, event: dict[str, Any]) -> None:
        """Write one event."""

    def run(
        self, events: Iterable[dict[str, Any]], line: int | None = None, *, agent: str | None = None, **fields: Any
    ) -> Iterator[Run]:
        """Write the events and yield the conversation as a run, with the further fields of `build_session_run`."""
        for event in events:
            self.write(event)
        called = {tool["function"]["name"]: tool["function"]["parameters"] for tool in inferred_tools(self.script)}
        for function in (tool["function"] for tool in self.tools):
            if function["name"] in called and not function["parameters"].get("properties"):
                function["parameters"] = called[function["name"]]
                self.report.note(_WITHOUT_PARAMETERS)
        yield from build_session_run(
            self.script,
            self.report,
            line,
            agent=nonblank(agent, self.agent_class, "openhands"),
            version=self.version,
            model=nonblank(self.script.model, self.model),
            tools=self.tools,
            **fields,
        )

    def _condense(self, kind: str, event: dict[str, Any]) -> None:
        self.report.skip(kind)
        self.report.note(_CONDENSED)
        if summary := as_text(event.get("summary")):
            self.script.add_message("user", summary, extra={"compacted": True})


def detect_events(probe: Probe, is_event: Callable[[Any], bool], first_file: re.Pattern[str]) -> float:
    """Return the share of events among the first rows, 0 to 1.

    A document is the only file of events or the first of its folder: the others are read with it and return 0.
    """
    rows = [row for row in probe.rows or [probe.document] if isinstance(row, dict)]
    if not rows or (probe.document is not None and not first_file.fullmatch(probe.name)):
        return 0.0
    return sum(map(is_event, rows)) / len(rows)


def exit_failed(result: dict[str, Any]) -> bool:
    """Whether the exit code of a result is positive."""
    code = as_dict(result.get("metadata")).get("exit_code", result.get("exit_code"))
    return type(code) is int and code > 0


def folder_events(log: LogFile, names: re.Pattern[str], report: Report) -> tuple[list[dict[str, Any]], str | None]:
    """Return the events of the other files with these names in a folder, in the order of names, and its conversation."""
    found = []
    for sibling in log.siblings("."):
        if sibling.path.name != log.path.name and names.fullmatch(sibling.path.name):
            try:
                found.append(as_dict(sibling.document()))
            except InvalidInput as error:
                report.reject(None, error.message)
    # The folder has the name of its conversation, or is `events` in it.
    return found, next((part for part in reversed(log.parts[:-1]) if part != "events"), None)
