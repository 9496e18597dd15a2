"""Importing through the real protocol, and artifacts at URLs: what is read, pushed and refused."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from safetensors.numpy import save

from mcp_client import ToolCaller, tool_caller
from quintain.artifacts.transfers import fetch, upload
from quintain.datasets.manifest import read_manifest
from quintain.errors import InvalidInput, Refused, Unavailable
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import Job, JobStatus
from quintain.settings import Settings, read_settings
from quintain.store.trajectories.inserts import TrajectoryInserter
from quintain.tools.data import imports
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.forgetting import forget
from quintain.tools.data.imports import import_trajectories
from quintain.tools.data.row_references import named_dataset
from quintain.tools.data.trajectories import search_trajectories
from quintain.tools.evaluation.environment_references import usable_reference
from quintain.tools.jobs.jobs import get_job
from quintain.tools.results import JobView
from quintain.tools.services import Services
from quintain.tools.training.agents import register_agent
from quintain.tools.training.export_agent import export_agent
from quintain.tools.training.start import start_training
from store_shelves import base_agent
from tiny_models import save_tiny_model
from tools.stored_records import add_runs, error_of, write_rows
from trajectory_runs import run

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


def test_columns_that_may_state_how_runs_ended_are_named_where_nothing_else_does(inbox: Path, ask: ToolCaller) -> None:
    """Thumbs in a column of the user's own name would stay unread without a word."""
    rows = [chat(f"{n}.", id=f"run-{n}", feedback=["up", "down", None][n % 3], app="shop") for n in range(30)]
    write_rows(inbox / "thumbs.jsonl", *rows)
    step = ask("import_trajectories", path="thumbs.jsonl")["next_step"]
    assert "; or let a column of the rows ('feedback': of few values) state it: export_dataset(kind='kto'" in step
    write_rows(inbox / "known.jsonl", *(chat(f"{n}!", resolved=n % 2, feedback=f"f{n % 2}") for n in range(30)))
    known = ask("import_trajectories", path="known.jsonl")["next_step"]
    assert "Freeze those that succeeded with export_dataset(kind='sft'" in known
    assert not any(words in known for words in ("unknown", "of few values", "may be failures"))


def test_a_file_of_tasks_is_sent_to_the_environment_that_plays_them(inbox: Path, ask: ToolCaller) -> None:
    write_rows(inbox / "sums.jsonl", {"prompt": "2 + 2?", "ground_truth": "4"})
    for dry_run in (True, False):
        step = ask("import_trajectories", path="sums.jsonl", dry_run=dry_run)["next_step"]
        assert "which an agent plays as `environment='quintain/tasks?file=PATH'" in step
        assert "without a dry run" not in step


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
    assert "30 outcomes unknown: state those that you know: record_trajectory" in job.next_step
    assert "1 record rejected, each listed with its reason" in job.next_step
    found = search_trajectories(services, TrajectoryFilter(**job.result.trajectories.filter), limit=200)
    assert len(found.items) == 30
    assert {tag for item in found.items for tag in item.tags} == {"night"}
    job = finished()
    assert (job.result.n, job.result.report["unchanged"]) == (0, 1)
    assert "With `again`, unchanged files are read again." in job.next_step


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


TURNS = [{"role": "user", "content": "Count the apples"}, {"role": "assistant", "content": "3"}]
LOG = (json.dumps({"messages": TURNS}) + "\n").encode()


