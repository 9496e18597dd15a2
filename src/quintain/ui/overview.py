"""The data of the first page: what runs, what ended, what was measured and compared last."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from quintain.errors import Conflict
from quintain.next_step import ToolCall
from quintain.records.evaluation import Comparison, Evaluation
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import JobStatus
from quintain.tools.jobs.jobs import NO_JOB, list_jobs
from quintain.tools.jobs.next_steps import next_step
from quintain.tools.services import Services

_MOST = 20
_MEASURED = 8


def overview(services: Services, written: Callable[[ToolCall], str]) -> dict[str, Any]:
    """Return the data of the first page; `written` names the calls of its next step."""
    newest = list_jobs(services, limit=_MOST)
    open_jobs = [
        job.model_dump(mode="json")
        for status in (JobStatus.RUNNING, JobStatus.QUEUED)
        for job in list_jobs(services, status=status, limit=_MOST).items
    ]
    # Previews are on the page of their dataset, a check of the installation leads nowhere, and unfinished jobs have their own place.
    jobs = [job for job in newest.items if job.kind not in {"preview", "selftest"}]
    ended = [job for job in jobs if job.status not in {"running", "queued"}]
    ended.sort(key=lambda job: job.ended_at or job.created_at, reverse=True)
    step = "" if jobs else NO_JOB.render(written)
    if ended:
        last = ended[0]
        following = next_step(services, services.store.jobs.get(last.job_id)).render(written)
        step = f"After [{last.label}](/jobs/{last.job_id}): {following}"
    return {
        "runs": services.store.trajectories.count(TrajectoryFilter()),
        "open": open_jobs,
        "ended": [job.model_dump(mode="json") for job in ended[:_MEASURED]],
        "measured": [_measured(services, one) for one in services.store.evaluations.page(limit=_MEASURED).items],
        "comparisons": [_outline(one) for one in services.store.evaluations.page_comparisons(limit=5).items],
        "next_step": step,
    }


def _measured(services: Services, evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation with that of the agent's parent on the same tasks, where there is one."""
    before = parent = None
    with suppress(Conflict):  # a record that this version cannot read must not hide the others
        agent = services.store.agents.find(evaluation.agent_id)
        parent = None if agent is None else agent.parent
        found = [] if parent is None else services.store.evaluations.of_agent(parent)
        before = next((one for one in found if one.suite_hash == evaluation.suite_hash), None)
    return {
        "evaluation_id": evaluation.id,
        "agent": evaluation.agent_id,
        "environment": evaluation.environment,
        "split": evaluation.split,
        "purpose": evaluation.purpose,
        "job_id": evaluation.job_id,
        "rate": evaluation.rate.model_dump(mode="json"),
        "parent": parent,
        "before": before.rate.model_dump(mode="json") if before is not None else None,
    }


def _outline(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison with its clearest pair."""
    pair = min(comparison.comparisons, key=lambda one: one.p_corrected, default=None)
    shown = {"a", "b", "measure", "difference", "ci_low", "ci_high", "significant", "n_tasks"}
    return {
        "comparison_id": comparison.id,
        "environment": comparison.environment,
        "created_at": comparison.created_at.isoformat() if comparison.created_at is not None else None,
        "pairs": len(comparison.comparisons),
        "pair": pair.model_dump(mode="json", include=shown) if pair is not None else None,
    }
