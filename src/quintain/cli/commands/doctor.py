"""`quintain doctor`: does this installation work? Ends with a real job through shim and worker."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from quintain import __version__
from quintain.artifacts.checksums import require_unchanged
from quintain.cli.main import HomeOption
from quintain.cli.session import plain_console
from quintain.datasets.manifest import read_manifest
from quintain.endpoints.profiles import read_profiles
from quintain.environments import registry as environments
from quintain.errors import InvalidInput, NotFound, QuintainError, Unavailable, disk_remedy
from quintain.exporters import registry as exporters
from quintain.extensions import ExtensionGroup, load, package_of
from quintain.importers import registry as importers
from quintain.jobs.home_claim import assign_new_id, nothing_running
from quintain.jobs.launchers import registry as launchers
from quintain.jobs.pruning import model_folders
from quintain.records.jobs.job import UNFINISHED, JobStatus, SelftestSpec
from quintain.records.labels.judging import Endpoint
from quintain.records.record import left_out
from quintain.records.text import printable
from quintain.records.wording import counted, list_names, size_text
from quintain.scoring import registry as scorers
from quintain.settings import Settings, has_secret, read_settings, sqlite_url
from quintain.store.database.damage import problems, readable, salvage
from quintain.store.database.paging import read_pages
from quintain.store.database.restore import follow_move, former_homes
from quintain.store.store import open_store
from quintain.tools.jobs.jobs import get_job
from quintain.tools.roots import mirror_of, url_of
from quintain.tools.services import Services, open_services
from quintain.tools.training.model_folders import starter_folder
from quintain.tools.training.requests import require_intact

LEAST_FREE_MB = 500
"""Free space below which a job may fail."""

_LONGEST_WRITE_S = 86_400
"""Age from which a half-written dataset or model is that of a killed process."""
_HALF_WRITTEN = (".ds-*", ".*.partial", ".*.job-*")
"""Names that writers of datasets and models give to what they have not finished; other hidden files are the user's."""

_MUCH_UNUSED = 100 * 1024**2
"""Unused bytes of the database from which a vacuum is proposed."""


