"""Checksums of the folder of a model: `SHA256SUMS`, verified whenever the model is loaded."""

from __future__ import annotations

from pathlib import Path

from quintain.errors import InvalidInput
from quintain.files import sha256_of

FILE_NAME = "SHA256SUMS"


def write_checksums(folder: Path) -> None:
    """Write the hash of each file in a folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    lines = [f"{sha256_of(path)}  {path.name}\n" for path in files]
    (folder / FILE_NAME).write_text("".join(lines), encoding="utf-8")


def require_unchanged(folder: Path) -> None:
    """Refuse a folder with a file that differs from its hash, or a list without the weights. One without `SHA256SUMS` is not checked.

    Raises:
        InvalidInput: A file is missing, has changed, or is not listed (`model_damaged`).
    """
    sums = folder / FILE_NAME
    if not sums.is_file():
        return
    try:
        text = sums.read_text(encoding="utf-8")
        expected = {
            name.removeprefix("*"): digest for digest, name in (line.split(maxsplit=1) for line in text.splitlines())
        }
        fault = next((name for name, digest in expected.items() if sha256_of(folder / name) != digest), None)
        unlisted = next((path.name for path in sorted(folder.glob("*.safetensors")) if path.name not in expected), None)
        problem = f"{fault} has changed since" if fault else None
        if unlisted or not text.endswith("\n"):
            problem = problem or f"{FILE_NAME} is cut" + (f" before {unlisted}" if unlisted else "")
    except FileNotFoundError as error:
        problem = f"{Path(error.filename).name} is missing"
    except (OSError, ValueError):
        problem = f"{FILE_NAME} cannot be read"
    if problem:
        raise InvalidInput(
            f"expected the model in {folder} as its {FILE_NAME} lists it, but {problem}; restore the folder from a backup or train "
            f"again, or delete {FILE_NAME} if you changed the model on purpose",
            code="model_damaged",
        )
