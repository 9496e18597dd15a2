"""The claim of a jobs folder to its home's id, where several homes share a database.

A copied folder has the id of its original, so that both would start and end the same jobs. The folder that acts replaces a
token in the home's row each beat, and keeps it beside its jobs. A copy has an older token, and acts only when the row's token
has not changed for a lease, as after a move. A copy that acts within a beat of being made is the one that goes on. Clocks of
machines are not compared. A home whose database is in its own folder is copied with it: it claims nothing, and its copy becomes
a home of its own when it is opened (`own_home`).
"""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from quintain.errors import Conflict, Unavailable
from quintain.jobs import processes
from quintain.jobs.directory import JobDirectory, write_atomically
from quintain.records.jobs.job import JobError
from quintain.store.homes import Claim
from quintain.store.store import Store

_FILE = "home_claim"
_DAY_S = 86_400.0


def folder_fault(jobs_dir: Path, home: str | None) -> str | None:
    """Return why this home's jobs cannot be looked after in a folder; None if they can, or the home is read-only to this user."""
    if home is None:
        return None
    if processes.read_home_id(jobs_dir) != home:
        return (
            f"expected the jobs folder of home {home} at {jobs_dir}, got another one or none; mount it, or call `quintain doctor`, "
            "which restores a lost home_id"
        )
    try:  # os.access sees no disk that an error has made read-only
        os.close(os.open(jobs_dir / "home_id", os.O_WRONLY))
    except OSError as error:
        return f"expected to write {jobs_dir}, got a refusal ({error.strerror}); repair its disk, or its permissions"
    return None


