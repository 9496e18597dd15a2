"""Read and write the files of a workspace from outside, without following links that a command may have created."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

MAX_ENTRIES, MAX_PATH = 50_000, 1000
"""Maximum number of entries in a walk, and of characters in a path."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHER = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Entry(NamedTuple):
    """One entry below a folder."""

    path: str
    """Relative to the folder, with slashes."""
    kind: str
    """`file`, `folder`, `link`, or `other` (pipes, sockets)."""
    size: int
    """Bytes of a file; 0 for other kinds."""
    mode: int = 0o644


def walk(folder: Path, skip: frozenset[str] = frozenset(), below: str = "") -> Iterator[Entry]:
    """Yield all entries below a folder by name, each folder before its entries; unreadable folders are skipped.

    Args:
        folder: The workspace.
        skip: Names of folders to leave out, with their entries.
        below: Start at this subfolder.

    Raises:
        OSError: More than `MAX_ENTRIES` entries, or a path of more than `MAX_PATH` characters.
    """
    stack, count = [below] if not below or _is_folder(folder, below) else [], 0
    while stack:
        inner = stack.pop()
        try:
            with os.scandir(folder / inner) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue
        folders = []
        for entry in entries:
            count += 1
            if count > MAX_ENTRIES:
                raise OSError(
                    errno.EOVERFLOW, f"expected at most {MAX_ENTRIES:,} files and folders, got more; remove some"
                )
            about = entry.stat(follow_symlinks=False)
            path = f"{inner}/{entry.name}" if inner else entry.name
            if len(path) > MAX_PATH:
                raise OSError(
                    errno.ENAMETOOLONG,
                    f"expected paths of at most {MAX_PATH:,} characters, got more; nest less",
                )
            kind = _KINDS.get(stat.S_IFMT(about.st_mode), "other")
            if kind == "folder" and entry.name in skip:
                continue
            yield Entry(path, kind, about.st_size if kind == "file" else 0, stat.S_IMODE(about.st_mode))
            if kind == "folder":
                folders.append(path)
        stack += reversed(folders)


_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


def read_bytes(folder: Path, path: str, most: int) -> bytes:
    """Return the first `most` bytes of a regular file.

    Raises:
        OSError: The file is missing or not regular, or a part of its path is a link.
    """
    with _parent(folder, path) as (parent, name):
        descriptor = os.open(name, os.O_RDONLY | _OTHER, dir_fd=parent)
        with os.fdopen(descriptor, "rb") as file:
            _require_file(descriptor, path)
            return file.read(most)


def read_link(folder: Path, path: str) -> str:
    """Return the target of a link."""
    with _parent(folder, path) as (parent, name):
        return os.readlink(name, dir_fd=parent)


def write_bytes(folder: Path, path: str, data: bytes, owner: int | None, mode: int | None = None) -> None:
    """Write a file and create its folders; an existing file keeps its mode unless `mode` is given.

    Args:
        folder: The workspace.
        path: Relative to the workspace.
        data: The content.
        owner: User id of new files and folders; None for the user of this process.
        mode: Permission bits.

    Raises:
        OSError: A part of the path is a link or a file, the target is not a regular file, or the disk is full.
    """
    with _parent(folder, path, make=True, owner=owner) as (parent, name):
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | _OTHER, 0o644, dir_fd=parent)
        with os.fdopen(descriptor, "wb") as file:
            _require_file(descriptor, path)
            os.ftruncate(descriptor, 0)
            file.write(data)
            if owner is not None:
                os.fchown(descriptor, owner, owner)
            if mode is not None:
                os.fchmod(descriptor, mode & 0o777)


def write_link(folder: Path, path: str, target: str, owner: int | None) -> None:
    """Create a link; only commands inside the sandbox follow it."""
    with _parent(folder, path, make=True, owner=owner) as (parent, name):
        os.symlink(target, name, dir_fd=parent)
        if owner is not None:
            os.chown(name, owner, owner, dir_fd=parent, follow_symlinks=False)


def remove(folder: Path, path: str) -> None:
    """Remove a file or a link if it exists, and its folders if they become empty.

    Raises:
        OSError: The path is a folder.
    """
    try:
        with _parent(folder, path) as (parent, name):
            os.unlink(name, dir_fd=parent)
        for above in PurePosixPath(path).parents[:-1]:
            with _parent(folder, str(above)) as (parent, name):
                os.rmdir(name, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def size_of(folder: Path) -> int:
    """Return the disk usage below a folder in bytes, at least 1,024 for each entry.

    A path above `MAX_PATH` returns 2^62, so that deep folders cannot hide files from the limit.
    """
    total, stack = 0, [str(folder)]
    while stack:
        inner = stack.pop()
        if len(inner) > len(str(folder)) + MAX_PATH:
            return 1 << 62
        try:
            with os.scandir(inner) as entries:
                for entry in entries:
                    about = entry.stat(follow_symlinks=False)
                    total += max(about.st_blocks * 512 if stat.S_ISREG(about.st_mode) else 0, 1024)
                    if stat.S_ISDIR(about.st_mode):
                        stack.append(entry.path)
        except OSError:  # removed in the meantime, or unreadable
            continue
    return total


@contextmanager
def _parent(folder: Path, path: str, *, make: bool = False, owner: int | None = None) -> Iterator[tuple[int, str]]:
    *folders, name = PurePosixPath(path).parts
    descriptor = os.open(folder, _FOLDER)
    try:
        for part in folders:
            if make:
                try:
                    os.mkdir(part, 0o755, dir_fd=descriptor)
                    if owner is not None:
                        os.chown(part, owner, owner, dir_fd=descriptor, follow_symlinks=False)
                except FileExistsError:
                    pass
            inner = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, name
    finally:
        os.close(descriptor)


def _is_folder(folder: Path, path: str) -> bool:
    try:
        with _parent(folder, f"{path}/-"):
            return True
    except OSError:
        return False


def _require_file(descriptor: int, path: str) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
