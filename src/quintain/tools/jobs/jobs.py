"""Jobs: look at one (and wait for its next change), list them, ask one to stop, continue one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from quintain.errors import Conflict, InvalidInput
from quintain.next_step import Hint, call
from quintain.records.hyperparameters.methods import PLACEMENT
from quintain.records.jobs.handover import ExportAgentSpec
from quintain.records.jobs.job import (
    TERMINAL,
    UNFINISHED,
    Job,
    JobSpec,
    JobStatus,
    TrainSpec,
)
from quintain.records.record import left_out
from quintain.records.text import printable
from quintain.records.wording import counted, list_names
from quintain.tools.catalog import read_hint, wait_for_last
from quintain.tools.data.lineage import (
    forgotten_sources_note,
    require_no_forgotten_sources,
    require_remembered,
    round_datasets,
)
from quintain.tools.jobs.after_training import with_another_seed
from quintain.tools.jobs.descriptions import job_label, job_labels, metric_curves, thin_curves
from quintain.tools.jobs.next_steps import next_step
from quintain.tools.jobs.search import find_jobs
from quintain.tools.jobs.stalls import lease_notice, quiet_for, stall_of
from quintain.tools.results import JobList, JobStarted, JobSummary, JobView, WaitingFor
from quintain.tools.run_selection import Cursor, PageSize, fitting_page
from quintain.tools.services import Services
from quintain.tools.training.methods import check_settings

if TYPE_CHECKING:
    from quintain.jobs.runner import Queue

JobId = Annotated[str, Field(description="From a start tool, or list_jobs.")]

NO_JOB = Hint(
    "No job yet: let an agent act with ",
    call("collect_rollouts", agent="starter", environment="quintain/inventory"),
    ", or measure one with ",
    call("evaluate_agent", agent="starter", environment="quintain/inventory"),
    ".",
)
"""What to do in a home without jobs."""

Detail = Annotated[
    Literal["metrics", "log", "settings"] | None, Field(description="Also return curves, log or settings.")
]
WaitS = Annotated[float, Field(ge=0, le=50, description="Wait so many seconds at most.")]
Until = Annotated[
    Literal["change", "done"],
    Field(description="Wait for the next change, or the end."),
]


def get_job(
    services: Services, job_id: JobId, wait_s: WaitS = 0, detail: Detail = None, until: Until = "change"
) -> JobView:
    """Show a job: status, phase, step, metrics, time left, silence, result or error."""
    return wait_for_last(watch_job(services, job_id, wait_s, detail, until), services.settings.poll_s)


def watch_job(
    services: Services, job_id: JobId, wait_s: WaitS = 0, detail: Detail = None, until: Until = "change"
) -> Iterator[JobView]:
    """Yield the job until `until`, its end, or the end of `wait_s`; the caller sleeps between."""
    end = time.monotonic() + wait_s
    services.jobs.refresh(services.settings.poll_s)
    first = services.store.jobs.get(job_id)
    current = first
    while True:
        yield _detailed(services, view_of(services, current), detail)
        is_changed = (current.status, current.phase) != (first.status, first.phase)
        if current.status not in UNFINISHED or (is_changed and until == "change") or time.monotonic() >= end:
            return
        services.jobs.refresh(services.settings.poll_s)
        current = services.store.jobs.get(job_id)


def job_log(services: Services, job_id: str, tail: int = 100) -> str:
    """The last lines that a job's worker wrote to its log."""
    services.store.jobs.get(job_id)
    return services.jobs.log_tail(job_id, max(1, min(tail, 1000)))


def _detailed(services: Services, view: JobView, detail: str | None) -> JobView:
    if detail == "metrics":
        return view.model_copy(update={"curves": thin_curves(metric_curves(services, view.job_id))})
    if detail == "log":
        return view.model_copy(update={"log": job_log(services, view.job_id)})
    if detail == "settings":
        spec = services.store.jobs.get(view.job_id).spec
        again = ("With another seed: ", with_another_seed(spec), ". ") if isinstance(spec, TrainSpec) else ()
        settings = _without_install_paths(spec.model_dump(mode="json", exclude_none=True))
        return view.model_copy(update={"settings": settings, "next_step": Hint(*again, *view.next_step.parts)})
    return view


