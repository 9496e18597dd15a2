"""List the files that an import may read: regular files below the given folder, in a stable order."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from quintain.errors import InvalidInput, NotFound

SKIPPED = frozenset({"node_modules", "__pycache__"})
"""Names of folders that are not entered, besides names that begin with a dot."""

_SPECIAL = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class FoundFile(NamedTuple):
    """A regular file, with its size and time at the moment of the walk."""

    path: Path
    size: int
    mtime_ns: int


@dataclass
class LogFolder:
    """Contents of a folder, or a single file."""

    root: Path
    files: list[FoundFile] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Path below the root, and the reason why it is not read."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Name of a folder that was not entered -> count."""


def log_folder(path: Path) -> LogFolder:
    """Walk a folder, its own files before those of its subfolders; a single file yields a folder with one file.

    Nothing is opened, and no link is followed but the path itself.

    Raises:
        NotFound: there is nothing at the path.
        InvalidInput: it is neither a file nor a folder, or cannot be looked at.
    """
    try:
        real = path.resolve(strict=True)
        found = real.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"expected a file or folder of logs, got nothing at {str(path)!r}; correct the path") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidInput(f"cannot read {str(path)!r} ({error}); give a file or folder of logs") from None
    if stat.S_ISREG(found.st_mode):
        return LogFolder(real.parent, [FoundFile(real, found.st_size, found.st_mtime_ns)])
    if not stat.S_ISDIR(found.st_mode):
        raise InvalidInput(f"expected a regular file or a folder of logs, got {_kind(found.st_mode)} at {str(path)!r}")
    folder, waiting = LogFolder(real), [real]
    while waiting:
        # The folder that was found last comes next, so that a folder's content stays together.
        waiting.extend(reversed(list(_listed(folder, waiting.pop()))))
    return folder


def _listed(folder: LogFolder, place: Path) -> Iterator[Path]:
    """Record the files of one folder and yield its subfolders."""
    try:
        with os.scandir(place) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError as error:
        folder.refused.append((_name(place, folder), f"a folder that cannot be listed ({error.strerror})"))
        return
    for name in names:
        path = place / name
        try:
            found = path.lstat()
        except OSError as error:
            folder.refused.append((_name(path, folder), f"cannot be read ({error.strerror})"))
            continue
        if stat.S_ISDIR(found.st_mode):
            if name.startswith(".") or name in SKIPPED:
                folder.skipped[name] += 1
            else:
                yield path
        elif stat.S_ISREG(found.st_mode):
            folder.files.append(FoundFile(path, found.st_size, found.st_mtime_ns))
        else:
            reason = _link(path, folder.root) if stat.S_ISLNK(found.st_mode) else f"{_kind(found.st_mode)}, not a file"
            folder.refused.append((_name(path, folder), reason))


def _link(path: Path, root: Path) -> str:
    try:
        inside = path.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):
        return "a broken link"
    return "a link; its target is read at its own path" if inside else "a link to a target outside the folder"


def _kind(mode: int) -> str:
    return next((kind for matches, kind in _SPECIAL if matches(mode)), "a special file")


def _name(path: Path, folder: LogFolder) -> str:
    return printable_name(path.relative_to(folder.root).as_posix())


def printable_name(text: str) -> str:
    """Replace control characters and undecodable bytes, which file names may contain."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)
