"""Backups of a home folder: the database, copied while it is in use, and the folders of datasets, agents and jobs.

A backup is a folder or a tar archive. Its last file is `manifest.json` with the size and hash of every other file, so a backup
without it is incomplete. The database is copied first: a file that a row names exists before the row does, and files of jobs
only grow, so the copies of files made later contain all that the rows refer to.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import IO, Literal, Protocol

from pydantic import Field

from quintain.errors import Conflict, InvalidInput, Unavailable, disk_remedy
from quintain.files import created, unfinished
from quintain.records.record import Instant, Record
from quintain.store.database.engine import BUSY_TIMEOUT_S

DATABASE = "quintain.db"
MANIFEST = "manifest.json"
FORMAT = 1
FOLDERS = ("datasets", "agents", "jobs")
"""Folders of a home that a backup contains. Caches, inbox, exports and the HTTP token are left out."""
FILES = ("environments.toml", "endpoints.toml")
ARCHIVES = (".tar", ".tar.gz", ".tgz")
_OF_PROCESSES = frozenset({"lock", "reconcile.lock", "cancel"})
"""Files in folders of jobs that mean something to running processes alone."""
CHUNK = 1 << 20
"""Bytes that are copied at once."""


class BackupFile(Record):
    """A file of a backup."""

    bytes: int = Field(ge=0)
    sha256: str


class BackupManifest(Record):
    """`manifest.json`: what a backup contains, and which program wrote it."""

    format: int = FORMAT
    quintain: str = Field(description="Version of the program.")
    schema_revision: str = Field(description="Revision of the database's schema.")
    homes: tuple[str, ...] = Field(
        min_length=1, description="Absolute paths of the home folder, which stored records contain."
    )
    created_at: Instant
    files: dict[str, BackupFile] = Field(description="Relative path -> size and hash.")
    left_out: tuple[str, ...] = Field(default=(), description="Links and special files, which are not copied.")

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files.values())


def back_up(home: Path, target: Path, *, version: str, now: datetime) -> BackupManifest:
    """Write a backup of a home folder with a SQLite database, while jobs and servers may use it.

    The target is a folder or, by its ending, an archive (`.tar`, `.tar.gz`), and appears whole.

    Raises:
        Conflict: The target exists.
        InvalidInput: The target is inside of what is backed up.
        Unavailable: The disk is full, or the database is damaged.
    """
    target = target.absolute()
    if target.exists():
        raise Conflict(f"expected a new folder or archive, got {target}, which exists; name another one")
    inside = [name for name in FOLDERS if target.resolve().is_relative_to((home / name).resolve())]
    if inside:
        raise InvalidInput(f"expected a place outside of {home / inside[0]}, got {target}; name another one")
    try:
        with unfinished(target.parent, "quintain-backup") as own:
            manifest = _write(home, own / f"new-{target.name}", own / "copy", version=version, now=now)
            (own / f"new-{target.name}").rename(target)
    except OSError as error:
        raise Unavailable(f"cannot write the backup {target} ({error.strerror}); {disk_remedy(error)}") from error
    return manifest


def _write(home: Path, target: Path, copy: Path, *, version: str, now: datetime) -> BackupManifest:
    """Write a backup; `copy` is a place for a copy of the database."""
    with _writing(target) as write:
        revision = copy_database(home / DATABASE, copy)
        found = list(_walk(home))
        files = {DATABASE: _add(write, DATABASE, copy)}
        files |= {name: _add(write, name, path) for name, path in found if path is not None}
        manifest = BackupManifest(
            quintain=version,
            schema_revision=revision,
            homes=tuple(dict.fromkeys((str(home.resolve()), str(home.absolute())))),
            created_at=now,
            files={name: file for name, file in files.items() if file is not None},
            left_out=tuple(name for name, path in found if path is None),
        )
        content = manifest.model_dump_json(indent=1).encode() + b"\n"
        write(MANIFEST, len(content), 0, io.BytesIO(content))
    return manifest


def home_bytes(home: Path) -> int:
    """Return the size of what a backup of a home copies."""
    size = 0
    for path in (home / DATABASE, *(path for _, path in _walk(home) if path is not None)):
        with suppress(FileNotFoundError):  # jobs go on
            size += path.stat().st_size
    return size


_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE})
"""Codes of SQLite for a disk that takes no more."""


def copy_database(source: Path, copy: Path) -> str:
    """Copy a SQLite database in one read transaction, check the copy, and return its schema's revision.

    Raises:
        Unavailable: It cannot be read, or is damaged.
    """
    try:
        origin = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)
        with closing(origin) as database, closing(sqlite3.connect(copy)) as target:
            database.backup(target)
            (state,) = target.execute("PRAGMA quick_check(1)").fetchone()
            (revision,) = target.execute("SELECT version_num FROM alembic_version").fetchone()
    except (sqlite3.Error, TypeError) as error:
        remedy = "free disk space" if getattr(error, "sqlite_errorcode", None) in _FULL else "run quintain doctor"
        raise Unavailable(f"cannot copy the database {source}: {error}; {remedy}") from error
    if state != "ok":
        raise Unavailable(f"expected a sound database, got a damaged one: {state}; restore an earlier backup")
    return str(revision)


def _walk(home: Path) -> Iterator[tuple[str, Path | None]]:
    """Yield name and path of every file to copy; a link or special file has no path."""
    for name in FILES:
        if (home / name).is_file():
            yield name, home / name
    for folder in FOLDERS:
        for place, folders, files in os.walk(home / folder):
            folders[:] = sorted(one for one in folders if not one.startswith("."))  # hidden ones are unfinished writes
            for name in sorted([*files, *(one for one in folders if (Path(place) / one).is_symlink())]):
                path = Path(place) / name
                relative = path.relative_to(home).as_posix()
                mode = _mode(path)
                if mode is None or name.startswith(".") or (folder == "jobs" and name in _OF_PROCESSES):
                    continue
                yield relative, path if S_ISREG(mode) else None


def _mode(path: Path) -> int | None:
    """Return the mode of a file that still exists; links are not followed."""
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return None


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


_Write = Callable[[str, int, float, _Readable], None]
"""Writes one file of a backup: its name, size, time and content."""


@contextmanager
def _writing(target: Path) -> Iterator[_Write]:
    """Yield how to write the files of a folder or, by the target's ending, of an archive."""
    if not target.name.endswith(ARCHIVES):
        target.mkdir(mode=0o700)
        yield partial(_write_file, target)
        return
    mode: Literal["w", "w:gz"] = "w" if target.name.endswith(".tar") else "w:gz"
    with created(target, 0o600) as file, tarfile.open(fileobj=file, mode=mode) as archive:
        yield partial(_write_member, archive)