def doctor(
    home: HomeOption = None,
    salvage_to: Annotated[
        Path | None,
        typer.Option(
            "--salvage", help="Copy what can be read of a damaged database into this new file, and do no more."
        ),
    ] = None,
    vacuum: Annotated[
        bool,
        typer.Option(
            "--vacuum", help="Give the space of deleted rows in the database back to the disk, and do no more."
        ),
    ] = False,
    new_home_id: Annotated[
        bool,
        typer.Option("--new-home-id", help="Give a copied home a new id in a shared database, and do no more."),
    ] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Check this installation: folders, database, embedded model, and a real job from start to end."""
    raise typer.Exit(run_doctor(home, salvage_to=salvage_to, vacuum=vacuum, new_home_id=new_home_id, json_out=json_out))


def run_doctor(
    home: Path | None,
    *,
    salvage_to: Path | None = None,
    vacuum: bool = False,
    new_home_id: bool = False,
    json_out: bool = False,
) -> int:
    """Run the checks, print a line for each; returns 0 when all of them pass."""
    console = plain_console(stderr=json_out)
    settings = read_settings(home)
    if new_home_id:
        console.print(printable(f"the home id is {assign_new_id(settings.jobs_dir)} now"))
        return 0
    if salvage_to is not None:
        console.print(printable(_salvage(settings, salvage_to)))
        return 0
    if vacuum:
        console.print(printable(_vacuum(settings)))
        return 0
    console.print(f"quintain {__version__}, Python {sys.version.split()[0]}, home {settings.home}")
    checks = []
    for check in _checks(settings):
        checks.append(check)
        console.print(printable(f"{check.name}: {check.text}"), style="green" if check.passed else "red")
    if json_out:
        plain_console().print(json.dumps({"version": __version__, "checks": [check._asdict() for check in checks]}))
    return 0 if all(check.passed for check in checks) else 1


class _Check(NamedTuple):
    name: str
    passed: bool
    text: str


def _checks(settings: Settings) -> Iterator[_Check]:
    """Yield the result of each check; without a home and database the others are left out."""
    try:
        services = open_services(settings, trusted=True)
        _require_writable(services)
    except QuintainError as error:
        yield _Check("home and database", False, str(error))
        if error.code == "database_damaged":
            yield _Check("what can still be read", False, _remains(settings))
        return
    try:
        yield _Check("home and database", True, f"ok ({services.store.description()})")
        checks = {
            "integrity of the database": _integrity,
            "settings": _settings,
            "disk": _disk,
            "half-written files": _half_written,
            "datasets and agents": _kept,
            "folders of jobs": _folders,
            "unfinished jobs": _unfinished,
            "embedded model": _starter,
            "endpoints": _endpoints,
            "environments": _environments,
            "extensions": _extensions,
            "a job from start to end": _job,
        }
        for name, check in checks.items():
            try:
                yield _Check(name, True, check(services))
            except QuintainError as error:
                yield _Check(name, False, str(error))
    finally:
        services.close()


def _require_writable(services: Services) -> None:
    """Write a file into each folder of the home, because a folder that can be opened may not be writable."""
    settings = services.settings
    for folder in (settings.home, settings.jobs_dir, settings.datasets_dir, settings.agents_dir, settings.inbox_dir):
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            services.close()
            raise Unavailable(f"{folder} cannot be written ({error.strerror}); {disk_remedy(error)}") from error


def _remains(settings: Settings) -> str:
    """Describe the readable data of a damaged database, its backups, and how to recover."""
    path = settings.home / "quintain.db"
    tables = readable(path)
    rows = ", ".join(f"{one.table} {one.rows}{' at least' if one.problem else ''}" for one in tables if one.rows)
    copies = ", ".join(sorted(copy.name for copy in path.parent.glob("quintain.db.*before*"))) or "none"
    ways = "`quintain restore` brings a backup back"
    if rows:
        ways += f"; `quintain doctor --salvage {path.with_name('salvaged.db')}` copies these rows into a new database"
    return f"{rows or 'nothing'}. Copies from before migrations: {copies}. Stop all servers first; then {ways}"


def _salvage(settings: Settings, target: Path) -> str:
    """Copy the readable rows into a new database, and return what to do with it."""
    path = settings.home / "quintain.db"
    if not path.is_file():
        raise NotFound(f"expected a database at {path}, got none; name its home with --home")
    open_store(sqlite_url(target.resolve())).close()
    copied = salvage(path, target)
    lost = [one.table for one in copied if one.problem]
    rows = ", ".join(f"{one.table} {one.rows}" for one in copied if one.rows) or "no row"
    note = f"rows may be missing in {', '.join(lost)}" if lost else "every row could be read"
    return f"copied to {target}: {rows}; {note}. Move {path} aside, and this file into its place"


def _vacuum(settings: Settings) -> str:
    store = open_store(settings.url)
    try:
        return f"the database is {size_text(store.vacuum())} smaller"
    finally:
        store.close()


def _integrity(services: Services) -> str:
    if services.store.engine.dialect.name != "sqlite":
        return "not checked: PostgreSQL's server takes care of it"
    if found := problems(services.settings.home / "quintain.db"):
        raise Unavailable(f"{'; '.join(found)}; {_remains(services.settings)}")
    unused = services.store.unused_bytes()
    if unused < _MUCH_UNUSED:
        return "ok"
    return f"ok; {size_text(unused)} are unused: `quintain doctor --vacuum` gives them back"


def _settings(services: Services) -> str:
    """Report settings without effect: misspelt variables, missing folders, and locations that no call could use."""
    settings = services.settings
    faults = [f"{name} has no effect: it is no setting; correct or unset it" for name in settings.misspelt()]
    faults += [f"{root} in QUINTAIN_ROOTS does not exist; create it" for root in settings.roots if not root.exists()]
    locations: list[Callable[[], object]] = [lambda: mirror_of(services, "")] if settings.checkpoints else []
    locations += [partial(url_of, services, prefix) for prefix in settings.artifacts]
    for resolve in locations:
        try:
            resolve()
        except QuintainError as error:
            faults.append(error.message)
    if faults:
        raise InvalidInput("; ".join(dict.fromkeys(faults)), code="bad_setting")
    return "ok"


def _disk(services: Services) -> str:
    free = shutil.disk_usage(services.settings.home).free
    if free < LEAST_FREE_MB * 2**20:
        raise Unavailable(
            f"{size_text(free)} are free where the home folder is; free disk space, or call `quintain jobs prune`"
        )
    return f"ok ({size_text(free)} free)"


def _half_written(services: Services) -> str:
    """Remove what killed processes have left half-written beside datasets, agents and exports."""
    settings = services.settings
    folders = settings.datasets_dir, settings.agents_dir, settings.exports_dir
    found = {path for folder in folders for name in _HALF_WRITTEN for path in folder.glob(name)}
    left = [path for path in found if time.time() - path.stat().st_mtime > _LONGEST_WRITE_S]
    for path in left:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return f"ok ({len(left)} removed)" if left else "ok"


def _kept(services: Services) -> str:
    """Report lost or changed datasets and agents' models. All their files are read, except those of other homes."""
    faults, unreadable, elsewhere, home = list[str](), list[str](), 0, services.settings.home
    if moved := former_homes(home) if services.store.is_in(home) else []:
        with nothing_running(services.settings.jobs_dir):
            follow_move(home, moved)
    for dataset in read_pages(services.store.datasets.page, unreadable):
        if _is_elsewhere(services, Path(dataset.path)):
            elsewhere += 1
            continue
        if not Path(dataset.path).exists() and services.store.lineage.datasets_with_forgotten([dataset.id]):
            continue  # deleted with the forgotten runs in it
        try:
            require_intact(dataset, all_files=True)
            read_manifest(Path(dataset.path))
        except (InvalidInput, NotFound) as error:
            faults.append(error.message)
    for path in sorted(model_folders(read_pages(services.store.agents.page, unreadable))):
        if _is_elsewhere(services, path):
            elsewhere += 1
            continue
        if not path.exists():
            faults.append(f"an agent has lost its model {path}; restore it from a backup")
        try:
            require_unchanged(path)
        except InvalidInput as error:
            faults.append(error.message)
    faults += [f"the records of {left_out(unreadable)}"] if unreadable else []
    if faults:
        raise Unavailable("; ".join(faults))
    if moved:
        return f"ok (the home was moved from {', '.join(moved)}; the paths in its records are changed)"
    return f"ok ({elsewhere} outside this home, and not seen here)" if elsewhere else "ok"


def _is_elsewhere(services: Services, path: Path) -> bool:
    """Whether a path is that of another home on a shared database, as far as this machine shows."""
    is_shared = services.store.engine.dialect.name != "sqlite"
    return is_shared and not path.exists() and not path.is_relative_to(services.settings.home.resolve())


def _folders(services: Services) -> str:
    """Compare the job folders with the database; one that lacks jobs is new, or restored from an older copy."""
    names = sorted(path.parent.name for path in services.settings.jobs_dir.glob("job-*/spec.json"))
    known = services.store.jobs.states(names)
    if missing := [name for name in names if name not in known]:
        raise Unavailable(
            f"the database lacks {len(missing):,} of the {counted(len(names), 'job')} whose folders are here "
            f"({list_names(missing, 5)}), so it is not the one that they were started with, or an older copy of it; restore a "
            "newer backup with `quintain restore`, or move the folders away: their `outputs` have what was not stored"
        )
    return "ok"


def _unfinished(services: Services) -> str:
    """Reconcile once, and report the jobs that the reconciler cannot manage."""
    services.jobs.reconcile()
    unfinished = services.store.jobs.unfinished()
    troubles = [f"{job.id}: {trouble}" for job in unfinished if (trouble := services.jobs.trouble(job.id))]
    home, is_own = services.jobs.home, services.store.is_in(services.settings.home)
    others = [job for job in unfinished if is_own and job.home not in {None, home}]
    troubles += [
        f"{job.id}: it belongs to home {job.home}, and this one is {home}; start a server of that home, or write its id into "
        "jobs/home_id if that file was changed"
        for job in others
    ]
    troubles += [
        f"{job.id}: one of its processes is suspended; let it go on with kill -CONT, or stop it with quintain jobs cancel"
        for job in unfinished
        if job.status is JobStatus.RUNNING and services.jobs.is_suspended(job.id)
    ]
    if troubles:
        raise Unavailable("; ".join(troubles))
    return f"ok ({len(unfinished)})"


def _starter(services: Services) -> str:
    names = ("config.json", "model.safetensors", "tokenizer.json")
    if missing := [name for name in names if not (starter_folder() / name).is_file()]:
        raise Unavailable(f"the installation lacks {', '.join(missing)} of the embedded model; install quintain again")
    return "ok"


def _endpoints(services: Services) -> str:
    """List the profiles, and whether each key's variable is set; never its value."""
    profiles = read_profiles(services.settings.endpoints_file)
    if not profiles:
        return f"none ({services.settings.endpoints_file} would name them; the assistant itself can judge without one)"
    return "; ".join(f"{name} ({one.protocol}, {one.model}, {_key_of(one)})" for name, one in profiles.items())


def _environments(services: Services) -> str:
    """List the profiles of the operator's file, without starting their programs."""
    profiles = [*environments.list_servers(), *environments.list_foreign()]
    return ", ".join(one.name for one in profiles) or f"none ({services.settings.environments_file} would name them)"


def _extensions(services: Services) -> str:
    found = list_extensions()
    if faults := [one.fault for one in found if one.fault]:
        raise Unavailable("; ".join(faults))
    return "; ".join(f"{one.name} of {one.package} ({one.group})" for one in found) or "none"


def _key_of(endpoint: Endpoint) -> str:
    if endpoint.api_key_env is None:
        return "no key"
    return f"{endpoint.api_key_env} is {'set' if has_secret(endpoint.api_key_env) else 'NOT set in this terminal'}"


def _job(services: Services) -> str:
    # Its own job, and not an equal one that is stuck, or that another home on this database is to run.
    started = services.jobs.start(SelftestSpec(steps=3), request_key=uuid.uuid4().hex)
    view = get_job(services, started.job.id, wait_s=0)
    for _ in range(4):
        if view.status not in UNFINISHED:
            break
        view = get_job(services, started.job.id, wait_s=10)
    if view.status != "succeeded":
        folder = services.jobs.directory(view.job_id)
        raise Unavailable(
            f"{view.job_id} is {view.status}: {view.error or 'no answer within 40 s'}; look into {folder}"
        )
    return f"ok ({view.job_id})"


class Extension(NamedTuple):
    """An entry point of another package."""

    group: str
    name: str
    package: str
    fault: str | None
    """Why it is not used. None: it is."""


def list_extensions() -> list[Extension]:
    """Return the extensions of all groups; this imports their packages."""
    found = []
    for registry in (importers, exporters, scorers, environments, launchers):
        group: ExtensionGroup = registry.EXTENSIONS
        installed = group.installed()
        for name, entry in installed.entries.items():
            try:
                load(entry)
                fault = None
            except Unavailable as error:
                fault = error.message
            found.append(Extension(group.name, name, package_of(entry), fault))
        found += [Extension(group.name, name, "", reason) for name, reason in installed.refused.items()]
    return found
