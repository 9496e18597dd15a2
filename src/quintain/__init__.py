"""Quintain: an MCP server through which an assistant trains agents by conversation.

`quintain.open()` gives the Python client. What `__init__.pyi` lists beside the version is imported when it is first used.
"""

import logging
from importlib import import_module
from typing import Any

# A library prints nothing: without a handler of the program's own, Python would write warnings to standard error.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__version__ = "0.1.0"
_PLACES = ("quintain.errors", "quintain.client")


def __getattr__(name: str) -> Any:
    for place in () if name.startswith("_") else _PLACES:
        module = import_module(place)
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["__version__", *(name for place in _PLACES for name in import_module(place).__all__)]
