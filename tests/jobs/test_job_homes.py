"""Several homes with one database, and the devices of jobs: who starts what, who leaves it alone, who gets which GPU."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs_in_process import jobs_in_process  # noqa: F401
from quintain.cli.commands.doctor import run_doctor
from quintain.errors import Conflict, InvalidInput, Unavailable
from quintain.jobs import devices, processes
from quintain.jobs.devices import assign_devices, detect_devices, devices_needed
from quintain.jobs.home_claim import HomeClaim, assign_new_id
from quintain.jobs.launchers.contract import Attempt, ClusterOptions
from quintain.jobs.launchers.local import LocalLauncher
from quintain.jobs.launchers.registry import open_launcher
from quintain.jobs.reconciler import Reconciler
from quintain.jobs.runner import JobRunner
from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters.methods import CONFIGS
from quintain.records.jobs.job import JobStatus, RolloutSpec, SelftestSpec, TrainSpec
from quintain.settings import Settings
from quintain.tools.jobs.stalls import lease_notice
from quintain.tools.services import open_services

if TYPE_CHECKING:
    from jobs.conftest import JobHome

LONG = SelftestSpec(steps=100_000, step_s=0.1)


def second_home(jobs: JobHome, name: str = "second", **changes: object) -> JobRunner:
    """A server of another home on the same database."""
    folder = jobs.home / name / "jobs"
    folder.mkdir(parents=True, exist_ok=True)
    return jobs.runner_with(jobs_dir=folder, **changes)


def training(**settings: object) -> TrainSpec:
    agent = Agent(id="agent:starter@1", name="starter", model=ModelRef(source="starter", path="starter"))
    return TrainSpec(
        agent=agent, dataset_id="ds-1", name="clerk", output_dir="unused", config=CONFIGS["sft"](**settings)
    )


def test_a_home_neither_starts_nor_ends_jobs_of_another_and_its_state_is_unknown_past_the_lease(jobs: JobHome) -> None:
    """The other home has the same database and no folder of the job: it would see a free lock and a dead job."""
    other = second_home(jobs)
    assert jobs.runner.home == jobs.runner_with().home != other.home
    mine = jobs.runner_with(lease_s=0.5, light_kinds=frozenset())
    job = mine.start(LONG).job
    jobs.wait_for_step(job.id, 2)
    later = job.updated_at + timedelta(seconds=0.6)
    jobs.until(lambda: (mine.reconcile(), jobs.store.jobs.get(job.id).lease_until > later)[1], "a renewed lease")
    waiting = mine.start(LONG, request_key="waiting").job
    for _ in range(5):
        other.reconcile()
    assert [jobs.store.jobs.get(found).attempt for found in (job.id, waiting.id)] == [1, 0]
    assert not (jobs.home / "second" / "jobs" / job.id).exists()
    assert other.queue().running == []
    shutil.copytree(jobs.home / "second", jobs.home / "copy")
    copy = second_home(jobs, "copy")
    theirs = other.start(SelftestSpec(steps=3)).job
    assert (copy.home, copy.reconcile()) == (other.home, set()), "a copy would take this job for lost"
    assert "quintain doctor --new-home-id" in (copy.trouble(theirs.id) or "")
    with pytest.raises(Conflict, match=f"beside .*{jobs.home}/second/jobs"):
        copy.start(SelftestSpec(steps=4))
    jobs.until(
        lambda: (mine.reconcile(), other.reconcile(), jobs.store.jobs.get(theirs.id).ended_at)[2], "their job ends"
    )
    assert (jobs.store.jobs.get(theirs.id).status, jobs.store.jobs.get(theirs.id).attempt) == (JobStatus.SUCCEEDED, 1)
    assert not jobs.directory(theirs.id).path.exists()
    name = jobs.options.jobs_dir / "home_id"
    name.rename(jobs.home / "unmounted")
    assert mine.reconcile() == set(), "nothing is decided while the folder is not mounted"
    assert "mount it" in (mine.trouble(job.id) or "")
    (jobs.home / "unmounted").rename(name)
    assert jobs.runner.home in other.log_tail(job.id)

    assert other.cancel(waiting.id).status is JobStatus.CANCELLED
    assert other.cancel(job.id).cancel_requested
    assert jobs.wait(job.id, JobStatus.CANCELLED, reconcile=jobs.runner).attempt == 1
    with pytest.raises(Conflict, match="resume it by a server of that home"):
        other.resume(job.id)

    shown = job.model_copy(update={"lease_until": job.updated_at, "home": jobs.runner.home})
    assert lease_notice(shown, job.updated_at) is None
    assert "so whether it runs is unknown" in (lease_notice(shown, job.updated_at + timedelta(seconds=1)) or "")


def test_a_folder_claims_its_home_id_until_it_is_silent_for_a_lease_and_a_copy_gets_an_id_of_its_own(
    jobs: JobHome,
) -> None:
    original, copy = jobs.home / "second" / "jobs", jobs.home / "copy" / "jobs"
    home, clock = second_home(jobs).home, itertools.count(step=3)

    def claim(folder: Path) -> HomeClaim:
        """Of one process, for whose clock 3 s pass between two looks; the lease is 60 s."""
        return HomeClaim(jobs.store, folder, home, beat_s=2, lease_s=60, monotonic=lambda: next(clock))

    first, second, gone = claim(original), claim(original), original / "home_claim.a-container"
    gone.write_text("0", "ascii")
    os.utime(gone, (0, 0))
    assert [first.renew(), second.renew(), first.renew()] == [True] * 3, "processes of one folder take turns"
    assert not gone.exists()
    shutil.copytree(original.parent, copy.parent)
    assert first.renew()
    late = claim(copy)
    assert [late.renew() or first.renew() for _ in range(30)] == [True] * 30
    assert error_code(late.require) == "home_in_use"
    outcomes = [late.renew() for _ in range(30)]
    assert outcomes == sorted(outcomes), "no renewal of the original for a lease: the home has moved"
    assert outcomes[-1]
    assert not first.renew()
    assert run_doctor(original.parent, new_home_id=True) == 0
    assert second_home(jobs).home != home
    assert second_home(jobs, "copy").home == home
    lock = processes.try_lock(copy / "job-1" / "lock")
    with pytest.raises(Conflict, match="job-1; cancel it first"):
        assign_new_id(copy)
    processes.unlock(lock)


def test_a_copy_of_a_home_with_its_database_is_a_home_of_its_own_and_runs_no_job_of_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the job for killed, run it too, and write into the folders of the original, which its specification names."""
    first, copied, moved = (Settings(home=tmp_path / name) for name in ('the "first" of José', "copied", "moved"))
    monkeypatch.setattr(LocalLauncher, "start", lambda self, attempt: None)
    original = open_services(first)
    spec = training().model_copy(update={"output_dir": str(first.agents_dir / "clerk")})
    ids = [original.jobs.start(spec, request_key=key).job.id for key in ("runs", "waits")]
    shutil.copytree(first.home, copied.home)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        with closing(open_services(copied).store) as read_only:
            assert read_only.jobs.get(ids[0]).status == "running", "a read-only copy is read as it is"
    for _ in range(2):  # the second finds it as the first has left it
        copy = open_services(copied)
        for job in map(copy.store.jobs.get, ids):
            assert (job.status, job.error and job.error.code) == ("interrupted", "copied")
            assert f"under way in {first.home}" in job.error.message
            assert job.spec.output_dir == str(copied.agents_dir / "clerk")
        copy.jobs.reconcile()
        copy.close()
    copy = open_services(copied)
    assert copy.jobs.resume(ids[0]).status == "running"
    assert copy.jobs.home != original.jobs.home == open_services(first).jobs.home
    assert [original.store.jobs.get(job_id).status for job_id in ids] == ["running", "queued"]
    (tmp_path / "linked").symlink_to(first.home)
    linked = open_services(Settings(home=tmp_path / "linked"))
    assert (linked.jobs.home, linked.store.jobs.get(ids[1]).status) == (original.jobs.home, "queued")
    first.home.rename(moved.home)
    after = open_services(moved)
    assert (after.jobs.home, after.store.jobs.get(ids[1]).status) == (original.jobs.home, "queued")
    output = after.store.jobs.get(ids[1]).spec.output_dir
    assert output == str(moved.agents_dir / "clerk"), "it goes on here, and writes here"
    for services in (original, copy, linked, after):
        services.close()