class HomeClaim:
    """The claim of one process's folder."""

    def __init__(
        self,
        store: Store,
        jobs_dir: Path,
        home: str | None,
        *,
        beat_s: float,
        lease_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the claim; nothing is stored yet.

        Args:
            store: The database.
            jobs_dir: The folder.
            home: Its home's id. None: the folder is read-only, and nothing acts in it.
            beat_s: Seconds between two renewals.
            lease_s: Seconds without a renewal after which another folder may claim the id.
            monotonic: Clock of this process.
        """
        self._homes, self._folder, self._beat_s, self._lease_s = store.homes, jobs_dir, beat_s, lease_s
        self._home = None if store.is_in(jobs_dir.parent) else home
        self._monotonic = monotonic
        machine = processes.this_machine().partition("/")[0]
        self._file, self._place = jobs_dir / f"{_FILE}.{machine}", f"{machine}:{jobs_dir}"
        self._renew_at = float("-inf")
        self._foreign: tuple[str, float] | None = None
        """Token of another folder, and the monotonic time of its first sight."""
        self.trouble: str | None = None
        """Why the last renewal failed."""

    def renew(self) -> bool:
        """Renew the claim if it is due. Return whether this folder may act. Requires the folder's leader lock."""
        if self._home is None or self._monotonic() < self._renew_at:
            return True
        claim = self._homes.claim(self._home)
        if claim is not None and self._is_foreign(claim):
            self.trouble = self._conflict(claim).message
            return False
        mine = Claim(uuid.uuid4().hex, self._place)
        try:  # before the row, so that a process that dies in between leaves both tokens
            write_atomically(self._file, " ".join([mine.token, *([claim.token] if claim else [])]).encode())
        except OSError:  # a full disk: the claim stays as it is
            return True
        if not self._homes.replace(self._home, claim and claim.token, mine):
            return False  # until the next pass: another process was first
        if self._renew_at == float("-inf"):
            self._remove_old()
        self.trouble, self._renew_at = None, self._monotonic() + self._beat_s
        return True

    def require(self) -> None:
        """Check that no other folder acts for this home.

        Raises:
            Conflict: One does (`home_in_use`).
        """
        claim = None if self._home is None else self._homes.claim(self._home)
        if claim is not None and self._is_foreign(claim):
            raise self._conflict(claim)

    def _is_foreign(self, claim: Claim) -> bool:
        """Whether another folder has made a claim, and may be alive. Read the claim before the tokens, which are older."""
        for file in self._folder.glob(f"{_FILE}.*"):
            with suppress(FileNotFoundError):
                if claim.token in file.read_text("ascii").split():
                    return False
        if self._foreign is None or self._foreign[0] != claim.token:
            self._foreign = claim.token, self._monotonic()
        return self._monotonic() - self._foreign[1] < self._lease_s

    def _remove_old(self) -> None:
        """Remove the files of machines, such as containers, that have not claimed the id for a day."""
        now = self._file.stat().st_mtime  # by the clock of the file system
        for file in self._folder.glob(f"{_FILE}.*"):
            with suppress(FileNotFoundError):
                if now - file.stat().st_mtime > _DAY_S:
                    file.unlink()

    def _conflict(self, claim: Claim) -> Conflict:
        return Conflict(
            f"expected one folder with the home id {self._home}, got {self._place} beside {claim.place}; if one is a copy, stop its "
            f"servers and call `quintain doctor --new-home-id` there; after a move, wait {self._lease_s:.0f} s",
            code="home_in_use",
        )


@contextmanager
def nothing_running(jobs_dir: Path) -> Iterator[None]:
    """Check that no job runs in a folder, and let none start meanwhile.

    Raises:
        Conflict: One runs, or a server that looks after the folder does not answer.
    """
    with processes.leader_lock(jobs_dir / "reconcile.lock", 10.0) as is_leader:
        if not is_leader:
            raise Conflict(f"expected a folder that no server is working on, got {jobs_dir}; stop its servers first")
        for path in jobs_dir.glob(f"*/{JobDirectory(jobs_dir).lock.name}"):
            if (lock := processes.try_lock(path)) is None:
                raise Conflict(f"expected a folder without running jobs, got {path.parent.name}; cancel it first")
            processes.unlock(lock)
        yield


def assign_new_id(jobs_dir: Path) -> str:
    """Replace the home id of a folder whose servers are stopped. Return the new id.

    Raises:
        Conflict: A job runs in the folder.
    """
    with nothing_running(jobs_dir):
        return _replace_id(jobs_dir)


def _replace_id(jobs_dir: Path) -> str:
    for path in (jobs_dir / "home_id", *jobs_dir.glob(f"{_FILE}.*")):
        path.unlink(missing_ok=True)
    found = processes.home_id(jobs_dir)
    assert found is not None
    return found


def own_home(store: Store, jobs_dir: Path, home: str | None, now: datetime) -> str | None:
    """Return the id of a home, a new one where it is a copy, with its database, of a home that is still there.

    The jobs that were under way when it was copied are interrupted: they go on in the original, whose files they name. All
    records name the files of the copy from then on. So do those of a home that was moved.

    Raises:
        Conflict: It is a copy in which a job runs already.
        Unavailable: The disk is full.
    """
    if home is None or not store.is_in(jobs_dir.parent) or not os.access(jobs_dir, os.W_OK):
        return home  # in a read-only folder nothing acts
    known, mine = store.homes.claim(home), Claim(uuid.uuid4().hex, str(jobs_dir))
    if known is not None and known.place != mine.place:
        before = Path(known.place)
        is_there = _still_there(before, jobs_dir, home)
        if is_there is None:
            return home
        if is_there:
            home = _separate(jobs_dir, before.parent, home, now)
            known = store.homes.claim(home)
        else:
            try:
                with nothing_running(jobs_dir), _writing(jobs_dir.parent, before.parent):
                    _follow(jobs_dir.parent, before.parent)
            except Conflict:  # a worker goes on in it; the next process to open it repeats this
                return home
    if known is None or known.place != mine.place:
        with suppress(Unavailable, OSError):  # a full disk, likewise
            store.homes.replace(home, known and known.token, mine)
    return home


def _still_there(before: Path, jobs_dir: Path, home: str) -> bool | None:
    """Whether a home is still at its path of before, as another folder; None for the same folder, and one of another user."""
    try:
        if processes.read_home_id(before) != home:
            return False
        return None if before.samefile(jobs_dir) else True
    except OSError:
        return None


@contextmanager
def _writing(home: Path, before: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise Unavailable(
            f"cannot write the path {home} into the records there, which name {before} ({error}); free disk space or correct the "
            "permissions"
        ) from error


def _follow(home: Path, before: Path) -> None:
    from quintain.store.database.restore import follow_move

    follow_move(home, sorted({str(before), str(before.resolve())}))


def _separate(jobs_dir: Path, original: Path, home: str, now: datetime) -> str:
    """Make a copy a home of its own, unless another process has. Return its id."""
    from quintain.store.database.restore import interrupt_jobs

    error = JobError(
        code="copied",
        message=f"the job was under way in {original} when this home was copied from it, and goes on there",
        hint="Leave it, or resume it to run it here as well.",
    )
    with nothing_running(jobs_dir), _writing(jobs_dir.parent, original):
        if (found := processes.read_home_id(jobs_dir)) not in {home, None}:
            return str(found)
        _follow(jobs_dir.parent, original)
        interrupt_jobs(jobs_dir.parent, now, error)
        return _replace_id(jobs_dir)
