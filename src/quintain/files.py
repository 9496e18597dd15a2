"""Files that survive a power failure, written through to the disk and whole before they have their name; and their hashes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def created(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Create a file and its folders, and write it through to the disk at the end.

    Raises:
        FileExistsError: There is a file of this name.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_file(path: Path, content: bytes, mode: int = 0o600, *, replace: bool = True) -> bool:
    """Write a file, which appears whole; return False if it exists and must not be replaced.

    It leaves other files alone. For the files of a job, `jobs.directory.write_atomically` also removes what killed writers left.
    """
    aside = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        with created(aside, mode) as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask is
            file.write(content)
        try:
            # A link never replaces the file of another process that writes it at the same time.
            (os.replace if replace else os.link)(aside, path)
        except FileExistsError:
            return False
        return True
    finally:
        with suppress(OSError):
            aside.unlink()


@contextmanager
def unfinished(parent: Path, name: str) -> Iterator[Path]:
    """Create a hidden folder for what is not finished, and remove it at the end. Those of killed processes, of any time, go first.

    A lock tells which are alive. On a file system without locks, none is removed.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for lock in parent.glob(f".{name}-*/lock"):
        with suppress(OSError), lock.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent)
    folder = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
    try:
        with (folder / "lock").open("xb") as file:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sync(path: Path) -> None:
    """Bring a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
