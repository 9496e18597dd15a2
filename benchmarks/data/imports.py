"""Import: MB of logs a second and core, whole and by stage, and memory on a large file."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.data.logs import chat_session, claude_code, claude_session, codex_session, openai_chat
from benchmarks.figures import report
from benchmarks.process_cost import (
    cpu_seconds,
    memory_of_process_mb,
    peak_growth_mb,
    peak_of_command_mb,
    peak_of_process_mb,
)
from benchmarks.server import OURS, Client
from quintain.importers.log_file import LogFile
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.protocol import Report
from quintain.importers.registry import importer
from quintain.records.imports import FileStamp, IngestStatus, RunLink
from quintain.records.trajectory import Trajectory, read_trajectory
from quintain.redaction.redact import redact, redact_text
from quintain.store.store import Store, open_store
from quintain.tools.services import utc_now

GOAL_MB_PER_S = 10.0
_BATCH = 100


@dataclass
class Intake:
    """Counts runs; with a store it stores them too."""

    store: Store | None = None
    runs: int = 0
    redacted: int = 0
    kept: list[Trajectory] | None = field(default=None)

    def is_unchanged(self, stamp: FileStamp) -> bool:
        return False

    def add(self, runs: Sequence[Trajectory]) -> list[IngestStatus]:
        self.runs += len(runs)
        self.redacted += sum(bool(run.redactions) for run in runs)
        if self.store is None:
            return ["new"] * len(runs)
        return [added.status for added in self.store.trajectories.add_many(runs, utc_now())]

    def link(self, links: Sequence[RunLink]) -> None:
        if self.store is not None:
            self.store.trajectories.link(links)

    def finish_files(self, stamps: Sequence[FileStamp]) -> None:
        if self.store is not None:
            self.store.imports.add(stamps, utc_now())

    def should_stop(self) -> bool:
        return False

    def report_progress(self, bytes_done: int, bytes_total: int) -> None:
        pass


def import_speed(folder: Path, *, quick: bool) -> None:
    """Both line formats, whole and by stage."""
    size = (3 if quick else 24) * 10**6
    redact_text("loads the rules")
    chat = folder / "chat" / "runs.jsonl"
    chat.parent.mkdir()
    sizes = {
        "openai_chat": (chat.parent, openai_chat(chat, size)),
        "claude_code": (folder / "claude", claude_code(folder / "claude", size)),
    }
    rounds = 1 if quick else 3
    for name, (logs, n_bytes) in sizes.items():
        _whole(name, logs, n_bytes, rounds)
        _stages(name, logs, n_bytes, rounds)


def _whole(name: str, logs: Path, n_bytes: int, rounds: int) -> None:
    stored, counted, plain = [], [], []
    share = 0.0
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as home:
            store = open_store(f"sqlite:///{home}/quintain.db")
            intake = Intake(store)
            stored.append(n_bytes / 1e6 / cpu_seconds(partial(_import, logs, name, intake)))
            share = intake.redacted / intake.runs
            store.close()
        counted.append(n_bytes / 1e6 / cpu_seconds(lambda: _import(logs, name, Intake())))
        plain.append(n_bytes / 1e6 / cpu_seconds(lambda: _import(logs, name, Intake(), redacting=False)))
    report(f"import_{name}_mb_per_s", stored, "MB/s", GOAL_MB_PER_S, share_of_runs_redacted=round(share, 3))
    report(f"import_{name}_counting_mb_per_s", counted, "MB/s", None)
    report(f"import_{name}_counting_without_redaction_mb_per_s", plain, "MB/s", None)


def _import(logs: Path, name: str, intake: Intake, *, redacting: bool = True) -> None:
    result = import_logs(logs, ImportOptions(redact=("secrets", "personal") if redacting else ()), intake)
    assert intake.runs, result.notes
    assert not result.n_rejected, result.rejected
    assert result.format == name, result.format


def _stages(name: str, logs: Path, n_bytes: int, rounds: int) -> None:
    """Each stage alone, over all logs; `read` holds `parse` and `validate`, so the parts do not add up to the whole."""
    files = [LogFile(path, logs) for path in sorted(logs.iterdir())]
    reader = importer(name)
    runs = [run.trajectory for file in files for run in reader.read(file, Report())]
    values = [run.model_dump() for run in runs]
    clean = [redact(run) for run in runs]
    stages: dict[str, Callable[[], object]] = {
        "parse": lambda: [sum(1 for _ in file.rows(Report())) for file in files],
        "read": lambda: [sum(1 for _ in reader.read(file, Report())) for file in files],
        "validate": lambda: [read_trajectory(value) for value in values],
        "redact": lambda: [redact(run) for run in runs],
        "redact_clean": lambda: [redact(run) for run in clean],
        "identity": lambda: [run.model_copy().identity for run in clean],  # a run keeps it once it is known
        "store": lambda: _store(clean),
    }
    for stage, work in stages.items():
        speeds = [n_bytes / 1e6 / cpu_seconds(work) for _ in range(rounds)]
        report(f"import_{name}_{stage}_mb_per_s", speeds, "MB/s", None)


def _store(runs: Sequence[Trajectory]) -> None:
    with tempfile.TemporaryDirectory() as home:
        store = open_store(f"sqlite:///{home}/quintain.db")
        for start in range(0, len(runs), _BATCH):
            store.trajectories.add_many(runs[start : start + _BATCH], utc_now())
        store.close()


def import_memory(folder: Path, *, quick: bool) -> None:
    """How much more memory a file takes that is eight times as large."""
    small, large = (4, 32) if quick else (32, 256)
    peaks = {}
    for megabytes in (small, large):
        logs = folder / f"{megabytes}MB.jsonl"
        openai_chat(logs, megabytes * 10**6)
        peaks[megabytes] = peak_growth_mb(_import_counting, str(logs))
        logs.unlink()
    growth = max(0.0, peaks[large] - peaks[small])
    report("import_peak_mb_growth", [growth], "MB", 16, "lower", files_mb=[small, large])
    report("import_peak_mb", [peaks[large]], "MB", None, "lower", file_mb=large)


def session_memory(folder: Path, *, quick: bool) -> None:
    """Memory of one long session, by `quintain import` and by the tool of a server, and of both on a tiny one."""
    size = (5 if quick else 47) * 10**6
    write: dict[str, Callable[[Path], object]] = {
        "tiny": lambda log: claude_session(log, 1, repeats=False),
        "claude_code_with_repeated_results": lambda log: claude_session(log, size, repeats=True),
        "claude_code": lambda log: claude_session(log, size, repeats=False),
        "codex": lambda log: codex_session(log, size),
        "chat_messages": lambda log: chat_session(log, size, by_line=True),
        "chat_in_one_line": lambda log: chat_session(log, size, by_line=False),
    }
    command = str(Path(sys.executable).with_name("quintain"))
    for name, writer in write.items():
        log = folder / name / "inbox" / "session.jsonl"
        log.parent.mkdir(parents=True)
        writer(log)
        goal, facts = None if name == "tiny" else 150, {"file_mb": round(log.stat().st_size / 1e6, 1)}
        peak = peak_of_command_mb([command, "import", str(log), "--home", str(folder / f"home-{name}")])
        report(f"import_session_{name}_peak_mb", [peak], "MB", goal, "lower", **facts)
        report(f"import_session_{name}_server_peak_mb", [_server_peak(log)], "MB", goal, "lower", **facts)
        log.unlink()


def record_memory(folder: Path, *, quick: bool) -> None:
    """Memory of a server that records one long run: at its peak, and what it keeps."""
    home = folder / "home-record"
    log = folder / "recorded.jsonl"
    chat_session(log, (1 if quick else 8) * 10**6, by_line=False)
    client = Client(OURS, home)
    try:
        client.list_tools()
        answer = client.ask(
            "tools/call", {"name": "record_trajectory", "arguments": json.loads(log.read_text(encoding="utf-8"))}
        )
        assert not answer.get("isError"), answer
        report("record_run_server_peak_mb", [peak_of_process_mb(client.process.pid)], "MB", 150, "lower")
        report("record_run_server_kept_mb", [memory_of_process_mb(client.process.pid)], "MB", None, "lower")
    finally:
        client.close()


def _server_peak(log: Path) -> float:
    """Return the greatest memory of a server process that imports a log of its inbox, in MB."""
    client = Client(OURS, log.parents[1])
    try:
        client.list_tools()
        answer = client.ask("tools/call", {"name": "import_trajectories", "arguments": {"path": log.name}})
        assert not answer.get("isError"), answer
        assert answer["structuredContent"]["imported"], answer
        return peak_of_process_mb(client.process.pid)
    finally:
        client.close()


def _import_counting(logs: str) -> None:
    import_logs(Path(logs), ImportOptions(), Intake())
