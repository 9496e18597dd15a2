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

    for place in () if name.startswith("_") else ("quintain.errors", "quintain.client"):
        module = import_module(place)
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from importlib import import_module

    errors, client = import_module("quintain.errors"), import_module("quintain.client")
    return ["__version__", *errors.__all__, *client.__all__]
