"""Metrics to wandb, TensorBoard and Trackio, on threads of their own: a run never waits for one and never fails by one.

The libraries are extras, imported where they are named and nowhere else.
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
"""Takes a code and a sentence, as `Reporter.warn` does; it is called on the thread that calls `log` and `close`."""

Metrics = dict[str, float]

_PROJECT = "quintain"
_WAITING = 1000
"""Points that may wait for a sink; beyond that the oldest go."""
_CLOSE_S = 10.0
_IMPORT_S = 60.0


class Writer(NamedTuple):
    """An open sink; both functions may block and raise."""

    log: Callable[[int, Metrics], None]
    close: Callable[[], None]


class Library(NamedTuple):
    """What a sink's name stands for."""

    module: str
    """Imported when the sink is named; the package's own extra is called as the sink."""
    open: Callable[[Any, str, Path], Writer]
    """Takes the module, the run's name and its folder; may block and raise."""


def _wandb(module: Any, run_name: str, folder: Path) -> Writer:
    # wandb has read its environment and settings files by now: what the operator chose there stands
    chosen = "mode" in module.setup().settings.model_fields_set
    folder.mkdir(parents=True, exist_ok=True)
    run = module.init(
        project=_PROJECT,
        name=run_name,
        dir=str(folder),
        mode=None if chosen else "offline",
        settings=module.Settings(silent=True, console="off"),
    )
    return Writer(lambda step, metrics: run.log(metrics, step=step), run.finish)


def _tensorboard(module: Any, run_name: str, folder: Path) -> Writer:
    writer = module.SummaryWriter(str(folder / "tensorboard" / run_name))

    def log(step: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)

    return Writer(log, writer.close)


def _trackio(module: Any, run_name: str, folder: Path) -> Writer:
    """Trackio keeps its own database; where that lies is for the operator to say (TRACKIO_DIR)."""

    def finish() -> None:
        with redirect_stdout(sys.stderr):
            run.finish()

    with redirect_stdout(sys.stderr):
        run = module.init(
            project=_PROJECT, name=run_name, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
    return Writer(lambda step, metrics: run.log(metrics, step=step), finish)


LIBRARIES: dict[str, Library] = {
    "wandb": Library("wandb", _wandb),
    "tensorboard": Library("torch.utils.tensorboard", _tensorboard),
    "trackio": Library("trackio", _trackio),
}
"""Name -> what it stands for."""


class _Channel:
    """One sink, the points that wait for it and the thread that hands them over."""

    def __init__(self, name: str, open: Callable[[], Writer]) -> None:
        self.name = name
        self.fault: str | None = None
        """The first thing that went wrong, until it is told."""
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
        """Let a point wait; the oldest one goes where too many do."""
        with self._changed:
            self.sent += 1
            self._waiting.append((step, metrics))
            self._changed.notify()

    def finish(self) -> None:
        """No more points: write what waits and close."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def ended(self, timeout_s: float) -> bool:
        """Is it closed, or was it within so many seconds?"""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        # `except Exception`: this is the border to a foreign library, which may raise anything, and no run may end by it.
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
        """The point that waits longest; None when it is time to close."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return self._waiting.popleft() if self._waiting else None

    def _note(self, what: str, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            self.fault = f"{what}: {type(error).__name__}: {error}"


class Sinks:
    """Where a run's metrics go besides the job; `open_sinks` makes it."""

    def __init__(self, channels: Sequence[_Channel], warn: Warn) -> None:
        self._channels = list(channels)
        self._warn = warn

    def log(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Hand a step's metrics over, names unchanged; what is None is left out. Returns at once."""
        known = {name: value for name, value in metrics.items() if value is not None}
        for channel in self._channels:
            channel.put(step, known)
        self._tell_faults()

    def close(self, deadline_s: float = _CLOSE_S) -> None:
        """Write what waits, for at most so many seconds in all, and say what did not get through."""
        deadline = time.monotonic() + deadline_s
        for channel in self._channels:
            channel.finish()
        ended = [channel.ended(max(deadline - time.monotonic(), 0)) for channel in self._channels]
        self._tell_faults()
        for channel, in_time in zip(self._channels, ended, strict=True):
            if lost := channel.sent - channel.written:
                self._warn("sink_incomplete", f"{lost} of {channel.sent} points did not reach {channel.name}")
            elif not in_time:
                self._warn("sink_incomplete", f"{channel.name} did not close in time; its last points may be missing")
        self._channels = []

    def _tell_faults(self) -> None:
        for channel in self._channels:
            if channel.fault:
                fault, channel.fault = channel.fault, None
                self._warn("sink_failed", f"{channel.name} {fault}; the run goes on, its metrics stand in the job too")


def open_sinks(names: Sequence[str], *, run_name: str, folder: Path, warn: Warn) -> Sinks:
    """Open sinks by name; one that cannot be had is left out with a warning.

    Args:
        names: Of `LIBRARIES`; a name that stands twice counts once.
        run_name: How the run is called there.
        folder: Where wandb and TensorBoard write.
        warn: Hears of what is missing, fails or gets lost; called on the caller's own thread.
    """
    channels = []
    for name in dict.fromkeys(names):
        library = LIBRARIES[name]
        module = _imported(library.module)
        if isinstance(module, BaseException):
            missing = isinstance(module, ModuleNotFoundError)
            why = "is not installed" if missing else f"cannot be imported ({type(module).__name__}: {module})"
            warn(
                "sink_missing",
                f"{name} {why}, so no metrics go there; install it with: pip install 'quintain[{name}]'",
            )
            continue
        channels.append(_Channel(name, partial(library.open, module, run_name, folder)))
    return Sinks(channels, warn)


def _imported(name: str) -> Any:
    """The module of that name, or why there is none: a foreign package may raise anything, or hang, when it is imported.

    It is waited for: two threads that import at a time can meet half-made modules.
    """
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(importlib.import_module(name))
        except BaseException as error:
            found.append(error)

    thread = Thread(target=work, name=f"import-{name}", daemon=True)
    thread.start()
    thread.join(_IMPORT_S)
    return found[0] if found else TimeoutError(f"it took more than {_IMPORT_S:.0f} s")
