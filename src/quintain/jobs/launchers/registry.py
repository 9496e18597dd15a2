"""Launchers by name: built-in ones, and entry points of other packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import cast

from quintain.errors import InvalidInput
from quintain.extensions import ExtensionGroup, load
from quintain.jobs.launchers.contract import GROUP, ClusterOptions, Launcher, LauncherFactory

_BUILT_IN = {
    name: EntryPoint(name, f"quintain.jobs.launchers.{value}", GROUP)
    for name, value in (
        ("local", "local:LocalLauncher"),
        ("ray", "ray_jobs:RayLauncher"),
        ("slurm", "slurm:SlurmLauncher"),
    )
}


EXTENSIONS = ExtensionGroup(GROUP, frozenset(_BUILT_IN))


def open_launcher(name: str, options: ClusterOptions) -> Launcher:
    """Return the launcher of this name.

    Raises:
        InvalidInput: No launcher has this name (`unknown_launcher`), or it lacks a setting or a package.
        Conflict: Several packages announce it.
        Unavailable: Its package cannot be imported.
    """
    entry = _BUILT_IN.get(name) or EXTENSIONS.find(name)
    if entry is None:
        names = sorted({*_BUILT_IN, *EXTENSIONS.installed().entries})
        raise InvalidInput(
            f"expected a launcher out of {', '.join(names)}, got {name!r}; set QUINTAIN_LAUNCHER to one of "
            "them, or install the package that has it",
            code="unknown_launcher",
        )
    return cast(LauncherFactory, load(entry))(options)
