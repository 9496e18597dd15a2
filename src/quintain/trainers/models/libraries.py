"""Import torch and the model classes of transformers, which takes a process several seconds."""

from __future__ import annotations

from importlib import import_module

from quintain.importers.files.garbage_collection import gc_relaxed

LIBRARIES = ("torch", "transformers.modeling_utils")


def import_libraries() -> None:
    """Import the libraries of local models with Python's garbage collector relaxed; nothing if they are imported.

    Their modules create a million objects and free almost none, and the collector would take a fifth of the time.
    """
    with gc_relaxed():
        for name in LIBRARIES:
            import_module(name)
