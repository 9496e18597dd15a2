"""Import torch and the model classes of transformers, which takes a process several seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from quintain.importers.files.garbage_collection import gc_relaxed


def import_libraries() -> None:
    """Import the libraries of local models without needless work; nothing if they are imported.

    Python's garbage collector runs less often: their modules create a million objects and free almost none. Losses of object
    detection, which would import `scipy.optimize`, do not find SciPy. `transformers.models` takes the exports that
    `transformers` has read from its 3,000 files of models: both ask the same cached function, by the folder or a file in it.
    """
    if "transformers.modeling_utils" in sys.modules:
        return
    with gc_relaxed():
        import_module("torch")
        import_module("transformers")
        structures = _replaced("transformers.utils.import_utils", "create_import_structure_from_path", _by_folder)
        with structures, _replaced("transformers.utils", "is_scipy_available", lambda _: lambda: False):
            import_module("transformers.modeling_utils")


@contextmanager
def _replaced(module: str, name: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """Change a function of a module within the block, if this version of the module has it."""
    owner = import_module(module)
    original = getattr(owner, name, None)
    if original is None:
        yield
        return
    setattr(owner, name, change(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _by_folder(read: Callable[[Path | str], Any]) -> Callable[[Path | str], Any]:
    return lambda path: read(Path(path).parent if Path(path).is_file() else path)
