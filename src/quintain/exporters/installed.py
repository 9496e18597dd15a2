"""Writers of other packages: entry points of the group `quintain.exporters`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from quintain.errors import QuintainError, Unavailable
from quintain.exporters.protocol import Export, Rows
from quintain.extensions import load_object, package_of
from quintain.records.dataset import Dataset, DatasetKind

GROUP = "quintain.exporters"
"""Entry-point group; each entry names an `Exporter`, or a class of them without arguments, with the entry's name."""


@dataclass(frozen=True)
class InstalledExporter:
    """A writer of another package."""

    name: str
    kinds: frozenset[DatasetKind]
    package: str
    inner: Any

    def write(self, dataset: Dataset, rows: Rows, folder: Path) -> Export:
        """Let it write.

        Raises:
            Unavailable: it raises an exception, or returns something else than an `Export`.
        """
        try:
            export = self.inner.write(dataset, rows, folder)
            if not isinstance(export, Export):
                raise TypeError(f"expected an Export, got {type(export).__name__}")
        except (QuintainError, OSError):
            raise
        except Exception as error:
            raise Unavailable(
                f"the format {self.name} of package {self.package} failed ({type(error).__name__}: {error}); report it there, or "
                "choose another format",
                code="extension_failed",
            ) from error
        return export


def load_exporter(entry: EntryPoint) -> InstalledExporter:
    """Return the writer of an entry point.

    Raises:
        Unavailable: its package cannot be imported, or its entry point is not a writer.
    """
    inner = load_object(entry, ("name", "kinds", "write"))
    return InstalledExporter(entry.name, frozenset(inner.kinds), package_of(entry), inner)
