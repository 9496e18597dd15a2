"""`quintain doctor`: does this installation work? Ends with a real job through shim and worker."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from quintain import __version__
from quintain.endpoints.profiles import read_profiles
from quintain.errors import QuintainError, Unavailable, disk_remedy
from quintain.records.job import SelftestSpec
from quintain.records.judging import Endpoint
from quintain.settings import Settings, has_secret
from quintain.tools.jobs.jobs import get_job
from quintain.tools.services import Services, open_services
from quintain.tools.training.model_folders import starter_folder


def doctor(home: Annotated[Path | None, typer.Option(help="Home folder; default: QUINTAIN_HOME.")] = None) -> None:
    """Check this installation: folders, database, embedded model, and a real job from start to end."""
    raise typer.Exit(run_doctor(home))


def run_doctor(home: Path | None) -> int:
    """Run the checks, print a line for each; returns 0 when all of them pass."""
    console = Console(soft_wrap=True)
    settings = Settings(home=home.resolve()) if home else Settings()
    console.print(f"quintain {__version__}, Python {sys.version.split()[0]}, home {settings.home}")
    try:
        services = open_services(settings, trusted=True)
        _require_writable(services)
    except QuintainError as error:
        console.print(f"home and database: {error}", style="red", markup=False)
        return 1
    checks: list[tuple[str, Callable[[Services], str]]] = [
        ("embedded model", _starter),
        ("endpoints", _endpoints),
        ("a job from start to end", _job),
    ]
    failures = 0
    try:
        console.print(f"home and database: ok ({services.store.description()})", style="green", markup=False)
        for name, check in checks:
            try:
                console.print(f"{name}: {check(services)}", style="green")
            except QuintainError as error:
                failures += 1
                console.print(f"{name}: {error}", style="red", markup=False)
    finally:
        services.close()
    return 1 if failures else 0


def _require_writable(services: Services) -> None:
    """Write a file into each folder of the home, for folders can be opened that cannot be written."""
    settings = services.settings
    for folder in (settings.home, settings.jobs_dir, settings.datasets_dir, settings.agents_dir, settings.inbox_dir):
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            services.close()
            raise Unavailable(f"{folder} cannot be written ({error.strerror}); {disk_remedy(error)}") from error


def _starter(services: Services) -> str:
    missing = [
        name
        for name in ("config.json", "model.safetensors", "tokenizer.json")
        if not (starter_folder() / name).is_file()
    ]
    if missing:
        raise Unavailable(f"the installation lacks {', '.join(missing)} of the embedded model; install quintain again")
    return "ok"


def _endpoints(services: Services) -> str:
    """The profiles, and whether each key's variable is set; never a value."""
    profiles = read_profiles(services.settings.endpoints_file)
    if not profiles:
        return f"none ({services.settings.endpoints_file} would name them; the assistant itself can judge without one)"
    return "; ".join(f"{name} ({one.protocol}, {one.model}, {_key_of(one)})" for name, one in profiles.items())


def _key_of(endpoint: Endpoint) -> str:
    if endpoint.api_key_env is None:
        return "no key"
    return f"{endpoint.api_key_env} is {'set' if has_secret(endpoint.api_key_env) else 'NOT set in this terminal'}"


def _job(services: Services) -> str:
    started = services.jobs.start(SelftestSpec(steps=3))
    view = get_job(services, started.job.id, wait_s=0)
    for _ in range(4):
        if view.status in {"succeeded", "failed", "cancelled", "interrupted"}:
            break
        view = get_job(services, started.job.id, wait_s=10)
    if view.status != "succeeded":
        folder = services.jobs.directory(view.job_id)
        raise Unavailable(
            f"{view.job_id} is {view.status}: {view.error or 'no answer within 40 s'}; look into {folder}"
        )
    return f"ok ({view.job_id})"
