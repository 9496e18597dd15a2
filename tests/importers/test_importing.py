"""The import loop: what comes in, what is listed, what the next import need not read again."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from scripts import log_formats

from quintain.errors import Conflict, InvalidInput, NotFound, Unavailable
from quintain.importers import registry
from quintain.importers.files.probing import probe
from quintain.importers.log_file import LogFile
from quintain.importers.pipeline import UNPACKED, ImportOptions, import_logs, measure
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.run_sink import DryRun
from quintain.importers.transcripts.transcript import Transcript
from quintain.records.imports import FileStamp, ImportReport, IngestStatus, RunLink
from quintain.records.trajectory import Trajectory
from small_logs import FOLDER as LOGS
from small_logs import SMALL_LOGS, content


@dataclass
class Kept:
    """An intake that keeps all it is given."""

    unchanged: dict[str, FileStamp] = field(default_factory=dict)
    runs: list[Trajectory] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    links: list[RunLink] = field(default_factory=list)
    stamps: list[FileStamp] = field(default_factory=list)
    seen: list[tuple[int, int]] = field(default_factory=list)
    stop_after: int = 10**9
    refuse: Callable[[Trajectory], bool] = lambda run: False
    on_add: Callable[[], object] = lambda: None

    def is_unchanged(self, stamp: FileStamp) -> bool:
        earlier = self.unchanged.get(stamp.uri)
        return earlier is not None and (earlier.size, earlier.mtime_ns) == (stamp.size, stamp.mtime_ns)

    def add(self, runs: Sequence[Trajectory]) -> list[IngestStatus]:
        if any(map(self.refuse, runs)):
            raise Conflict("one of these is another run")
        known = {run.identity for run in self.runs}
        self.runs += runs
        self.batches.append(len(runs))
        self.on_add()
        return ["known" if run.identity in known else "new" for run in runs]

    def link(self, links: Sequence[RunLink]) -> None:
        self.links += links

    def finish_files(self, stamps: Sequence[FileStamp]) -> None:
        self.stamps += stamps

    def should_stop(self) -> bool:
        return len(self.runs) >= self.stop_after

    def report_progress(self, bytes_done: int, bytes_total: int) -> None:
        self.seen.append((bytes_done, bytes_total))


def take(path: Path, intake: Kept | None = None, **options: Any) -> tuple[ImportReport, Kept]:
    intake = intake or Kept()
    return import_logs(path, ImportOptions(**options), intake), intake


def chat(n: int, said: str = "") -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"Task {n}"}, {"role": "assistant", "content": said or f"Done {n}"}]
    }


def write(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_a_folder_of_mixed_formats_comes_in_file_by_file(tmp_path: Path) -> None:
    write(tmp_path / "b" / "chat.jsonl", chat(1), chat(2))
    (tmp_path / "session.jsonl").write_bytes(content(*SMALL_LOGS["claude_code"]))
    (tmp_path / "README.md").write_text("# Logs")
    (tmp_path / ".git").mkdir()
    write(tmp_path / ".git" / "chat.jsonl", chat(3))

    report, kept = take(tmp_path, tags=("mine",))

    assert report.format == "mixed"
    assert [(file.file, file.format, file.trajectories) for file in report.files] == [
        ("session.jsonl", "claude_code", 1),
        ("b/chat.jsonl", "openai_chat", 2),
        ("README.md", None, 0),
    ]
    assert (report.imported, report.duplicates, report.n_files, report.n_rejected, report.n_refused) == (3, 0, 3, 0, 1)
    assert report.rejected[0].file == "README.md"
    assert any(".git" in note for note in report.notes)
    assert 0 < report.confidence == min(file.confidence for file in report.files[:2])
    assert all("mine" in run.tags for run in kept.runs)
    assert report.files[0].steps, report.files[0].actions == (2, 1)


def test_a_run_knows_the_file_that_it_came_from(tmp_path: Path) -> None:
    path = write(tmp_path / "a folder" / "chat.jsonl", chat(1))
    _, kept = take(path)
    source = kept.runs[0].source
    assert source.format == "openai_chat"
    assert source.uri == path.resolve().as_uri()
    assert source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_format_has_a_log_that_is_detected_as_what_it_is_and_comes_in() -> None:
    report, _ = take(LOGS)
    found = {Path(file.file).parts[0]: file for file in report.files}
    assert found.keys() == {known.name for known in registry.IMPORTERS}
    assert {name: file for name, file in found.items() if file.format != name or not file.trajectories} == {}
    assert [(file.file, file.rejected) for file in report.files if file.rejected] == []


def test_a_bad_row_is_listed_with_its_line_and_without_its_secrets(tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "Ab3" * 30
    write(tmp_path / "chat.jsonl", chat(1), '{"messages": [', "", [secret], {"messages": secret}, chat(2))
    report, kept = take(tmp_path)
    assert report.imported == 2
    assert [one.line for one in report.rejected] == [2, 4, 5]
    assert report.n_rejected == 3
    assert secret not in report.model_dump_json()
    assert len(kept.runs) == 2


def test_secrets_are_gone_before_anything_is_handed_over(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    write(tmp_path / "chat.jsonl", chat(1, f"The token is {secret}."))
    report, kept = take(tmp_path)
    assert secret not in kept.runs[0].model_dump_json()
    assert sum(report.redactions.values()) == 1
    report, kept = take(tmp_path, redact=())
    assert secret in kept.runs[0].model_dump_json()
    assert not report.redactions


def test_the_same_run_is_new_only_once(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", chat(1), chat(2))
    write(tmp_path / "b.jsonl", chat(2), chat(3))
    report = import_logs(tmp_path, ImportOptions(), DryRun({}))
    assert (report.imported, report.duplicates) == (3, 1)


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    one, two = write(tmp_path / "1.jsonl", chat(1)), write(tmp_path / "2.jsonl", chat(2))
    _, first = take(tmp_path)
    assert [(stamp.uri, stamp.format) for stamp in first.stamps] == [
        (str(p.resolve()), "openai_chat") for p in (one, two)
    ]

    write(two, chat(2), chat(3))
    report, second = take(tmp_path, Kept({stamp.uri: stamp for stamp in first.stamps}))

    assert (report.unchanged, report.n_files) == (1, 2)
    assert [run.task.prompt for run in second.runs] == ["Task 2", "Task 3"]
    assert [stamp.uri for stamp in second.stamps] == [str(two.resolve())]


def test_a_file_that_changes_while_it_is_read_is_read_again_next_time(tmp_path: Path) -> None:
    path = write(tmp_path / "live.jsonl", *map(chat, range(150)))

    def grow() -> None:
        with path.open("a") as file:
            file.write(json.dumps(chat(999)) + "\n")

    report, kept = take(tmp_path, Kept(on_add=grow))
    assert report.imported >= 150
    assert kept.stamps == []
    assert any("changed while" in note for note in report.notes)


def test_a_stop_keeps_what_came_in_and_stamps_only_what_is_through(tmp_path: Path) -> None:
    write(tmp_path / "1.jsonl", *map(chat, range(100)))
    write(tmp_path / "2.jsonl", *map(chat, range(100, 400)))
    write(tmp_path / "3.jsonl", chat(500))
    report, kept = take(tmp_path, Kept(stop_after=200))
    assert report.stopped
    assert report.imported == len(kept.runs) == 200
    assert [Path(stamp.uri).name for stamp in kept.stamps] == ["1.jsonl"]


def test_a_limit_ends_the_import_and_says_so(tmp_path: Path) -> None:
    write(tmp_path / "1.jsonl", *map(chat, range(10)))
    report, kept = take(tmp_path, limit=4)
    assert (report.imported, report.stopped, kept.stamps) == (4, False, [])
    assert any("limit of 4" in note for note in report.notes)


def test_runs_are_handed_over_in_batches_of_bounded_size(tmp_path: Path) -> None:
    write(tmp_path / "small.jsonl", *map(chat, range(250)))
    write(tmp_path / "wide.jsonl", *(chat(n, "x" * 2**20) for n in range(1000, 1012)))
    _, kept = take(tmp_path, redact=())
    assert max(kept.batches) == 100
    assert max(kept.batches[3:]) <= 5
    assert sum(kept.batches) == 262


def test_progress_counts_the_bytes_of_all_files(tmp_path: Path) -> None:
    for n in range(3):
        write(tmp_path / f"{n}.jsonl", *map(chat, range(200)))
    size = measure(tmp_path)
    _, kept = take(tmp_path)
    assert size == (3, sum(path.stat().st_size for path in tmp_path.iterdir()))
    assert kept.seen == sorted(kept.seen)
    assert kept.seen[-1] == (size.bytes, size.bytes)


def test_a_run_that_the_store_refuses_costs_only_itself(tmp_path: Path) -> None:
    write(tmp_path / "1.jsonl", *map(chat, range(5)))
    report, kept = take(tmp_path, Kept(refuse=lambda run: run.task.prompt == "Task 3"))
    assert (report.imported, len(kept.runs)) == (4, 4)
    assert [(one.line, one.reason) for one in report.rejected] == [(4, "one of these is another run")]


def test_a_store_that_fails_ends_the_import(tmp_path: Path) -> None:
    write(tmp_path / "1.jsonl", chat(1))

    def fail() -> None:
        raise Unavailable("the disk is full")

    with pytest.raises(Unavailable):
        take(tmp_path, Kept(on_add=fail))


def test_subagents_and_continuations_are_linked_by_what_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of the logs become identities of the redacted runs, in whatever order the files come."""
    monkeypatch.setattr(registry, "IMPORTERS", (_Family(),))
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    write(tmp_path / "1-child.jsonl", {"key": "child", "parent": "root", "said": f"I saw {secret}"})
    write(
        tmp_path / "2-root.jsonl", {"key": "root", "said": "I ask"}, {"key": "next", "continues": "root", "said": "On"}
    )
    write(tmp_path / "3-orphan.jsonl", {"key": "orphan", "parent": "elsewhere", "said": "Alone"})

    report, kept = take(tmp_path)

    child, root, after, _ = [run.identity for run in kept.runs]
    assert kept.links == [RunLink(identity=root, subagents=(child,)), RunLink(identity=after, continues=root)]
    assert any("1 links refer to runs outside" in note for note in report.notes)


