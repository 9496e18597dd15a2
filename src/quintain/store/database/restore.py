"""Restoring a backup into a home folder: everything is verified before anything in the home changes."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from pydantic import ValidationError

from quintain.errors import Conflict, InvalidInput, NotFound, Unavailable, disk_remedy
from quintain.files import created, unfinished
from quintain.records.jobs.job import JobError, JobStatus
from quintain.store.database.backup import (
    ARCHIVES,
    CHUNK,
    DATABASE,
    FILES,
    FOLDERS,
    FORMAT,
    MANIFEST,
    BackupFile,
    BackupManifest,
    HashingReader,
)
from quintain.store.database.tables import Moment
from quintain.store.migrations import REVISIONS

_MAX_MANIFEST = 256 << 20
_RELOCATED = {"datasets": ("document",), "agents": ("document",), "jobs": ("spec", "result")}
"""Table -> its columns with JSON in which paths of the home occur."""
_RELOCATED_FILES = {"jobs": "spec.json", "datasets": "manifest.json"}
_RESTORED = JobError(
    code="restored",
    message="the job was under way when the backup was made",
    hint="Resume it, or start it again.",
)


class RestoreResult(NamedTuple):
    """Result of a restoration."""

    manifest: BackupManifest
    interrupted: int
    """Jobs that were queued or running when the backup was made; `resume` continues them."""
    replaced: Path | None
    """Folder with what the home contained before."""


def read_manifest(source: Path) -> BackupManifest:
    """Return the manifest of a backup.

    Raises:
        NotFound: There is no file or folder.
        InvalidInput: It is not a complete backup.
        Unavailable: A newer version of the program wrote it.
    """
    with _opened(source) as backup:
        return backup.manifest


def verify(source: Path) -> BackupManifest:
    """Read a whole backup and compare every file with the manifest.

    Raises:
        As `read_manifest`; InvalidInput also for a file that is missing or differs.
    """
    with _opened(source) as backup:
        backup.read(None)
        return backup.manifest


def restore(source: Path, home: Path, *, replace: bool, now: datetime) -> RestoreResult:
    """Restore a backup. The database appears last, so a home without one was not restored.

    With `replace` the contents of a home that is not empty move into a folder beside them.

    Raises:
        Conflict: The home is not empty, and `replace` is false.
        InvalidInput: A file of the backup is missing or differs; nothing was changed.
        Unavailable: A newer version of the program wrote the backup, or the disk is full.
    """
    with _opened(source) as backup:
        occupied = [name for name in (DATABASE, *FOLDERS, *FILES) if _has_content(home / name)]
        if occupied and not replace:
            raise Conflict(
                f"expected an empty home, got {home} with {', '.join(occupied)}; name another one, or confirm that it is replaced",
                code="home_not_empty",
            )
        try:
            with unfinished(home, "restore") as aside:
                backup.read(aside)
                new = str(home.resolve())
                for old in backup.manifest.homes:
                    _relocate_files(aside, old, new)
                    _relocate_rows(aside / DATABASE, old, new)
                interrupted = interrupt_jobs(aside, now, _RESTORED)
                replaced = home / f"before-restore-{now:%Y%m%d-%H%M%S}" if occupied else None
                _move_in(aside, home, replaced)
        except OSError as error:
            raise Unavailable(f"cannot restore into {home} ({error.strerror}); {disk_remedy(error)}") from error
        return RestoreResult(backup.manifest, interrupted, replaced)


def _has_content(path: Path) -> bool:
    if not path.is_dir():
        return path.exists()
    return any(one.name not in {"home_id", "reconcile.lock"} for one in path.iterdir())


def _move_in(aside: Path, home: Path, replaced: Path | None) -> None:
    """Move the old contents away and the new ones in, the database first out and last in."""
    names = (DATABASE, f"{DATABASE}-journal", f"{DATABASE}-wal", f"{DATABASE}-shm", *FILES, *FOLDERS)
    for name in names:
        path = home / name
        if not path.exists():
            continue
        if replaced is not None:
            replaced.mkdir(mode=0o700, exist_ok=True)
            path.rename(replaced / name)
        elif path.is_dir():
            shutil.rmtree(path)
    for name in reversed(names):
        if (aside / name).exists():
            (aside / name).rename(home / name)
    for name in FOLDERS:
        (home / name).mkdir(mode=0o700, exist_ok=True)


class _Backup(NamedTuple):
    manifest: BackupManifest
    opened: Callable[[str], IO[bytes] | None]
    """Opens a file by its name; None if it is missing or not a regular file."""
    source: Path

    def read(self, target: Path | None) -> None:
        """Verify every file, and copy it where a target is given."""
        for name, expected in self.manifest.files.items():
            if (file := self.opened(name)) is None:
                raise InvalidInput(
                    f"expected the file {name} in the backup {self.source}, got none; the backup is damaged: use another one",
                    code="backup_damaged",
                )
            with file, created(target / name) if target else open(os.devnull, "wb") as out:
                reader = HashingReader(file, _size(file))
                shutil.copyfileobj(reader, out, CHUNK)
                found = reader.finish(name)
            if found != expected:
                raise InvalidInput(
                    f"expected the file {name} of the backup with {_described(expected)}, got {_described(found)}; the backup is "
                    "damaged: use another one",
                    code="backup_damaged",
                )


def _described(file: BackupFile) -> str:
    return f"{file.bytes:,} bytes and hash {file.sha256[:12]}"


def _size(file: IO[bytes]) -> int:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


def _in_folder(folder: Path, name: str) -> IO[bytes] | None:
    path = folder / name
    return path.open("rb") if path.is_file() and not path.is_symlink() else None


def _in_archive(archive: tarfile.TarFile, name: str) -> IO[bytes] | None:
    try:
        return archive.extractfile(name)
    except KeyError:
        return None


@contextmanager
def _opened(source: Path) -> Iterator[_Backup]:
    """Open a backup whose manifest is complete and readable by this program."""
    with ExitStack() as stack:
        opened, kind = partial(_in_folder, source), "a folder"
        try:
            if not source.is_dir():
                archive = stack.enter_context(tarfile.open(source))
                opened, kind = partial(_in_archive, archive), "an archive"
            file = opened(MANIFEST)
            text = b"" if file is None else stack.enter_context(file).read(_MAX_MANIFEST)
        except FileNotFoundError:
            raise NotFound(
                f"expected a backup, got {source}, which does not exist; name its folder or archive"
            ) from None
        except (tarfile.TarError, EOFError):
            raise _incomplete(source, "another file") from None
        except OSError as error:
            raise _incomplete(source, error.strerror or "a file that cannot be read") from None
        if file is None:
            raise _incomplete(source, f"{kind} without {MANIFEST}")
        yield _Backup(_manifest(source, text), opened, source)


def _incomplete(source: Path, what: str) -> InvalidInput:
    endings = ", ".join(ARCHIVES)
    return InvalidInput(
        f"expected a complete backup (a folder, or {endings}), got {what}: {source}; use another one", code="no_backup"
    )


def _manifest(source: Path, text: bytes) -> BackupManifest:
    try:
        document = json.loads(text)
        version, revision = document["format"], document["schema_revision"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _incomplete(source, f"an unreadable {MANIFEST}") from None
    if not isinstance(version, int) or version > FORMAT or revision not in REVISIONS:
        raise Unavailable(
            f"expected a backup of format {FORMAT} and schema {REVISIONS[-1]} or older, got format {version} and schema "
            f"{revision}, written by quintain {document.get('quintain')}; upgrade this installation",
            code="backup_newer",
        )
    try:
        manifest = BackupManifest.model_validate(document)
    except ValidationError:
        raise _incomplete(source, f"an unreadable {MANIFEST}") from None
    for name in manifest.files:
        parts = PurePosixPath(name).parts
        if ".." in parts or parts[:1] not in {(one,) for one in (DATABASE, *FOLDERS, *FILES)}:
            raise _incomplete(source, f"a {MANIFEST} that names {name[:80]!r}")
    if DATABASE not in manifest.files:
        raise _incomplete(source, f"a {MANIFEST} without {DATABASE}")
    return manifest


_KEPT = """
SELECT json_extract(document, '$.path') FROM datasets WHERE json_valid(document)
UNION SELECT json_extract(document, '$.model.path') FROM agents WHERE json_valid(document)
UNION SELECT json_extract(document, '$.model.adapter') FROM agents WHERE json_valid(document)
"""
"""Paths of datasets and models."""


def former_homes(home: Path) -> list[str]:
    """Return the paths where the records of a moved home look for datasets and models that are not there, but in it."""
    if not (home / DATABASE).is_file():
        return []
    with closing(sqlite3.connect(home / DATABASE)) as connection:
        kept = [Path(path) for (path,) in connection.execute(_KEPT) if path]
    moved = [path for path in kept if not path.exists() and (home / path.parent.name / path.name).exists()]
    return sorted({str(path.parents[1]) for path in moved if path.parent.name in FOLDERS})


def follow_move(home: Path, former: Iterable[str]) -> None:
    """Write a home's path into the records that name former ones. No job may run in it."""
    for old in former:
        _relocate_files(home, old, str(home.resolve()))
        _relocate_rows(home / DATABASE, old, str(home.resolve()))


