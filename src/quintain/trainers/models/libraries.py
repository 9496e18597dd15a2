"""Import torch and the model classes of transformers, which takes a process several seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from quintain.importers.files.garbage_collection import gc_relaxed


def import_libraries() -> None:
    """Import the libraries of local models without needless work; nothing if they are imported.

    Python's garbage collector runs less often: their modules create a million objects and free almost none.
    """
    if "transformers.modeling_utils" in sys.modules:
        return
    with gc_relaxed():
        import_module("torch")
        import_module("transformers")
        with _light_transformers():
            import_module("transformers.modeling_utils")


@contextmanager
def _light_transformers() -> Iterator[None]:
    """Save two thirds of a second of the import of transformers' models.

    `transformers` has read the exports of its 3,000 files of models, and `transformers.models` would read them again: both ask
    the same cached function, one by the folder and one by a file in it. Losses of object detection would import
    `scipy.optimize`.
    """
    utils: Any = import_module("transformers.utils")
    structures: Any = import_module("transformers.utils.import_utils")
    read, has_scipy = structures.create_import_structure_from_path, utils.is_scipy_available
    structures.create_import_structure_from_path = lambda path: read(
        Path(path).parent if Path(path).is_file() else path
    )
    utils.is_scipy_available = lambda: False
    try:
        yield
    finally:
        structures.create_import_structure_from_path, utils.is_scipy_available = read, has_scipy