def _without_install_paths(value: Any) -> Any:
    """Return the JSON of a spec with `starter` instead of the folder of this installation."""
    if isinstance(value, list):
        return [_without_install_paths(one) for one in value]
    if isinstance(value, dict):
        shown = {name: _without_install_paths(one) for name, one in value.items()}
        return shown | {"path": "starter"} if value.get("source") == "starter" else shown
    return value


JobKind = Literal[
    "train",
    "rollout",
    "evaluate",
    "evaluate_dataset",
    "compare",
    "import",
    "recipe",
    "evolve",
    "preview",
    "judge",
    "score",
    "step_labels",
    "influence",
    "replay",
    "talk",
    "export_agent",
    "fetch",
    "push",
    "selftest",
]
"""Kinds of jobs that tools start."""


def list_jobs(
    services: Services,
    status: Annotated[JobStatus | None, Field(description="Only in this state.")] = None,
    kind: Annotated[JobKind | None, Field(description="Only of this kind.")] = None,
    limit: PageSize = 20,
    cursor: Cursor = None,
    text: Annotated[str | None, Field(max_length=200, description="Words in id, label or note.")] = None,
) -> JobList:
    """List jobs, newest first; those of earlier conversations as well."""
    services.jobs.refresh(services.settings.poll_s)

    unreadable = list[str]()

    def fetch(most: int) -> tuple[list[JobSummary], str | None]:
        found, unreadable[:], following = find_jobs(services, text or "", most, cursor, status=status, kind=kind)
        queue = services.jobs.queue() if any(job.status is JobStatus.QUEUED for job in found) else None
        running = services.store.jobs.get_many(job.id for job in found if job.status is JobStatus.RUNNING)
        paced = {job.id: job for job in running}
        jobs = [paced.get(job.id, job) for job in found]
        labels = job_labels(services, jobs)
        shown = [
            JobSummary(
                label=labels[job.id],
                waiting_for=queue and _waiting_for(services, job, queue),
                **_facts(services, job, JobSummary),
            )
            for job in jobs
        ]
        return shown, following

    items, following = fitting_page(fetch, limit)
    held_up = next((item for item in items if item.stalled or item.trouble), None)
    step = (
        Hint(_held_up(held_up), "; look at it with ", call("get_job", job_id=held_up.job_id), ".")
        if held_up is not None
        else Hint("Look at the newest with ", call("get_job", job_id=items[0].job_id), ".")
        if items
        else Hint("Not among the jobs read so far; go on with `cursor`.")
        if following
        else Hint("No such job is stored; ", call("list_jobs"), " lists all.")
        if status is not None or kind is not None or text
        else NO_JOB
    )
    if unreadable:
        step = Hint(f"Left out {left_out(unreadable)}. ", *step.parts)
    return JobList(items=items, next_cursor=following, next_step=step, unreadable=tuple(unreadable))


def _held_up(item: JobSummary) -> str:
    return f"{item.job_id} {'is in trouble' if item.trouble else 'seems stalled'}"


def cancel_job(services: Services, job_id: JobId) -> JobView:
    """Ask a job to stop: at its next step, with its newest checkpoint kept for resume_job.

    A queued job ends at once; an ended one stays.
    """
    has_ended = services.store.jobs.get(job_id).status in TERMINAL
    view = view_of(services, services.jobs.cancel(job_id))
    return view.model_copy(update={"next_step": Hint("It had ended before. ", view.next_step)}) if has_ended else view


