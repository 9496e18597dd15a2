"""Readers of other packages: entry points of the group `quintain.importers`. A reader that fails loses its file, never the whole import."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

from quintain.errors import InvalidInput, QuintainError
from quintain.extensions import load_object, package_of
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run

GROUP = "quintain.importers"
"""Entry-point group; each entry names an `Importer`, or a class of them without arguments, with the entry's name."""


@dataclass(frozen=True)
class InstalledImporter:
    """A reader of another package."""

    name: str
    title: str
    package: str
    inner: Any

    def detect(self, probe: Probe) -> float:
        """Return its confidence.

        Raises:
            RuntimeError: it raises an exception, or returns something other than a number from 0 to 1.
        """
        try:
            confidence = float(self.inner.detect(probe))
        except Exception as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        if not 0 <= confidence <= 1:
            raise RuntimeError(f"expected a confidence from 0 to 1, got {confidence}")
        return confidence

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """Yield its runs.

        Raises:
            InvalidInput: it raises an exception, or yields something other than runs.
        """
        try:
            for run in self.inner.read(log, report):
                if not isinstance(run, Run):
                    raise TypeError(f"expected a Run, got {type(run).__name__}")
                yield run
        except (QuintainError, OSError):
            raise
        except Exception as error:
            raise InvalidInput(
                f"the reader {self.name} of package {self.package} failed ({type(error).__name__}: {error}); report it there"
            ) from error


def load_importer(entry: EntryPoint) -> InstalledImporter:
    """Return the reader of an entry point.

    Raises:
        Unavailable: its package cannot be imported, or its entry point is not a reader.
    """
    inner = load_object(entry, ("name", "title", "detect", "read"))
    return InstalledImporter(entry.name, str(inner.title), package_of(entry), inner)
