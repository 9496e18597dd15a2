"""Metrics to wandb, TensorBoard and Trackio on separate threads: a run never waits for them and never fails with them.

The libraries are extras, imported only if they are named.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from threading import Condition, Thread
from typing import Any, NamedTuple

Warn = Callable[[str, str], None]
"""Takes a code and a message, as `Reporter.warn`; called on the thread that calls `log` and `close`."""

Metrics = dict[str, float]

_PROJECT = "quintain"
_WAITING = 1000
"""Maximum number of points that wait for a sink; beyond it the oldest are dropped."""
_CLOSE_S = 10.0


class ReportedRun(NamedTuple):
    """Name of a run in the services that it is reported to."""

    agent: str
    project: str | None = None
    """None: the operator's choice, else `quintain`."""
    name: str | None = None
    """None: the agent's name."""


class Writer(NamedTuple):
    """An open sink; both functions may block and raise."""

    log: Callable[[int, Metrics], None]
    close: Callable[[], None]


class Library(NamedTuple):
    """The library behind a sink's name."""

    module: str
    """Module to import; the package's extra has the sink's name."""
    open: Callable[[Any, ReportedRun, Path], Writer]
    """Takes the module, the run's names and its folder; may block and raise."""


def _wandb(module: Any, named: ReportedRun, folder: Path) -> Writer:
    # wandb has read its environment and settings files by now; the operator's choices there are kept
    stated = module.setup().settings
    folder.mkdir(parents=True, exist_ok=True)
    run = module.init(
        project=named.project or stated.project or _PROJECT,
        name=named.name or named.agent,
        dir=str(folder),
        mode=None if "mode" in stated.model_fields_set else "offline",
        settings=module.Settings(silent=True, console="off"),
    )
    return Writer(lambda step, metrics: run.log(metrics, step=step), run.finish)


def _tensorboard(module: Any, named: ReportedRun, folder: Path) -> Writer:
    writer = module.SummaryWriter(str(folder / "tensorboard" / named.agent))

    def log(step: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)

    return Writer(log, writer.close)


def _trackio(module: Any, named: ReportedRun, folder: Path) -> Writer:
    """Open Trackio, whose database is in the operator's TRACKIO_DIR."""

    def finish() -> None:
        with redirect_stdout(sys.stderr):
            run.finish()

    with redirect_stdout(sys.stderr):
        run = module.init(
            project=named.project or _PROJECT,
            name=named.name or named.agent,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
    return Writer(lambda step, metrics: run.log(metrics, step=step), finish)


LIBRARIES: dict[str, Library] = {
    "wandb": Library("wandb", _wandb),
    "tensorboard": Library("torch.utils.tensorboard", _tensorboard),
    "trackio": Library("trackio", _trackio),
}
"""Sink name -> library."""


class _Channel:
    """One sink with its queue of points and its thread."""

    def __init__(self, name: str, open: Callable[[], Writer]) -> None:
        self.name = name
        self.fault: str | None = None
        """The first error, until it is reported."""
        self.sent = 0
        self.written = 0
        self._open = open
        self._waiting: deque[tuple[int, Metrics]] = deque(maxlen=_WAITING)
        self._changed = Condition()
        self._closing = False
        self._failed = False
        self._thread = Thread(target=self._run, name=f"sink-{name}", daemon=True)
        self._thread.start()

    def put(self, step: int, metrics: Metrics) -> None:
        """Queue a point; a full queue drops the oldest one."""
        with self._changed:
            self.sent += 1
            self._waiting.append((step, metrics))
            self._changed.notify()

    def finish(self) -> None:
        """Write the queue and close."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def ended(self, timeout_s: float) -> bool:
        """Wait for the thread for some seconds; return whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        # `except Exception`: a foreign library may raise anything, and a run must not end with it.
        try:
            writer = self._open()
        except Exception as error:
            self._note("cannot be opened", error)
            return
        while (point := self._next()) is not None:
            try:
                writer.log(*point)
                self.written += 1
            except Exception as error:
                self._note("refused a point", error)
        try:
            writer.close()
        except Exception as error:
            self._note("could not be closed", error)

    def _next(self) -> tuple[int, Metrics] | None:
        """Return the oldest point of the queue; None when it is time to close."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return self._waiting.popleft() if self._waiting else None

    def _note(self, what: str, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            self.fault = f"{what}: {type(error).__name__}: {error}"


class Sinks:
    """Sinks of a run's metrics besides the job; create them by `open_sinks`."""

    def __init__(self, channels: Sequence[_Channel], warn: Warn) -> None:
        self._channels = list(channels)
        self._warn = warn

    def log(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Queue a step's metrics, without None values; return at once."""
        known = {name: value for name, value in metrics.items() if value is not None}
        for channel in self._channels:
            channel.put(step, known)
        self._report_faults()

    def close(self, deadline_s: float = _CLOSE_S) -> None:
        """Write the queues within the deadline, and warn about lost points."""
        deadline = time.monotonic() + deadline_s
        for channel in self._channels:
            channel.finish()
        ended = [channel.ended(max(deadline - time.monotonic(), 0)) for channel in self._channels]
        self._report_faults()
        for channel, in_time in zip(self._channels, ended, strict=True):
            if lost := channel.sent - channel.written:
                self._warn("sink_incomplete", f"{lost} of {channel.sent} points did not reach {channel.name}")
            elif not in_time:
                self._warn("sink_incomplete", f"{channel.name} did not close in time; its last points may be missing")
        self._channels = []

    def _report_faults(self) -> None:
        for channel in self._channels:
            if channel.fault:
                fault, channel.fault = channel.fault, None
                self._warn("sink_failed", f"{channel.name} {fault}; the run continues, and the job keeps its metrics")


def open_sinks(names: Sequence[str], *, named: ReportedRun, folder: Path, warn: Warn) -> Sinks:
    """Open sinks by name; skip an unavailable one with a warning."""
    channels = []
    for name in dict.fromkeys(names):
        library = LIBRARIES[name]
        try:
            module = importlib.import_module(library.module)
        except (Exception, SystemExit) as error:  # a foreign package may raise anything
            missing = isinstance(error, ModuleNotFoundError)
            why = "is not installed" if missing else f"cannot be imported ({type(error).__name__}: {error})"
            warn(
                "sink_missing",
                f"{name} {why}, so no metrics go there; install it with: pip install 'quintain[{name}]'",
            )
            continue
        channels.append(_Channel(name, partial(library.open, module, named, folder)))
    return Sinks(channels, warn)
