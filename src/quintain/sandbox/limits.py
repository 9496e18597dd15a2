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
    """Resource limits of one command.

    Raises:
        InvalidInput: A value is outside its range.
    """

    wall_s: float = 10.0
    """Wall-clock limit in seconds; then all processes are killed."""
    cpu_s: int = 10
    """Processor time of one process, in seconds."""
    memory_mb: int = 1024
    """Address space of one process in MiB; with docker the memory of all processes."""
    processes: int = 64
    """Number of simultaneous processes and threads."""
    file_mb: int = 16
    """Size of one written file in MiB; 0 allows deletion only."""
    disk_mb: int = 128
    """Size of the workspace in MB, checked four times a second and at the end; in a full workspace commands can only delete."""
    output_chars: int = 20_000
    """Characters kept of standard output and of standard error, half from the beginning and half from the end."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, (low, high) = getattr(self, field.name), _BOUNDS[field.name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InvalidInput(f"expected {field.name} from {low} to {high}, got {value!r:.60}; pass a number")
            if not low <= value <= high:
                raise InvalidInput(f"expected {field.name} from {low} to {high}, got {value}; change it")


@dataclass(frozen=True)
class CommandResult:
    """The result of a command."""

    exit_code: int | None
    """None if killed from outside; 128 + n: ended by signal n; 127: program not found; 126: program cannot be executed."""
    stdout: str
    stderr: str
    stopped: str | None = None
    """The exceeded limit: `wall_s` or `disk_mb`; at the other limits the command fails by itself."""
    shortened: bool = False
    wall_s: float = 0.0

    @property
    def timed_out(self) -> bool:
        """Whether the command exceeded `wall_s`."""
        return self.stopped == "wall_s"
