"""Backups of a home in use, and what a restoration verifies before it changes anything."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
import tarfile
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from full_disk import full_disk
from jobs_in_process import in_process
from quintain.errors import QuintainError
from quintain.jobs.processes import try_lock, unlock
from quintain.records.jobs.job import JobStatus, SelftestSpec
from quintain.settings import Settings
from quintain.store.database.backup import back_up
from quintain.store.database.restore import follow_move, former_homes, restore, verify
from quintain.tools.data.datasets import export_dataset
from quintain.tools.services import open_services
from quintain.tools.training.requests import require_intact
from terminal import quintain
from trajectory_runs import run

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A home with runs, a dataset, an ended job, and one that waits."""
    settings = Settings(home=tmp_path_factory.mktemp("used") / "home", poll_s=0.05)
    services = open_services(settings, trusted=True)
    added = services.store.trajectories.add_many([run(f"t{n}") for n in range(5)], services.clock())
    export_dataset(services, "sft", "good", trajectory_ids=[one.id for one in added])
    with in_process():
        ended = services.jobs.start(SelftestSpec(steps=2)).job
    services.jobs.reconcile()
    ended = services.store.jobs.get(ended.id)
    waits = {"id": "job-waits", "status": JobStatus.QUEUED, "lease_until": None, "ended_at": None}
    services.store.jobs.insert(ended.model_copy(update=waits))
    (settings.jobs_dir / "job-waits").mkdir()
    (settings.jobs_dir / "job-waits" / "elsewhere").symlink_to("/etc/hostname")
    (settings.home / "http-token").write_text("a secret", encoding="utf-8")
    services.close()
    return settings


