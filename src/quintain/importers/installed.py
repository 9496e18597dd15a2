"""Readers of other packages: entry points of the group `quintain.importers`. A reader that fails loses its file, never the whole import."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

from quintain.errors import InvalidInput, QuintainError
from quintain.extensions import load_object, package_of
from quintain.importers.importer import Importer
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run

GROUP = "quintain.importers"
"""Entry-point group; each entry names an `Importer`, or a class of them without arguments, with the entry's name."""


def load_importer(entry: EntryPoint) -> Importer:
    """Return the reader of an entry point. Whatever it raises is a `RuntimeError` in detection, an `InvalidInput` in reading.

    Raises:
        Unavailable: its package cannot be imported, or its entry point is not a reader.
    """
    inner, package = load_object(entry, ("name", "title", "detect", "read")), package_of(entry)

    def detect(probe: Probe) -> float:
        try:
            confidence = float(inner.detect(probe))
        except Exception as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        if not 0 <= confidence <= 1:
            raise RuntimeError(f"expected a confidence from 0 to 1, got {confidence}")
        return confidence

    def read(log: LogFile, report: Report) -> Iterator[Run]:
        try:
            for run in inner.read(log, report):
                if not isinstance(run, Run):
                    raise TypeError(f"expected a Run, got {type(run).__name__}")
                yield run
        except (QuintainError, OSError):
            raise
        except Exception as error:
            raise InvalidInput(
                f"the reader {entry.name} of package {package} failed ({type(error).__name__}: {error}); report it there"
            ) from error

    return Importer(entry.name, str(inner.title), detect, read)
