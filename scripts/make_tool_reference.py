"""Write what derives from the catalog of tools: the server's listings and `docs/reference/tools.md`.

Run as `python -m scripts.make_tool_reference` after a change of a tool's signature, docstring or command.
"""

from __future__ import annotations

import json

from quintain.server.listings import FILE, derived_listing
from quintain.tools.catalog import CATALOG


def listings() -> str:
    """Return the content of the server's file of listings."""
    return json.dumps({spec.name: derived_listing(spec) for spec in CATALOG}, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(listings(), encoding="utf-8")
