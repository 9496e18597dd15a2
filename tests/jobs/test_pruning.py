"""What pruning frees of ended jobs, and what it leaves alone."""

from __future__ import annotations

import json
import shlex
from datetime import timedelta
from pathlib import Path

import pytest

from jobs_in_process import jobs_in_process  # noqa: F401
from quintain.errors import InvalidInput
from quintain.jobs.processes import try_lock, unlock
from quintain.jobs.pruning import ENDED, prunable
from quintain.records.agent import Agent, ModelRef
from quintain.records.jobs.job import EvaluateSpec, JobStatus, SelftestSpec
from quintain.settings import Settings
from quintain.tools.data.forgetting import forget
from quintain.tools.services import Services
from store_shelves import job
from terminal import quintain


@pytest.mark.usefixtures("jobs_in_process")
def test_pruning_shows_first_and_deletes_what_no_agent_or_process_uses(settings: Settings, services: Services) -> None:
    jobs = [services.jobs.start(SelftestSpec(steps=3, fail_at=2 if failed else None)).job for failed in (0, 1)]
    services.jobs.reconcile()
    done, failed = (services.store.jobs.get(job.id) for job in jobs)
    assert (done.status, failed.status) == (JobStatus.SUCCEEDED, JobStatus.FAILED)
    weights = services.jobs.directory(done.id) / "checkpoints" / "weights"
    weights.write_bytes(b"w" * 5000)
    line = ("jobs", "prune", "--older-than", "0")
    assert "Nothing to free" in quintain("jobs", "prune", home=settings.home).stdout
    shown = quintain(*line, home=settings.home).stdout
    assert (done.id in shown, failed.id in shown) == (True, False)
    assert "Would free 4.9 KiB of 1 job" in shown
    deleting = shlex.join(["quintain", *line, "--home", str(settings.home), "--delete"])
    assert deleting in shown, "the command deletes what was shown"
    assert weights.exists()

    held = try_lock(services.jobs.directory(done.id) / "lock")
    assert json.loads(quintain(*line, "--delete", "--json", home=settings.home).stdout)["freed"] == 0
    assert held is not None
    unlock(held)

    def found(days: int) -> list[str]:
        now = services.clock() + timedelta(days=1)
        most = prunable(services.store, settings.jobs_dir, now, older_than=timedelta(days=days), statuses=ENDED)
        return [one.job.id for one in most]

    assert found(2) == []
    assert found(1) == [done.id, failed.id]
    model = ModelRef(source="folder", path=str(weights.parent))
    services.store.agents.add(Agent(name="uses-it", model=model), services.clock())
    assert found(1) == [failed.id]
    freed = json.loads(quintain(*line, "--delete", "--unsuccessful", "--json", home=settings.home).stdout)
    assert [item["job_id"] for item in freed["items"]] == [failed.id]
    assert freed["freed"] == freed["bytes"] > 0
    assert weights.exists()
    assert quintain(*line, "--unsuccessful", home=settings.home).stdout.startswith("Nothing to free")
    assert quintain("show", failed.id, home=settings.home).returncode == 0


@pytest.mark.usefixtures("jobs_in_process")
def test_a_chat_frees_disk_after_a_dry_run_and_failed_jobs_only_by_name(services: Services) -> None:
    jobs = [services.jobs.start(SelftestSpec(steps=3, fail_at=2 if failed else None)).job for failed in (0, 1)]
    services.jobs.reconcile()
    done, failed = jobs
    weights = {job.id: services.jobs.directory(job.id) / "checkpoints" / "weights" for job in jobs}
    for file in weights.values():
        file.write_bytes(b"w" * 2**20)
    size = _bytes_in(services.jobs.directory(done.id))

    nothing = forget(services, ended_days=1)
    assert (nothing.freed_bytes, nothing.touched_count) == (0, 0)
    assert nothing.next_step.startswith("Nothing to free: succeeded jobs that ended at least 1 day ago")
    planned = forget(services, ended_days=0)
    assert (planned.dry_run, planned.freed_bytes, [one.id for one in planned.touched]) == (True, size, [done.id])
    deleting, others = planned.next_step.calls
    assert deleting.arguments == {"ended_days": 0, "dry_run": False}
    assert others.arguments == {"id": failed.id, "ended_days": 0}, "what cannot be resumed afterwards is named"
    assert all(file.exists() for file in weights.values())

    freed = forget(services, **deleting.arguments)
    assert (freed.freed_bytes, freed.removed) == (size, planned.removed)
    assert not weights[done.id].exists()
    assert weights[failed.id].exists()
    (one,) = forget(services, **others.arguments).touched
    assert one.remedy.endswith("it cannot be resumed afterwards")
    assert forget(services, failed.id, ended_days=0, dry_run=False).freed_bytes
    assert not weights[failed.id].exists()
    assert forget(services, ended_days=0).next_step.startswith("Nothing to free")
    with pytest.raises(InvalidInput, match=r"`ended_days` frees the disk space of jobs; expected no `filter`"):
        forget(services, ended_days=0, copies=True)
    with pytest.raises(InvalidInput, match=rf"forget\(id='{done.id}', ended_days=0\) frees its disk space"):
        forget(services, done.id)


@pytest.mark.usefixtures("jobs_in_process")
def test_checkpoints_that_a_waiting_job_plays_stay(services: Services) -> None:
    done = services.jobs.start(SelftestSpec(steps=3)).job
    services.jobs.reconcile()
    weights = services.jobs.directory(done.id) / "checkpoints" / "weights"
    weights.write_bytes(b"w")
    plays = Agent(name="early", model=ModelRef(source="folder", path=str(weights.parent)))
    spec = EvaluateSpec(agent=plays, environment="quintain/math", n_tasks=1)
    job(services.store, "job-waiting", spec, JobStatus.QUEUED)
    assert forget(services, ended_days=0, dry_run=False).freed_bytes == 0
    assert weights.exists()


def _bytes_in(folder: Path) -> int:
    places = (folder / "checkpoints", folder / "inputs")
    return sum(file.stat().st_size for place in places for file in place.rglob("*") if file.is_file())
