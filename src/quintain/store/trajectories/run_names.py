"""Find runs by the names that they have in their own logs: sessions, tasks, attempts, and what was kept of their rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import Engine, select

from quintain.store.database.documents import json_of, rows_with
from quintain.store.database.engine import read_transaction
from quintain.store.database.tables import trajectories as table

RunNames = dict[str, dict[str, list[str]]]
"""Place in a run, such as `session_id` -> name -> runs that have it there."""

_c = table.c
_ROWS = 200


def runs_by_columns(engine: Engine, names: Collection[str]) -> RunNames:
    """Return the runs with these names as their id, session or task."""
    found: RunNames = {}
    with read_transaction(engine) as connection:
        for column in (_c.id, _c.session_id, _c.task_id):
            runs = defaultdict[str, list[str]](list)
            for name, run_id in rows_with(connection, select(column, _c.id).where(_REMEMBERED), column, names):
                runs[name].append(run_id)
            if runs:
                found[column.name] = dict(runs)
    return found


def runs_by_content(engine: Engine, names: Collection[str]) -> RunNames:
    """Return the runs with these names as their attempt, in what was kept of their logs, or about their tasks; reads every run."""
    document, wanted = json_of(engine, _c.document), set(names)
    parts = {"episode_key": document["episode_key"], "extra": document["extra"], "task": document["task", "metadata"]}
    query = select(_c.id, *(part.as_string().label(name) for name, part in parts.items())).where(_REMEMBERED)
    found = defaultdict[str, dict[str, list[str]]](lambda: defaultdict(list))
    with read_transaction(engine) as connection:
        for row in connection.execute(query).yield_per(_ROWS):
            kept = {"episode_key": row.episode_key, **{name: json.loads(row[n] or "{}") for n, name in _OBJECTS}}
            for place, name in _leaves(kept, ""):
                if name in wanted and row.id not in found[place][name]:
                    found[place][name].append(row.id)
    return {place: dict(runs) for place, runs in found.items() if any(runs.values())}


_REMEMBERED = _c.forgotten_at.is_(None)
_OBJECTS = ((2, "extra"), (3, "task.metadata"))


def _leaves(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield the texts and whole numbers in a value with their places."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{place}.{name}" if place else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, place)
    elif isinstance(value, str | int) and not isinstance(value, bool):
        yield place, str(value)
