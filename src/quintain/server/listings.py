"""Descriptions and schemas of the tools, kept in `listings.json` so that a server lists its tools without importing them.

`python -m scripts.make_tool_reference` writes the file from the catalog; a test compares the two.
"""

from __future__ import annotations

import inspect
import json
from functools import cache
from pathlib import Path
from typing import Any

from quintain.tools.catalog import ToolSpec

FILE = Path(__file__).with_name("listings.json")

Listing = dict[str, Any]
"""`description`, `input_schema` and `output_schema` of a tool."""


def derived_listing(spec: ToolSpec) -> Listing:
    """Return the listing of a tool from the signature and docstring of its function."""
    from quintain.server.calls.schemas import input_schema, output_schema
    from quintain.tools.invocation import arguments_model

    brief = spec.answers_as is not None
    return {
        "description": inspect.getdoc(spec.function),
        "input_schema": input_schema(arguments_model(spec)),
        "output_schema": None if spec.picture else output_schema(spec.function, brief=brief),
    }


@cache
def stored_listings() -> dict[str, Listing]:
    """Return the listings of the catalog, by name of the tool."""
    listings: dict[str, Listing] = json.loads(FILE.read_text(encoding="utf-8"))
    return listings
