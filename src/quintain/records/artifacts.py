"""Artifacts at URLs: the manifest of an uploaded folder, and the jobs that transfer one."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from quintain.records.record import Record

MANIFEST = "artifact.json"
"""Name of the manifest. It names all files once the upload is complete."""


def require_relative(name: str) -> str:
    """Return a relative POSIX path that stays inside its folder.

    Raises:
        ValueError: It is absolute, leaves the folder, or is not in its normal form.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or name == "." or "\\" in name or "\0" in name:
        raise ValueError(f"expected the name of a file inside its folder, got {name!r:.100}")
    return name


FileName = Annotated[str, AfterValidator(require_relative)]


class ArtifactFile(Record):
    """A file of an artifact."""

    size: int = Field(ge=0, description="Bytes.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class ArtifactManifest(Record):
    """`artifact.json`: written first without files, and last with all of them."""

    format: Literal[1] = 1
    upload: str = Field(description="Hash of the files, which identifies the upload.")
    files: dict[FileName, ArtifactFile] | None = Field(default=None, description="Null: the upload is incomplete.")


class FetchSpec(Record):
    """Download an artifact into the cache."""

    kind: Literal["fetch"] = "fetch"
    url: str
    cache_dir: str


class PushSpec(Record):
    """Upload the folder of a dataset to a URL, or to a repository of the Hub."""

    kind: Literal["push"] = "push"
    dataset_id: str
    folder: str
    destination: str = Field(description="An fsspec URL, or hub:OWNER/NAME.")
