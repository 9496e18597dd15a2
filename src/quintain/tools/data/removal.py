"""Removal by the tool `forget`, each after a report: datasets and agents with their files, and the disk space of ended jobs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.datasets.manifest import source_files
from quintain.errors import Conflict
from quintain.jobs.pruning import ENDED, Prunable, model_folders, prunable, prune
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.dataset import Dataset
from quintain.records.jobs.handover import ExportAgentSpec
from quintain.records.jobs.job import UNFINISHED, Job, JobStatus
from quintain.records.lineage import LineageNode
from quintain.records.wording import counted, size_text
from quintain.store.database.paging import read_pages
from quintain.tools.data.lineage import datasets_of, forget_call, round_datasets
from quintain.tools.jobs.descriptions import job_label
from quintain.tools.results import ForgetResult, TouchedThing
from quintain.tools.services import Services

if TYPE_CHECKING:
    from quintain.store.lineage.links import Ref

_SHOWN = 100
"""Dependents, or jobs, in an answer; the rest is counted."""


def remove_records(services: Services, refs: Sequence[Ref], *, dry_run: bool, copies: bool) -> ForgetResult:
    """Remove datasets and versions of agents: their files go, their records stay for lineage alone.

    Nothing that depends on them breaks: files that another agent uses stay, and an unfinished job is refused.

    `copies` also deletes exports in the home, and copies in the folders of finished jobs.

    Raises:
        NotFound: One of them was removed before.
        Conflict: An unfinished job uses one of them.
    """
    store, now = services.store, services.clock()
    datasets = [store.datasets.get(ref.id) for ref in refs if ref.kind == "dataset"]
    agents = [store.agents.get(ref.id) for ref in refs if ref.kind == "agent"]
    busy = [job for job in store.jobs.unfinished() if _uses(job, datasets, agents)]
    if busy and not dry_run:
        stop = call("cancel_job", job_id=busy[0].id)
        wrong = f"expected records that no unfinished job uses, got {', '.join(ref.id for ref in refs)}; "
        raise Conflict(Hint(wrong, f"{busy[0].id} uses them: wait, or stop it with ", stop), code="in_use")
    derived = store.lineage.derived(refs)
    own, others = list(_files(services, datasets, agents)), list(_copies(services, datasets, agents, derived))
    sources = [path for dataset in datasets for path in source_files(Path(dataset.path))]
    if not dry_run:
        for dataset in datasets:
            store.datasets.remove(dataset.id, now)
        for agent in agents:
            store.agents.remove(agent.id or "", now)
    home = services.settings.home.resolve()
    inside = [path for path in dict.fromkeys(others) if path.exists() and path.resolve().is_relative_to(home)]
    wanted = [path for path in dict.fromkeys([*own, *(inside if copies else ())]) if path.exists()]
    removed = [path for path in wanted if dry_run or delete_path(path)]
    left = [str(path) for path in dict.fromkeys([*own, *others, *sources]) if path.exists() and path not in removed]
    left += _in_other_homes(services, datasets, agents, derived)
    touched = list(_touched(refs, derived, busy, dry_run=dry_run))
    return ForgetResult(
        dry_run=dry_run,
        touched=tuple(touched[:_SHOWN]),
        touched_count=len(touched),
        removed=tuple(map(str, removed)),
        copies=tuple(left[:_SHOWN]),
        copies_count=len(left),
        next_step=_next_step(refs, busy, left, inside, dry_run=dry_run, copies=copies),
    )


def _uses(job: Job, datasets: Sequence[Dataset], agents: Sequence[Agent]) -> bool:
    """Whether a job reads one of the records, or is still making them."""
    spec = job.spec.model_dump_json()
    ids = {*round_datasets(job), *datasets_of(job.spec)}
    made = any(agent.root_job_id == job.id for agent in agents)
    wanted = [*(dataset.id for dataset in datasets), *(agent.id for agent in agents)]
    return made or any(one in ids or f'"{one}"' in spec for one in wanted)


def _files(services: Services, datasets: Sequence[Dataset], agents: Sequence[Agent]) -> Iterable[Path]:
    """Yield the folders of the records in the home, without those that another agent's model is in."""
    settings, gone = services.settings, {agent.id for agent in agents}
    stay = model_folders(agent for agent in read_pages(services.store.agents.page) if agent.id not in gone)
    for dataset in datasets:
        if Path(dataset.path).resolve().is_relative_to(settings.home.resolve()):
            yield Path(dataset.path)
    for folder in sorted(model_folders(agents)):
        inside = any(folder.is_relative_to(home.resolve()) for home in (settings.agents_dir, settings.jobs_dir))
        if inside and not any(path.is_relative_to(folder) for path in stay):
            yield folder


