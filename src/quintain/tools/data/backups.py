"""Backups of a home that is in use: copies in its folder `backups/`, their check, and new homes made of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from quintain import __version__
from quintain.errors import InvalidInput, NotFound, Refused
from quintain.next_step import Hint, call
from quintain.records.record import Instant, Record
from quintain.records.wording import clip, nearest, size_text
from quintain.store.database.backup import ARCHIVES, BackupManifest, back_up, home_bytes
from quintain.store.database.restore import read_manifest, restore, verify
from quintain.tools.services import Services

IN_CALL_BYTES = 4 * 2**30
"""A larger home takes longer than a call of an assistant should; the terminal has no such bound."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class BackupResult(Record):
    """`back_up_home`."""

    action: Literal["create", "check", "restore"]
    path: str = Field(description="Of the backup.")
    quintain: str = Field(description="Version of the program that wrote it.")
    schema_revision: str = Field(description="Revision of its database's schema.")
    created_at: Instant
    files: int
    bytes: int
    left_out: tuple[str, ...] = Field(description="Links and special files, which are not copied.")
    home: str | None = Field(default=None, description="The new home that was made of it.")
    interrupted_jobs: int | None = Field(default=None, description="Jobs in it that were under way.")
    next_step: Hint


def back_up_home(
    services: Services,
    name: Annotated[
        str, Field(min_length=1, max_length=4096, description="In `backups/` of the home; NAME.tar.gz: an archive.")
    ],
    action: Annotated[
        Literal["create", "check", "restore"],
        Field(description="check: every file by its hash; restore: make a new home of it."),
    ] = "create",
) -> BackupResult:
    """Back up the database, datasets, agents and jobs of the home, while all go on."""
    path = _path(services, name)
    if action == "create":
        return _created(services, name, path)
    if not path.exists():
        raise NotFound(f"expected a backup, got {clip(name)!r}, which does not exist{_others(services, name)}")
    if action == "check":
        manifest = verify(path)
        proposal = Hint("Make a new home of it with ", call("back_up_home", name=name, action="restore"), ".")
        return _result(manifest, action=action, path=str(path), next_step=proposal)
    _require_small(services, read_manifest(path).total_bytes)
    home = services.settings.home / "restored" / _stem(path)
    done = restore(path, home, replace=False, now=services.clock())
    return _result(
        done.manifest,
        action=action,
        path=str(path),
        home=str(home),
        interrupted_jobs=done.interrupted,
        next_step=Hint(f"Let the operator serve it: quintain serve --home {home}"),
    )


def _created(services: Services, name: str, path: Path) -> BackupResult:
    settings = services.settings
    if settings.database_url:
        raise Refused(
            f"expected a SQLite database in the home, got {services.store.description()}; back it up by its own tools, and copy "
            "the home folder beside it",
            code="not_sqlite",
        )
    _require_small(services, home_bytes(settings.home))
    manifest = back_up(settings.home, path, version=__version__, now=services.clock())
    proposal = Hint("Compare every file with its hash by ", call("back_up_home", name=name, action="check"), ".")
    return _result(manifest, action="create", path=str(path), next_step=proposal)


def _result(manifest: BackupManifest, **more: Any) -> BackupResult:
    about = manifest.model_dump(include={"quintain", "schema_revision", "created_at", "left_out"})
    return BackupResult(**about, files=len(manifest.files), bytes=manifest.total_bytes, **more)


def _path(services: Services, name: str) -> Path:
    """Return where a backup lies: a name in `backups/`; for a trusted caller, any path.

    Raises:
        InvalidInput: Another caller gives something else than a name.
    """
    if services.trusted:
        return Path(name).expanduser().absolute()
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"expected a name of letters, digits, dots, dashes and underscores for the backup, got {clip(name)!r}; elsewhere the "
            "operator backs up in a terminal: quintain backup PATH"
        )
    return services.settings.home / "backups" / name


def _others(services: Services, name: str) -> str:
    folder = services.settings.home / "backups"
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) if folder.is_dir() else []
    return f"{nearest(name, names)}; there is {', '.join(names[-8:])}" if names else "; make one with `action='create'`"


def _stem(path: Path) -> str:
    ending = next((ending for ending in ARCHIVES if path.name.endswith(ending)), "")
    return path.name.removesuffix(ending)


def _require_small(services: Services, size: int) -> None:
    """Raise for more than a call should copy, unless the caller is the user."""
    if size > IN_CALL_BYTES and not services.trusted:
        raise Refused(
            f"expected at most {size_text(IN_CALL_BYTES)} to copy within a call, got {size_text(size)}; let the operator "
            "run quintain backup PATH, or quintain restore PATH --home NEW, in a terminal",
            code="too_large",
        )
