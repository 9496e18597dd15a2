"""Lineage: what made a thing, what it made; and forgetting runs, with everything that this touches."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

from pydantic import Field, StrictBool

from quintain.errors import Conflict, InvalidInput
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.evolve import round_dataset_id
from quintain.records.handover import ExportAgentSpec
from quintain.records.job import UNFINISHED, EvolveSpec, Job, JobSpec, JobStatus, PreviewSpec
from quintain.records.lineage import AffectedRecords, Forgotten, LineageNode
from quintain.records.record import counted
from quintain.tools.data.run_files import forget_runs
from quintain.tools.results import ForgetReport, LearnedFrom, LineageResult, TouchedThing
from quintain.tools.services import Services

if TYPE_CHECKING:
    from quintain.store.lineage.links import Ref

_SHOWN = 100
"""Affected objects and copies in an answer; the rest is counted."""

_DEPTH = 6


def get_lineage(
    services: Services,
    id: Annotated[
        str,
        Field(
            min_length=1,
            max_length=500,
            description="Id of a run, dataset, job, agent, evaluation or comparison; or a session id.",
        ),
    ],
    depth: Annotated[int, Field(ge=1, le=50, description="Steps to follow in each direction.")] = _DEPTH,
    forget: Annotated[
        StrictBool,
        Field(description="Forget this run or session, for good."),
    ] = False,
    trajectory_ids: Annotated[list[str] | None, Field(max_length=10_000, description="More runs, as `id`.")] = None,
) -> LineageResult:
    """Show what made a thing and what it made: runs, scores, datasets, jobs, checkpoints, agents, evaluations, comparisons.

    For an agent `learned_from` counts the runs that it learned from, with filters that page through them; for runs `shaped`
    names the agents that learned from them. forget=true cannot be undone: the runs' content is removed and kept from coming
    in again, datasets that hold them are blocked, and all that they touched is listed.
    """
    refs = services.store.lineage.resolve(id)
    more = [ref for one in dict.fromkeys(trajectory_ids or ()) for ref in services.store.lineage.resolve(one)]
    refs = list(dict.fromkeys([*refs, *more]))
    report = _forget(services, id, refs) if forget else None
    store = services.store.lineage
    before, after = store.ancestors(refs, depth), store.descendants(refs, depth)
    runs = [ref.id for ref in refs if ref.kind == "trajectory"]
    agents = [ref.id for ref in refs if ref.kind == "agent"]
    learned = store.training_sources(agents[0]) if agents else None
    return LineageResult(
        things=tuple(store.nodes(refs)),
        ancestors=before.nodes,
        descendants=after.nodes,
        edges=tuple(dict.fromkeys((*before.edges, *after.edges))),
        counts={"ancestors": before.counts, "descendants": after.counts},
        truncated=before.truncated or after.truncated,
        learned_from=learned and LearnedFrom(count=learned.count, filters=learned.filters),
        shaped=tuple(store.agents_trained_on(runs)) if runs else None,
        forgotten=report,
        resource_uri=f"lineage://{quote(id, safe=':@')}",
        next_step=_next_step(id, report, truncated=before.truncated or after.truncated),
    )


def _next_step(id: str, report: ForgetReport | None, *, truncated: bool) -> Hint:
    if report is not None:
        if report.touched_count:
            return Hint(
                "Work through `touched`, each with its remedy, then delete the files in `copies` that you no longer need."
            )
        return Hint(
            "Nothing was made of these runs. Delete the files in `copies` to remove their content from the disk too."
        )
    more = "Raise `depth`, or ask for one of the nodes, to see more. " if truncated else ""
    search = call("search_trajectories", filter=...)
    picture = f"lineage://{quote(id, safe=':@')}/picture"
    return Hint(f"{more}Page through the runs of a node by its `filter` with ", search, f"; the picture is {picture}.")


def _forget(services: Services, id: str, refs: Sequence[Ref]) -> ForgetReport:
    other = next((ref for ref in refs if ref.kind != "trajectory"), None)
    if other is not None:
        raise InvalidInput(
            Hint(
                f"forget takes runs and sessions; {other.id!r} is of kind {other.kind!r}: give a trajectory id or a session id; ",
                call("search_trajectories", filter=...),
                " finds runs by dataset_id or job_id",
            ),
            code="not_a_run",
        )
    runs = [ref.id for ref in refs]
    done = services.store.lineage.forget(runs, services.clock(), session_id=None if id in runs else id)
    things = list(_things(services, done))
    removed = list(_emptied(services, done))
    copies = list(_copies(services, done))
    return ForgetReport(
        runs=len(done.trajectory_ids),
        before=len(done.before),
        scores_removed=done.scores_removed,
        touched=tuple(things[:_SHOWN]),
        touched_count=len(things),
        removed=tuple(removed),
        copies=tuple(copies[:_SHOWN]),
        copies_count=len(copies),
    )


def _things(services: Services, done: Forgotten) -> Iterable[TouchedThing]:
    touched, learning = done.touched, _still_learning(services, done)
    for job_id in learning:  # first: an answer lists so many things and no more
        yield _stopped(services, job_id)
    for run_id in touched.trajectories:
        remedy = Hint(
            "It goes on from a forgotten run, or was started by one, and may contain some of its text: forget it too with ",
            call("get_lineage", id=run_id, forget=True),
            ".",
        )
        yield TouchedThing(kind="trajectory", id=run_id, state="kept", remedy=remedy)
    blocked = services.store.lineage.datasets_with_forgotten(touched.datasets)
    for dataset_id in touched.datasets:
        dataset = services.store.datasets.get(dataset_id)
        remedy = Hint(
            f"No training starts on it. Export it again (forgotten runs are left out), then delete {dataset.path}."
        )
        if dataset_id in blocked:
            yield TouchedThing(kind="dataset", id=dataset_id, state="blocked", remedy=remedy)
        else:
            remedy = Hint(
                "It contains no forgotten run, but a run listed here; forget that one too, and it is blocked."
            )
            yield TouchedThing(kind="dataset", id=dataset_id, state="kept", remedy=remedy)
    for job_id in touched.jobs:
        if job_id not in learning:
            yield _job(services, job_id)
    for agent_id in touched.agents:
        remedy = Hint(
            "It has learned from a forgotten run, which nothing takes out of its weights: train anew without it, from a base "
            "that did not learn from it."
        )
        yield TouchedThing(kind="agent", id=agent_id, state="tainted", remedy=remedy)
    for kind, ids in (("evaluation", touched.evaluations), ("comparison", touched.comparisons)):
        for found in ids:
            yield TouchedThing(
                kind=kind, id=found, state="kept", remedy="Its figures stay; no text of the run is in them."
            )


def _still_learning(services: Services, done: Forgotten) -> list[str]:
    """Return unfinished jobs that learn from the runs, or export an agent that did.

    From a dataset with them, or from what they or the jobs that they continue played.
    """
    datasets, touched = set(done.touched.datasets), {*done.touched.jobs, *done.made_by}

    def learns(job: Job) -> bool:
        rounds = job.spec.config.iterations if isinstance(job.spec, EvolveSpec) else 0
        if job.id in touched or any(round_dataset_id(job.id, number + 1) in datasets for number in range(rounds)):
            return True
        return job.resumed_from is not None and learns(services.store.jobs.get(job.resumed_from))

    unfinished = services.store.jobs.unfinished()
    return [job.id for job in unfinished if job.kind in {"train", "recipe", "evolve", "export_agent"} and learns(job)]


def _stopped(services: Services, job_id: str) -> TouchedThing:
    """Cancel a job that learns from a forgotten run, and report its state."""
    with suppress(OSError):  # its folder is gone or cannot be written: the request is stored, and is passed on later
        services.jobs.cancel(job_id)
    job = services.store.jobs.get(job_id)
    if isinstance(job.spec, ExportAgentSpec):
        state = "cancelled" if job.status is JobStatus.CANCELLED else "stopping"
        remedy = "It hands over an agent that learned from them; it was asked to stop, and leaves no files then."
        return TouchedThing(kind="job", id=job_id, state=state, remedy=remedy)
    if job.status is JobStatus.CANCELLED:
        remedy = "It had not begun; start it again on a new export."
        return TouchedThing(kind="job", id=job_id, state="cancelled", remedy=remedy)
    follow = call("get_job", job_id=job_id, wait_s=30)
    remedy = Hint(
        "It has read or played them, and was asked to stop; ",
        follow,
        " shows when it has stopped. Its results so far stay; start anew without them: export again, or begin another "
        "evolution.",
    )
    return TouchedThing(kind="job", id=job_id, state="stopping", remedy=remedy)


def _job(services: Services, job_id: str) -> TouchedThing:
    job = services.store.jobs.get(job_id)
    if job.status in UNFINISHED:
        remedy = Hint("It works with what it has read already. Stop it with ", call("cancel_job", job_id=job_id), ".")
        return TouchedThing(kind="job", id=job_id, state=job.status, remedy=remedy)
    if isinstance(job.spec, ExportAgentSpec) and Path(job.spec.destination).is_dir():
        remedy = Hint(f"It handed over an agent that learned from them: delete {job.spec.destination}, and its copies.")
        return TouchedThing(kind="job", id=job_id, state=job.status, remedy=remedy)
    return TouchedThing(kind="job", id=job_id, state=job.status, remedy="It does not go on; its results stay readable.")


def _emptied(services: Services, done: Forgotten) -> Iterable[str]:
    """Delete caches with the runs: replay buffers, which training would read, previews, and judges' answers."""
    for name in done.replay_buffers:
        folder = services.settings.cache_dir / "replay" / name
        if folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
            yield str(folder)
    for job_id in done.touched.jobs:
        spec = services.store.jobs.get(job_id).spec
        if isinstance(spec, PreviewSpec) and spec.answer.is_file():
            spec.answer.unlink(missing_ok=True)
            yield str(spec.answer)
    yield from forget_runs(services, done.trajectory_ids)


