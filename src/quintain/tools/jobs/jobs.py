"""Jobs: look at one (and wait for its next change), list them, ask one to stop, continue one."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from quintain.errors import Conflict
from quintain.records.evolve import round_dataset_id
from quintain.records.handover import ExportAgentSpec
from quintain.records.hyperparameters import ROLES
from quintain.records.job import (
    TERMINAL,
    UNFINISHED,
    EvolveSpec,
    Job,
    JobResult,
    JobSpec,
    JobStatus,
    JudgeSpec,
    RecipeSpec,
    ReplaySpec,
    ScoreSpec,
    StepLabelSpec,
    TrainSpec,
)
from quintain.records.record import clip, require_number
from quintain.tools.data.lineage import require_remembered, require_untainted, taint_note
from quintain.tools.results import Curve, JobList, JobStarted, JobSummary, JobView
from quintain.tools.services import Services

JobId = Annotated[str, Field(description="From a start tool, or list_jobs.")]
Detail = Annotated[
    Literal["metrics", "log"] | None, Field(description="Also return the curves of all metrics, or the end of the log.")
]
WaitS = Annotated[float, Field(ge=0, le=50, description="Wait so many seconds at most for the next change.")]


def get_job(services: Services, job_id: JobId, wait_s: WaitS = 0, detail: Detail = None) -> JobView:
    """Show a job: status, phase, step of total, newest metrics, time left, result or error.

    `wait_s` waits for the next change of phase or status; call it again to keep waiting. Jobs outlive this conversation:
    list_jobs finds them.
    """
    view: JobView | None = None
    for view in watch_job(services, job_id, wait_s, detail):
        if view.status not in UNFINISHED or not wait_s:
            break
        time.sleep(services.settings.poll_s)
    assert view is not None
    return view


def watch_job(services: Services, job_id: JobId, wait_s: WaitS = 0, detail: Detail = None) -> Iterator[JobView]:
    """Yield the job until its status or phase changes, it ends, or `wait_s` has passed; the caller sleeps between."""
    end = time.monotonic() + wait_s
    services.jobs.reconcile()
    first = services.store.jobs.get(job_id)
    current = first
    while True:
        yield _detailed(services, view_of(current), detail)
        done = current.status not in UNFINISHED or (current.status, current.phase) != (first.status, first.phase)
        if done or time.monotonic() >= end:
            return
        services.jobs.reconcile()
        current = services.store.jobs.get(job_id)


def job_log(services: Services, job_id: str, tail: int = 100) -> str:
    """The last lines that a job's worker wrote to its log."""
    services.store.jobs.get(job_id)
    return services.jobs.log_tail(job_id, max(1, min(tail, 1000)))


def metric_curves(services: Services, job_id: str) -> dict[str, Curve]:
    """Every metric of a job over its steps; a value that is not finite is left out."""
    points: dict[str, dict[int, float]] = defaultdict(dict)
    for event in services.store.jobs.progress(job_id):
        for name, value in (event.metrics or {}).items():
            if value is not None and event.step is not None:
                points[name][event.step] = value
    return {name: Curve(steps=tuple(values), values=tuple(values.values())) for name, values in points.items()}


def _detailed(services: Services, view: JobView, detail: str | None) -> JobView:
    if detail == "metrics":
        curves = metric_curves(services, view.job_id)
        return view.model_copy(update={"curves": {name: _thinned(curve) for name, curve in curves.items()}})
    if detail == "log":
        return view.model_copy(update={"log": job_log(services, view.job_id)})
    return view


def _thinned(curve: Curve, most: int = 200) -> Curve:
    """At most so many points, the first and the last among them."""
    n = len(curve.steps)
    if n <= most:
        return curve
    kept = [round(i * (n - 1) / (most - 1)) for i in range(most)]
    return Curve(steps=tuple(curve.steps[i] for i in kept), values=tuple(curve.values[i] for i in kept))


def list_jobs(
    services: Services,
    status: Annotated[JobStatus | None, Field(description="Only jobs in this state.")] = None,
    kind: Annotated[
        Literal[
            "train",
            "rollout",
            "evaluate",
            "evaluate_dataset",
            "import",
            "recipe",
            "evolve",
            "preview",
            "judge",
            "score",
            "step_labels",
            "replay",
            "export_agent",
            "selftest",
        ]
        | None,
        Field(description="Only jobs of this kind."),
    ] = None,
    limit: Annotated[int, Field(ge=1, le=200, description="Entries on a page."), BeforeValidator(require_number)] = 20,
    cursor: Annotated[str | None, Field(description="`next_cursor` of the page before.")] = None,
) -> JobList:
    """List jobs, newest first, by state or kind; those of earlier conversations too."""
    services.jobs.reconcile()
    page = services.store.jobs.page(status=status, kind=kind, limit=limit, cursor=cursor)
    items = tuple(
        JobSummary(
            job_id=job.id,
            kind=job.kind,
            status=job.status,
            step=job.step,
            total_steps=job.total_steps,
            created_at=job.created_at,
            resource_uri=f"job://{job.id}",
        )
        for job in page.items
    )
    step = (
        "Look at one with get_job."
        if items
        else "No job yet: start one with collect_rollouts, start_training or evaluate_agent."
    )
    return JobList(items=items, next_cursor=page.next_cursor, next_step=step)