def test_a_job_of_a_moved_home_that_had_ended_is_resumed_where_the_home_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, moved = (Settings(home=tmp_path / name) for name in ("first", "moved"))
    monkeypatch.setattr(LocalLauncher, "start", lambda self, attempt: None)
    with closing(open_services(first)) as before:
        spec = training().model_copy(update={"output_dir": str(first.agents_dir / "clerk")})
        job = before.jobs.start(spec).job
        before.store.jobs.finish(job.id, 1, JobStatus.INTERRUPTED, before.clock())
    first.home.rename(moved.home)
    with closing(open_services(moved)) as after:
        assert after.jobs.resume(job.id).spec.output_dir == str(moved.agents_dir / "clerk")


def test_a_folder_whose_id_was_lost_or_damaged_goes_on_with_its_jobs(jobs: JobHome) -> None:
    """With a new id, nobody would look after the jobs that are under way, and they would seem to run for ever."""
    running, waiting = jobs.runner.start(SelftestSpec(steps=20)).job, jobs.runner.start(SelftestSpec(steps=2)).job
    name = jobs.options.jobs_dir / "home_id"
    for left in (b"", bytes(16), b"\xff\xfe\n", b"cut", None):
        name.unlink()
        if left is not None:
            name.write_bytes(left)
        after = jobs.runner_with()
        assert (after.home, processes.read_home_id(jobs.options.jobs_dir)) == (jobs.runner.home, jobs.runner.home), left
    for job in (running, waiting):
        assert jobs.wait(job.id, JobStatus.SUCCEEDED, reconcile=after).attempt == 1


