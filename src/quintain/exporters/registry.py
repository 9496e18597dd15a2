"""All writers of other formats."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

from quintain.errors import NotFound, QuintainError, Unavailable
from quintain.exporters.formats import atif, axolotl, hf_sts, hub, knowlyr, llamafactory, openai, trl, verl
from quintain.exporters.protocol import Export, Exporter, Rows
from quintain.extensions import ExtensionGroup, load_object, package_of
from quintain.records.dataset import Dataset
from quintain.records.wording import nearest, shown

GROUP = "quintain.exporters"
"""Entry-point group; each entry names an `Exporter`, or a class of them without arguments, with the entry's name."""

EXPORTERS: tuple[Exporter, ...] = (
    atif.EXPORTER,
    axolotl.EXPORTER,
    hf_sts.EXPORTER,
    hub.EXPORTER,
    knowlyr.EXPORTER,
    llamafactory.EXPORTER,
    openai.EXPORTER,
    trl.EXPORTER,
    trl.TURNS_EXPORTER,
    verl.EXPORTER,
)
"""Every built-in writer except the native format `quintain`."""

EXTENSIONS = ExtensionGroup(GROUP, frozenset({"quintain", *(known.name for known in EXPORTERS)}))


def format_names() -> list[str]:
    """Return the names of all formats, our own first, those of other packages among them."""
    return ["quintain", *sorted([*(known.name for known in EXPORTERS), *EXTENSIONS.installed().entries])]


def exporter(name: str) -> Exporter:
    """Return the writer with this name.

    Raises:
        NotFound: lists the names.
        Conflict: several packages announce it.
        Unavailable: its package is broken.
    """
    for known in EXPORTERS:
        if known.name == name:
            return known
    if (entry := EXTENSIONS.find(name)) is not None:
        return _load(entry)
    names = format_names()
    raise NotFound(f"expected a format, got {shown(name)}{nearest(name, names)}; valid: {', '.join(names)}")


def _load(entry: EntryPoint) -> Exporter:
    """Return the writer of an entry point. Whatever it raises is `Unavailable`, and so is a result other than an `Export`."""
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
