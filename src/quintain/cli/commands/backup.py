"""`quintain backup` and `quintain restore`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from quintain.cli.main import HomeOption
from quintain.cli.session import Session, plain_console
from quintain.errors import Conflict
from quintain.jobs.home_claim import nothing_running
from quintain.records.wording import counted, size_text
from quintain.settings import Settings, read_settings
from quintain.store.database.backup import BackupManifest
from quintain.store.database.restore import RestoreResult, read_manifest, restore, verify
from quintain.tools.data.backups import BackupResult
from quintain.tools.services import open_services, utc_now

_JSON = typer.Option("--json", help="Print the result as JSON.")

_CHECKED = "Every file is as it was backed up"
_DONE = {"create": "Backed up", "check": _CHECKED, "restore": "Restored"}


def show_backup(console: Console, made: BackupResult) -> None:
    """Print what was backed up, checked or restored."""
    _print(console, f"{_DONE[made.action]}: {made.path}", made.files, made.bytes, made.left_out)
    if made.home is not None:
        console.print(f"home: {made.home}")


def restore_command(
    source: Annotated[Path, typer.Argument(help="Folder or archive of a backup.")],
    home: HomeOption = None,
    check: Annotated[bool, typer.Option("--check", help="Only compare every file with its hash.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Replace a home that is not empty without asking.")] = False,
    json_out: Annotated[bool, _JSON] = False,
) -> None:
    """Restore a backup into an empty home; another home is replaced after a confirmation, and its contents kept beside.

    Stop servers on that home first; one with a running job is refused. Jobs that were under way become interrupted.
    """
    with Session(home):
        if check:
            _show(_CHECKED, source, verify(source), json_out=json_out)
        else:
            _restore(source, home, yes=yes, json_out=json_out)


def _restore(source: Path, home: Path | None, *, yes: bool, json_out: bool) -> None:
    settings = read_settings(home)
    folder = settings.home
    read_manifest(source)
    try:
        done = _restored(source, settings, replace=yes)
    except Conflict as conflict:
        if json_out or conflict.code != "home_not_empty":
            raise
        question = f"{folder} is not empty. Replace it? Its contents move into a folder beside it"
        if not typer.confirm(question):
            raise
        done = _restored(source, settings, replace=True)
    open_services(read_settings(folder), trusted=True).close()  # migrates an older database
    more = {"home": str(folder), "interrupted_jobs": done.interrupted, "replaced": done.replaced and str(done.replaced)}
    _show(_DONE["restore"], source, done.manifest, json_out=json_out, **more)
    if not json_out:
        console = plain_console()
        console.print(f"home: {folder}")
        if done.interrupted:
            console.print(f"{counted(done.interrupted, 'job')} under way then: interrupted; see quintain jobs")
        if done.replaced:
            console.print(f"before: {done.replaced}")


def _restored(source: Path, settings: Settings, *, replace: bool) -> RestoreResult:
    """Restore a backup while no job of the home runs: its worker would go on in the folder of the restored job."""
    with nothing_running(settings.jobs_dir) if settings.jobs_dir.is_dir() else nullcontext():
        return restore(source, settings.home, replace=replace, now=utc_now())


def _show(what: str, path: Path, manifest: BackupManifest, *, json_out: bool, **more: object) -> None:
    console = plain_console()
    if json_out:
        document = manifest.model_dump(mode="json", exclude={"files"})
        counts = {"path": str(path.absolute()), "files": len(manifest.files), "bytes": manifest.total_bytes}
        console.print(json.dumps({**document, **counts, **more}))
        return
    of = f", of {manifest.created_at:%Y-%m-%d %H:%M} UTC"
    _print(console, f"{what}: {path}", len(manifest.files), manifest.total_bytes, manifest.left_out, of)


def _print(console: Console, what: str, files: int, size: int, left_out: tuple[str, ...], of: str = "") -> None:
    console.print(f"{what} ({counted(files, 'file')}, {size_text(size)}{of})")
    for name in left_out:
        console.print(f"  not copied, no regular file: {name}")