@pytest.mark.usefixtures("jobs_in_process")
def test_doctor_names_the_jobs_of_a_home_whose_id_was_changed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_doctor(home) == 0
    job_id = re.search(r"job-[0-9a-f]{10}", capsys.readouterr().out)[0]
    with closing(sqlite3.connect(home / "quintain.db")) as connection:
        connection.execute("UPDATE jobs SET home = 'another', status = 'running' WHERE id = ?", (job_id,))
        connection.commit()
    assert run_doctor(home) == 1
    printed = capsys.readouterr().out
    assert f"{job_id}: it belongs to home another" in printed
    assert "a job from start to end: ok" in printed, "its own job, and not an equal one of the other home"


def error_code(call: Callable[[], object]) -> str:
    with pytest.raises(Conflict) as caught:
        call()
    return caught.value.code


def test_an_attempt_of_another_machine_is_judged_by_its_heartbeats_and_not_by_the_lock(
    jobs: JobHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's file system does not show this machine the lock of the other one."""
    runner = jobs.runner_with(lease_s=4.0)
    with monkeypatch.context() as patch:
        patch.setattr(processes, "this_machine", lambda: "other/0")
        job = runner.start(LONG).job
    jobs.wait_for_step(job.id, 2)
    here = Attempt(job.id, 1, "", jobs.directory(job.id).path, processes.this_machine())
    assert LocalLauncher(ClusterOptions()).alive(here) is False
    lock = jobs.directory(job.id).lock
    lock.unlink()  # another file has another lock, which is free
    jobs.until(lambda: jobs.directory(job.id).heartbeat(), "a first heartbeat")
    beat = jobs.directory(job.id).heartbeat()
    jobs.until(lambda: (runner.reconcile(), jobs.directory(job.id).heartbeat() != beat)[1], "the next heartbeat")
    assert jobs.store.jobs.get(job.id).attempt == 1
    os.kill(jobs.shim(job.id), signal.SIGKILL)
    runner.reconcile()
    assert jobs.store.jobs.get(job.id).attempt == 1, "not before the lease is over"
    jobs.until(lambda: (runner.reconcile(), jobs.store.jobs.get(job.id).attempt == 2)[1], "the second attempt")
    runner.cancel(job.id)
    jobs.wait(job.id, JobStatus.CANCELLED, reconcile=runner)


def test_each_job_gets_devices_of_its_own_and_its_end_releases_them(
    jobs: JobHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    settings = Settings(home=jobs.home)
    assert settings.devices == ("0", "1")
    monkeypatch.setenv("QUINTAIN_DEVICES", "-1")
    assert Settings(home=jobs.home).devices == ()
    heavy = {"slots": 2, "light_kinds": frozenset()}
    runner = jobs.runner_with(**heavy, devices=settings.devices)
    ids = [runner.start(LONG, request_key=str(number)).job.id for number in range(3)]
    workers = [jobs.wait_for_step(job_id, 1) for job_id in ids[:2]]

    def visible(pid: int) -> bytes:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return dict(pair.partition(b"=")[::2] for pair in pairs)[b"CUDA_VISIBLE_DEVICES"]

    assert sorted(map(visible, workers)) == [b"0", b"1"]
    freed = visible(workers[1]).decode()
    runner.cancel(ids[1])
    jobs.wait(ids[1], JobStatus.CANCELLED)
    jobs.wait_for_step(ids[2], 1)
    assert json.loads(jobs.directory(ids[2]).launch.read_text())["devices"] == [freed]

    runner.cancel(ids[2])
    jobs.wait(ids[2], JobStatus.CANCELLED)
    ids[2] = jobs.runner_with(**heavy, devices=()).start(LONG, request_key="without").job.id
    assert visible(jobs.wait_for_step(ids[2], 1)) == b"", "no devices are not all"
    for job_id in (ids[0], ids[2]):
        runner.cancel(job_id)
        jobs.wait(job_id, JobStatus.CANCELLED)


def test_the_instances_of_a_divided_gpu_are_devices_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of `nvidia-smi -L` on a machine with MIG."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n[ $1 = --list-gpus ] && cat <<END\n"
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-2927d07e-3fe9-7904-9e08-b08b82d9a37d)\n"
        "  MIG 3g.20gb     Device  0: (UUID: MIG-6e95ef19-5145-571b-b040-7e731f1c1af3)\n"
        "  MIG 1g.5gb      Device  1: (UUID: MIG-GPU-2927d07e-3fe9-7904-9e08-b08b82d9a37d/9/0)\n"
        "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-e109d8d9-923e-7235-0429-96b7fdbcbd30)\nEND\n"
    )
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(devices, "version", lambda _: "2.9.0+cu130")
    assert detect_devices.__wrapped__() == (
        "MIG-6e95ef19-5145-571b-b040-7e731f1c1af3",
        "MIG-GPU-2927d07e-3fe9-7904-9e08-b08b82d9a37d/9/0",
        "GPU-e109d8d9-923e-7235-0429-96b7fdbcbd30",
    )


