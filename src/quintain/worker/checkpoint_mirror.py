"""Copies of a training's checkpoints at a URL: written in the background, and read where the job's folder has none.

Each copy is an artifact `step-NNNNNNNN` of the whole `checkpoints` folder with that one step, so a training continues from it as
from the local folder. The newest copies stay, as many as the training keeps.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from quintain.artifacts.faults import TransferStopped
from quintain.artifacts.transfers import delete, fetch, names_below, upload
from quintain.errors import Conflict, QuintainError
from quintain.jobs.directory import link_file
from quintain.records.job import TrainSpec
from quintain.records.protocols import Reporter

_STEP = "step-"
_BEST = "best"


@contextmanager
def mirrored_checkpoints(spec: TrainSpec, directory: Path, reporter: Reporter) -> Iterator[Reporter]:
    """Restore the newest copy if the job's folder has no checkpoint; yield a reporter that copies each new one.

    After an error or a stop, wait for the newest copy. After success drop it, because the agent has the weights.

    Args:
        spec: Training, with the URL of its copies or None.
        directory: The job's folder.
        reporter: Receives warnings about copies that fail, which never end the job.
    """
    if spec.mirror is None:
        yield reporter
        return
    mirror = _Mirror(spec.mirror, directory, spec.config.keep_checkpoints, reporter)
    mirror.restore()
    finish = True
    try:
        yield cast("Reporter", mirror)
        finish = reporter.should_stop()
    finally:
        mirror.close(finish=finish)


class _Mirror:
    """A reporter whose checkpoints are copied by one background thread; the newest replaces one that waits."""

    def __init__(self, url: str, directory: Path, keep: int, reporter: Reporter) -> None:
        self._url, self._directory, self._keep, self._reporter = url, directory, keep, reporter
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mirror")
        self._copies: list[tuple[Future[str | None], Path]] = []
        self._is_failing = False
        self._is_closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reporter, name)

    def checkpoint(self, step: int, path: Path) -> None:
        """Report a complete checkpoint and copy it in the background."""
        self._reporter.checkpoint(step, path)
        self._settle(wait=False)
        try:
            snapshot = self._snapshot(path)
        except OSError as error:
            self._warn(f"{path.name} could not be prepared ({error})")
            return
        self._copies.append((self._thread.submit(self._copy, snapshot, path.name), snapshot))

    def restore(self) -> None:
        """Download the newest complete copy into the `checkpoints` folder unless that has a checkpoint."""
        checkpoints = self._directory / "checkpoints"
        if any(checkpoints.glob(f"{_STEP}*")):
            return
        try:
            names = [name for name in names_below(self._url) if name.startswith(_STEP)]
        except QuintainError as error:
            self._warn(f"no copy was looked for: {error.message}")
            return
        for name in sorted(names, reverse=True):
            self._reporter.phase("restoring")
            try:
                copy = fetch(f"{self._url}/{name}", self._directory / ".restored")
            except QuintainError as error:
                self._reporter.warn("checkpoint_skipped", f"skipped a copy of {name}: {error.message}")
                continue
            checkpoints.mkdir(parents=True, exist_ok=True)
            # The step comes last: without it, the next attempt restores again.
            for entry in sorted(copy.iterdir(), key=lambda entry: entry.name.startswith(_STEP)):
                target = checkpoints / entry.name
                shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
                entry.rename(target)
            break
        shutil.rmtree(self._directory / ".restored", ignore_errors=True)

    def close(self, *, finish: bool) -> None:
        """End the thread, after the newest copy if `finish` is set."""
        self._is_closed = not finish
        self._settle(wait=finish)
        self._thread.shutdown(wait=finish)

    def _settle(self, *, wait: bool) -> None:
        """Drop the copies that have not begun, or wait for them; warn of those that failed."""
        running = []
        for future, snapshot in self._copies:
            if not wait and future.cancel():
                shutil.rmtree(snapshot, ignore_errors=True)
            elif not wait and not future.done():
                running.append((future, snapshot))
            elif (fault := future.result()) is None:
                self._is_failing = False
            else:
                self._warn(fault)
        self._copies = running

    def _snapshot(self, path: Path) -> Path:
        """Return a copy of the `checkpoints` folder with this step alone; files that never change are linked."""
        target = self._directory / f".mirror-{path.name}"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for entry in path.parent.iterdir():
            is_final = entry.name.startswith(_STEP) or entry.name == _BEST
            if entry.name.startswith(".") or (entry.name.startswith(_STEP) and entry != path):
                continue
            if entry.is_dir():
                shutil.copytree(entry, target / entry.name, copy_function=link_file if is_final else shutil.copy2)
            else:
                shutil.copy2(entry, target / entry.name)
        return target

    def _copy(self, snapshot: Path, name: str) -> str | None:
        """Upload a snapshot and delete older copies; return why it failed, or None."""

        def go_on(done: int, total: int) -> None:
            if self._is_closed:
                raise TransferStopped

        location = f"{self._url}/{name}"
        try:
            try:
                upload(snapshot, location, go_on)
            except Conflict:  # another attempt's copy of the step, which may be incomplete
                delete(location)
                upload(snapshot, location, go_on)
            known = sorted((known for known in names_below(self._url) if known.startswith(_STEP)), reverse=True)
            for old in [known_name for known_name in known if known_name <= name][self._keep :]:
                delete(f"{self._url}/{old}")
        except TransferStopped:
            return None
        except (QuintainError, OSError) as error:
            return f"{name} could not be copied: {error}"
        finally:
            shutil.rmtree(snapshot, ignore_errors=True)
        return None

    def _warn(self, fault: str) -> None:
        """Warn of the first failure in a row."""
        if not self._is_failing:
            self._is_failing = True
            self._reporter.warn("checkpoint_not_mirrored", fault)
