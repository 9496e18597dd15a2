"""Writers of other packages: entry points of the group `quintain.exporters`."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

from quintain.errors import QuintainError, Unavailable
from quintain.exporters.protocol import Export, Exporter, Rows
from quintain.extensions import load_object, package_of
from quintain.records.dataset import Dataset

GROUP = "quintain.exporters"
"""Entry-point group; each entry names an `Exporter`, or a class of them without arguments, with the entry's name."""


def load_exporter(entry: EntryPoint) -> Exporter:
    """Return the writer of an entry point. Whatever it raises is `Unavailable`, and so is a result other than an `Export`.

    Raises:
        Unavailable: its package cannot be imported, or its entry point is not a writer.
    """
    inner, package = load_object(entry, ("name", "kinds", "write")), package_of(entry)

    def write(dataset: Dataset, rows: Rows, folder: Path) -> Export:
        try:
            export = inner.write(dataset, rows, folder)
            if not isinstance(export, Export):
                raise TypeError(f"expected an Export, got {type(export).__name__}")
        except (QuintainError, OSError):
            raise
        except Exception as error:
            raise Unavailable(
                f"the format {entry.name} of package {package} failed ({type(error).__name__}: {error}); report it there, or "
                "choose another format",
                code="extension_failed",
            ) from error
        return export

    return Exporter(entry.name, frozenset(inner.kinds), write)
