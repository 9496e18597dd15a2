"""What pruning frees of ended jobs, and what it leaves alone."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from jobs_in_process import jobs_in_process  # noqa: F401
from quintain.jobs.processes import try_lock, unlock
from quintain.jobs.pruning import ENDED, prunable
from quintain.records.agent import Agent, ModelRef
from quintain.records.job import JobStatus, SelftestSpec
from quintain.settings import Settings
from quintain.tools.services import open_services
from terminal import quintain


@pytest.mark.usefixtures("jobs_in_process")
def test_pruning_shows_first_and_deletes_what_no_agent_or_process_uses(settings: Settings) -> None:
    services = open_services(settings, trusted=True)
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
    assert "Would free 0.0 MiB of 1 job" in shown
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
    services.close()
