"""Paths of rows: the file, folder or Hub name that a path names, and the files of text in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quintain.datasets.row_files import HUB_NAME, is_rows
from quintain.errors import NotFound, Refused
from quintain.records.record import clip
from quintain.records.text import printable
from quintain.redaction.redact import redact_text
from quintain.tools.roots import readable, similar_name
from quintain.tools.services import Services


def safe_name(text: str) -> str:
    """Return a name or reason for display: printable, without secrets."""
    return redact_text(printable(text))[0]


def place_of(services: Services, path: str) -> Path | None:
    """Return the file or folder of this path; None if it is the name of a Hub dataset."""
    place = readable(services, path, "rows")
    if place.exists():
        return place
    if HUB_NAME.fullmatch(path) is None or is_rows(place):
        raise NotFound(
            f"expected a file or folder of rows, got nothing at {clip(path)!r}{similar_name(services, path)}; "
            f"name one under {str(services.settings.inbox_dir)!r}"
        )
    if not services.settings.allow_hub:
        raise Refused(
            f"{clip(path)!r} is no file or folder under {str(services.settings.inbox_dir)!r}, and Hub names are off; put the "
            "rows there, or let the operator set QUINTAIN_ALLOW_HUB=1",
            code="hub_not_allowed",
        )
    return None


def text_files(place: Path) -> list[Path]:
    """Return a file, or all visible files of a folder."""
    if place.is_file():
        return [place]
    inside = (file for file in sorted(place.rglob("*")) if file.is_file() and file.resolve().is_relative_to(place))
    files = [file for file in inside if not any(part.startswith(".") for part in file.relative_to(place).parts)]
    if not files:
        raise NotFound(f"{str(place)!r} has no file; name a text file or a folder of text files")
    return files


def note_left_out(files: Sequence[Path], folder: Path) -> str:
    """Return a note that lists files."""
    names = [safe_name(file.relative_to(folder).as_posix()) for file in files]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (
        f"the folder has a training split, so these were left out: {', '.join(names[:5])}{more}; name a file as `path` to "
        "take it"
    )