def test_devices_are_shared_only_where_there_are_more_slots_than_devices() -> None:
    assert assign_devices(1, (), 4, []) == ()
    assert assign_devices(1, ("0", "1"), 2, [("0",)]) == ("1",)
    assert assign_devices(1, ("0", "1"), 2, [("0",), ("1",)]) is None
    assert assign_devices(2, ("0", "1"), 2, [("1",)]) is None
    assert assign_devices(8, ("0", "1"), 2, []) == ("0", "1"), "the training refuses more processes than devices"
    assert assign_devices(1, ("0", "1"), 4, [("0",), ("1",), ("0",)]) == ("1",)
    assert [devices_needed(spec) for spec in (LONG, training(), training(processes=4))] == [1, 1, 4]
    playing = RolloutSpec(agent=training().agent, environment="quintain/inventory", n_tasks=1, actors=3)
    assert devices_needed(playing) == 3
    assert devices_needed(playing.model_copy(update={"actor_backend": "ray"})) == 1


def test_launchers_are_found_by_name_and_a_missing_setting_is_named(jobs: JobHome) -> None:
    with pytest.raises(InvalidInput, match="local, ray, slurm, got 'kubernetes'"):
        open_launcher("kubernetes", ClusterOptions())
    with pytest.raises(InvalidInput, match="RAY_ADDRESS"):
        jobs.runner_with(launcher="ray")
    cluster = jobs.runner_with(launcher="ray", cluster=ClusterOptions(ray_address="http://127.0.0.1:9"))
    with pytest.raises(InvalidInput, match="expected machines 1 with QUINTAIN_LAUNCHER=ray"):
        cluster.start(training(processes=4, machines=2, rendezvous="10.0.0.1:29600"))
    for address, reason in (
        ("http://me:s3cret@127.0.0.1:9", "Error: Failed to connect"),
        ("nowhere", "Error: Invalid address"),
    ):
        nobody = open_launcher("ray", ClusterOptions(ray_address=address))
        with pytest.raises(Unavailable, match=rf"expected an answer of Ray at .*{reason}.* URL of") as raised:
            nobody.alive(Attempt("job-1", 1, "token", jobs.home))
        assert "s3cret" not in str(raised.value)
    assert Reconciler(jobs.store, jobs.options, jobs.runner._clock).launcher("local").is_remote is False
