"""Import torch and the model classes of transformers, which takes a process several seconds."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

LIBRARIES = ("torch", "transformers.modeling_utils")


def import_libraries() -> None:
    """Import the libraries of local models without Python's garbage collector; nothing if they are imported.

    Their modules create a million objects and free almost none: the collector would take a fifth of the time, and from then on looks
    past them.
    """
    if all(name in sys.modules for name in LIBRARIES):
        return
    enabled = gc.isenabled()
    gc.disable()
    try:
        for name in LIBRARIES:
            import_module(name)
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
