"""`--processes N`: run the collected tests in N processes that are forked from this one, a file at a time.

Collecting imports torch and every test, 10 s of processor time: forked processes have it done, others would each do it again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from multiprocessing.connection import Connection, Pipe, wait
from tempfile import TemporaryFile
from typing import Any

import pytest
from _pytest.capture import FDCapture
from _pytest.reports import TestReport

_NUMBER = 4
"""Bytes of a file's number in the queue."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--processes", type=int, default=1, help="Run the tests in so many processes.")


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all tests and report them here; None where the usual loop in this process is to run them."""
    config = session.config
    if config.option.processes < 2 or config.option.collectonly or session.testsfailed:
        return None
    files = [list(items) for _, items in groupby(session.items, key=lambda item: item.path)]
    queue, feed = os.pipe()
    for number in range(len(files)):
        os.write(feed, number.to_bytes(_NUMBER, "big"))
    os.close(feed)
    running: dict[Connection, int] = {}
    for number in range(config.option.processes):
        ours, theirs = Pipe(duplex=False)
        if not (pid := os.fork()):
            _Process(config, theirs, number).run(_taken(files, queue))
        theirs.close()
        running[ours] = pid
    try:
        _report(session, running)
    finally:
        for pid in running.values():
            os.kill(pid, signal.SIGKILL)
    return True


def _taken(files: Sequence[list[pytest.Item]], queue: int) -> Iterator[list[pytest.Item]]:
    """Take files from the queue of all processes."""
    while number := os.read(queue, _NUMBER):
        yield files[int.from_bytes(number, "big")]


def _report(session: pytest.Session, running: dict[Connection, int]) -> None:
    """Report what the processes send until each has ended."""
    config, current = session.config, dict[Connection, str]()
    while running:
        for pipe in wait(list(running)):
            assert isinstance(pipe, Connection)
            try:
                found = pipe.recv()
            except EOFError:
                pid = running.pop(pipe)
                if (status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) != 0:
                    raise session.Failed(f"a process ended with {status} in {current.get(pipe)}") from None
                continue
            if isinstance(found, str):
                current[pipe] = found
                continue
            report = config.hook.pytest_report_from_serializable(config=config, data=found)
            config.hook.pytest_runtest_logreport(report=report)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)


class _Process:
    """A forked process."""

    def __init__(self, config: pytest.Config, pipe: Connection, number: int) -> None:
        self._config, self._pipe, self._number = config, pipe, number

    def run(self, files: Iterator[list[pytest.Item]]) -> None:
        """Run files of tests, and end this process."""
        status = 1
        try:
            self._separate()
            file = next(files, [])
            while file:
                for item, following in pairwise(file):
                    self._run(item, following)
                after = next(files, [])
                self._run(file[-1], after[0] if after else None)
                file = after
            status = 0
        finally:
            os._exit(status)

    def _separate(self) -> None:
        """Give this process its own temporary folder, captured output and reporter."""
        temporary: Any = self._config._tmp_path_factory  # type: ignore[attr-defined]
        temporary._basetemp = temporary.getbasetemp() / f"process-{self._number}"
        temporary._basetemp.mkdir(mode=0o700)
        capture: Any = self._config.pluginmanager.getplugin("capturemanager")
        for stream in (capture._global_capturing.out, capture._global_capturing.err):
            if isinstance(stream, FDCapture):  # the same descriptors, which modules may have kept, on another file
                with TemporaryFile() as file:
                    os.dup2(file.fileno(), stream.tmpfile.fileno())
                os.dup2(stream.tmpfile.fileno(), stream.targetfd)
        terminal: Any = self._config.pluginmanager.getplugin("terminalreporter")
        terminal._tw._file = open(os.devnull, "w")  # noqa: SIM115
        self._config.pluginmanager.register(self)

    def _run(self, item: pytest.Item, following: pytest.Item | None) -> None:
        self._pipe.send(item.nodeid)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def pytest_runtest_logreport(self, report: TestReport) -> None:
        """Send the report to the first process."""
        self._pipe.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))