def cancel_job(services: Services, job_id: JobId) -> JobView:
    """Ask a job to stop: at its next step, with its newest checkpoint kept for resume_job.

    A queued job ends at once; a job that has ended stays as it is.
    """
    return view_of(services.jobs.cancel(job_id))


def resume_job(services: Services, job_id: JobId) -> JobView:
    """Continue a job from its newest complete checkpoint.

    An interrupted job gets its next attempt under the same id; a failed or cancelled one becomes a new job with `resumed_from`.
    """
    job = services.store.jobs.get(job_id)
    require_remembered(services, job.spec)
    if isinstance(job.spec, ExportAgentSpec):
        require_untainted(services, job.spec.agent)
    _require_remembered_rounds(services, job)
    return view_of(services.jobs.resume(job_id))


def _require_remembered_rounds(services: Services, job: Job) -> None:
    """Refuse to continue an evolution one of whose rounds has selected a run that was forgotten since.

    Raises:
        Conflict: names the dataset of the round.
    """
    if not isinstance(job.spec, EvolveSpec):
        return
    made_by: Job | None = job
    while made_by is not None:  # a resumed job goes on with the datasets of the one before
        rounds = [round_dataset_id(made_by.id, number + 1) for number in range(job.spec.config.iterations)]
        for dataset_id in services.store.lineage.datasets_with_forgotten(rounds):
            raise Conflict(
                f"{job.id} selected a run that was forgotten since (dataset {dataset_id}), so it does not go on; start another "
                "evolution from the agent that it began with",
                code="forgotten",
            )
        made_by = services.store.jobs.get(made_by.resumed_from) if made_by.resumed_from else None


def start(services: Services, spec: JobSpec, request_key: str | None) -> JobStarted:
    """Start a job for a tool and say how to follow it."""
    job, deduplicated = services.jobs.start(spec, request_key=request_key)
    again = "The same request is already under way. " if deduplicated else ""
    again += taint_note(services, spec.agent.id if hasattr(spec, "agent") else None)
    return JobStarted(
        job_id=job.id,
        status=job.status,
        resource_uri=f"job://{job.id}",
        deduplicated=deduplicated,
        next_step=f"{again}Follow it with get_job(job_id={job.id!r}, wait_s=30) until its status is succeeded or failed.",
    )


def view_of(job: Job) -> JobView:
    """A job as the tools show it."""
    return JobView(
        job_id=job.id,
        kind=job.kind,
        status=job.status,
        phase=job.phase,
        step=job.step,
        total_steps=job.total_steps,
        metrics=job.metrics,
        eta_s=job.eta_s,
        attempt=job.attempt,
        error=job.error,
        result=job.result,
        warnings=job.warnings,
        resumed_from=job.resumed_from,
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        resource_uri=f"job://{job.id}",
        next_step=_next_step(job),
    )


def _next_step(job: Job) -> str:
    if job.status in UNFINISHED:
        stopping = "It was asked to stop. " if job.cancel_requested else ""
        return f"{stopping}Call get_job(job_id={job.id!r}, wait_s=30) to follow it; cancel_job stops it."
    if job.status is JobStatus.INTERRUPTED:
        return f"Continue it from its newest checkpoint with resume_job(job_id={job.id!r})."
    if job.status in TERMINAL - {JobStatus.SUCCEEDED}:
        cause = "Mend what `error` names, then start again" if job.status is JobStatus.FAILED else "It was cancelled"
        return f"{cause}; resume_job(job_id={job.id!r}) continues from its newest checkpoint."
    result = job.result
    if result is None:
        return "Done."
    if job.kind in {"judge", "score", "step_labels", "replay"}:
        return _after_scoring(job.spec, result)
    if job.kind == "evolve":
        return _after_evolution(result)
    if job.kind == "export_agent":
        return f"The files lie in {result.report.get('path')}; README.md there says how to load and serve them."
    if job.kind == "preview":
        return "Read it: call preview_dataset again with the same arguments."
    if result.evaluation_id:
        return f"Compare it with another evaluation of the same tasks: compare_agents(agents=[..., {result.evaluation_id!r}])."
    if result.agent:
        return _after_training(job.spec, result.agent)
    if result.trajectories:
        if live := result.report.get("scores"):
            return (
                f"Each run is scored: export_dataset(kind='sft', name='good', scorer={live['scorer']!r}, min_score=0.5, "
                f"filter={result.trajectories.filter})."
            )
        if job.kind == "import":  # whose runs are often of unknown outcome, which the scorer of outcomes passes over
            return (
                f"Look at them with search_trajectories(filter={result.trajectories.filter}). Where a run's outcome is unknown and "
                "you know it, state it with record_trajectory(trajectory_id=..., outcome=...); then export_dataset."
            )
        return f"Score what it made: score_trajectories(scorer='outcome', filter={result.trajectories.filter})."
    return "Done."


