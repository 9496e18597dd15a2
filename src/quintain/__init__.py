"""Quintain: an MCP server through which an assistant trains agents by conversation.

`quintain.open()` gives the Python client. What `__init__.pyi` lists beside the version is imported when it is first used.
"""

import logging
from typing import Any

# A library prints nothing: without a handler of the program's own, Python would write warnings to standard error.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "QuintainError":
        return import_module("quintain.errors").QuintainError
    if not name.startswith("_"):
        client = import_module("quintain.client")
        if name in client.__all__:
            return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
