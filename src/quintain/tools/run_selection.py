"""Arguments that several tools share: which trajectories they work on (never silently everything), and pages of lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from quintain.errors import InvalidInput, NotFound
from quintain.next_step import Hint, call
from quintain.records.filters import TrajectoryFilter
from quintain.records.record import require_number
from quintain.records.trajectory import Trajectory
from quintain.tools.services import Services

FILTER_FIELDS = len(TrajectoryFilter.model_fields)
_WHICH = "As of search_trajectories, not empty."

RunFilter = Annotated[
    TrajectoryFilter | None,
    Field(description=_WHICH),
    WithJsonSchema({"type": "object", "description": _WHICH, "maxProperties": FILTER_FIELDS}),
]
"""A filter in a tool that selects by one; the list of tools spells it out once, at `search_trajectories`."""

RunIds = Annotated[list[str] | None, Field(max_length=10_000, description="Which runs, by id.")]
"""Runs one by one, in place of a filter."""


PageSize = Annotated[int, Field(ge=1, le=200, description="Entries on a page."), BeforeValidator(require_number)]
Cursor = Annotated[str | None, Field(description="`next_cursor` of the page before.")]


def select(services: Services, filter: TrajectoryFilter | None, ids: Sequence[str] | None) -> Iterator[Trajectory]:
    """Stream the chosen trajectories, oldest first.

    Raises:
        InvalidInput: neither or both are given, or the filter has no condition.
        NotFound: nothing matches, or an id is unknown.
    """
    if (filter is None) == (ids is None):
        raise InvalidInput(
            Hint(
                "expected exactly one of `filter` and `trajectory_ids`, got both or neither; ",
                call("search_trajectories"),
                " lists stored runs",
            )
        )
    if ids is not None:
        if not ids:
            raise InvalidInput(
                Hint("`trajectory_ids` is empty; take ids from ", call("search_trajectories"), ", or give a `filter`"),
                code="empty_filter",
            )
        return services.store.trajectories.iterate(ids=list(dict.fromkeys(ids)))
    if filter is None or filter.is_empty:
        raise InvalidInput(
            "the filter has no condition and would select everything; give at least one of "
            f"{', '.join(TrajectoryFilter.model_fields)}",
            code="empty_filter",
        )
    if not services.store.trajectories.count(filter):
        if not services.store.trajectories.count(TrajectoryFilter()):
            collect = call("collect_rollouts", agent="starter", environment="quintain/inventory")
            why = Hint("no run is stored; record or import runs, or make some with ", collect)
        else:
            asked = filter.model_dump(mode="json", exclude_defaults=True)
            why = Hint(f"no stored trajectory matches {asked}; loosen it, or look with ", call("search_trajectories"))
        raise NotFound(why, code="nothing_matches")
    return services.store.trajectories.iterate(filter)
