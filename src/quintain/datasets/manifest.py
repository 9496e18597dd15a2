"""`manifest.json`: what a dataset folder holds, from what, chosen how."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import VERSION, ValidationError

from quintain import __version__
from quintain.errors import InvalidInput, NotFound
from quintain.records.dataset import Dataset
from quintain.records.record import explain

FILE_NAME = "manifest.json"


def write_manifest(
    folder: Path,
    dataset: Dataset,
    *,
    selection: Mapping[str, Any],
    counts: Mapping[str, Any],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write the manifest into a folder that is still being made; the folder's own rename makes it appear whole.

    Args:
        folder: Where the rows stand now.
        dataset: What the store will hold; its `path` is the final one.
        selection: The options that chose the rows, as JSON values.
        counts: What else there is to count, such as the distinct trajectories.
        more: What else there is to tell, each under a name of its own.
    """
    content = {
        "dataset": dataset.model_dump(mode="json"),
        "selection": selection,
        "counts": counts,
        **(more or {}),
        "quintain": __version__,
        "versions": {"python": platform.python_version(), "pydantic": VERSION},
    }
    with (folder / FILE_NAME).open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=2, ensure_ascii=False, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def read_manifest(folder: Path) -> Dataset:
    """The dataset of a folder, `path` being where the folder stands now.

    Raises:
        NotFound: no manifest there.
        InvalidInput: the manifest cannot be read.
    """
    path = folder / FILE_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Dataset.model_validate(content["dataset"] | {"path": str(folder)})
    except FileNotFoundError:
        raise NotFound(f"{folder} holds no {FILE_NAME}; it is not a dataset folder made by export_dataset") from None
    except ValidationError as error:
        raise InvalidInput(explain(error, f"{path}: dataset")) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} cannot be read as a manifest ({error}); export the dataset again") from None


def notes_of(folder: Path) -> tuple[str, ...]:
    """What the manifest says of how the rows were chosen, as sentences; nothing where it cannot be read."""
    try:
        notes = json.loads((folder / FILE_NAME).read_text(encoding="utf-8")).get("notes", [])
    except (OSError, ValueError, AttributeError):
        return ()
    return tuple(note for note in notes if isinstance(note, str)) if isinstance(notes, list) else ()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