def annotate_job(
    services: Services,
    job_id: JobId,
    name: Annotated[
        str | None, Field(max_length=120, description="Shown in place of what it does; empty: none.")
    ] = None,
    note: Annotated[str | None, Field(max_length=4000, description="A text for people; empty: none.")] = None,
) -> JobView:
    """Give a job a name, a note or both, which its page and lists show. What is left out stays."""
    texts = {"name": name and " ".join(name.split()), "note": note and note.strip()}
    given = {key: text for key, text in texts.items() if text is not None}
    if not given:
        raise InvalidInput("expected `name` or `note`, got none; give one")
    changes = {key: services.redacted(printable(text)) or None for key, text in given.items()}
    return view_of(services, services.store.jobs.annotate(job_id, changes, services.clock()))


def resume_job(
    services: Services,
    job_id: JobId,
    hyperparameters: Annotated[dict[str, Any] | None, Field(description="Other processes.")] = None,
) -> JobView:
    """Continue a job from its newest checkpoint: if interrupted, under its id, else as a new job (`resumed_from`)."""
    job = services.store.jobs.get(job_id)
    require_remembered(services, job.spec)
    if isinstance(job.spec, ExportAgentSpec):
        require_no_forgotten_sources(services, job.spec.agent)
    _require_remembered_rounds(services, job)
    spec = _elsewhere(job, hyperparameters)
    if not services.jobs.is_elsewhere(job):  # whose operator may be another
        spec = _by_operator(services, spec)
    return view_of(services, services.jobs.resume(job_id, None if spec == job.spec else spec))


def _by_operator(services: Services, spec: JobSpec) -> JobSpec:
    """Return the spec with its actors where the operator lets them run now."""
    if "actor_backend" not in type(spec).model_fields:
        return spec
    return spec.model_copy(update={"actor_backend": services.settings.actor_backend})


def _elsewhere(job: Job, changes: Mapping[str, Any] | None) -> JobSpec:
    """Return the spec with other settings of where a training runs.

    Raises:
        InvalidInput: The job is not a training, or another setting would change.
    """
    spec = job.spec
    if not changes:
        return spec
    if not isinstance(spec, TrainSpec):
        raise InvalidInput(
            f"hyperparameters: expected a training to change them, got a job of kind {spec.kind}; leave them out"
        )
    if others := changes.keys() - PLACEMENT:
        source = {"dataset_id": spec.dataset_id, "environment": spec.environment}
        settings = {**spec.config.model_dump(mode="json", exclude_defaults=True), **changes}
        raise InvalidInput(
            Hint(
                f"hyperparameters: expected {list_names(sorted(PLACEMENT))} alone, which leave the result as it is, got "
                f"{list_names(sorted(others))}; start another training from its newest checkpoint: ",
                call("start_training", method=spec.method, model=job.id, **source, hyperparameters=settings),
            )
        )
    config = check_settings(spec.method, {**spec.config.model_dump(exclude_unset=True), **changes})
    return spec.model_copy(update={"config": config})


def _require_remembered_rounds(services: Services, job: Job) -> None:
    """Refuse to continue an evolution one of whose rounds has selected a run that was forgotten since."""
    made_by: Job | None = job
    while made_by is not None:  # a resumed job goes on with the datasets of the one before
        for dataset_id in services.store.lineage.datasets_with_forgotten(round_datasets(made_by)):
            raise Conflict(
                f"{job.id} selected a run that was forgotten since (dataset {dataset_id}), so it does not go on; start another "
                "evolution from the agent that it began with",
                code="forgotten",
            )
        made_by = services.store.jobs.get(made_by.resumed_from) if made_by.resumed_from else None


def spec_key(spec: JobSpec) -> str:
    """Return the default key of a request: a hash of it without its output folder."""
    return hashlib.sha256(spec.model_dump_json(exclude={"output_dir"}).encode()).hexdigest()