def _relocate_files(folder: Path, old: str, new: str) -> None:
    if old == new:
        return
    for kind, name in _RELOCATED_FILES.items():
        for path in (folder / kind).glob(f"*/{name}"):
            text = path.read_text(encoding="utf-8")
            if (moved := _relocated(text, old, new)) != text:
                path.write_text(moved, encoding="utf-8")


def _relocate_rows(database: Path, old: str, new: str) -> None:
    """Write the new home's path into records."""
    if old == new:
        return
    written = tuple(json.dumps(old, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))
    with _transaction(database) as connection:
        for table, columns in _RELOCATED.items():
            for column in columns:
                query = f"SELECT seq, {column} FROM {table} WHERE instr({column}, ?) OR instr({column}, ?)"
                rows = connection.execute(query, written).fetchall()
                changes = [(_relocated(text, old, new), seq) for seq, text in rows]
                connection.executemany(f"UPDATE {table} SET {column} = ? WHERE seq = ?", changes)


def interrupt_jobs(home: Path, now: datetime, error: JobError) -> int:
    """Interrupt the jobs that were under way when a home was copied, and let the copy resume all. Return their number."""
    time = Moment.text_of(now)
    with _transaction(home / DATABASE) as connection:
        connection.execute("UPDATE jobs SET home = NULL WHERE home IS NOT NULL")
        changed = connection.execute(
            "UPDATE jobs SET status = ?, error = ?, ended_at = ?, updated_at = ?, lease_until = NULL WHERE status IN (?, ?)",
            (JobStatus.INTERRUPTED, error.model_dump_json(), time, time, JobStatus.QUEUED, JobStatus.RUNNING),
        )
        return changed.rowcount


@contextmanager
def _transaction(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")


def _relocated(text: str, old: str, new: str) -> str:
    """Return a JSON document with the paths below one folder moved to another."""
    try:
        return json.dumps(_moved(json.loads(text), old, new), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return text


def _moved(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        # Of a home that was restored below the old one, whose paths have moved already.
        has_moved = _is_below(new, old) and _is_below(value, new)
        return new + value[len(old) :] if _is_below(value, old) and not has_moved else value
    if isinstance(value, list):
        return [_moved(one, old, new) for one in value]
    if isinstance(value, dict):
        return {name: _moved(one, old, new) for name, one in value.items()}
    return value


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)