_ALONE = "no run has another run of its task to be compared with; collect several attempts of each task"
_SAME_RUNS = "filter={...} or trajectory_ids=[...] as in the call that started this job"


def _after_training(spec: JobSpec, agent_id: str) -> str:
    """What to do with a new agent."""
    methods = [spec.method] if isinstance(spec, TrainSpec) else []
    if isinstance(spec, RecipeSpec):
        methods = [stage.method for stage in spec.stages if stage.kind == "train"]
    role = ROLES.get(methods[-1]) if methods else None
    if role is None:
        return f"Measure the new agent: evaluate_agent(agent={agent_id!r}, environment=...), then compare_agents."
    what = "steps" if role == "step_model" else "whole runs"
    return (
        f"It values {what} and does not act: score_trajectories(scorer={agent_id!r}, filter={{...}}) scores runs in a job, "
        f"fit_calibration(scorer={agent_id!r}) then ties it to people's labels, and start_training(method='grpo', "
        f"hyperparameters={{'reward_model': {agent_id!r}}}, ...) learns from it."
    )


def _after_evolution(result: JobResult) -> str:
    """Who the result is, and how to look at the proof."""
    final = result.report.get("final")
    evaluations = final.get("evaluations", []) if isinstance(final, dict) else []
    if not result.report.get("result_round") or len(evaluations) < 2:
        return (
            f"No round was better than the start, and {result.agent} has its weights: `report` says what was selected in each round. "
            "Explore more tasks or attempts, loosen `threshold`, or begin with sft on runs of a better agent."
        )
    return (
        f"The proof, on tasks that no round was chosen by: compare_agents(agents={evaluations!r}). plot_job shows the success of "
        f"each round; get_lineage(id={result.agent!r}) shows the runs that it learned from."
    )


def _after_scoring(spec: JobSpec, result: JobResult) -> str:
    """What to do with verdicts."""
    reasons = result.report.get("failed")
    failed = {str(why): int(n) for why, n in reasons.items()} if isinstance(reasons, dict) else {}
    if not result.n:
        why = "; ".join(f"{clip(why, 300)} ({n})" for why, n in list(failed.items())[:3])
        told = why or (_ALONE if result.report.get("alone_in_their_task") else "")
        if not told:
            told = f"score_trajectories(scorer={{{_stored_name(spec)!r}: 1}}, {_SAME_RUNS}) lists the reasons"
        return (
            f"Nothing could be judged: {told}. Mend that, then make the same request again; there is nothing to export."
        )
    n_failed = sum(failed.values())
    if isinstance(spec, ReplaySpec):
        return (
            f"{result.report.get('reproduced', 0)} of {result.n} runs came out as recorded; `examples` tells where others diverged. "
            f"export_dataset(kind='sft', name='verified', scorer='replay', min_score=1, {_SAME_RUNS}) takes those that did."
        )
    again = (
        "`failed` says why some were not judged; the same request asks about these alone again. " if n_failed else ""
    )
    if isinstance(spec, JudgeSpec | ScoreSpec) and spec.mode in {"pairwise", "group"}:
        return (
            f"{again}The preferences are stored: export_dataset(kind='dpo', name='pairs', pairs='recorded', {_SAME_RUNS}) learns "
            "from them."
        )
    if isinstance(spec, StepLabelSpec):
        return (
            f"{again}The steps are valued: export_dataset(kind='prm', name='steps', scorer='montecarlo', "
            f"curation={{'step_labels': 'scores'}}, {_SAME_RUNS})."
        )
    name = _stored_name(spec)
    return (
        f"{again}The scores are stored: export_dataset(kind='sft', name='good', scorer={name!r}, min_score=0.5, {_SAME_RUNS}), or "
        f"score_trajectories with {{{name!r}: 1}} or in a mix; a calibration of {name!r} is applied wherever they are read."
    )


def _stored_name(spec: JobSpec) -> str:
    """Under which name the scores of a job are read."""
    if isinstance(spec, JudgeSpec | ScoreSpec) and spec.rubric is not None:
        return f"judge:{spec.rubric.name}"
    if isinstance(spec, ScoreSpec):
        return spec.agent.id or f"agent:{spec.agent.name}"
    return "replay" if isinstance(spec, ReplaySpec) else "montecarlo"
