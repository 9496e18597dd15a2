"""Arguments that several tools share: which runs they work on (never silently everything), and pages that a client's context can take."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import to_jsonable_python

from quintain.errors import InvalidInput, NotFound
from quintain.next_step import Hint, call
from quintain.records.filters import TrajectoryFilter
from quintain.records.record import require_number
from quintain.records.trajectory import Trajectory
from quintain.records.wording import clip, list_names, nearest, shown
from quintain.tools.services import Services


def short_schema(kind: str, **more: Any) -> WithJsonSchema:
    """Return a short schema for an argument whose fields take more room than they help, or that another tool spells out."""
    return WithJsonSchema({"type": kind, **more})


RunFilter = Annotated[
    TrajectoryFilter | None,
    Field(description="As of search_trajectories, not empty."),
    short_schema("object", maxProperties=len(TrajectoryFilter.model_fields)),
]
"""A filter in a tool that selects by one; the list of tools spells it out once, at `search_trajectories`."""

RunIds = Annotated[list[str] | None, Field(max_length=10_000, description="Runs by id.")]
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
        raise NotFound(explain_no_runs(services, filter), code="nothing_matches")
    return services.store.trajectories.iterate(filter)


def explain_no_runs(services: Services, filter: TrajectoryFilter) -> Hint:
    """Return why a filter finds no run, with the remedy."""
    if services.store.trajectories.count(TrajectoryFilter(), most=1):
        conditions = filter.model_dump(mode="json", exclude_defaults=True)
        asked = ", ".join(f"{name}={value!r}" for name, value in conditions.items())
        step = Hint(f"no stored run matches {asked}; loosen the filter, or look with ", call("search_trajectories"))
        if filter.environment is not None and "?" in filter.environment:
            plain = TrajectoryFilter(environment=filter.environment.partition("?")[0])
            same = call("search_trajectories", filter=plain.model_dump(mode="json", exclude_defaults=True))
            return Hint(step, "; runs are stored under the id of the environment, without its options: ", same)
        if filter.text is None:
            return Hint(step, *_unknown_names(services, filter))
        named = [call("search_trajectories", filter={name: filter.text}) for name in ("session_id", "task_id")]
        return Hint(step, "; `text` is not looked for in ids: ", named[0], " and ", named[1], " find those")
    collect = call("collect_rollouts", agent="starter", environment="quintain/inventory")
    return Hint("no run is stored; record or import runs, or let an agent make some with ", collect)


_NAMES: tuple[Literal["agent", "environment", "task_type"], ...] = ("agent", "environment", "task_type")
_SHOWN = 6


def _unknown_names(services: Services, filter: TrajectoryFilter) -> Iterator[str]:
    """Yield what the runs are called instead, for each name in a filter that none of them has."""
    store = services.store.trajectories
    for name in _NAMES:
        asked = getattr(filter, name)
        if asked is None or store.count(TrajectoryFilter.model_validate({name: asked}), most=1):
            continue
        known = store.names(name)
        listed = list_names([shown(clip(one, 60)) for one in known], _SHOWN) or "none"
        yield f"; no run has the {name} {shown(asked)}{nearest(asked, known)}, they have {listed}"
        if name == "agent":
            yield "; curation.source_models of export_dataset chooses runs by the models that wrote them"


Item = TypeVar("Item")

MAX_PAGE_BYTES = 24_000
"""Bytes of JSON on a page, about 8,000 tokens at three bytes each. A single longer entry is still returned."""


def count_fitting(items: Sequence[object]) -> int:
    """Return how many of the first items fit on a page, at least one if there are any."""
    size = 0
    for place, item in enumerate(items):
        size += len(json.dumps(to_jsonable_python(item), ensure_ascii=False, separators=(",", ":")).encode()) + 1
        if size > MAX_PAGE_BYTES and place:
            return place
    return len(items)


def fitting_page(
    fetch: Callable[[int], tuple[Sequence[Item], str | None]], limit: int
) -> tuple[tuple[Item, ...], str | None]:
    """Return the entries that fit on a page, and the cursor of the next page.

    `fetch` returns at most so many entries as the client will see them, and the cursor behind the last one.
    """
    while True:
        items, following = fetch(limit)
        fit = count_fitting(items)
        if fit == len(items):
            return tuple(items), following
        limit = fit
