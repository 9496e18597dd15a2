"""Files of a workspace, read and written from outside it: a link that a command has put there is never followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

MAX_ENTRIES, MAX_PATH = 50_000, 1000
"""Files and folders that a walk lists, and characters of the path of one."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHER = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Entry(NamedTuple):
    """One entry below a folder."""

    path: str
    """Relative to it, with slashes."""
    kind: str
    """`file`, `folder`, `link`, or `other` (a pipe, a socket)."""
    size: int
    """Bytes of a file."""
    mode: int = 0o644
    """Permission bits."""


def walk(folder: Path, skip: frozenset[str] = frozenset(), below: str = "") -> Iterator[Entry]:
    """All entries below a folder by name, each folder before what is in it; what is closed to us is left out.

    Args:
        folder: The workspace.
        skip: Names of folders that are not looked into.
        below: Begin at this folder of it.

    Raises:
        OSError: more than `MAX_ENTRIES` entries, or a path of more than `MAX_PATH` characters.
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
                raise OSError(errno.EOVERFLOW, f"more than {MAX_ENTRIES:,} files and folders")
            about = entry.stat(follow_symlinks=False)
            path = f"{inner}/{entry.name}" if inner else entry.name
            if len(path) > MAX_PATH:
                raise OSError(errno.ENAMETOOLONG, f"folders in folders, a path of more than {MAX_PATH:,} characters")
            kind = _KINDS.get(stat.S_IFMT(about.st_mode), "other")
            if kind == "folder" and entry.name in skip:
                continue
            yield Entry(path, kind, about.st_size if kind == "file" else 0, stat.S_IMODE(about.st_mode))
            if kind == "folder":
                folders.append(path)
        stack += reversed(folders)


_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


def read_bytes(folder: Path, path: str, most: int) -> bytes:
    """The first bytes of a regular file.

    Raises:
        OSError: there is none, a part of its path is a link, or it is no regular file.
    """
    with _parent(folder, path) as (parent, name):
        descriptor = os.open(name, os.O_RDONLY | _OTHER, dir_fd=parent)
        with os.fdopen(descriptor, "rb") as file:
            _require_file(descriptor, path)
            return file.read(most)


def read_link(folder: Path, path: str) -> str:
    """Where a link points.

    Raises:
        OSError: it is no link.
    """
    with _parent(folder, path) as (parent, name):
        return os.readlink(name, dir_fd=parent)


def write_bytes(folder: Path, path: str, data: bytes, owner: int | None, mode: int | None = None) -> None:
    """Write a file, with the folders that it needs; one that is there keeps its mode where none is given.

    Args:
        folder: The workspace.
        path: Below it.
        data: Its content.
        owner: Whose new files and folders are; None: ours.
        mode: Permission bits.

    Raises:
        OSError: a part of the path is a link or a file, or what is there is no regular file; the disk is full.
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
    """Make a link; only a command behind the walls will ever follow it.

    Raises:
        OSError: something is there already, or a part of the path is a link or a file.
    """
    with _parent(folder, path, make=True, owner=owner) as (parent, name):
        os.symlink(target, name, dir_fd=parent)
        if owner is not None:
            os.chown(name, owner, owner, dir_fd=parent, follow_symlinks=False)


def remove(folder: Path, path: str) -> None:
    """Remove a file or a link, if it is there, and the folders that it leaves empty.

    Raises:
        OSError: it is a folder.
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
    """Bytes that lie below a folder: of files what they take on disk, of each entry at least a kilobyte for its name.

    Folders so deep that files could hide in them count as more than there can be.
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
        except OSError:  # removed meanwhile, or closed to us: what cannot be seen cannot be counted
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
