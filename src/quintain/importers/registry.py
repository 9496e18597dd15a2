"""All readers of agent logs, and format detection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from pkgutil import iter_modules
from typing import NamedTuple

from pydantic import ValidationError

from quintain.errors import InvalidInput, NotFound, QuintainError, Unavailable
from quintain.extensions import ExtensionGroup, load_object, package_of
from quintain.importers import chat_apps, coding_agents, frameworks, harnesses, interchange, traces, training_data
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer
from quintain.records.wording import explain, nearest, shown

GROUP = "quintain.importers"
"""Entry-point group; each entry names an `Importer`, or a class of them without arguments, with the entry's name."""

_PACKAGES = (chat_apps, coding_agents, frameworks, harnesses, interchange, traces, training_data)


def _built_in_importers() -> Iterator[Importer]:
    for package in _PACKAGES:
        for found in iter_modules(package.__path__, f"{package.__name__}."):
            if (known := getattr(import_module(found.name), "IMPORTER", None)) is not None:
                yield known


IMPORTERS: tuple[Importer, ...] = tuple(sorted(_built_in_importers(), key=lambda known: known.name.replace("_", "")))
"""Every built-in reader; at equal confidence the earlier one wins, and those of other packages come last."""

EXTENSIONS = ExtensionGroup(GROUP, frozenset(known.name for known in IMPORTERS))

FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Exceptions of a reader that does not expect a value: a bug, which must not stop the import of other files."""


class _PackageFault(RuntimeError):
    """The detection of another package's reader failed; the text names both, with the reason."""


class Detection(NamedTuple):
    """Result of format detection."""

    importer: Importer | None
    """None if no reader accepts the file."""
    confidence: float
    runner_up: str | None
    """Reader with the second highest confidence above 0."""
    failed: tuple[str, ...] = ()
    """Readers whose detection raised an exception, which is a bug."""


def reader_names() -> list[str]:
    """Return the names of all log formats, those of other packages among them."""
    return sorted([*EXTENSIONS.built_in, *EXTENSIONS.installed().entries])


def importer(name: str) -> Importer:
    """Return the reader with this name.

    Raises:
        NotFound: lists the names.
        Conflict: several packages announce it.
        Unavailable: its package is broken.
    """
    for known in IMPORTERS:
        if known.name == name:
            return known
    if (entry := EXTENSIONS.find(name)) is not None:
        return _load(entry)
    names = reader_names()
    raise NotFound(f"expected a log format, got {shown(name)}{nearest(name, names)}; valid: auto, {', '.join(names)}")


class InstalledReaders(NamedTuple):
    """Readers of other packages."""

    importers: tuple[Importer, ...]
    faults: tuple[str, ...]
    """Why some are not used."""


@cache
def installed_readers() -> InstalledReaders:
    """Return the readers of other packages; this imports them."""
    known = EXTENSIONS.installed()
    usable, faults = list[Importer](), list(known.refused.values())
    for entry in known.entries.values():
        try:
            usable.append(_load(entry))
        except Unavailable as error:
            faults.append(error.message)
    return InstalledReaders(tuple(usable), tuple(faults))


def detect(probe: Probe) -> Detection:
    """Return the reader with the highest confidence; readers that raise are skipped and named."""
    if probe.document and not any(isinstance(value, str | list | dict) for value in probe.document.values()):
        return Detection(None, 0.0, None)  # numbers alone, such as a vocabulary
    sure: list[tuple[float, int, Importer]] = []
    failed = []
    for place, known in enumerate((*IMPORTERS, *installed_readers().importers)):
        try:
            confidence = known.detect(probe)
        except _PackageFault as fault:
            failed.append(str(fault))
        except FAULTS as error:
            failed.append(f"{known.name} ({type(error).__name__})")
        else:
            if confidence > 0:
                sure.append((-confidence, place, known))
    ranked = [(-negative, known) for negative, _, known in sorted(sure, key=lambda entry: entry[:2])]
    if not ranked:
        return Detection(None, 0.0, None, tuple(failed))
    return Detection(ranked[0][1], ranked[0][0], ranked[1][1].name if len(ranked) > 1 else None, tuple(failed))


def confidence(reader: Importer, probe: Probe) -> float:
    """Return how sure a reader is; 0 where its detection raises, which `detect` names: it may read the file all the same."""
    with suppress(*FAULTS):
        return reader.detect(probe)
    return 0.0


def _load(entry: EntryPoint) -> Importer:
    """Return the reader of an entry point. Whatever it raises is a `_PackageFault` in detection, an `InvalidInput` in reading."""
    inner, package = load_object(entry, ("name", "title", "detect", "read")), package_of(entry)

    def detect(probe: Probe) -> float:
        try:
            confidence = float(inner.detect(probe))
            if not 0 <= confidence <= 1:
                raise ValueError(f"expected a confidence from 0 to 1, got {confidence}")
        except Exception as error:
            fault = f"{entry.name} of package {package} ({type(error).__name__}: {error})"
            raise _PackageFault(fault) from error
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
            if isinstance(error, ValidationError):
                reason = explain(error, error.title)
            else:
                reason = f"{type(error).__name__}: {error}"
            raise InvalidInput(
                f"the reader {entry.name} of package {package} failed{log.reading.where} ({reason}); report it there"
            ) from error

    return Importer(entry.name, str(inner.title), detect, read)