def _copies(
    services: Services, datasets: Sequence[Dataset], agents: Sequence[Agent], derived: Sequence[LineageNode]
) -> Iterable[Path]:
    """Yield exports of the records, copies of datasets in the folders of finished jobs, and what made an agent left there."""
    store, settings = services.store, services.settings
    ids, names = {dataset.id for dataset in datasets}, {agent.id for agent in agents}
    for dataset_id in ids:
        yield from sorted(settings.exports_dir.glob(f"{dataset_id}-*"))
    for job in (store.jobs.get(node.id) for node in derived if node.kind == "job"):
        if ids & set(datasets_of(job.spec)) and job.status not in UNFINISHED:
            folder = settings.jobs_dir / job.id
            yield from (folder / "inputs", *sorted(folder.glob("stages/*/inputs")))
        if isinstance(job.spec, ExportAgentSpec) and job.spec.agent.id in names:
            yield Path(job.spec.destination)
    made_by = {agent.root_job_id for agent in agents if agent.root_job_id}
    left = prunable(store, settings.jobs_dir, services.clock(), older_than=timedelta(0), statuses=ENDED, only=made_by)
    yield from (folder for one in left for folder in one.folders)


def _in_other_homes(
    services: Services, datasets: Sequence[Dataset], agents: Sequence[Agent], derived: Sequence[LineageNode]
) -> list[str]:
    ids = {dataset.id for dataset in datasets}
    jobs = [node.id for node in derived if node.kind == "job"]
    jobs = [job_id for job_id in jobs if ids & set(datasets_of(services.store.jobs.get(job_id).spec))]
    jobs += [agent.root_job_id for agent in agents if agent.root_job_id]
    paths = [*(Path(dataset.path) for dataset in datasets), *sorted(model_folders(agents))]
    return held_elsewhere(services, paths, jobs)


def held_elsewhere(services: Services, paths: Iterable[Path], job_ids: Iterable[str]) -> list[str]:
    """Return the recorded paths that are outside this home and not seen here, and the jobs whose folders other homes have.

    Whether they are still there is unknown.
    """
    home = services.settings.home.resolve()
    unseen = [path for path in paths if not path.exists() and not path.resolve().is_relative_to(home)]
    jobs = [services.store.jobs.get(job_id) for job_id in dict.fromkeys(job_ids)]
    elsewhere = [job for job in jobs if services.jobs.is_elsewhere(job) and job.kind != "preview"]
    return [*map(str, unseen), *(f"the folder of {job.id} in home {job.home}" for job in elsewhere)]


def _touched(
    refs: Sequence[Ref], derived: Sequence[LineageNode], busy: Sequence[Job], *, dry_run: bool
) -> Iterable[TouchedThing]:
    gone = "It would be removed" if dry_run else "It is removed"
    for ref in refs:
        remedy = Hint(f"{gone}; lineage still names it, and its id is not given again.")
        yield TouchedThing(kind=ref.kind, id=ref.id, state="kept" if dry_run else "removed", remedy=remedy)
    for job in busy:
        remedy = Hint(
            "It uses them, so nothing is removed before it ends: ", call("cancel_job", job_id=job.id), " stops it."
        )
        yield TouchedThing(kind="job", id=job.id, state=job.status, remedy=remedy)
    unfinished = {job.id for job in busy}
    for node in sorted(derived, key=lambda node: node.kind):
        if node.kind == "agent":
            along = forget_call([*(ref.id for ref in refs), node.id])
            remedy = Hint(
                "It was made from them, works without them, and keeps what it has learned; to remove it too: ",
                along,
                ".",
            )
            yield TouchedThing(kind=node.kind, id=node.id, state="kept", remedy=remedy)
        elif node.id not in unfinished:
            yield TouchedThing(kind=node.kind, id=node.id, state="kept", remedy=Hint("Its results stay."))


def staying_copies(n: int) -> str:
    """Return a note of the places with copies that a dry run without `copies` leaves; empty without any."""
    return f"{counted(n, 'place')} with copies would stay; `copies` deletes them too. " if n else ""


