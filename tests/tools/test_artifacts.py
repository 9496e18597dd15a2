"""Tools and artifacts at URLs: what is pushed there, read from there, and refused without the operator's prefixes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from quintain.artifacts.transfers import fetch, upload
from quintain.datasets.manifest import read_manifest
from quintain.errors import InvalidInput, Refused, Unavailable
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import Job, JobStatus
from quintain.settings import Settings, read_settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.forgetting import forget
from quintain.tools.data.imports import import_trajectories
from quintain.tools.data.row_references import named_dataset
from quintain.tools.evaluation.environment_references import usable_reference
from quintain.tools.jobs.jobs import get_job
from quintain.tools.services import Services
from quintain.tools.training.agents import register_agent
from quintain.tools.training.export_agent import export_agent
from quintain.tools.training.start import start_training
from store_shelves import base_agent
from tiny_models import save_tiny_model
from tools.stored_records import add_runs, error_of
from trajectory_runs import run

TRUSTED = False

TURNS = [{"role": "user", "content": "Count the apples"}, {"role": "assistant", "content": "3"}]
LOG = (json.dumps({"messages": TURNS}) + "\n").encode()


@pytest.fixture
def shelf(tmp_path: Path) -> str:
    """A location in memory, of this test alone."""
    return f"memory://{tmp_path.name}/shelf"


@pytest.fixture
def allowed(services: Services, shelf: str) -> Services:
    """Services whose operator allows the location."""
    return replace(services, settings=services.settings.model_copy(update={"artifacts": (shelf, "hub:owner")}))


def write(url: str, content: bytes) -> str:
    fs, root = fsspec.url_to_fs(url)
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
    assert (view.status, view.label) == (JobStatus.SUCCEEDED, f"push {made.dataset_id} to {shelf}/good")
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
    write(f"{shelf}/large/model.safetensors", bytes(49 * 2**20))
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
