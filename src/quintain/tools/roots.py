"""Which files and folders tools may read and write: those below the home folder and the operator's roots; a trusted caller any."""

from __future__ import annotations

from pathlib import Path

from quintain.errors import InvalidInput, NotFound, Refused
from quintain.records.record import clip
from quintain.tools.services import Services


def readable(services: Services, path: str | Path, what: str) -> Path:
    """The path with all links resolved, if it may be read; whether it exists is not looked at.

    Args:
        services: Whose settings hold the roots.
        path: As the caller wrote it; a relative one is below the inbox, or for a trusted caller below the working folder.
        what: What it is, for messages: `model`, `logs`, `data`.

    Raises:
        Refused: outside the allowed roots; names the setting that would allow it.
        NotFound: no path at all, such as one that is too long or of an unknown user's home.
    """
    settings = services.settings
    resolved = _resolved(services, path, settings.inbox_dir)
    roots = [root.resolve() for root in (settings.home, *settings.roots)]
    if not services.trusted and not any(resolved.is_relative_to(root) for root in roots):
        raise Refused(
            f"{clip(str(path))!r} is outside the allowed roots; put the {what} under {str(settings.inbox_dir)!r}, or let the "
            "operator add the folder to QUINTAIN_ROOTS",
            code="outside_roots",
        )
    return resolved


def writable(services: Services, path: str | Path) -> Path:
    """The path of a new folder with all links resolved, if one may be made there; whether it exists is not looked at.

    Of the home folder only exports and inbox take what a caller names: the rest of it belongs to the program.

    Args:
        services: Whose settings hold the roots.
        path: As the caller wrote it; a relative one is below the exports, or for a trusted caller below the working folder.

    Raises:
        Refused: outside of these folders and the operator's roots, or one of them itself.
        NotFound: as `readable`.
        InvalidInput: a name that is too long for a folder that is first written under another one.
    """
    settings = services.settings
    resolved = _resolved(services, path, settings.exports_dir)
    roots = [root.resolve() for root in (settings.exports_dir, settings.inbox_dir, *settings.roots)]
    if not services.trusted and not any(root in resolved.parents for root in roots):
        raise Refused(
            f"{clip(str(path))!r} is outside the allowed roots; name a folder under {str(settings.exports_dir)!r}, or let the "
            "operator add another to QUINTAIN_ROOTS",
            code="outside_roots",
        )
    if len(resolved.name.encode()) > _LONGEST:
        raise InvalidInput(f"the folder's name has {len(resolved.name.encode())} bytes; give one of at most {_LONGEST}")
    return resolved


_LONGEST = 240
"""Bytes of a folder's name; file systems take 255."""


def _resolved(services: Services, path: str | Path, start: Path) -> Path:
    """The path with all links resolved; what is relative begins at `start`, of a trusted caller at the working folder.

    Raises:
        NotFound: no path at all.
    """
    try:
        written = Path(path).expanduser()
        return (written if services.trusted else start / written).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise NotFound(f"{clip(str(path))!r} is no path that can be read ({type(error).__name__})") from None
