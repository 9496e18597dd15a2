"""Limits of a command in a sandbox, and its result."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from quintain.errors import InvalidInput

_BOUNDS = {
    "wall_s": (0.1, 3600),
    "cpu_s": (1, 3600),
    "memory_mb": (16, 1_000_000),
    "processes": (1, 10_000),
    "file_mb": (0, 100_000),
    "disk_mb": (1, 100_000),
    "output_chars": (100, 10_000_000),
}


@dataclass(frozen=True)
class Limits:
    """Limits of one command, which is stopped when it reaches one.

    Raises:
        InvalidInput: a value out of its range.
    """

    wall_s: float = 10.0
    """Seconds from start to end; then all of its processes are killed."""
    cpu_s: int = 10
    """Seconds of processor time of one process."""
    memory_mb: int = 1024
    """Address space of one process; with docker the memory of all of them."""
    processes: int = 64
    """Processes and threads at once."""
    file_mb: int = 16
    """Size of one written file; 0: commands may only delete."""
    disk_mb: int = 128
    """Size of the workspace, looked at four times a second and at the end; a command that finds it full may only delete."""
    output_chars: int = 20_000
    """Of standard output and of standard error, the beginning and the end of each."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, (low, high) = getattr(self, field.name), _BOUNDS[field.name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InvalidInput(f"{field.name} is {value!r:.60}; it must be a number from {low} to {high}")
            if not low <= value <= high:
                raise InvalidInput(f"{field.name} is {value}; valid: {low}..{high}")


@dataclass(frozen=True)
class CommandResult:
    """The result of a command."""

    exit_code: int | None
    """None where it was killed from outside; 128 and more: ended by a signal; 127: no such program; 126: it cannot run."""
    stdout: str
    stderr: str
    stopped: str | None = None
    """The limit that it exceeded: `wall_s` or `disk_mb`; the other limits let the command fail by itself."""
    shortened: bool = False
    """Whether part of the output was omitted."""
    wall_s: float = 0.0

    @property
    def timed_out(self) -> bool:
        """Whether it exceeded `wall_s`."""
        return self.stopped == "wall_s"
