"""Allowed paths of tools: three folders of the home folder and the roots of the operator; any path for a trusted caller.

A URL is read through a local copy, below the operator's prefixes for every caller. The rest of the home
folder is not data: profiles of endpoints, the database and its backups, and folders of jobs.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import Field

from quintain.artifacts.locations import HUB, MEMORY, allowed_destination, allowed_location, is_url, parse_location
from quintain.errors import InvalidInput, NotFound, Refused, Unavailable
from quintain.next_step import Hint, call
from quintain.records.artifacts import FetchSpec
from quintain.records.wording import clip, nearest, shown, size_text
from quintain.tools.services import Services

IN_CALL_BYTES = 48 * 2**20
"""A larger artifact is downloaded by a job: a call should end within 20 s."""

PushTo = Annotated[str | None, Field(description="Also upload to a URL or hub:OWNER/NAME.")]


def local_copy(services: Services, url: str) -> Path:
    """Return the local copy of a file or folder at a URL, downloaded if it is small.

    Raises:
        Unavailable: A job downloads it first (`fetching`); or as `transfers.fetch`.
    """
    from quintain.artifacts.transfers import TooLarge, fetch  # few calls name a URL

    location, cache = allowed_location(url, services.settings.artifacts), services.settings.artifacts_cache_dir
    try:
        return fetch(location.url, cache, limit_bytes=IN_CALL_BYTES)
    except TooLarge as large:
        job = services.jobs.start(FetchSpec(url=location.url, cache_dir=str(cache))).job
        raise Unavailable(
            Hint(
                f"expected at most {size_text(IN_CALL_BYTES)} to download within a call, got {size_text(large.bytes)} at "
                f"{location.url}, which {job.id} downloads now; wait for it with ",
                call("get_job", job_id=job.id, until="done", wait_s=50),
                ", then make this call again",
            ),
            code="fetching",
        ) from None


def url_of(services: Services, reference: str) -> str:
    """Return an allowed URL in its normal form."""
    return allowed_location(reference, services.settings.artifacts).url


def mirror_of(services: Services, output_dir: str) -> str | None:
    """Return the URL of the copies of a training's checkpoints, by its unique output folder; None where the operator names none.

    Raises:
        InvalidInput: The operator's setting is not a URL.
    """
    url = services.settings.checkpoints
    if url is None:
        return None
    location = parse_location(url)
    if location is None or location.scheme in {HUB, MEMORY}:
        raise InvalidInput(
            f"expected a URL such as s3://bucket/checkpoints in QUINTAIN_CHECKPOINTS, got {shown(url)}; let the operator correct it",
            code="bad_setting",
        )
    return f"{location.url}/{Path(output_dir).name}"


def destination_of(services: Services, push_to: str | None) -> str | None:
    """Return where an export is pushed to; None where nowhere."""
    return None if push_to is None else allowed_destination(push_to, services.settings.artifacts).url


def readable(services: Services, path: str | Path, what: str) -> Path:
    """Resolve a path that may be read, which need not exist; of a URL, the path of its local copy.

    Within the home folder the inbox, the datasets and the exports may be read. Links count by their target.

    Args:
        services: Settings with the allowed roots.
        path: Path of the caller; relative to the inbox, else to the home folder (`inbox/logs`). For a trusted caller the
            working folder goes before both.
        what: Noun for messages: `model`, `logs`, `data`.

    Raises:
        Refused: outside the allowed roots; the message names the setting that allows more.
        NotFound: not a valid path: too long, or the home of an unknown user.
    """
    if is_url(str(path)):
        return local_copy(services, str(path))
    settings = services.settings
    resolved = resolve_path(services, path, settings.inbox_dir)
    shared = (settings.inbox_dir, settings.datasets_dir, settings.exports_dir)
    if not os.path.exists(resolved):  # unlike `Path.exists`, does not raise for long names
        for start in (settings.inbox_dir, settings.home):
            found = resolve_path(services, start / Path(path).expanduser(), start)
            if os.path.exists(found) and any(found.is_relative_to(root.resolve()) for root in shared):
                return found
    roots = [root.resolve() for root in (*shared, *settings.roots)]
    if not services.trusted and not any(resolved.is_relative_to(root) for root in roots):
        raise Refused(
            f"{clip(str(path))!r} is outside the allowed roots; put the {what} under {str(settings.inbox_dir)!r}, let the "
            "operator add the folder to QUINTAIN_ROOTS, or run the command in a terminal: it reads what its user may read",
            code="outside_roots",
        )
    return resolved


def nothing_at(services: Services, path: str, what: str) -> NotFound:
    """Return the error of a path that is not there: the nearest name beside it that the caller may see, and the remedy."""
    inbox, written = services.settings.inbox_dir.resolve(), Path(path).expanduser()
    folders = [resolve_path(services, place, inbox).parent for place in (written, inbox / written)]
    names: list[str] = []
    for folder in folders:
        with suppress(OSError):
            names += os.listdir(folder) if services.trusted or folder.is_relative_to(inbox) else []
    remedy = "correct the path" if services.trusted else f"name one under {str(services.settings.inbox_dir)!r}"
    return NotFound(
        f"expected a file or folder of {what}, got nothing at {clip(path)!r}{nearest(written.name, names)}; {remedy}"
    )


def writable(services: Services, path: str | Path) -> Path:
    """Resolve the path of a folder that may be created; it may exist.

    Within the home folder only the exports and the inbox accept names of callers.

    The path is relative to the exports, or to the working folder for a trusted caller.

    Raises:
        Refused: outside these folders and the roots of the operator, or one of them itself.
        InvalidInput: a URL, or a name that leaves no room for the suffix of the temporary folder.
    """
    if is_url(str(path)):
        raise InvalidInput(f"expected the path of a local folder, got {clip(str(path))!r}; give the URL as `push_to`")
    settings = services.settings
    resolved = resolve_path(services, path, settings.exports_dir)
    roots = [root.resolve() for root in (settings.exports_dir, settings.inbox_dir, *settings.roots)]
    if not services.trusted and not any(root in resolved.parents for root in roots):
        raise Refused(
            f"{clip(str(path))!r} is outside the allowed roots; name a folder under {str(settings.exports_dir)!r}, or let the "
            "operator add another to QUINTAIN_ROOTS",
            code="outside_roots",
        )
    if len(resolved.name.encode()) > _MAX_NAME_BYTES:
        raise InvalidInput(
            f"expected a folder name of at most {_MAX_NAME_BYTES} bytes, got {len(resolved.name.encode())}; shorten it"
        )
    return resolved


_MAX_NAME_BYTES = 240
"""Bytes of a folder name; file systems accept 255."""


def resolve_path(services: Services, path: str | Path, start: Path) -> Path:
    """Resolve a path; relative to `start`, or to the working folder for a trusted caller.

    Raises:
        NotFound: not a valid path.
    """
    try:
        written = Path(path).expanduser()
        resolved = (written if services.trusted else start / written).resolve()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            resolved.lstat()  # a name may be longer than a file's can be
    except (OSError, RuntimeError, ValueError) as error:
        raise NotFound(
            f"cannot read path {clip(str(path))!r} ({type(error).__name__}); check its spelling and length"
        ) from None
    return resolved
