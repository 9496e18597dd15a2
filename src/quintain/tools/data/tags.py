"""The tool that changes tags of stored runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.record import Record
from quintain.records.tags import KEPT_TAGS, require_tags
from quintain.records.wording import list_names
from quintain.tools.run_selection import RunFilter, RunIds, select
from quintain.tools.services import Services

MOST = 10_000
"""Runs of one call, each of which is stored anew."""


class Tagged(Record):
    """`tag_trajectories`."""

    matched: int
    changed: int
    next_step: Hint


def tag_trajectories(
    services: Services,
    add: Annotated[list[str] | None, Field(max_length=50, description="Tags.")] = None,
    remove: Annotated[list[str] | None, Field(max_length=50, description="Tags.")] = None,
    filter: RunFilter = None,
    trajectory_ids: RunIds = None,
) -> Tagged:
    """Add or remove tags of stored runs, to filter by. Frozen datasets stay as they are."""
    added, removed = _changeable(services, add, "add"), _changeable(services, remove, "remove")
    if not added and not removed:
        raise InvalidInput("expected tags in `add`, `remove` or both, got none; name at least one")
    if both := [tag for tag in added if tag in removed]:
        raise InvalidInput(f"expected each tag in `add` or in `remove`, got {list_names(both)} in both; decide for one")
    if filter is not None and services.store.trajectories.count(filter, MOST + 1) > MOST:
        raise InvalidInput(
            f"expected at most {MOST:,} runs, the filter matches more; narrow it with `since` and `until`"
        )
    ids = [run.id or "" for run in select(services, filter, trajectory_ids)]
    changed = services.store.trajectories.retag(ids, added, removed, services.clock())
    wanted = {"tags": list(added)} if added else ...
    return Tagged(
        matched=len(ids),
        changed=changed,
        next_step=Hint("Find them with ", call("search_trajectories", filter=wanted), "."),
    )


def _changeable(services: Services, tags: Sequence[str] | None, where: str) -> tuple[str, ...]:
    valid = require_tags(tags or (), where)
    if kept := [tag for tag in valid if tag in KEPT_TAGS]:
        raise InvalidInput(
            f"expected tags of your own in `{where}`, got {list_names(kept)}, which says where a run comes from; use another tag",
            code="bad_tag",
        )
    return tuple(dict.fromkeys(map(services.redacted, valid)))
