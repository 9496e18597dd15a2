"""Launchers by name: built-in ones, and entry points of other packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import cast

from quintain.errors import InvalidInput
from quintain.extensions import Extensions, extensions_of, load, require_single
from quintain.jobs.launchers.contract import GROUP, ClusterOptions, Launcher, LauncherFactory

_BUILT_IN = {
    name: EntryPoint(name, f"quintain.jobs.launchers.{value}", GROUP)
    for name, value in (
        ("local", "local:LocalLauncher"),
        ("ray", "ray_jobs:RayLauncher"),
        ("slurm", "slurm:SlurmLauncher"),
    )
}


def installed_extensions() -> Extensions:
    """Return what other packages announce."""
    return extensions_of(GROUP, frozenset(_BUILT_IN))


def open_launcher(name: str, options: ClusterOptions) -> Launcher:
    """Return the launcher of this name.

    Raises:
        InvalidInput: No launcher has this name (`unknown_launcher`), or it lacks a setting or a package.
        Conflict: Several packages announce it.
        Unavailable: Its package cannot be imported.
    """
    require_single(GROUP, name, frozenset(_BUILT_IN))
    entries = {**installed_extensions().entries, **_BUILT_IN}
    entry = entries.get(name)
    if entry is None:
        raise InvalidInput(
            f"expected a launcher out of {', '.join(sorted(entries))}, got {name!r}; set QUINTAIN_LAUNCHER to one of "
            "them, or install the package that has it",
            code="unknown_launcher",
        )
    return cast(LauncherFactory, load(entry))(options)
