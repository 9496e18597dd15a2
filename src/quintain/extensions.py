"""Extensions by other packages: entry points of the groups `quintain.importers`, `quintain.exporters` and so on.

Reading the entry points imports nothing. A package is imported when something of it is used, and what it does then is
reported with the name of the package and its entry point; nothing that it does keeps a server from starting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, distributions, entry_points
from typing import Any, NamedTuple

from quintain.errors import Conflict, Unavailable

OWN = "quintain"
"""This package, whose own entry points are built in."""


class Extensions(NamedTuple):
    """Extensions of a group."""

    entries: Mapping[str, EntryPoint]
    """Name -> its entry point."""
    refused: Mapping[str, str]
    """Name -> why it is not used: it is built in, several packages announce it, or its package cannot be read."""


@cache
def extensions_of(group: str, built_in: frozenset[str]) -> Extensions:
    """Return the extensions of a group, such as `quintain.importers`, by name; built-in names are refused to packages."""
    named: dict[str, list[EntryPoint]] = {}
    found, refused = _announced(group)
    for entry in found:
        if entry.dist is None or entry.dist.name != OWN:
            named.setdefault(entry.name, []).append(entry)
    for name, entries in named.items():
        owners = sorted(f"{entry.value} of package {package_of(entry)}" for entry in entries)
        if name in built_in:
            refused[name] = (
                f"expected a free name in {group}, got {name!r} for {owners[0]}, which is built in; rename it there"
            )
        elif len(entries) > 1:
            both = " and ".join(owners)
            refused[name] = f"expected one package with {name!r} in {group}, got {both}; remove one of them"
    return Extensions({name: entries[0] for name, entries in named.items() if name not in refused}, refused)


def _announced(group: str) -> tuple[list[EntryPoint], dict[str, str]]:
    """Return the entry points of a group, and the packages whose list of them cannot be read, each with the reason."""
    try:
        return list(entry_points(group=group)), {}
    except Exception:  # one damaged list fails the look-up of all
        found, damaged = list[EntryPoint](), dict[str, str]()
        for package in distributions():
            try:
                found += package.entry_points.select(group=group)
            except Exception as error:
                damaged[package.name] = (
                    f"cannot read entry_points.txt of package {package.name} ({type(error).__name__}: {error}); install it again"
                )
        return found, damaged


@dataclass(frozen=True)
class ExtensionGroup:
    """An entry-point group, with the names of its kind that are built in."""

    name: str
    built_in: frozenset[str]

    def installed(self) -> Extensions:
        """Return what other packages announce."""
        return extensions_of(self.name, self.built_in)

    def find(self, name: str) -> EntryPoint | None:
        """Return the entry point of a name; None if the name is built in or unknown.

        Raises:
            Conflict: several packages announce it; names all of them.
        """
        extensions = self.installed()
        if name not in self.built_in and (reason := extensions.refused.get(name)):
            raise Conflict(reason, code="extension_conflict")
        return extensions.entries.get(name)


def load(entry: EntryPoint) -> Any:
    """Return what an entry point names; this imports its package.

    Raises:
        Unavailable: the import fails, in whatever way.
    """
    try:
        return entry.load()
    except (Exception, SystemExit) as error:  # other people's code runs when it is imported
        raise Unavailable(
            f"cannot import {entry.name!r} of package {package_of(entry)} ({entry.group}: {entry.value}): "
            f"{type(error).__name__}: {error}; repair or remove the package",
            code="extension_broken",
        ) from error


def load_object(entry: EntryPoint, members: tuple[str, ...]) -> Any:
    """Return the object that an entry point names, or makes if it names a class.

    It must have all of the members; its `name`, if among them, must be that of the entry point.

    Raises:
        Unavailable: the import fails, or the object lacks a member.
    """
    found = load(entry)
    where = f"{entry.name} = {entry.value} of package {package_of(entry)} ({entry.group})"
    try:
        target = found() if isinstance(found, type) else found
    except Exception as error:
        raise Unavailable(
            f"expected a class without arguments at {where}, got {type(error).__name__}: {error}; repair the package",
            code="extension_broken",
        ) from error
    if missing := [member for member in members if not hasattr(target, member)]:
        raise Unavailable(
            f"expected {', '.join(members)} at {where}, got an object without {', '.join(missing)}; repair the package",
            code="extension_broken",
        )
    if "name" in members and target.name != entry.name:
        raise Unavailable(
            f"expected the name {entry.name!r} at {where}, got {target.name!r}; give both the same name",
            code="extension_broken",
        )
    return target


def package_of(entry: EntryPoint) -> str:
    """Return the name of the package that announces an entry point."""
    return entry.dist.name if entry.dist else entry.module.partition(".")[0]
