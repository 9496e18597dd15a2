"""What other packages add to this installation, and which of it cannot be used."""

from __future__ import annotations

from typing import NamedTuple

from quintain.environments import registry as environments
from quintain.errors import Unavailable
from quintain.exporters import registry as exporters
from quintain.extensions import ExtensionGroup, load, package_of
from quintain.importers import registry as importers
from quintain.jobs.launchers import registry as launchers
from quintain.scoring import registry as scorers


class Extension(NamedTuple):
    """An entry point of another package."""

    group: str
    name: str
    package: str
    fault: str | None
    """Why it is not used. None: it is."""


def list_extensions() -> list[Extension]:
    """Return the extensions of all groups; this imports their packages."""
    found = []
    for registry in (importers, exporters, scorers, environments, launchers):
        group: ExtensionGroup = registry.EXTENSIONS
        installed = group.installed()
        for name, entry in installed.entries.items():
            try:
                load(entry)
                fault = None
            except Unavailable as error:
                fault = error.message
            found.append(Extension(group.name, name, package_of(entry), fault))
        found += [Extension(group.name, name, "", reason) for name, reason in installed.refused.items()]
    return found
