"""Locations of artifacts, and which of them the operator allows tools to name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from quintain.errors import InvalidInput, Refused
from quintain.records.wording import clip, shown

HUB = "hub"
"""Scheme of the Hugging Face Hub: `hub:OWNER/NAME`."""

MEMORY = "memory"
"""Scheme of the memory of one process, which ends with a job."""

SETTING = "QUINTAIN_ARTIFACTS"

_SEGMENTS = r"[\w.@=+,~ -]+(?:/(?:[\w.@=+,~ ()'!&;-]|:(?!:))+)*"
"""Without what chains protocols (`::`), names several files, or begins a query or an escape."""
_URL = re.compile(rf"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<root>/?)(?P<path>{_SEGMENTS})/?")
_REPOSITORY = re.compile(r"hub:(?P<path>[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?)/?")
_LOCAL = frozenset({"file", "local"})
"""Schemes whose paths may contain links."""


class Location(NamedTuple):
    """A URL in its normal form: no empty, `.` or `..` segments, no query, no credentials, no chained protocols."""

    scheme: str
    root: str
    segments: tuple[str, ...]

    @property
    def url(self) -> str:
        """The location as a URL, without a slash at its end."""
        path = "/".join(self.segments)
        return f"{HUB}:{path}" if self.scheme == HUB else f"{self.scheme}://{self.root}{path}"

    def is_within(self, prefix: Location) -> bool:
        """Whether the location is the prefix or lies below it. Links of a local path count by their target."""
        if self.scheme != prefix.scheme or self.root != prefix.root:
            return False
        if self.scheme in _LOCAL:
            return self.local.is_relative_to(prefix.local)
        return self.segments[: len(prefix.segments)] == prefix.segments

    @property
    def local(self) -> Path:
        """The path of a `file://` URL, with its links resolved."""
        return Path(self.root + "/".join(self.segments)).resolve()


def is_url(reference: str) -> bool:
    """Whether a reference is written as a URL."""
    return "://" in reference


def allowed_location(reference: str, prefixes: Sequence[str]) -> Location:
    """Return the location of a URL or `hub:OWNER/NAME` at or below one of the operator's prefixes.

    Raises:
        InvalidInput: It is not written as a location, or the operator's setting is not.
        Refused: No prefix allows it; the message names the setting.
    """
    location = parse_location(reference)
    known = [_prefix(prefix) for prefix in prefixes]
    if location is None:
        raise InvalidInput(
            f"expected a location such as s3://bucket/folder or hub:owner/name, without `..`, query or credentials, got "
            f"{shown(reference)}; correct it",
            code="bad_location",
        )
    if not any(location.is_within(prefix) for prefix in known):
        listed = ", ".join(prefix.url for prefix in known[:5]) or "none"
        raise Refused(
            f"expected a location that the operator allows (now: {listed}), got {clip(reference)!r}; let the operator add its "
            f"prefix to {SETTING}",
            code="outside_artifacts",
        )
    return location


def allowed_destination(reference: str, prefixes: Sequence[str]) -> Location:
    """Return the location of a new artifact, which lies below one of the operator's prefixes.

    Raises:
        InvalidInput, Refused: As `allowed_location`; or it is a prefix itself, in memory, or a Hub name without its second part.
    """
    location = allowed_location(reference, prefixes)
    if location.scheme == MEMORY:
        raise InvalidInput(
            f"expected a location that lasts, got {location.url}, which is gone when the job that uploads has ended; name a "
            "folder by file://, a bucket or hub:OWNER/NAME",
            code="bad_location",
        )
    if location.scheme == HUB and len(location.segments) != 2:
        raise InvalidInput(f"expected hub:OWNER/NAME, got {shown(reference)}; add the name", code="bad_location")
    if location.scheme != HUB and any(location == _prefix(prefix) for prefix in prefixes):
        raise InvalidInput(
            f"expected a folder below {location.url}, got that location itself; add the name of a new folder",
            code="bad_location",
        )
    return location


def _prefix(text: str) -> Location:
    location = parse_location(text)
    if location is None:
        raise InvalidInput(
            f"expected prefixes such as s3://bucket/folder or hub:owner in {SETTING}, got {shown(text)}; let the operator "
            "correct it",
            code="bad_setting",
        )
    return location


def parse_location(text: str) -> Location | None:
    """Return the location that a text names; None if it is not written as one."""
    if match := _REPOSITORY.fullmatch(text):
        return Location(HUB, "", tuple(match["path"].split("/")))
    match = _URL.fullmatch(text)
    segments = tuple(match["path"].split("/")) if match else ()
    if match is None or not {".", ".."}.isdisjoint(segments):
        return None
    return Location(match["scheme"], match["root"], segments)