@pytest.fixture(scope="module")
def folder(used: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("backup") / "b"
    back_up(used.home, target, version="1", now=NOW)
    return target


def copy_of(folder: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.rglob("*"):
        if path.is_file():
            (copy / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            (copy / path.relative_to(folder)).write_bytes(path.read_bytes())
    return copy


@pytest.mark.parametrize("name", ["b", "b.tar", "b.tar.gz"])
def test_a_backup_made_while_others_write_is_restored_into_another_home(
    used: Settings, tmp_path: Path, name: str
) -> None:
    services, stop = open_services(used, trusted=True), threading.Event()

    def write() -> None:
        for number in itertools.count():
            services.store.trajectories.add_many([run(f"{name}-{number}")], services.clock())
            if stop.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        manifest = back_up(used.home, tmp_path / name, version="1", now=NOW)
    finally:
        stop.set()
        writer.join()
        services.close()
    assert manifest.left_out == ("jobs/job-waits/elsewhere",)
    assert not any("token" in file or "lock" in file for file in manifest.files)
    home = tmp_path / "a new home"
    restored = restore(tmp_path / name, home, replace=False, now=NOW)
    assert (restored.interrupted, restored.replaced) == (1, None)
    services = open_services(Settings(home=home), trusted=True)
    dataset = services.store.datasets.get("good")
    assert Path(dataset.path).is_relative_to(home)
    assert len((Path(dataset.path) / "train.jsonl").read_text().splitlines()) == dataset.rows
    waited = services.store.jobs.get("job-waits")
    assert (waited.status, waited.error and waited.error.code) == ("interrupted", "restored")
    services.close()


def test_the_records_of_a_moved_home_follow_it_and_those_of_a_copied_one_stay(folder: Path, tmp_path: Path) -> None:
    first, home = tmp_path / "first", tmp_path / "moved"
    restore(folder, first, replace=False, now=NOW)
    with sqlite3.connect(first / "quintain.db") as connection:
        connection.execute(
            "INSERT INTO datasets (id, name, document, created_at) VALUES ('ds-cut', 'cut', '{', '2026')"
        )
    shutil.copytree(first, home)
    assert former_homes(home) == [], "what they name is still there"
    shutil.rmtree(first)
    assert former_homes(home) == [str(first)]
    follow_move(home, former_homes(home))
    services = open_services(Settings(home=home), trusted=True)
    assert services.store.datasets.get("good").path.startswith(f"{home}/")
    require_intact(services.store.datasets.get("good"), all_files=True)
    services.close()
    assert former_homes(home) == []


def test_a_home_in_use_is_replaced_only_on_request_and_kept(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    restore(folder, home, replace=False, now=NOW)
    refused = quintain("restore", str(folder), "--json", home=home)
    assert (refused.returncode, "[home_not_empty]" in refused.stderr) == (2, True)
    lock = try_lock(home / "jobs" / "job-1" / "lock")
    running = quintain("restore", str(folder), "--yes", "--json", home=home)
    assert (running.returncode, "got job-1; cancel it first" in running.stderr) == (2, True)
    unlock(lock)
    again = quintain("restore", str(folder), "--yes", "--json", home=home)
    kept = Path(json.loads(again.stdout)["replaced"])
    assert (kept / "quintain.db").is_file()
    assert "good" in quintain("datasets", home=home).stdout
    assert quintain("restore", str(folder), "--check").returncode == 0
    twice = quintain("backup", str(folder), home=home)
    assert (twice.returncode, "which exists" in twice.stderr) == (2, True)


def _change(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (path,) = folder.glob(name)
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    return change


def _edit(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        document = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**document, **changes}))

    return edit


_FILE = {"bytes": 0, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (_change("datasets/*/train.jsonl"), "backup_damaged"),
        (_change("quintain.db"), "backup_damaged"),
        (lambda folder: (folder / "quintain.db").unlink(), "backup_damaged"),
        (lambda folder: (folder / "manifest.json").unlink(), "no_backup"),
        (_edit(schema_revision="9999"), "backup_newer"),
        (_edit(format=2), "backup_newer"),
        (_edit(files={"quintain.db": _FILE, "jobs/../../x": _FILE}), "no_backup"),
        (_edit(files={"quintain.db": _FILE, "/x": _FILE}), "no_backup"),
        (_edit(files={"": _FILE}), "no_backup"),
        (_edit(files=[]), "no_backup"),
    ],
)
def test_a_damaged_newer_or_hostile_backup_changes_nothing(
    folder: Path, tmp_path: Path, damage: Callable[[Path], None], code: str
) -> None:
    copy, home = copy_of(folder, tmp_path), tmp_path / "home"
    damage(copy)
    with pytest.raises(QuintainError) as raised:
        restore(copy, home, replace=True, now=NOW)
    assert raised.value.code == code
    assert not home.exists() or list(home.iterdir()) == []


def test_links_in_an_archive_are_not_followed(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "b.tar"
    with tarfile.open(archive, "w") as out:
        out.add(folder / "manifest.json", "manifest.json")
        link = tarfile.TarInfo("quintain.db")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        out.addfile(link)
    with pytest.raises(QuintainError, match="backup_damaged"):
        verify(archive)
    with pytest.raises(QuintainError, match="no_backup"):
        verify(Path(__file__))


def test_a_backup_that_does_not_fit_on_the_disk_is_refused_with_the_remedy_and_leaves_nothing(
    used: Settings, tmp_path: Path
) -> None:
    for largest in (4096, (used.home / "quintain.db").stat().st_size):
        with full_disk(largest), pytest.raises(QuintainError, match=r"; (free disk space|check the disk)$") as refused:
            back_up(used.home, tmp_path / "b.tar", version="1", now=NOW)
        assert "doctor" not in refused.value.message
        assert list(tmp_path.iterdir()) == []


def test_what_killed_backups_and_restorations_left_goes_with_the_next_one_and_that_of_running_ones_stays(
    used: Settings, tmp_path: Path
) -> None:
    for home, name in ((tmp_path, "quintain-backup"), (tmp_path / "home", "restore")):
        for state in ("dead", "alive"):
            (home / f".{name}-{state}").mkdir(parents=True)
            (home / f".{name}-{state}" / "lock").touch()
            (home / f".{name}-{state}" / "copy").touch()
    alive = [try_lock(lock) for lock in (*tmp_path.glob(".*-alive/lock"), *tmp_path.glob("home/.*-alive/lock"))]
    back_up(used.home, tmp_path / "lock", version="1", now=NOW)
    assert {path.name for path in tmp_path.iterdir()} == {".quintain-backup-alive", "home", "lock"}
    restore(tmp_path / "lock", tmp_path / "home", replace=False, now=NOW)
    assert [path.name for path in (tmp_path / "home").glob(".*")] == [".restore-alive"]
    for lock in alive:
        unlock(lock)


def test_a_damaged_database_is_not_backed_up(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "quintain.db").write_bytes(b"SQLite format 3\0" + b"\7" * 5000)
    with pytest.raises(QuintainError, match="cannot copy the database"):
        back_up(home, tmp_path / "b", version="1", now=NOW)
    sqlite3.connect(home / "other.db").close()
    assert list(tmp_path.iterdir()) == [home]
