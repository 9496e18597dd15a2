"""Copies of a training's checkpoints at a URL: written in the background, and read where the job's folder has none.

Each copy is an artifact `step-NNNNNNNN` of the whole `checkpoints` folder with that one step, so a training continues from it as
from the local folder. The newest copies stay, as many as the training keeps.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from quintain.artifacts.transfers import delete, fetch, names_below, upload
from quintain.errors import Conflict, QuintainError
from quintain.jobs.directory import link_file
from quintain.records.jobs.job import JobResult, TrainSpec
from quintain.records.protocols import Reporter

_BEST = "best"
_SNAPSHOT = ".mirror-"


def with_mirrored_checkpoints(
    spec: TrainSpec, directory: Path, reporter: Reporter, work: Callable[[Reporter], JobResult]
) -> JobResult:
    """Restore the newest copy if the folder has no checkpoint, and do the work with a reporter that copies each new one.

    A copy that is not of this run, as after an earlier stage was repeated on another machine with other rounding, is dropped
    with a warning, and the work begins again. After an error or a stop, wait for the newest copy. After success drop it, because
    the agent has the weights.

    Args:
        spec: Training, with the URL of its copies.
        directory: Folder of the job, or of its stage.
        reporter: Receives warnings about copies that fail, which never end the job.
        work: Trains.
    """
    assert spec.mirror is not None
    mirror = _Mirror(spec.mirror, directory, spec.config.keep_checkpoints, reporter)
    finish = True
    try:
        restored = mirror.restore()
        try:
            result = work(cast("Reporter", mirror))
        except Conflict as error:
            if error.code != "checkpoint_mismatch" or restored is None:
                raise
            reporter.warn(
                "checkpoint_skipped", f"skipped the copy of {restored}, which is of another run; trains from the start"
            )
            shutil.rmtree(directory / "checkpoints")
            result = work(cast("Reporter", mirror))
        finish = reporter.should_stop()
        return result
    finally:
        mirror.close(finish=finish)


class _Mirror:
    """A reporter whose checkpoints are copied by one process at a time; the newest replaces one that waits."""

    def __init__(self, url: str, directory: Path, keep: int, reporter: Reporter) -> None:
        self._url, self._directory, self._keep, self._reporter = url, directory, keep, reporter
        self._running: tuple[subprocess.Popen[bytes], Path] | None = None
        self._waiting: Path | None = None
        self._is_failing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reporter, name)

    def progress(self, *arguments: Any, **more: Any) -> None:
        """Report a finished step, and begin the next copy if the last has ended."""
        self._reporter.progress(*arguments, **more)
        self._advance()

    def checkpoint(self, step: int, path: Path) -> None:
        """Report a complete checkpoint, and copy it in the background."""
        self._reporter.checkpoint(step, path)
        if self._waiting is not None:
            shutil.rmtree(self._waiting, ignore_errors=True)
        try:
            self._waiting = self._snapshot(path)
        except OSError as error:
            self._waiting = None
            self._warn(f"{path.name} could not be prepared ({error})")
        self._advance()

    def restore(self) -> str | None:
        """Download the newest complete copy into the `checkpoints` folder unless that has a checkpoint; return its name."""
        checkpoints = self._directory / "checkpoints"
        if any(checkpoints.glob(f"{STEP}*")):
            return None
        try:
            names = [name for name in names_below(self._url) if name.startswith(STEP)]
        except QuintainError as error:
            self._warn(f"no copy was looked for: {error.message}")
            return None
        restored = None
        for name in sorted(names, reverse=True):
            self._reporter.phase("restoring")
            try:
                copy = fetch(f"{self._url}/{name}", self._directory / ".restored")
            except QuintainError as error:
                self._reporter.warn("checkpoint_skipped", f"skipped a copy of {name}: {error.message}")
                continue
            checkpoints.mkdir(parents=True, exist_ok=True)
            # The step comes last: without it, the next attempt restores again.
            for entry in sorted(copy.iterdir(), key=lambda entry: entry.name.startswith(STEP)):
                target = checkpoints / entry.name
                shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
                entry.rename(target)
            restored = name
            break
        shutil.rmtree(self._directory / ".restored", ignore_errors=True)
        return restored

    def close(self, *, finish: bool) -> None:
        """Wait for the copies if `finish` is set, else drop them."""
        while finish and (self._running or self._waiting):
            if self._running is not None:
                self._running[0].wait()
            self._advance()
        if self._running is not None:
            process, snapshot = self._running
            process.kill()
            process.communicate()
            shutil.rmtree(snapshot, ignore_errors=True)
        if self._waiting is not None:
            shutil.rmtree(self._waiting, ignore_errors=True)

    def _advance(self) -> None:
        """Note the end of the running copy, and start the one that waits."""
        if self._running is not None:
            process, snapshot = self._running
            if process.poll() is None:
                return
            fault = process.communicate()[0].decode("utf-8", "replace").strip()
            self._running = None
            if process.returncode == 0:
                self._is_failing = False
            else:
                self._warn(fault or f"the process of {snapshot.name} ended with status {process.returncode}")
        if self._waiting is not None:
            snapshot, self._waiting = self._waiting, None
            name = snapshot.name.removeprefix(_SNAPSHOT)
            command = [sys.executable, "-P", "-m", "quintain.worker.checkpoint_mirror", str(snapshot), self._url, name]
            self._running = subprocess.Popen([*command, str(self._keep)], stdout=subprocess.PIPE), snapshot

    def _snapshot(self, path: Path) -> Path:
        """Return a copy of the `checkpoints` folder with this step alone; files that never change are linked."""
        target = self._directory / f"{_SNAPSHOT}{path.name}"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for entry in path.parent.iterdir():
            is_final = entry.name.startswith(STEP) or entry.name == _BEST
            if entry.name.startswith(".") or (entry.name.startswith(STEP) and entry != path):
                continue
            if entry.is_dir():
                shutil.copytree(entry, target / entry.name, copy_function=link_file if is_final else shutil.copy2)
            else:
                shutil.copy2(entry, target / entry.name)
        return target

    def _warn(self, fault: str) -> None:
        """Warn of the first failure in a row."""
        if not self._is_failing:
            self._is_failing = True
            self._reporter.warn("checkpoint_not_mirrored", fault)


STEP = "step-"
"""Beginning of the name of a checkpoint, and of its copy."""


def copy_checkpoint(snapshot: Path, url: str, name: str, keep: int) -> None:
    """Upload a snapshot as `URL/NAME`, and delete the oldest copies beyond `keep`."""
    try:
        upload(snapshot, f"{url}/{name}")
    except Conflict:  # another attempt's copy of the step, which may be incomplete
        delete(f"{url}/{name}")
        upload(snapshot, f"{url}/{name}")
    copies = sorted((known for known in names_below(url) if known.startswith(STEP) and known <= name), reverse=True)
    for old in copies[keep:]:
        delete(f"{url}/{old}")


def main(arguments: list[str]) -> int:
    """Copy, and remove the snapshot."""
    snapshot, url, name, keep = Path(arguments[0]), arguments[1], arguments[2], int(arguments[3])
    os.nice(10)
    try:
        copy_checkpoint(snapshot, url, name, keep)
    except (QuintainError, OSError) as error:
        sys.stdout.write(f"{name} could not be copied: {error}")
        return 1
    finally:
        shutil.rmtree(snapshot, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
