"""The exception hierarchy.

    QuintainError
    +-- InvalidInput        wrong argument, record or file; the caller can correct it
    |   +-- UnknownField    unknown field name (also a KeyError)
    +-- NotFound            unknown id, name or file (also a LookupError)
    +-- Conflict            the record exists, or its state forbids the request
    +-- Refused             forbidden by a security rule or an operator setting (also a PermissionError)
    +-- Unavailable         disk full, database busy or newer than this program: retry or repair
    +-- TrainingFailed      a run cannot continue: divergence, empty mask, model does not fit the data
    +-- JobFailed           a job that a Python program waited for did not succeed
    +-- WaitTimeout         a job did not end within the time of a wait; it goes on (also a TimeoutError)

Each error has a short stable `code`. Its message has the form `expected WHAT, got WHAT; REMEDY`. The server turns
errors into tool errors (server/calls/failures.py), the facade into `{"status": "error"}`, the worker into the job's `error`.
All of them pickle.
"""

from __future__ import annotations

import errno

__all__ = [
    "Conflict",
    "InvalidInput",
    "JobFailed",
    "NotFound",
    "QuintainError",
    "Refused",
    "TrainingFailed",
    "Unavailable",
    "UnknownField",
    "WaitTimeout",
]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_LOCKLESS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
REFUSED_BY_DISK = _FULL | _FORBIDDEN | _LOCKLESS
"""Numbers of errors by which a disk without room, permission or locks refuses a file."""


class QuintainError(Exception):
    """An anticipated failure. Caught only at the boundaries: tools, CLI and worker."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code

    @property
    def remedy(self) -> str:
        """Remedy: the message after its first semicolon; empty if it names nothing."""
        return str(self.message).partition("; ")[2]

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.code))

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"


def _rebuild(kind: type[QuintainError], message: str, code: str) -> QuintainError:
    return kind(message, code=code)


class InvalidInput(QuintainError, ValueError):
    """Wrong argument, record or file. The message names the value, the bound and the remedy."""

    code = "invalid_input"


class UnknownField(InvalidInput, KeyError):
    """Unknown field or argument. The message lists the valid ones."""

    code = "unknown_field"

    __str__ = QuintainError.__str__


class NotFound(QuintainError, LookupError):
    """Unknown id, name or file. The message lists similar or recent ones."""

    code = "not_found"


class Conflict(QuintainError):
    """The record exists, or its state forbids the request."""

    code = "conflict"


class Refused(QuintainError, PermissionError):
    """Forbidden by a security rule or an operator setting, which the message names."""

    code = "refused"

    __str__ = QuintainError.__str__


class Unavailable(QuintainError):
    """Temporarily impossible: disk full, database busy, or database of a newer version."""

    code = "unavailable"


def disk_remedy(error: OSError) -> str:
    """Return the remedy for an error while writing a file."""
    if error.errno in _FULL:
        return "free disk space"
    if error.errno in _FORBIDDEN:
        return "give this user write permission, or set QUINTAIN_HOME to a writable folder"
    if error.errno in _LOCKLESS:
        return "set QUINTAIN_HOME to a folder on a file system with locks, such as a local disk, or mount it with them (Lustre: flock)"
    return "check the disk"


def is_refused_by_disk(error: Exception) -> bool:
    """Whether a file was refused by a disk without room, permission or locks; a refused connection has no file."""
    if not isinstance(error, OSError):
        return False
    return error.errno in _FULL | {errno.ENOLCK} or (error.errno in _FORBIDDEN and error.filename is not None)


def is_without_room(error: Exception) -> bool:
    """Whether a full disk or quota refused a write, which succeeds once there is room."""
    return isinstance(error, OSError) and error.errno in _FULL


def explained(error: Exception) -> Exception:
    """Return the error of a disk that refuses a file as one with its remedy, any other as it is."""
    if not isinstance(error, OSError) or not is_refused_by_disk(error):
        return error
    refused = f"the disk refuses {error.filename or 'a file'} ({error.strerror})"
    return Unavailable(f"{refused}; {disk_remedy(error)}", code="disk_refused")


class TrainingFailed(QuintainError):
    """A run cannot continue. The message names the step and, if any, the last good checkpoint."""

    code = "training_failed"


class JobFailed(QuintainError):
    """A job ended without success. The code is that of the job's error, else its status."""

    code = "job_failed"


class WaitTimeout(QuintainError, TimeoutError):
    """A job did not end in time. It goes on."""

    code = "timeout"

    __str__ = QuintainError.__str__
