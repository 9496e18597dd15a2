"""Launchers by name: built-in ones, and entry points of other packages."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from quintain.errors import InvalidInput
from quintain.jobs.launchers.contract import GROUP, ClusterOptions, Launcher, LauncherFactory

_BUILT_IN = tuple(
    EntryPoint(name, f"quintain.jobs.launchers.{value}", GROUP)
    for name, value in (
        ("local", "local:LocalLauncher"),
        ("ray", "ray_jobs:RayLauncher"),
        ("slurm", "slurm:SlurmLauncher"),
    )
)


@cache
def _entries() -> dict[str, EntryPoint]:
    # Built-in names come last, so that no installed package can replace them.
    return {entry.name: entry for entry in (*entry_points(group=GROUP), *_BUILT_IN)}


def open_launcher(name: str, options: ClusterOptions) -> Launcher:
    """Return the launcher of this name.

    Raises:
        InvalidInput: No launcher has this name (`unknown_launcher`), or it lacks a setting or a package.
    """
    entry = _entries().get(name)
    if entry is None:
        raise InvalidInput(
            f"expected a launcher out of {', '.join(sorted(_entries()))}, got {name!r}; set QUINTAIN_LAUNCHER to one of "
            "them, or install the package that has it",
            code="unknown_launcher",
        )
    return cast(LauncherFactory, entry.load())(options)
