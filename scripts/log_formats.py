"""Write docs/reference/log-formats.md from the registries of readers and writers: `python -m scripts.log_formats`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from quintain.exporters.registry import EXPORTERS
from quintain.importers.registry import IMPORTERS
from quintain.importers.row_reader import Importer

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "log-formats.md"

_GROUPS = {
    "coding_agents": "Coding agents",
    "frameworks": "Agent frameworks",
    "harnesses": "Benchmarks, environments and older frameworks",
    "interchange": "Interchange formats",
    "chat_apps": "Chat applications",
    "training_data": "Chats, instructions and preferences",
    "traces": "Observability traces",
}
_HEAD = """\
# Log and dataset formats

Every format that `import` reads and every format that `export` writes, by its name for `--format` and `format=`.
Generated from the registries by `python -m scripts.log_formats`.

JSON, JSON lines, zip archives of logs, the text files of `aider`, `cursor` and `specstory`, and the databases of `crush`
and `opencode` are read as they are; gzip, zstd and bzip2 files are unpacked within bounds. See
[Import logs](../how-to/import-logs.md) and [Export datasets](../how-to/export-datasets.md).
"""


def page() -> str:
    """Return the page: the readers by group, then the writers with their dataset kinds."""
    parts = [_HEAD]
    for group, heading in _GROUPS.items():
        parts.append(f"\n## {heading}\n\n| format | reads |\n|---|---|\n")
        parts += [f"| `{one.name}` | {_summary(one)} |\n" for one in IMPORTERS if _group(one) == group]
    parts.append("\n## Export formats\n\n| format | dataset kinds |\n|---|---|\n")
    parts += [f"| `{one.name}` | {', '.join(f'`{kind}`' for kind in sorted(one.kinds))} |\n" for one in EXPORTERS]
    return "".join(parts)


def _module(importer: Importer) -> ModuleType:
    return next(module for module in sys.modules.values() if vars(module).get("IMPORTER") is importer)


def _group(importer: Importer) -> str:
    return _module(importer).__name__.split(".")[2]


def _summary(importer: Importer) -> str:
    """Return the first sentence of the reader's module docstring."""
    text = (_module(importer).__doc__ or importer.title).split("\n\n")[0]
    return " ".join(text.split()).rstrip(".").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
