"""Stored runs sorted by a scorer's stored values, page by page."""

from __future__ import annotations

from collections.abc import Callable

from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.filters import TrajectoryFilter, TrajectorySummary
from quintain.records.record import clip
from quintain.scoring.recorded import RecordedScorer, source_of
from quintain.store.database.paging import decode_cursor, encode_cursor
from quintain.tools.labels.scorer_resolution import full_scorer_name, is_scorer, logged_scores
from quintain.tools.services import Services

REWARD = "reward"

Fetch = Callable[[int], tuple[tuple[TrajectorySummary, ...], str | None]]
"""Returns at most so many summaries, and the cursor behind the last one."""


def sorted_pages(services: Services, filter: TrajectoryFilter, sort: str, cursor: str | None) -> Fetch:
    """Return what reads a page of the matching runs by descending value, of equal ones by id.

    Values are those before any calibration, of several raters their mean. Runs without a value are left out.

    Args:
        services: Where runs and scores are stored.
        filter: Conditions on the runs.
        sort: `reward`, or a scorer's name; with `-` before it, by ascending value.
        cursor: `next_cursor` of the previous page.

    Raises:
        InvalidInput: No matching run has a value, or the cursor belongs to another list.
        NotFound: There is no such scorer.
    """
    name, rising = sort.removeprefix("-"), sort.startswith("-")
    values = _values(services, filter, name)
    if not values:
        score = call("score_trajectories", scorer=clip(name), filter=...)
        raise InvalidInput(
            Hint(f"expected runs with stored values of {clip(name)!r} to sort by, got none; ", score, " stores them"),
            code="nothing_to_sort",
        )
    ranked = sorted(values, key=lambda run: (values[run] if rising else -values[run], run))
    start = 0 if cursor is None else decode_cursor(cursor, f"trajectories by {sort}")

    def fetch(most: int) -> tuple[tuple[TrajectorySummary, ...], str | None]:
        ids = ranked[start : start + most]
        items = services.store.trajectories.summaries(ids)
        following = start + len(ids)
        end = encode_cursor(following, f"trajectories by {sort}") if following < len(ranked) else None
        return tuple(item.model_copy(update={"score": values[item.id]}) for item in items), end

    return fetch


def _values(services: Services, filter: TrajectoryFilter, name: str) -> dict[str, float]:
    """Return run -> value of the matching runs that have one."""
    if name == REWARD:
        return services.store.trajectories.rewards(filter)
    full = full_scorer_name(services, name, filter).name
    scorer = source_of(full).scorer
    found = dict(services.store.scores.values(scorer, filter))
    if not is_scorer(scorer):
        logged = services.store.trajectories.logged_scores(filter)
        found = {run: logged_scores(run, scorer, scores) for run, scores in logged.items()} | found
    reader = RecordedScorer(full, found)
    known = ((run, reader.value(run)) for run in found)
    return {run: value for run, value in known if value is not None}