def start(
    services: Services,
    spec: JobSpec,
    request_key: str | None = None,
    *,
    note: str = "",
    warnings: tuple[Hint, ...] = (),
) -> JobStarted:
    """Start a job, unless an unfinished one has the key (without one: the same spec), and return how to follow it."""
    job, deduplicated = services.jobs.start(_by_operator(services, spec), request_key=request_key, warnings=warnings)
    again = f"{note} " if note else ""
    again += "The same request is already under way. " if deduplicated else ""
    again += forgotten_sources_note(services, spec.agent.id if hasattr(spec, "agent") else None)
    return JobStarted(
        job_id=job.id,
        status=job.status,
        resource_uri=f"job://{job.id}",
        deduplicated=deduplicated,
        warnings=warnings,
        next_step=Hint(
            f"{again}Follow it with ",
            call("get_job", job_id=job.id, until="done", wait_s=50),
            " until its status is succeeded or failed.",
        ),
    )


def view_of(services: Services, job: Job) -> JobView:
    """Return a job as the tools show it."""
    facts = _facts(services, job, JobView) | {"warnings": tuple(map(read_hint, job.warnings))}
    if job.error is not None:
        texts = {"message": read_hint(job.error.message), "hint": read_hint(job.error.hint)}
        facts["error"] = job.error.model_copy(update=texts)
    if launcher := services.jobs.launcher_queue(job):
        facts["phase"] = f"in the queue of {launcher}"
    if facts["stalled"] or facts["trouble"]:
        facts["eta_s"] = None
    waiting_for = _waiting_for(services, job, services.jobs.queue()) if job.status is JobStatus.QUEUED else None
    return JobView(
        label=job_label(services, job),
        waiting_for=waiting_for,
        quiet_for_s=_quiet_for(services, job, services.clock()),
        next_step=_next_step(services, job, facts["stalled"], waiting_for),
        **facts,
    )


def _facts(services: Services, job: Job, view: type[JobView | JobSummary]) -> dict[str, Any]:
    """Return the fields of a view that it shares with the job, and how the job's process fares."""
    return {
        **{name: getattr(job, name) for name in view.model_fields if name in Job.model_fields},
        "job_id": job.id,
        "stalled": _stalled(services, job),
        "trouble": services.jobs.trouble(job.id) if job.status in UNFINISHED else None,
        "resource_uri": f"job://{job.id}",
    }


def _stalled(services: Services, job: Job) -> str | None:
    """Return why a running job seems to stand still; None if it does not."""
    now = services.clock()
    quiet_for_s = _quiet_for(services, job, now)
    return lease_notice(job, now) or stall_of(
        job,
        quiet_for_s,
        is_suspended=quiet_for_s is not None and services.jobs.is_suspended(job.id),
        is_elsewhere=services.jobs.is_elsewhere(job),
    )


def _quiet_for(services: Services, job: Job, now: datetime) -> float | None:
    """Return the seconds since the newest report of a job; None for one that does not run, or waits in a cluster's queue."""
    return None if services.jobs.launcher_queue(job) else quiet_for(job, now)


def _next_step(services: Services, job: Job, stalled: str | None, waiting_for: WaitingFor | None) -> Hint:
    """Return the next step, of a queued job with what holds it up, of a finished evaluation with the files of its report."""
    step, result = next_step(services, job, stalled), job.result
    if waiting_for is not None and waiting_for.held_by:
        holder_id, label = next(iter(waiting_for.held_by.items()))
        stands = _stalled(services, services.store.jobs.get(holder_id))
        ahead = f" and {counted(waiting_for.ahead, 'job')} before it" if waiting_for.ahead else ""
        cause = f", which seems stalled ({stands})" if stands else ""
        return Hint(step, f" It waits for {holder_id}, {label}{cause}{ahead}: ", call("get_job", job_id=holder_id), ".")
    if job.kind not in {"evaluate", "evaluate_dataset"} or result is None or result.evaluation_id is None:
        return step
    from quintain.tools.jobs.plots import saved_picture  # loads all that draws

    return Hint(step, f" {saved_picture(services, result.evaluation_id)[1]}.")


def _waiting_for(services: Services, job: Job, queue: Queue) -> WaitingFor | None:
    """Return what a queued job waits for, or None if it needs no slot."""
    if job.id not in queue.queued:
        return None
    return WaitingFor(slots=queue.slots, held_by=job_labels(services, queue.running), ahead=queue.queued.index(job.id))