@dataclass(frozen=True)
class _Family:
    """Reads rows that say how they belong together."""

    name: str = "family"
    title: str = "Family"

    def detect(self, probe: Probe) -> float:
        return 0.9 if "said" in probe.first else 0.0

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        for line, row in log.rows(report):
            script = Transcript()
            script.add_message("user", "Go on")
            script.add_agent_turn(row["said"])
            run = script.trajectory(format=self.name)
            yield Run(run, line, row.get("key"), row.get("parent"), row.get("continues"))


@dataclass(frozen=True)
class _Faulty:
    """Fails as a reader must not."""

    name: str = "faulty"
    title: str = "Faulty"
    at: str = "detect"

    def detect(self, probe: Probe) -> float:
        if self.at == "detect":
            raise KeyError("secret value of the log")
        return 0.99 if probe.name == "1.jsonl" else 0.0

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        for line, row in log.rows(report):
            script = Transcript()
            script.add_agent_turn(row["messages"][1]["content"] if line < 3 else row["no such key"])
            yield Run(script.trajectory(format=self.name), line)


@pytest.mark.parametrize("at", ["detect", "read"])
def test_a_reader_that_fails_takes_no_other_file_down(tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "IMPORTERS", (_Faulty(at=at), *registry.IMPORTERS))
    write(tmp_path / "1.jsonl", *map(chat, range(4)))
    write(tmp_path / "2.jsonl", *map(chat, range(10, 14)))
    report, kept = take(tmp_path)
    if at == "detect":
        assert report.imported == 8
        assert "The reader faulty (KeyError) failed to detect the format of 2 files; please report it." in report.notes
    else:
        assert report.imported == 6, "two rows before the fault, and all of the other file"
        assert report.rejected[0].file == "1.jsonl"
        assert (
            "the reader faulty failed on it after it read line 3 (KeyError at test_importing.py:"
            in report.rejected[0].reason
        )
        assert [Path(stamp.uri).name for stamp in kept.stamps] == ["2.jsonl"]


