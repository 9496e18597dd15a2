"""A dataset's files in a job's folder, checked against the hashes in the job's spec."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from quintain.errors import InvalidInput
from quintain.files import sha256_of
from quintain.records.jobs.job import EvaluateDatasetSpec, PreviewSpec, TrainSpec
from quintain.records.jobs.recipe import EarlierSkill


def link_dataset(spec: TrainSpec | PreviewSpec | EvaluateDatasetSpec | EarlierSkill, folder: Path) -> Path:
    """Link (or copy) the dataset's files into the job, so that the job survives a deletion of the dataset.

    Raises:
        InvalidInput: The dataset on disk has changed since the job was created.
    """
    folder.mkdir(exist_ok=True)
    for name, sha256 in spec.dataset_files.items():
        target = folder / name
        if not target.exists():
            aside = folder / f".{name}.{os.getpid()}"
            try:
                os.link(Path(spec.dataset_path or "") / name, aside)
            except FileNotFoundError:
                raise InvalidInput(
                    f"cannot find {name!r} of dataset {spec.dataset_id}; export the dataset again",
                    code="dataset_damaged",
                ) from None
            except OSError:
                shutil.copyfile(Path(spec.dataset_path or "") / name, aside)
            aside.replace(target)
        if sha256_of(target) != sha256:
            raise InvalidInput(
                f"expected the manifest's SHA-256 for {name!r} of dataset {spec.dataset_id}, got another; datasets are immutable, "
                "export it again",
                code="dataset_damaged",
            )
    return folder