def _next_step(
    refs: Sequence[Ref],
    busy: Sequence[Job],
    left: Sequence[str],
    inside: Sequence[Path],
    *,
    dry_run: bool,
    copies: bool,
) -> Hint:
    if not dry_run and left:
        free = call("forget", id=..., ended_days=0, dry_run=False)
        return Hint("Delete the copies that are left when you no longer need them, those of a job with ", free, ".")
    if not dry_run:
        return Hint("No copy of them is known.")
    if busy:
        return Hint("Nothing was changed. First ", call("cancel_job", job_id=busy[0].id), ", which uses them.")
    again = forget_call([ref.id for ref in refs], copies=copies or None, dry_run=False)
    note = "" if copies else staying_copies(len({*map(str, inside)} & {*left}))
    return Hint(note, "Nothing was changed. To remove for good: ", again, ".")


def delete_path(path: Path) -> bool:
    """Delete a file or folder. Return whether nothing is left of it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return not path.exists()


def free_disk(services: Services, days: int, job_ids: Sequence[str], *, dry_run: bool) -> ForgetResult:
    """Delete checkpoints and inputs of jobs that ended; results, curves, logs and agents stay.

    Without ids these are all that succeeded; with ids these jobs, however they ended.

    Raises:
        NotFound: an id of no job.
        Conflict: a job that has not ended.
    """
    services.jobs.refresh(services.settings.poll_s)
    for job_id in job_ids:
        if (status := services.store.jobs.get(job_id).status) in UNFINISHED:
            remedy = call("cancel_job", job_id=job_id)
            raise Conflict(
                Hint(f"expected a job that has ended, got {job_id}, which is {status}; stop it first with ", remedy)
            )
    found = _prunable(services, days, job_ids, (JobStatus.SUCCEEDED,) if not job_ids else ENDED)
    freed = [(one, one.bytes if dry_run else prune(one, services.settings.jobs_dir)) for one in found]
    return ForgetResult(
        dry_run=dry_run,
        touched=tuple(_freed(services, one, size, dry_run=dry_run) for one, size in freed[:_SHOWN]),
        touched_count=len(freed),
        removed=tuple(str(folder) for one, size in freed if size for folder in one.folders),
        freed_bytes=sum(size for _, size in freed),
        next_step=_after_freeing(services, days, job_ids, freed=sum(size for _, size in freed), dry_run=dry_run),
    )


def _prunable(services: Services, days: int, job_ids: Sequence[str], statuses: Sequence[JobStatus]) -> list[Prunable]:
    folder, now, only = services.settings.jobs_dir, services.clock(), job_ids or None
    return prunable(services.store, folder, now, older_than=timedelta(days=days), statuses=statuses, only=only)


def _freed(services: Services, one: Prunable, freed: int, *, dry_run: bool) -> TouchedThing:
    about = f"{job_label(services, one.job)}: {'would free' if dry_run else 'freed'} {size_text(freed)}"
    if not freed:
        about = f"{job_label(services, one.job)}: a process still uses it; call again later"
    elif one.job.status is not JobStatus.SUCCEEDED:
        about += "; it cannot be resumed afterwards"
    return TouchedThing(kind="job", id=one.job.id, state=one.job.status, remedy=Hint(about))


def _after_freeing(services: Services, days: int, job_ids: Sequence[str], *, freed: int, dry_run: bool) -> Hint:
    if freed and dry_run:
        step = Hint(
            f"Nothing was changed. To free {size_text(freed)}: ",
            forget_call(job_ids, ended_days=days, dry_run=False),
            "; results, curves, logs and agents stay.",
        )
    elif freed:
        step = Hint(f"Freed {size_text(freed)}; results, curves, logs and agents stay.")
    else:
        asked = counted(len(job_ids), "named job") if job_ids else "succeeded jobs"
        step = Hint(f"Nothing to free: {asked} that ended at least {counted(days, 'day')} ago have no files to delete.")
    unsuccessful = () if job_ids else tuple(status for status in ENDED if status is not JobStatus.SUCCEEDED)
    if others := _prunable(services, days, (), unsuccessful):
        ids, size = [one.job.id for one in others], sum(one.bytes for one in others)
        more = forget_call(ids[:10], ended_days=days)
        step = Hint(
            step,
            f" {counted(len(others), 'job')} that failed or was cancelled would free {size_text(size)}, and could not be resumed: ",
            more,
            ".",
        )
    return step
