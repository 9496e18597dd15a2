"""Forgetting runs: a report of everything that they touched, and the deletion of their content and its copies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pydantic import Field, StrictBool

from quintain.datasets.manifest import source_files
from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.artifacts import PushSpec
from quintain.records.jobs.handover import ExportAgentSpec
from quintain.records.jobs.job import UNFINISHED, Job, JobStatus, PreviewSpec
from quintain.records.lineage import AffectedRecords, Forgotten
from quintain.records.wording import counted
from quintain.tools.data.lineage import datasets_of, export_again, forget_call, round_datasets
from quintain.tools.data.removal import delete_path, free_disk, held_elsewhere, remove_records, staying_copies
from quintain.tools.data.run_files import files_of_runs, files_with_runs
from quintain.tools.results import ForgetResult, TouchedThing
from quintain.tools.run_selection import RunFilter, select
from quintain.tools.services import Services

if TYPE_CHECKING:
    from quintain.store.lineage.links import Ref

_SHOWN = 100
"""Affected objects, twins and copies in an answer; the rest is counted."""
_EARLIER = ("quintain.db.before-*", "before-restore-*", "backups/[!.]*", "restored/[!.]*")
"""Copies of the home or its database, by migrations, restorations and backups."""


class _Request(NamedTuple):
    """Options of one call."""

    named: Mapping[str, Any]
    dry_run: bool
    twins: bool
    copies: bool


def forget(
    services: Services,
    id: Annotated[
        str | None, Field(min_length=1, max_length=500, description="Run, session, dataset or agent.")
    ] = None,
    trajectory_ids: Annotated[list[str] | None, Field(max_length=10_000, description="More, as `id`.")] = None,
    dry_run: Annotated[StrictBool, Field(description="false: forget for good.")] = True,
    twins: Annotated[StrictBool, Field(description="Also forget equal runs under other ids.")] = False,
    copies: Annotated[
        StrictBool,
        Field(description="Also delete their datasets, exports and inputs of finished jobs."),
    ] = False,
    filter: RunFilter = None,
    ended_days: Annotated[
        int | None,
        Field(ge=0, le=36_500, description="Instead free disk: jobs that ended so many days ago, or `id`."),
    ] = None,
) -> ForgetResult:
    """Forget runs or a session, remove a dataset or an agent, or free disk. By default a dry run.

    Content of runs is removed and kept out. Datasets with them are blocked, trainings on them stop, and all that they
    touched is listed. `ended_days` deletes checkpoints and inputs of ended jobs; results and agents stay.
    """
    ids = [one for one in (id, *(trajectory_ids or ())) if one is not None]
    if ended_days is not None:
        if filter is not None or twins or copies:
            raise InvalidInput(
                "`ended_days` frees the disk space of jobs; expected no `filter`, `twins` or `copies`, which are of runs; leave them out"
            )
        return free_disk(services, ended_days, list(dict.fromkeys(ids)), dry_run=dry_run)
    if bool(ids) == (filter is not None):
        raise InvalidInput("expected `id` or `filter`, got both or neither; name the runs by one of them")
    if filter is not None:
        ids = [run.id or "" for run in select(services, filter, None)]
    refs = [ref for one in dict.fromkeys(ids) for ref in services.store.lineage.resolve(one)]
    selection = None if filter is None else filter.model_dump(mode="json", exclude_defaults=True)
    given = {"id": id, "trajectory_ids": trajectory_ids, "filter": selection}
    named = {name: value for name, value in given.items() if value}
    if refs and all(ref.kind in {"dataset", "agent"} for ref in refs):
        if twins:
            raise InvalidInput("`twins` are of runs; expected no `twins` with a dataset or an agent; leave it out")
        return remove_records(services, list(dict.fromkeys(refs)), dry_run=dry_run, copies=copies)
    return _forget(services, list(dict.fromkeys(refs)), _Request(named, dry_run, twins, copies))


def _forget(services: Services, refs: Sequence[Ref], request: _Request) -> ForgetResult:
    other = next((ref for ref in refs if ref.kind != "trajectory"), None)
    if other is not None:
        way = Hint(f"a {other.kind} cannot be removed here")
        if other.kind == "job":
            way = Hint(forget_call([other.id], ended_days=0), " frees its disk space")
        wrong = f"forget takes runs and sessions, or datasets and agents; {other.id!r} is of kind {other.kind!r}; "
        search = call("search_trajectories", filter=...)
        raise InvalidInput(Hint(wrong, search, " finds runs by `dataset_id` or `job_id`; ", way), code="not_a_run")
    runs = [ref.id for ref in refs]
    done = services.store.lineage.forget(
        runs,
        services.clock(),
        session_id=None if (name := request.named.get("id")) in runs else name,
        twins=request.twins,
        dry_run=request.dry_run,
    )
    things = list(_things(services, done, request))
    found = dict.fromkeys(path for path in _deletable(services, done, copies=request.copies) if path.exists())
    folders = [Path(services.store.datasets.get(dataset_id).path) for dataset_id in done.touched.datasets]
    sources = [path for folder in folders for path in source_files(folder)]
    copied = 0
    if not request.copies:
        copied = sum(path.exists() for path in {*_deletable(services, done, copies=True)} - {*found})
    removed = [path for path in found if request.dry_run or delete_path(path)]
    left = list(_copies(services, done, set(removed), [*folders, *sources]))
    return ForgetResult(
        dry_run=request.dry_run,
        runs=len(done.trajectory_ids),
        before=len(done.before),
        scores_removed=done.scores_removed,
        touched=tuple(things[:_SHOWN]),
        touched_count=len(things),
        removed=tuple(map(str, removed)),
        copies=tuple(left[:_SHOWN]),
        copies_count=len(left),
        twins=done.twins[:_SHOWN],
        twins_count=len(done.twins),
        twins_forgotten=request.twins and bool(done.twins),
        next_step=_next_step(request, done, left, touched=bool(things), copied=copied),
    )


def _next_step(request: _Request, done: Forgotten, left: Sequence[str], *, touched: bool, copied: int) -> Hint:
    """Return what to do next; `copied` is how many copies `copies` would delete."""
    steps: list[Hint | str] = []
    if done.twins and not request.twins:
        equal = f"{counted(len(done.twins), 'equal run')} under other ids"
        if request.dry_run:
            steps.append(f"{equal} would stay; `twins` takes them along. ")
        else:
            steps.append(Hint(f"{equal} stayed: ", forget_call(done.twins[:10]), ". "))
    if request.dry_run:
        steps.append(staying_copies(copied))
        options = {name: True for name in ("twins", "copies") if getattr(request, name)}
        again = call("forget", **request.named, dry_run=False, **options)
        return Hint(*steps, "Nothing was changed. To forget for good: ", again, ".")
    if touched:
        steps.append("Work through `touched`, each with its remedy. ")
    if copied and len(done.runs) <= _SHOWN:
        deletes = forget_call(done.runs, copies=True, dry_run=False)
        steps.append(Hint(deletes, f" deletes the copies in {counted(copied, 'place')}. "))
    steps.append(
        "Delete the copies that are left when you no longer need them; this call with `copies`, by a server of another home that "
        "is named, deletes those there."
        if left
        else "No copy of them is known."
    )
    return Hint(*steps)


def _things(services: Services, done: Forgotten, request: _Request) -> Iterable[TouchedThing]:
    touched, learning = done.touched, _still_learning(services, done)
    for job_id in learning:  # first: an answer lists so many things and no more
        yield _stopped(services, job_id, dry_run=request.dry_run)
    for run_id in touched.trajectories:
        remedy = Hint(
            "It goes on from a forgotten run, or was started by one, and may contain some of its text: forget it too with ",
            call("forget", id=run_id, dry_run=False),
            ".",
        )
        yield TouchedThing(kind="trajectory", id=run_id, state="kept", remedy=remedy)
    for dataset_id in touched.datasets:
        dataset = services.store.datasets.get(dataset_id)
        remedy = Hint(
            "No training starts on it. Export it again, forgotten runs are left out: ",
            export_again(dataset, is_kept=not request.copies),
            "; ",
            call("forget", id=dataset_id, dry_run=False),
            " removes this one.",
        )
        blocked = dataset_id in done.blocked
        if not blocked:
            remedy = Hint(
                "It contains no forgotten run, but a run listed here; forget that one too, and it is blocked."
            )
        yield TouchedThing(kind="dataset", id=dataset_id, state="blocked" if blocked else "kept", remedy=remedy)
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
    """Return unfinished jobs that learn from the runs, upload them, or export an agent that learned from them.

    From a dataset with them, or from what they or the jobs that they continue played.
    """
    datasets, touched = set(done.touched.datasets), {*done.touched.jobs, *done.made_by}

    def learns(job: Job) -> bool:
        if job.id in touched or datasets.intersection(round_datasets(job)):
            return True
        return job.resumed_from is not None and learns(services.store.jobs.get(job.resumed_from))

    unfinished = services.store.jobs.unfinished()
    return [
        job.id
        for job in unfinished
        if job.kind in {"train", "recipe", "evolve", "export_agent", "push"} and learns(job)
    ]


def _stopped(services: Services, job_id: str, *, dry_run: bool) -> TouchedThing:
    """Cancel a job that learns from a forgotten run unless this is a dry run, and report its state."""
    if not dry_run:
        with suppress(
            OSError
        ):  # its folder is gone or cannot be written: the request is stored, and is passed on later
            services.jobs.cancel(job_id)
    job = services.store.jobs.get(job_id)
    if dry_run:
        remedy = Hint("It learns from them or uploads them, and would be asked to stop.")
    elif isinstance(job.spec, ExportAgentSpec):
        remedy = Hint("It hands over an agent that learned from them; it was asked to stop, and leaves no files then.")
    elif job.status is JobStatus.CANCELLED:
        remedy = Hint("It had not begun; start it again on a new export.")
    else:
        remedy = Hint(
            "It has read or played them, and was asked to stop; ",
            call("get_job", job_id=job_id, wait_s=30),
            " shows when it has stopped. Its results so far stay; start anew without them: export again, or begin another "
            "evolution.",
        )
    state = job.status if dry_run or job.status is JobStatus.CANCELLED else "stopping"
    return TouchedThing(kind="job", id=job_id, state=state, remedy=remedy)


def _job(services: Services, job_id: str) -> TouchedThing:
    job = services.store.jobs.get(job_id)
    if job.status in UNFINISHED:
        remedy = Hint("It works with what it has read already. Stop it with ", call("cancel_job", job_id=job_id), ".")
    elif isinstance(job.spec, PushSpec):
        remedy = Hint(f"It uploaded them: delete {job.spec.destination}, and its copies.")
    elif isinstance(job.spec, ExportAgentSpec) and (Path(job.spec.destination).is_dir() or job.spec.push_to):
        places = " and ".join(filter(None, (job.spec.destination, job.spec.push_to)))
        remedy = Hint(f"It handed over an agent that learned from them: delete {places}, and its copies.")
    else:
        remedy = Hint("It does not go on; its results stay readable.")
    return TouchedThing(kind="job", id=job_id, state=job.status, remedy=remedy)


def _deletable(services: Services, done: Forgotten, *, copies: bool) -> Iterable[Path]:
    """Yield caches with the runs: replay buffers, which training would read, previews, and judges' answers.

    With `copies` also folders of datasets with the runs, their exports, and inputs and episodes of finished jobs.
    """
    settings = services.settings
    for name in done.replay_buffers:
        yield settings.cache_dir / "replay" / name
    for job_id in done.touched.jobs:
        spec = services.store.jobs.get(job_id).spec
        if isinstance(spec, PreviewSpec):
            yield spec.answer
    yield from files_with_runs(services, done.runs)
    if not copies:
        return
    for dataset_id in done.blocked:
        folder = Path(services.store.datasets.get(dataset_id).path)
        if folder.resolve().is_relative_to(settings.home.resolve()):
            yield folder
        yield from sorted(settings.exports_dir.glob(f"{dataset_id}-*"))
    played = [(f"outputs/{kind}.jsonl", done.made_by) for kind in ("trajectory", "taken_over")]
    for parts, job_ids in (("inputs", _learning(services, done.touched)), *played):
        for job_id in job_ids:
            if services.store.jobs.get(job_id).status not in UNFINISHED:
                folder = settings.jobs_dir / job_id
                yield from (folder / parts, *sorted(folder.glob(f"stages/*/{parts}")))


def _copies(services: Services, done: Forgotten, removed: Collection[Path], datasets: Sequence[Path]) -> Iterable[str]:
    """Yield files and folders that contain the runs after a removal; none of them is used again.

    `datasets` are the folders with the runs, and the files that they were read from.
    """
    settings = services.settings
    exports = (path for one in done.touched.datasets for path in sorted(settings.exports_dir.glob(f"{one}-*")))
    job_ids = list(dict.fromkeys((*done.made_by, *_learning(services, done.touched))))
    jobs = (settings.jobs_dir / job_id for job_id in job_ids)
    jobs = (folder for folder in jobs if _has_copy(services, folder, done, removed))
    backups = [path for kept in _EARLIER for path in sorted(settings.home.glob(kept))]
    logs = (path for source in done.sources if (path := _local(source)) is not None)
    for path in dict.fromkeys((*datasets, *exports, *jobs, *backups, *logs)):
        if path.exists() and path not in removed:
            yield str(path)
    yield from held_elsewhere(services, datasets, job_ids)


def _has_copy(services: Services, folder: Path, done: Forgotten, removed: Collection[Path]) -> bool:
    """Whether a job's folder still contains runs: it is at work, or a file names one of them. A preview copies none."""
    if isinstance(services.store.jobs.get(folder.name).spec, PreviewSpec):
        return False
    if done.trajectory_ids and not any(path.is_relative_to(folder) for path in removed):
        return True
    if services.store.jobs.get(folder.name).status in UNFINISHED:
        return True
    left = (path for path in folder.rglob("*.json*") if not any(path.is_relative_to(gone) for gone in removed))
    return bool(files_of_runs(left, done.runs))


def _local(source: str) -> Path | None:
    """Return the file of a path or `file:` URI; None for another machine or not a file."""
    if "://" not in source:
        return Path(source) if Path(source).is_absolute() else None
    parts = urlsplit(source)
    return Path(url2pathname(parts.path)) if (parts.scheme, parts.netloc) == ("file", "") else None


def _learning(services: Services, touched: AffectedRecords) -> Iterable[str]:
    """Return the jobs that copied a dataset into their folder."""
    held = set(touched.datasets)
    return (job_id for job_id in touched.jobs if held & set(datasets_of(services.store.jobs.get(job_id).spec)))