def _copies(services: Services, done: Forgotten) -> Iterable[str]:
    """Yield files and folders that still contain the runs; none of them is used again."""
    settings = services.settings
    datasets = (Path(services.store.datasets.get(dataset_id).path) for dataset_id in done.touched.datasets)
    exports = (path for one in done.touched.datasets for path in sorted(settings.exports_dir.glob(f"{one}-*")))
    jobs = (settings.jobs_dir / job_id for job_id in dict.fromkeys((*done.made_by, *_learning(services, done.touched))))
    backups = sorted(settings.home.glob("quintain.db.before-*"))
    logs = (path for source in done.sources if (path := _local(source)) is not None)
    for path in (*datasets, *exports, *jobs, *backups, *logs):
        if path.exists():
            yield str(path)


def _local(source: str) -> Path | None:
    """Return the file of a path or `file:` URI; None for another machine or not a file."""
    if "://" not in source:
        return Path(source) if Path(source).is_absolute() else None
    parts = urlsplit(source)
    return Path(url2pathname(parts.path)) if (parts.scheme, parts.netloc) == ("file", "") else None


def _learning(services: Services, touched: AffectedRecords) -> Iterable[str]:
    """Return the jobs that copied a dataset into their folder."""
    held = set(touched.datasets)
    return (job_id for job_id in touched.jobs if held & set(_datasets_of(services.store.jobs.get(job_id).spec)))