def _write_file(folder: Path, name: str, _size: int, _time: float, content: _Readable) -> None:
    with created(folder / name) as out:
        shutil.copyfileobj(content, out, CHUNK)


def _write_member(archive: tarfile.TarFile, name: str, size: int, time: float, content: _Readable) -> None:
    about = tarfile.TarInfo(name)
    about.size, about.mtime, about.mode = size, int(time), 0o600
    archive.addfile(about, content)


def _add(write: _Write, name: str, path: Path) -> BackupFile | None:
    """Copy a file as it is now; None if it was removed in the meantime."""
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            source = HashingReader(file, about.st_size)
            write(name, about.st_size, about.st_mtime, source)
            return source.finish(name)
    except FileNotFoundError:
        return None


class HashingReader:
    """Reads the first `size` bytes of a file, which may grow meanwhile, and hashes them."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left, self._size = file, size, size
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes."""
        chunk = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(chunk)
        self._hash.update(chunk)
        return chunk

    def finish(self, name: str) -> BackupFile:
        """Return the size and hash of what was read.

        Raises:
            Unavailable: The file became shorter meanwhile.
        """
        if self._left:
            raise Unavailable(f"expected {self._size:,} bytes of {name}, got {self._left:,} fewer; call again")
        return BackupFile(bytes=self._size, sha256=self._hash.hexdigest())