@dataclass(frozen=True)
class _Joined:
    """A run whose words lie in the files beside it."""

    name: str = "joined"
    title: str = "Joined"

    def detect(self, probe: Probe) -> float:
        return 0.9 if "words" in probe.first else 0.5 if "word" in probe.first else 0.0

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        document = log.document()
        if "words" not in document:
            raise InvalidInput("a word alone is no run")
        script = Transcript()
        for name in document["words"]:
            sibling = log.sibling(name)
            if sibling is not None:
                script.add_agent_turn(str(sibling.document()))
                if name.startswith("z"):
                    report.consume(sibling.path)
        yield Run(script.trajectory(format=self.name))


def test_files_that_came_in_with_another_one_are_not_listed_as_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is read before its leader, one after it, one is no log by itself; the outsider stays listed."""
    monkeypatch.setattr(registry, "IMPORTERS", (_Joined(),))
    write(tmp_path / "m.json", {"words": ["a.json", "b.json", "z.json", "../x.json", "none.json"]})
    for name, value in (("a.json", {"word": 1}), ("b.json", {"other": 1}), ("z.json", {"word": 2}), ("y.json", {})):
        write(tmp_path / name, value)
    report, kept = take(tmp_path)
    assert [file.file for file in report.files] == ["m.json", "y.json"]
    assert (report.imported, report.n_rejected, report.n_refused) == (1, 0, 1)
    assert len(kept.runs[0].steps) == 3
    assert kept.stamps == [], "its companions may change without it"


def test_a_format_can_be_forced_and_must_exist(tmp_path: Path) -> None:
    write(tmp_path / "chat.jsonl", chat(1))
    (tmp_path / "README.md").write_text("# Logs")
    report, _ = take(tmp_path, format="openai_chat")
    assert (report.imported, report.n_refused, report.n_rejected) == (1, 1, 0)
    with pytest.raises(NotFound, match="openai_chat"):
        take(tmp_path, format="openai")
    report, _ = take(tmp_path, format="swe_agent")
    assert report.imported == 0
    assert report.n_rejected == 1


def test_an_empty_folder_and_one_without_runs_say_so_plainly(tmp_path: Path) -> None:
    report, _ = take(tmp_path)
    assert (report.notes, report.format, report.confidence) == (("The folder has no file to read.",), None, 0.0)
    write(tmp_path / "config.json", {"a": 1})
    report, _ = take(tmp_path)
    assert report.notes[0].startswith("None of 1 files contains a trajectory")


def test_a_path_that_is_none_is_refused_with_a_remedy(tmp_path: Path) -> None:
    for use in (take, measure):
        with pytest.raises(NotFound, match="expected a file or folder of logs, got nothing at"):
            use(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="a named pipe"):
        take(tmp_path / "pipe")


def test_a_file_alone_is_imported_without_its_neighbours(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", chat(1))
    write(tmp_path / "b.jsonl", chat(2))
    report, _ = take(path)
    assert [file.file for file in report.files] == ["a.jsonl"]
    assert measure(path) == (1, path.stat().st_size)


def test_detection_of_a_huge_object_looks_at_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.importers.files.probing.MAX_PROBE_BYTES", 2**20)
    history = [{"role": "user", "content": "x" * 1000}] * 3000
    write(tmp_path / "t.traj", {"environment": "e", "trajectory": [{"action": "ls"}], "history": history, "info": {}})
    found = probe(tmp_path / "t.traj", tmp_path)
    assert found.shape == "object"
    assert found.document is not None
    assert list(found.document) == ["environment", "trajectory", "history"]
    assert 500 < len(found.document["history"]) < 2000


def test_notes_of_many_files_are_told_once(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.jsonl").write_bytes(
            b'{"messages": [{"role": "user", "content": "\xff"}, '
            b'{"role": "assistant", "content": "' + str(n).encode() + b'"}]}\n'
        )
    report, _ = take(tmp_path)
    assert sum("valid in the file's encoding" in note for note in report.notes) == 1
    assert any(note.endswith("(3 files)") for note in report.notes)


def test_a_file_that_is_not_of_the_forced_format_is_listed_with_the_one_it_is_of(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(content(*SMALL_LOGS["otel"]))
    report, _ = take(tmp_path / "trace.json", format="langfuse")
    assert (report.imported, report.n_rejected) == (0, 1)
    assert "format langfuse" in report.rejected[0].reason
    assert "format=otel" in report.rejected[0].reason


def test_kinds_of_records_that_did_not_come_are_not_listed() -> None:
    report = Report()
    for kind, n in (("event", 2), ("none of these", 0)):
        report.skip(kind, n)
    assert report.unknown == {"event": 2}


def test_a_session_of_more_characters_than_a_row_may_hold_comes_in_as_parts_that_go_on(tmp_path: Path) -> None:
    def line(n: int, kind: str, said: Any) -> dict[str, Any]:
        about = {"sessionId": "long", "isSidechain": False, "version": "2.1.0", "timestamp": "2026-01-01T00:00:00Z"}
        message = {"role": kind, "content": said, **({"id": f"m{n}", "model": "c"} if kind == "assistant" else {})}
        return {"type": kind, "uuid": f"u{n}", "parentUuid": f"u{n - 1}" if n else None, **about, "message": message}

    words = "some words of a long answer, "
    turns = [line(n, "assistant", [{"type": "text", "text": f"{n} {words * 10_000}"}]) for n in range(1, 10)]
    report, kept = take(write(tmp_path / "long.jsonl", line(0, "user", "Talk."), *turns))
    assert (report.imported, report.n_rejected) == (2, 0)
    assert any("2,000,000" in note for note in report.notes)
    assert [[step.actor.value for step in run.steps].count("agent") for run in kept.runs] == [6, 3]
    assert all(run.session_id == "long" and run.steps[0].message == "Talk." for run in kept.runs)
    assert [run.steps[0].copied_context for run in kept.runs] == [False, True]
    first, last = kept.runs
    assert kept.links == [RunLink(identity=last.identity, continues=first.identity)]


def test_one_turn_that_no_row_can_hold_is_rejected_alone(tmp_path: Path) -> None:
    report, kept = take(write(tmp_path / "chat.jsonl", chat(1), chat(2, "long " * 1_700_000), chat(3)), redact=())
    assert (report.imported, [row.line for row in report.rejected]) == (2, [2])
    assert "cut that text in a copy" in report.rejected[0].reason
    assert len(kept.runs) == 2


def test_a_packed_log_counts_as_about_what_it_unpacks_to(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", chat(1))
    (tmp_path / "b.jsonl.GZ").write_bytes(gzip.compress(b"{}\n" * 100))
    sizes = [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    assert measure(tmp_path) == (2, sizes[0] + UNPACKED * sizes[1])


def test_the_formats_page_is_generated_from_the_registries() -> None:
    assert log_formats.PAGE.read_text(encoding="utf-8") == log_formats.page(), "run python -m scripts.log_formats"


def test_pairs_that_rows_state_in_both_directions_are_counted_and_a_ranking_is_not(tmp_path: Path) -> None:
    """Of a ranking x > y > z, y is the worse answer of one pair and the better one of another."""
    told = [("x", "y"), ("y", "z"), ("x", "z"), ("y", "x"), ("y", "x"), ("z", "z")]
    rows = [json.dumps({"prompt": "Which?", "chosen": better, "rejected": worse}) for better, worse in told]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows))
    report = import_logs(tmp_path / "pairs.jsonl", ImportOptions(), DryRun({}))
    assert [note for note in report.notes if "contradict" in note] == [
        "2 pairs contradict earlier rows, which count; export the file itself for a majority of them."
    ]
