"""Environments by name: the built-in ones and those that other packages announce as entry points."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from quintain.errors import NotFound, Unavailable
from quintain.records.seams import TaskSource

GROUP = "quintain.environments"
"""Entry-point group; each entry names a class without constructor arguments that is a `TaskSource`."""

_BUILT_IN = (EntryPoint("quintain/inventory", "quintain.environments.inventory:Inventory", GROUP),)


@cache
def _entries() -> dict[str, EntryPoint]:
    # Built-in names come last: no installed package can take them over.
    return {entry.name: entry for entry in (*entry_points(group=GROUP), *_BUILT_IN)}


def environment_ids() -> list[str]:
    """The ids of all environments that can be used here, sorted."""
    return sorted(_entries())


def task_source(environment_id: str) -> TaskSource:
    """The task source of an environment.

    Raises:
        NotFound: no environment has this id; the message lists the known ones.
        Unavailable: the package that announces it cannot be imported.
    """
    entry = _entries().get(environment_id)
    if entry is None:
        known = ", ".join(environment_ids())
        raise NotFound(
            f"no environment is called {environment_id!r}; known here: {known}", code="environment_not_found"
        )
    try:
        source: TaskSource = entry.load()()
    except (ImportError, AttributeError) as error:
        raise Unavailable(
            f"environment {environment_id!r} is announced as {entry.value!r}, which cannot be imported ({error}); "
            "repair or remove the package that brings it",
            code="environment_broken",
        ) from error
    return source
