"""Tags of runs, and the rules for valid tags."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

from quintain.errors import InvalidInput
from quintain.records.trajectory import Trajectory
from quintain.records.wording import shown

LIVE = "live"
"""Tag of an open recording. Reserved."""

CORRECTION = "correction"
"""Tag of runs with a corrected last step, and format of their source."""

REPLACED = "replaced"
"""Tag of corrections that were withdrawn or replaced."""

KEPT_TAGS = frozenset({LIVE, CORRECTION, REPLACED, "rollout", "evaluation"})
"""Tags that say where a run comes from. Filters of jobs and of lineage rely on them, so that nobody changes them later."""

MAX_TAG_CHARS = 100
_UNSEEN = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories of control characters, surrogates and line breaks."""


def tag_error(tag: Any) -> str | None:
    """Return why a value is not a valid tag, or None."""
    if not isinstance(tag, str):
        return f"is {shown(tag)}; pass text"
    if tag == LIVE:
        return f"is {LIVE!r}, which is reserved for open recordings; use another tag"
    if not tag.strip():
        return f"is {shown(tag)}; use at least one visible character"
    if len(tag) > MAX_TAG_CHARS:
        return f"has {len(tag):,} characters; use at most {MAX_TAG_CHARS}"
    if any(unicodedata.category(character) in _UNSEEN for character in tag):
        return f"is {shown(tag)}, which contains a control character; remove it"
    return None


def require_tags(tags: Iterable[Any], where: str = "tags") -> tuple[str, ...]:
    """Return the tags without duplicates if all are valid.

    Raises:
        InvalidInput: A tag is invalid. The message names the first one and the reason.
    """
    listed = tuple(tags)
    for place, tag in enumerate(listed):
        if fault := tag_error(tag):
            raise InvalidInput(f"{where}[{place}] {fault}", code="bad_tag")
    return tuple(dict.fromkeys(listed))


def is_open(run: Trajectory) -> bool:
    """Whether the run is a live recording that is not closed."""
    return LIVE in run.tags and run.episode_key == run.id


def is_replaced(run: Trajectory) -> bool:
    """Whether the run is a correction that was withdrawn or replaced."""
    return REPLACED in run.tags and run.source.format == CORRECTION


def usable_tags(tags: Iterable[Any]) -> tuple[str, ...]:
    """Return the valid tags without duplicates. For logs, whose other content is imported in any case."""
    return tuple(dict.fromkeys(tag for tag in tags if tag_error(tag) is None))