@pytest.fixture
def shelf(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A location of this test alone, outside of its home."""
    return f"file://{tmp_path_factory.mktemp('shelf')}"


@pytest.fixture
def allowed(services: Services, shelf: str) -> Services:
    """Services whose operator allows the location."""
    return replace(services, settings=services.settings.model_copy(update={"artifacts": (shelf, "hub:owner")}))


def write(url: str, content: bytes) -> str:
    fs, root = fsspec.url_to_fs(url)
    fs.makedirs(root.rpartition("/")[0], exist_ok=True)
    fs.pipe_file(root, content)
    return url


def last_job(services: Services) -> Job:
    return services.store.jobs.page(limit=1).items[0]


def test_no_tool_names_a_location_that_the_operator_does_not_allow(services: Services, shelf: str) -> None:
    base_agent(services.store, "plain")
    add_runs(services, run("t1", tags=("mine",)))
    calls: list[tuple[Any, dict[str, Any]]] = [
        (register_agent, {"name": "far", "model": f"{shelf}/model"}),
        (import_trajectories, {"path": f"{shelf}/logs"}),
        (export_dataset, {"kind": "sft", "name": "rows", "path": f"{shelf}/rows.jsonl"}),
        (export_dataset, {"kind": "sft", "name": "rows", "filter": TrajectoryFilter(), "push_to": f"{shelf}/rows"}),
        (export_dataset, {"kind": "sft", "name": "rows", "filter": TrajectoryFilter(), "push_to": "hub:owner/rows"}),
        (export_agent, {"agent": "plain", "format": "merged", "push_to": f"{shelf}/plain"}),
        (start_training, {"method": "sft", "model": "starter", "dataset_id": f"{shelf}/rows.jsonl"}),
        (usable_reference, {"reference": f"quintain/tasks?file={shelf}/tasks.jsonl"}),
    ]
    for trusted in (False, True):  # network and credentials are the operator's, whoever calls
        for function, arguments in calls:
            with pytest.raises(Refused, match=r"outside_artifacts.*QUINTAIN_ARTIFACTS"):
                function(replace(services, trusted=trusted), **arguments)
    with pytest.raises(InvalidInput, match="push_to"):
        export_agent(services, "plain", "merged", path=f"{shelf}/plain")
    assert services.store.jobs.page(limit=5).items == ()
    assert services.store.datasets.page(limit=5).items == ()


@pytest.mark.usefixtures("jobs_in_process")
def test_a_dataset_is_pushed_by_a_job_and_read_from_there(allowed: Services, shelf: str, tmp_path: Path) -> None:
    gone, _ = add_runs(allowed, run("t1", tags=("mine",)), run("t2", tags=("mine",)))
    runs = TrajectoryFilter(tags=("mine",))
    made = export_dataset(allowed, "sft", "good", filter=runs, push_to=f"{shelf}/good")
    view = get_job(allowed, made.push_job_id or "")
    assert (view.status, view.label) == (JobStatus.SUCCEEDED, f"push good to {shelf}/good")
    assert view.result.report["pushed_to"] == f"{shelf}/good"
    copy = fetch(f"{shelf}/good", tmp_path / "cache")
    assert (copy / "train.jsonl").read_bytes() == (Path(made.path) / "train.jsonl").read_bytes()
    assert str(tmp_path) in (Path(made.path) / "manifest.json").read_text(encoding="utf-8")
    assert not [path.name for path in copy.iterdir() if str(tmp_path).encode() in path.read_bytes()]
    assert read_manifest(copy).path == str(copy)
    again = export_dataset(allowed, "sft", "again", path=f"{shelf}/good")
    assert (again.rows, again.rejected) == (2, ())
    by_name = named_dataset(allowed, f"{shelf}/good", "sft")
    assert by_name == named_dataset(allowed, f"{shelf}/good", "sft")
    assert allowed.store.datasets.get(by_name or "").rows == 2
    export_dataset(allowed, "sft", "rows", filter=runs, format="trl", push_to=f"{shelf}/trl")
    assert {path.name for path in fetch(f"{shelf}/trl", tmp_path / "cache").iterdir()} >= {"README.md", "SHA256SUMS"}
    # The location is taken now: the dataset is frozen, and its job says why the upload failed.
    taken = export_dataset(allowed, "sft", "other", filter=runs, push_to=f"{shelf}/good")
    failed = get_job(allowed, taken.push_job_id or "")
    assert failed.error.code == "exists"
    report = forget(allowed, gone, dry_run=False)
    remedies = {thing.id: thing.remedy for thing in report.touched}
    assert f"delete {shelf}/good" in remedies[view.job_id]


def test_logs_are_imported_from_a_location_that_they_name_as_their_source(allowed: Services, shelf: str) -> None:
    write(f"{shelf}/logs/a.jsonl", LOG)
    first = import_trajectories(allowed, f"{shelf}/logs/")
    assert (first.imported, first.rejected) == (1, ())
    unchanged = import_trajectories(allowed, f"{shelf}/logs")
    assert (unchanged.imported, unchanged.unchanged_files) == (0, 1)
    write(f"{shelf}/logs/b/c.jsonl", LOG.replace(b"apples", b"pears"))
    assert import_trajectories(allowed, f"{shelf}/logs").imported == 1
    assert import_trajectories(allowed, f"{shelf}/logs/b/c.jsonl").duplicates == 1
    uris = {item.source.uri for item in allowed.store.trajectories.iterate(TrajectoryFilter())}
    assert uris == {f"{shelf}/logs/a.jsonl", f"{shelf}/logs/b/c.jsonl"}
    frozen = export_dataset(allowed, "sft", "rows", path=f"{shelf}/logs/a.jsonl")
    manifest = json.loads((Path(frozen.path) / "manifest.json").read_bytes())
    assert manifest["source"]["files"][0]["name"] == f"{shelf}/logs/a.jsonl"


@pytest.mark.usefixtures("jobs_in_process")
def test_a_model_is_registered_from_a_location_and_a_large_one_is_fetched_by_a_job(
    allowed: Services, shelf: str, tmp_path: Path
) -> None:
    upload(save_tiny_model(tmp_path / "tiny"), f"{shelf}/tiny")
    agent = register_agent(allowed, "far", f"{shelf}/tiny").agent
    known = allowed.store.agents.get(agent.id or "")
    assert Path(known.model.path).is_relative_to(allowed.settings.artifacts_cache_dir)
    assert (Path(known.model.path) / "model.safetensors").read_bytes() == (
        tmp_path / "tiny" / "model.safetensors"
    ).read_bytes()
    assert known.parent == "agent:tiny@1"
    write(f"{shelf}/large/config.json", b"{}")
    write(f"{shelf}/large/model.safetensors", save({"w": np.zeros(49 * 2**20, np.uint8)}))
    with pytest.raises(Unavailable, match=r"fetching.*get_job.*make this call again"):
        register_agent(allowed, "large", f"{shelf}/large")
    job = get_job(allowed, last_job(allowed).id)
    assert (job.kind, job.status, job.label) == ("fetch", JobStatus.SUCCEEDED, f"fetch {shelf}/large")
    assert register_agent(allowed, "large", f"{shelf}/large").agent.name == "large"
    assert error_of(register_agent, allowed, "none", f"{shelf}/nothing").code == "artifact_not_found"


def test_the_operator_lists_prefixes_separated_by_commas(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUINTAIN_ARTIFACTS", "s3://bucket/team, hub:owner,")
    assert read_settings(home).artifacts == ("s3://bucket/team", "hub:owner")
    assert Settings(home=home, artifacts=("s3://a",)).artifacts == ("s3://a",)
    monkeypatch.delenv("QUINTAIN_ARTIFACTS")
    assert read_settings(home).artifacts == ()
