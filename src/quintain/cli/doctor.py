"""`quintain doctor`: does this installation work? Ends with a real job through shim and worker."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from quintain import __version__
from quintain.cli.session import plain_console
from quintain.endpoints.profiles import read_profiles
from quintain.errors import QuintainError, Unavailable, disk_remedy
from quintain.records.job import SelftestSpec
from quintain.records.judging import Endpoint
from quintain.records.text import printable
from quintain.settings import Settings, has_secret
from quintain.tools.jobs.jobs import get_job
from quintain.tools.services import Services, open_services
from quintain.tools.training.model_folders import starter_folder


def doctor(
    home: Annotated[Path | None, typer.Option(help="Home folder; default: QUINTAIN_HOME.")] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Check this installation: folders, database, embedded model, and a real job from start to end."""
    raise typer.Exit(run_doctor(home, json_out=json_out))


def run_doctor(home: Path | None, *, json_out: bool = False) -> int:
    """Run the checks, print a line for each; returns 0 when all of them pass."""
    console = plain_console(stderr=json_out)
    settings = Settings(home=home.resolve()) if home else Settings()
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
        return
    try:
        yield _Check("home and database", True, f"ok ({services.store.description()})")
        checks = {"embedded model": _starter, "endpoints": _endpoints, "a job from start to end": _job}
        for name, check in checks.items():
            try:
                yield _Check(name, True, check(services))
            except QuintainError as error:
                yield _Check(name, False, str(error))
    finally:
        services.close()


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
