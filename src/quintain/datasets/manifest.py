"""`manifest.json` of a dataset folder: contents, sources and selection."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import VERSION, ValidationError

from quintain import __version__
from quintain.errors import InvalidInput, NotFound
from quintain.files import created
from quintain.records.dataset import Dataset
from quintain.records.wording import explain

FILE_NAME = "manifest.json"


def write_manifest(
    folder: Path,
    dataset: Dataset,
    *,
    selection: Mapping[str, Any],
    counts: Mapping[str, Any],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write the manifest into a folder under construction; renaming the folder publishes it."""
    content = {
        "dataset": dataset.model_dump(mode="json"),
        "selection": selection,
        "counts": counts,
        **(more or {}),
        "quintain": __version__,
        "versions": {"python": platform.python_version(), "pydantic": VERSION},
    }
    with created(folder / FILE_NAME) as file:
        file.write(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def read_manifest(folder: Path) -> Dataset:
    """Return the dataset of a folder, with `path` set to the folder's present location.

    Raises:
        NotFound: no manifest there.
        InvalidInput: the manifest cannot be read.
    """
    path = folder / FILE_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Dataset.model_validate(content["dataset"] | {"path": str(folder)})
    except FileNotFoundError:
        raise NotFound(f"expected the folder of an exported dataset, got {folder} without {FILE_NAME}") from None
    except ValidationError as error:
        raise InvalidInput(explain(error, f"{path}: dataset")) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} cannot be read as a manifest ({error}); export the dataset again") from None


def manifest_entries(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder; empty if it cannot be read."""
    try:
        content = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def notes_of(folder: Path) -> tuple[str, ...]:
    """Return the manifest's notes on the selection; empty if it cannot be read."""
    notes = manifest_entries(folder).get("notes")
    return tuple(note for note in notes if isinstance(note, str)) if isinstance(notes, list) else ()


def source_files(folder: Path) -> tuple[Path, ...]:
    """Return the files that a dataset was read from; empty for a dataset of stored runs, or if the manifest cannot be read."""
    source = manifest_entries(folder).get("source")
    files = source.get("files") if isinstance(source, dict) else None
    names = [file.get("name") for file in files if isinstance(file, dict)] if isinstance(files, list) else []
    return tuple(Path(name) for name in names if isinstance(name, str))
