"""All writers of other formats."""

from __future__ import annotations

from quintain.errors import NotFound
from quintain.exporters.atif import AtifExporter
from quintain.exporters.axolotl import Axolotl
from quintain.exporters.hf_sts import HfSts
from quintain.exporters.hub import Hub
from quintain.exporters.knowlyr import Knowlyr
from quintain.exporters.llamafactory import LlamaFactory
from quintain.exporters.openai import OpenAI
from quintain.exporters.protocol import Exporter
from quintain.exporters.trl import Trl, TrlPromptCompletion
from quintain.exporters.verl import Verl
from quintain.records.record import nearest, shown

EXPORTERS: tuple[Exporter, ...] = (
    AtifExporter(),
    Axolotl(),
    HfSts(),
    Hub(),
    Knowlyr(),
    LlamaFactory(),
    OpenAI(),
    Trl(),
    TrlPromptCompletion(),
    Verl(),
)
"""Every writer except the native format `quintain`."""


def format_names() -> list[str]:
    """Return the names of all formats, our own first."""
    return ["quintain", *sorted(known.name for known in EXPORTERS)]


def exporter(name: str) -> Exporter:
    """Return the writer with this name.

    Raises:
        NotFound: lists the names.
    """
    for known in EXPORTERS:
        if known.name == name:
            return known
    names = format_names()
    raise NotFound(f"expected a format, got {shown(name)}{nearest(name, names)}; valid: {', '.join(names)}")
