"""The formats of a job directory: torn lines, the log ring, whole files, checkpoints handed on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quintain.jobs.directory import JobDirectory, append_line, read_lines
from quintain.jobs.shim import LogRing, group_memory
from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters.methods import SFTConfig
from quintain.records.jobs.job import SelftestSpec
from store_shelves import queued, training


def test_a_line_without_its_end_is_not_read_yet(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"one\ntwo\nthr")
    assert read_lines(path, 0) == ([b"one", b"two"], 8)
    assert read_lines(path, 8) == ([], 8)
    path.write_bytes(b"one\ntwo\nthree\n")
    assert read_lines(path, 8) == ([b"three"], 14)
    assert read_lines(tmp_path / "none", 5) == ([], 5)


def test_a_line_longer_than_a_chunk_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_bytes(b"x" * 9_000_000 + b"\nshort\n")
    lines, end = read_lines(path, 0)
    assert [len(line) for line in lines] == [9_000_000, 5]
    assert end == 9_000_007


def test_opening_cuts_off_a_torn_last_line_and_nothing_else(tmp_path: Path) -> None:
    for content, kept in ((b"one\ntwo\nthr", b"one\ntwo\n"), (b"one\n", b"one\n"), (b"torn", b""), (b"", b"")):
        path = tmp_path / "lines.jsonl"
        path.write_bytes(content)
        append_line(path, "new")
        assert path.read_bytes() == kept + b"new\n"


def test_a_line_is_whole_where_the_system_takes_a_part_of_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    append_line(tmp_path / "lines.jsonl", "a long line")
    assert (tmp_path / "lines.jsonl").read_bytes() == b"a long line\n"


def test_a_log_ring_keeps_both_ends_and_the_reader_counts_the_gap(tmp_path: Path) -> None:
    """Bound 100: the head is 0..100, segments of 50 follow. 1,000 bytes end in segments 900 and 950: 800 are dropped."""
    ring = LogRing(str(tmp_path), 100)
    for number in range(100):
        ring.write(b"line %04d\n" % number)
    os.close(ring.file)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.900", "log.950"]
    text = JobDirectory(tmp_path).log_tail(1000)
    assert text.splitlines()[9:14] == ["line 0009", "", "[... 800 bytes of log dropped ...]", "line 0090", "line 0091"]
    assert JobDirectory(tmp_path).log_tail(2) == "line 0098\nline 0099"


def test_a_later_attempt_continues_the_log(tmp_path: Path) -> None:
    for text in (b"first\n", b"second\n", b"x" * 120, b"third\n"):
        ring = LogRing(str(tmp_path), 100)
        ring.write(text)
        os.close(ring.file)
    assert JobDirectory(tmp_path).log_tail(10) == "first\nsecond\n" + "x" * 120 + "third"


def test_a_resumed_job_begins_with_the_checkpoints_of_the_old_one(tmp_path: Path) -> None:
    old = JobDirectory(tmp_path / "job-1")
    old.prepare(queued("job-1"))
    (old.checkpoints / "step-1").mkdir()
    (old.checkpoints / "step-1" / "weights").write_text("w")
    (old.checkpoints / ".machine.json.123").touch()  # half-written by a killed process
    new = JobDirectory(tmp_path / "job-2")
    new.prepare(queued("job-2", resumed_from="job-1"))
    assert (new.checkpoints / "step-1" / "weights").read_text() == "w"
    assert [path.name for path in new.checkpoints.iterdir()] == ["step-1"]
    assert new.read_spec() == SelftestSpec()
    (old.checkpoints / "step-1" / "weights").unlink()
    assert (new.checkpoints / "step-1" / "weights").exists()


def test_a_job_begins_whose_settings_this_version_refuses_together(tmp_path: Path) -> None:
    agent = Agent(name="base", model=ModelRef(source="starter", path="starter"))
    config = SFTConfig().model_copy(update={"decay_steps": 5})  # of a schedule that it does not have
    spec = training(agent, "ds-1").model_copy(update={"config": config})
    JobDirectory(tmp_path / "job-1").prepare(queued("job-1", spec))
    assert JobDirectory(tmp_path / "job-1").read_spec() == spec


V1 = "9:name=systemd:/\n4:cpu,memory:/pods/a\n0::/\n"
V2 = "0::/pods/a\n"


@pytest.mark.parametrize(
    ("groups", "files", "kills", "limit_mb"),
    [
        (V1, {"memory/pods/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"}, 3, None),
        (V1, {"memory/memory.oom_control": "oom_kill 2\n", "memory/memory.limit_in_bytes": "2097152\n"}, 2, 2.0),
        (V1, {"memory/pods/a/memory.limit_in_bytes": "9223372036854771712\n"}, 0, None),
        (V2, {"pods/a/memory.events": "low 0\noom 4\noom_kill 1\n", "pods/memory.events": "oom_kill 7\n"}, 1, None),
        (V2, {"pods/a/memory.max": "max\n", "pods/memory.max": "3145728\n"}, 0, 3.0),
        ("no groups", {}, 0, None),
    ],
)
def test_kills_and_limit_of_memory_are_read_from_the_innermost_control_group_of_either_version(
    tmp_path: Path, groups: str, files: dict[str, str], kills: int, limit_mb: float | None
) -> None:
    (tmp_path / "cgroup").write_text(groups)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    machine_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    assert group_memory(str(tmp_path / "cgroup"), str(tmp_path)) == (kills, limit_mb or machine_mb)


def test_the_shim_needs_the_standard_library_alone() -> None:
    """Isolated and without site-packages it imports: nothing of ours or of others is in it."""
    from quintain.jobs import shim

    code = f"import runpy; runpy.run_path({shim.__file__!r}, run_name='shim')"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=30)
