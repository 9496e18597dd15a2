"""Pictures of a job's curves."""

from __future__ import annotations

import pytest

from quintain.errors import InvalidInput
from quintain.records.job import Job, JobStatus, SelftestSpec
from quintain.records.job_events import JobEvent
from quintain.settings import Settings
from quintain.tools.jobs.pictures import plot_job
from quintain.tools.services import Services, open_services


def measured(services: Services, job_id: str, *rows: dict[str, float]) -> str:
    """A job that reported these metrics, one step each."""
    now = services.clock()
    job = Job(
        id=job_id,
        kind="selftest",
        status=JobStatus.QUEUED,
        spec=SelftestSpec(),
        request_key=job_id,
        created_at=now,
        updated_at=now,
    )
    services.store.jobs.insert(job)
    services.store.jobs.begin_attempt(job_id, 0, 1, now)
    events = [
        JobEvent(attempt=1, seq=n, time=now, type="progress", step=n, total_steps=len(rows), metrics=row)  # type: ignore[arg-type]
        for n, row in enumerate(rows, 1)
    ]
    services.store.jobs.ingest(job_id, "events.jsonl", (0, 1), now, events=events)
    return job_id


def test_a_rate_is_drawn_with_its_interval_where_the_job_tells_both_bounds(settings: Settings) -> None:
    services = open_services(settings)
    rows = [
        {"success_rate": rate, "success_rate_low": rate - 0.1, "success_rate_high": rate + 0.1} for rate in (0.2, 0.6)
    ]
    whole = plot_job(services, measured(services, "job-1", *rows))
    plain = plot_job(services, measured(services, "job-2", *({"success_rate": row["success_rate"]} for row in rows)))
    assert whole.png.startswith(b"\x89PNG")
    assert len(whole.png) > len(plain.png), "the band is more to compress"
    assert whole.text.splitlines()[1] == "success_rate: 0.2 -> 0.6  ▁█"
    assert len(whole.text.splitlines()) == 2, "bounds are no curves of their own"
    with pytest.raises(InvalidInput, match="job-2 has no metric loss; it has: success_rate"):
        plot_job(services, "job-2", ["loss"])
    services.close()