def _datasets_of(spec: JobSpec) -> list[str]:
    """Return the datasets of a job."""
    parts: tuple[Any, ...] = (spec, *getattr(spec, "stages", ()))
    return [dataset_id for part in parts if (dataset_id := getattr(part, "dataset_id", None)) is not None]


def require_remembered(services: Services, spec_or_dataset: JobSpec | str) -> None:
    """Raise if training would use a dataset with forgotten runs.

    Args:
        services: Where it is looked up.
        spec_or_dataset: The dataset's id, or the spec of a job that would train.

    Raises:
        Conflict: names the dataset and the way out.
    """
    wanted = [spec_or_dataset] if isinstance(spec_or_dataset, str) else _datasets_of(spec_or_dataset)
    for dataset_id, n in services.store.lineage.datasets_with_forgotten(wanted).items():
        dataset = services.store.datasets.get(dataset_id)
        raise Conflict(
            Hint(
                f"dataset {dataset_id} ({dataset.name}) contains {counted(n, 'forgotten run')}, so no training starts on it; "
                "export it again, forgotten runs are left out: ",
                call("export_dataset", kind=dataset.kind, name=dataset.name, filter={"dataset_id": dataset_id}),
            ),
            code="forgotten",
        )


def require_no_forgotten_sources(services: Services, agent: Agent) -> None:
    """Refuse to hand over an agent that learned from runs that were forgotten since.

    Raises:
        Conflict: Names their number and the remedy.
    """
    if note := forgotten_sources_note(services, agent.id):
        raise Conflict(
            f"{note.removeprefix('Note: ').strip()} So it is not handed over: train anew without them (an export leaves "
            "forgotten runs out), from a base that did not learn from them",
            code="forgotten",
        )


def forgotten_sources_note(services: Services, agent_id: str | None) -> str:
    """A plain sentence where an agent has learned from forgotten runs, else nothing."""
    n = services.store.lineage.count_forgotten_sources(agent_id) if agent_id else 0
    if not n:
        return ""
    runs = "a run that was" if n == 1 else f"{n} runs that were"
    return (
        f"Note: {agent_id} has learned from {runs} forgotten since, itself or through its base; what it learned is still in "
        "its weights. "
    )


def node_text(node: LineageNode) -> str:
    """Return a node as one line of text."""
    mark = f" [{node.mark}]" if node.mark else ""
    date = f", {node.created_at:%Y-%m-%d}" if node.created_at else ""
    return f"{node.kind} {node.id}: {node.label}{date}{mark}"
