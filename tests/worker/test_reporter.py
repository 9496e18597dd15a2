"""The worker's reporter and its border: whole lines, honest numbers, plain failures."""

from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest

from quintain.errors import TrainingFailed, Unavailable
from quintain.jobs.directory import JobDirectory
from quintain.records.jobs.job import JobError, JobSpec, SelftestSpec
from quintain.records.jobs.job_events import Envelope
from quintain.records.protocols import Reporter
from quintain.records.trajectory import Actor, Step, Task, Trajectory
from quintain.worker import job_kinds
from quintain.worker.processes.attempt import failure_of
from quintain.worker.processes.reporter import FileReporter
from worker.job_folder import MOMENT, events


def reporter_of(folder: Path, attempt: int = 1) -> FileReporter:
    return FileReporter(JobDirectory(folder), attempt, lambda: MOMENT)


def test_events_are_numbered_lines(tmp_path: Path) -> None:
    reporter: Reporter = reporter_of(tmp_path)
    reporter.phase("training")
    reporter.progress(1, 10, {"loss": 0.5, "eval": None})
    reporter.checkpoint(1, tmp_path / "checkpoints" / "step-1")
    reporter.warn("short", "3 rows were cut")
    phase, progress, checkpoint, warning = events(tmp_path)
    assert [event.seq for event in (phase, progress, checkpoint, warning)] == [0, 1, 2, 3]
    assert (phase.type, phase.name, phase.time) == ("phase", "training", MOMENT)
    assert (progress.step, progress.total_steps, progress.metrics) == (1, 10, {"loss": 0.5, "eval": None})
    assert checkpoint.path == str(tmp_path / "checkpoints" / "step-1")
    assert (warning.code, warning.message) == ("short", "3 rows were cut")


def test_a_metric_that_is_not_finite_is_null_and_warned_of_once(tmp_path: Path) -> None:
    reporter = reporter_of(tmp_path)
    reporter.progress(1, 3, {"loss": math.nan, "reward": 1.0})
    reporter.progress(2, 3, {"loss": math.inf})
    warning, first, second = events(tmp_path)
    assert warning.message == "loss was nan at step 1; non-finite values are reported as null"
    assert (first.metrics, second.metrics) == ({"loss": None, "reward": 1.0}, {"loss": None})
    assert "NaN" not in (tmp_path / "events.jsonl").read_text()


def test_a_torn_last_line_is_cut_off_and_numbers_go_on(tmp_path: Path) -> None:
    reporter_of(tmp_path).phase("loading")
    output = Trajectory(task=Task(prompt="x"), steps=(Step(actor=Actor.AGENT, message="y"),))
    reporter_of(tmp_path).output("trajectory", output)
    for name in ("events.jsonl", "outputs/trajectory.jsonl"):
        with (tmp_path / name).open("ab") as file:
            file.write(b'{"attempt": 1, "se')
    reporter_of(tmp_path, attempt=1).phase("again")
    reporter_of(tmp_path, attempt=2).phase("second attempt")
    assert [(event.attempt, event.seq) for event in events(tmp_path)] == [(1, 0), (1, 1), (2, 0)]
    (line,) = (tmp_path / "outputs" / "trajectory.jsonl").read_bytes().splitlines()
    assert Trajectory.model_validate(Envelope.model_validate_json(line).record) == output


def test_a_record_that_is_no_unicode_is_left_out_with_a_warning(tmp_path: Path) -> None:
    reporter = reporter_of(tmp_path)
    step = Step(actor=Actor.AGENT, message="x", extra={"cut emoji": "\ud83d"})
    reporter.output("trajectory", Trajectory(task=Task(prompt="x"), steps=(step,)))
    reporter.warn("quoted", "a cut emoji \ud83d in a message")
    refused, quoted = events(tmp_path)
    assert refused.code == "bad_output"
    assert quoted.message == "a cut emoji \\ud83d in a message"


def test_a_job_whose_folder_was_moved_fails_instead_of_leaving_its_agent_where_nobody_looks(tmp_path: Path) -> None:
    folder, moved = tmp_path / "home" / "job-1", tmp_path / "moved"
    folder.mkdir(parents=True)
    output = Trajectory(task=Task(prompt="x"), steps=(Step(actor=Actor.AGENT, message="y"),))
    reporter = reporter_of(folder)
    (tmp_path / "home").rename(moved)
    with pytest.raises(Unavailable, match="directory_moved") as refused:
        reporter.output("trajectory", output)
    assert not folder.exists()
    reporter.failed(failure_of(refused.value))
    assert [event.code for event in events(moved / "job-1")] == ["directory_moved"]


def test_a_selftest_continues_from_the_newest_checkpoint_that_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "step-00000002.json").write_text('{"step": 2}')
    (folder / "step-00000003.json").write_text('{"st')
    result = job_kinds.run(SelftestSpec(steps=4, step_s=0), tmp_path, reporter_of(tmp_path))
    assert result.n == 4
    assert [event.step for event in events(tmp_path) if event.type == "progress"] == [3, 4]
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000003.json", "step-00000004.json"]


def test_each_kind_of_job_names_a_module_that_is_there() -> None:
    kinds = {spec.model_fields["kind"].default for spec in get_args(get_args(JobSpec)[0])}
    assert job_kinds.MODULES.keys() == kinds
    assert [name for name in job_kinds.MODULES.values() if find_spec(f"quintain.{name}") is None] == []


def test_failures_are_reported_without_traceback() -> None:
    class OutOfMemoryError(RuntimeError):
        """As torch calls it."""

    assert failure_of(TrainingFailed("loss is nan", code="diverged")) == JobError(
        code="diverged", message="loss is nan"
    )
    assert failure_of(MemoryError()).code == "out_of_memory"
    assert failure_of(OutOfMemoryError("CUDA")).code == "out_of_memory"
    assert failure_of(OSError(errno.ENOSPC, "No space left on device")).code == "disk_refused"
    forbidden = failure_of(PermissionError(errno.EACCES, "Permission denied", "checkpoints"))
    assert (forbidden.code, forbidden.hint.partition(",")[0]) == ("disk_refused", "Give this user write permission")
    crash = failure_of(KeyError("weights"))
    assert (crash.code, crash.message) == ("crashed", "KeyError: 'weights'")


def test_a_worker_dies_with_its_group_when_its_parent_is_gone(tmp_path: Path) -> None:
    """The worker's child, which inherits neither the lock nor the pipe to the parent, is killed too."""
    code = """
import os, subprocess, sys, time
from quintain.worker.processes import parent_watch
parent_watch.watch_parent(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT))
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read(); import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""
    worker = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with worker.stdin, worker.stdout:
        assert int(worker.stdout.readline()) > 0
        worker.stdin.close()
        assert worker.wait(100) == -signal.SIGKILL
        assert worker.stdout.read() == b""  # the child held this pipe: it is closed when the child is gone
    assert not os.path.exists(f"/proc/{worker.pid}")


def test_what_a_library_does_at_exit_does_not_hold_a_job_that_is_done(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "job-1"
    folder.mkdir(parents=True)
    JobDirectory(folder).spec.write_text(SelftestSpec(steps=1).model_dump_json())
    code = "import atexit, runpy, time; atexit.register(time.sleep, 600); runpy.run_module('quintain.worker', run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", code, str(folder), "1"], timeout=60, check=False)
    assert ended.returncode == 0
    assert events(folder)[-1].type == "result"
