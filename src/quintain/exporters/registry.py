"""All writers of other formats."""

from __future__ import annotations

from quintain.errors import NotFound
from quintain.exporters import atif, axolotl, hf_sts, hub, knowlyr, llamafactory, openai, trl, verl
from quintain.exporters.installed import GROUP, load_exporter
from quintain.exporters.protocol import Exporter
from quintain.extensions import Extensions, extensions_of, require_single
from quintain.records.record import nearest, shown

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


def format_names() -> list[str]:
    """Return the names of all formats, our own first, those of other packages among them."""
    return ["quintain", *sorted([*(known.name for known in EXPORTERS), *installed_extensions().entries])]


def installed_extensions() -> Extensions:
    """Return what other packages announce."""
    return extensions_of(GROUP, _built_in())


def _built_in() -> frozenset[str]:
    return frozenset({"quintain", *(known.name for known in EXPORTERS)})


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
    require_single(GROUP, name, _built_in())
    if (entry := installed_extensions().entries.get(name)) is not None:
        return load_exporter(entry)
    names = format_names()
    raise NotFound(f"expected a format, got {shown(name)}{nearest(name, names)}; valid: {', '.join(names)}")
