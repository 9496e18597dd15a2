"""Pushes to the Hub: one commit with the card, a private repository, and errors without the token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import constants

from hub_endpoint import TOKEN, Hub
from jobs_in_process import in_process
from quintain.artifacts.pushing import push
from quintain.errors import Refused, Unavailable
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import JobStatus
from quintain.settings import Settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.jobs.jobs import get_job
from quintain.tools.services import open_services
from trajectory_runs import NOW, run

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # huggingface_hub calls httpx so


def quiet(done: int, total: int) -> None:
    """Report nothing."""


def test_a_folder_becomes_one_commit_of_a_private_repository_or_nothing(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "clerk"
    folder.mkdir()
    (folder / "README.md").write_text("---\nlibrary_name: peft\n---\n# clerk\n", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(bytes(1000))
    hub.refuses = "/commit"
    with pytest.raises(Unavailable, match="HTTP 400: refused"):
        push(folder, "hub:owner/clerk", "model", quiet)
    assert hub.repositories == {"models/owner/clerk": {}}
    hub.refuses = ""
    assert push(folder, "hub:owner/clerk", "model", quiet).startswith(f"{hub.url}/owner/clerk/commit/")
    assert hub.repositories["models/owner/clerk"] == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert hub.visibility == {"models/owner/clerk": "private"}
    assert len(hub.commits) == 1
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}X")
    with pytest.raises(Refused, match="HF_TOKEN") as refused:
        push(folder, "hub:owner/clerk", "model", quiet)
    assert TOKEN not in refused.value.message
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(Unavailable, match="HF_HUB_OFFLINE"):
        push(folder, "hub:owner/clerk", "model", quiet)


def test_a_further_push_replaces_what_an_earlier_one_listed_and_leaves_other_files(hub: Hub, tmp_path: Path) -> None:
    """Parts of an earlier dataset would be loaded with the new one, and its adapter put on the merged weights."""
    rows, agent = tmp_path / "rows", tmp_path / "agent"
    rows.mkdir()
    (rows / "train.parquet").write_bytes(b"one")
    (rows / "test.parquet").write_bytes(b"two")
    (rows / "SHA256SUMS").write_text("0  train.parquet\n0  test.parquet\n", encoding="utf-8")
    agent.mkdir()
    (agent / "adapter.safetensors").write_bytes(b"one")
    (agent / "agent.json").write_text('{"files": {"adapter.safetensors": "0"}}', encoding="utf-8")
    for folder, content, listed in ((rows, "dataset", "test.parquet"), (agent, "model", "adapter.safetensors")):
        push(folder, "hub:owner/both", content, quiet)
        repository = hub.repositories[f"{content}s/owner/both"]
        repository["picture.png"] = b"by hand"
        (folder / listed).unlink()
        (folder / "more.safetensors").write_bytes(b"three")
        push(folder, "hub:owner/both", content, quiet)
        assert repository == {path.name: path.read_bytes() for path in folder.iterdir()} | {"picture.png": b"by hand"}
        for foreign in (b"{}", b'["a"]', b"no json", b'{"files": 1}'):  # an agent.json of somebody else lists nothing
            repository["agent.json"] = foreign
            push(folder, "hub:owner/both", content, quiet)
            assert set(repository) >= {"picture.png", "more.safetensors"}
    assert len(hub.commits) == 12


def test_a_dataset_is_pushed_with_its_card_once_the_operator_allows_the_owner(hub: Hub, settings: Settings) -> None:
    services = open_services(settings)
    services.store.trajectories.add_many([run("t1", tags=("mine",))], NOW)
    runs = TrajectoryFilter(tags=("mine",))
    with pytest.raises(Refused, match="QUINTAIN_ARTIFACTS"):
        export_dataset(services, "sft", "good", filter=runs, push_to="hub:owner/good")
    allowed = replace(services, settings=settings.model_copy(update={"artifacts": ("hub:owner",)}))
    with pytest.raises(Refused, match="now: hub:owner"):
        export_dataset(allowed, "sft", "good", filter=runs, push_to="hub:others/good")
    with in_process():
        made = export_dataset(allowed, "sft", "good", filter=runs, push_to="hub:owner/good")
    view = get_job(allowed, made.push_job_id or "")
    assert view.status == JobStatus.SUCCEEDED, view.error
    files = hub.repositories["datasets/owner/good"]
    assert files.keys() >= {"README.md", "train.parquet", "SHA256SUMS"}
    assert made.dataset_id.encode() in files["README.md"]
    assert made.format == "hub"
    stored = "".join(
        path.read_text(encoding="utf-8", errors="replace")
        for path in settings.jobs_dir.rglob("*")
        if path.is_file() and path.stat().st_size < 10**6
    )
    assert TOKEN not in stored
    services.close()
