"""A dataset's files in a job's folder, checked against the hashes that the job was started with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from quintain.datasets.manifest import sha256_of
from quintain.errors import InvalidInput
from quintain.records.job import EvaluateDatasetSpec, PreviewSpec, TrainSpec


def fill_inputs(spec: TrainSpec | PreviewSpec | EvaluateDatasetSpec, folder: Path) -> Path:
    """Link (or copy) the dataset's files into the job, so that the job stays whole if the dataset is deleted.

    Raises:
        InvalidInput: the dataset on disk is not the one that the job was started for.
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
                    f"dataset {spec.dataset_id} has lost its file {name!r}; export it again with export_dataset",
                    code="dataset_damaged",
                ) from None
            except OSError:
                shutil.copyfile(Path(spec.dataset_path or "") / name, aside)
            aside.replace(target)
        if sha256_of(target) != sha256:
            raise InvalidInput(
                f"dataset {spec.dataset_id} was changed on disk: {name!r} does not have the SHA-256 of its manifest; datasets are "
                "immutable, export it again with export_dataset",
                code="dataset_damaged",
            )
    return folder
