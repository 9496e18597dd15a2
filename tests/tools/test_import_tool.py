"""Importing through the real protocol: calls, jobs, roots, and what comes back."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_client import ToolCaller, tool_caller
from quintain.errors import Unavailable
from quintain.records.filters import TrajectoryFilter
from quintain.settings import Settings
from quintain.store.trajectories.inserts import TrajectoryInserter
from quintain.tools.data import imports
from quintain.tools.data.trajectories import search_trajectories
from quintain.tools.jobs.jobs import get_job
from quintain.tools.results import JobView
from quintain.tools.services import Services
from tools.stored_records import write_rows

TRUSTED = False

KEY = "sk-ant-api03-" + "Zk3" * 28


def chat(answer: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": answer}], **more}


def test_a_file_of_the_inbox_comes_in_once_and_redacted(settings: Settings, inbox: Path, ask: ToolCaller) -> None:
    write_rows(inbox / "chat.jsonl", chat(f"My key is {KEY}."), "{torn", chat("Done.", resolved=True))
    report = ask("import_trajectories", path="chat.jsonl")
    assert (report["imported"], report["duplicates"], report["rejected_count"]) == (2, 0, 1)
    assert report["rejected"][0]["line"] == 2
    assert sum(report["redactions"].values()) == 1
    again = ask("import_trajectories", path="chat.jsonl")
    assert (again["imported"], again["unchanged_files"]) == (0, 1)
    forced = ask("import_trajectories", path="chat.jsonl", again=True)
    assert (forced["imported"], forced["duplicates"]) == (0, 2)
    found = ask("search_trajectories")["items"]
    assert sorted(item["outcome"] for item in found) == ["success", "unknown"]
    stored = b"".join(path.read_bytes() for path in settings.home.glob("quintain.db*"))
    assert KEY.encode() not in stored


def test_a_dry_run_stores_nothing_and_reports_files_that_are_unchanged(inbox: Path, ask: ToolCaller) -> None:
    write_rows(inbox / "logs" / "a.jsonl", chat("One."), chat("Two."))
    write_rows(inbox / "logs" / "b.jsonl", chat("Two."))
    planned = ask("import_trajectories", path="logs", dry_run=True)
    assert (planned["imported"], planned["duplicates"]) == (2, 1)
    assert ask("search_trajectories")["items"] == []
    assert ask("import_trajectories", path="inbox/logs")["imported"] == 2
    assert "imported before" in ask("import_trajectories", path="logs", dry_run=True)["next_step"]


def test_a_path_outside_the_roots_is_refused_and_a_root_of_the_operator_is_read(
    settings: Settings, tmp_path: Path, ask: ToolCaller
) -> None:
    folder = tmp_path / "elsewhere"
    write_rows(folder / "a.jsonl", chat("One."))
    for error in ask.refused("import_trajectories", {"path": str(folder)}, {"path": "../../elsewhere"}):
        assert error.startswith("[outside_roots]")
    with tool_caller(settings.model_copy(update={"roots": (folder,)})) as wider:
        assert wider("import_trajectories", path=str(folder))["imported"] == 1


@pytest.mark.usefixtures("jobs_in_process")
def test_large_logs_are_read_by_a_job_that_tells_the_same(
    services: Services, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(inbox / "logs" / "a.jsonl", *(chat(f"Number {n}.") for n in range(30)), "{torn")
    monkeypatch.setattr(imports, "IN_CALL_BYTES", 10)

    def finished(**tags: Any) -> JobView:
        started = imports.import_trajectories(services, "logs", **tags)
        assert (started.imported, started.status in {"queued", "running"}) == (None, True)
        job = get_job(services, started.job_id or "", wait_s=20)
        assert job.status == "succeeded"
        return job

    job = finished(tags=["night"])
    assert (job.result.n, job.result.report["n_rejected"]) == (30, 1)
    assert "a.jsonl:31" in job.warnings[0]
    found = search_trajectories(services, TrajectoryFilter(**job.result.trajectories.filter), limit=200)
    assert len(found.items) == 30
    assert {tag for item in found.items for tag in item.tags} == {"night"}
    job = finished()
    assert (job.result.n, job.result.report["unchanged"]) == (0, 1)


def test_an_unknown_format_or_path_is_told_at_once(services: Services, inbox: Path) -> None:
    with pytest.raises(LookupError, match=r"expected a log format, got 'claude_kode'.*did you mean 'claude_code'"):
        imports.import_trajectories(services, ".", "claude_kode")
    with pytest.raises(LookupError, match="got nothing at 'nowhere'"):
        imports.import_trajectories(services, "nowhere")


def test_a_session_that_has_grown_is_told_as_updated(services: Services, inbox: Path) -> None:
    def rows(n: int) -> list[Any]:
        about = {"sessionId": "s", "isSidechain": False, "version": "2.1.0", "timestamp": "2026-01-01T00:00:00Z"}
        asked = {"type": "user", "uuid": "u0", "parentUuid": None, "message": {"role": "user", "content": "Hi."}}
        said = [
            {"type": "assistant", "uuid": f"u{i}", "parentUuid": f"u{i - 1}", **about}
            | {"message": {"id": f"m{i}", "role": "assistant", "content": [{"type": "text", "text": f"Turn {i}."}]}}
            for i in range(1, n + 1)
        ]
        return [asked | about, *said]

    counts = []
    for turns, again in ((1, False), (3, False), (3, True)):
        write_rows(inbox / "s.jsonl", *rows(turns))
        result = imports.import_trajectories(services, "s.jsonl", again=again)
        counts.append((result.imported, result.updated, result.duplicates))
    assert counts == [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
    (item,) = services.store.trajectories.search(TrajectoryFilter()).items
    assert item.steps == 3


def _full_after(batches: int, add: Callable[..., Any]) -> Callable[..., Any]:
    """A database that takes so many batches."""
    places = itertools.count()

    def limited(*arguments: Any) -> Any:
        if next(places) >= batches:
            raise sqlite3.OperationalError("database or disk is full")
        return add(*arguments)

    return limited


def test_an_import_that_the_disk_ends_says_what_came_in(
    services: Services, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """250 runs are three batches; the disk is full at the second."""
    write_rows(inbox / "chat.jsonl", *(chat(f"Answer {i}.") for i in range(250)))
    monkeypatch.setattr(TrajectoryInserter, "add_new", _full_after(1, TrajectoryInserter.add_new))
    with pytest.raises(Unavailable, match=r"100 runs were stored and 0 updated; .* disk is full") as raised:
        imports.import_trajectories(services, "chat.jsonl")
    assert "nothing of it was stored" not in str(raised.value)
    assert services.store.trajectories.count(TrajectoryFilter()) == 100
    monkeypatch.undo()
    again = imports.import_trajectories(services, "chat.jsonl")
    assert (again.imported, again.duplicates) == (150, 100)


def test_a_secret_in_the_name_of_a_file_is_neither_told_nor_stored(services: Services, inbox: Path) -> None:
    write_rows(inbox / "logs" / f"{KEY}.jsonl", chat("Done."), "{torn")
    (inbox / "logs" / f"README-{KEY}.md").write_text("Nothing to read.")
    result = imports.import_trajectories(services, "logs")
    assert (result.imported, result.rejected_count, result.refused_count) == (1, 1, 1)
    assert KEY not in result.model_dump_json()
    assert "[REDACTED:" in result.files[0].file
    (run,) = services.store.trajectories.iterate(TrajectoryFilter())
    assert KEY not in run.model_dump_json()


def test_a_number_that_is_too_large_is_told_in_plain_words(services: Services, inbox: Path) -> None:
    (inbox / "odd.json").write_text("[" + "7" * 5000)
    (row,) = imports.import_trajectories(services, "odd.json").rejected
    assert row.place == "odd.json"
    assert "starts like JSON, but cannot be read: " in row.reason
