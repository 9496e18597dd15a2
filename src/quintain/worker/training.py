"""The job kind `train`: a dataset or an environment in, an agent out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from quintain.errors import InvalidInput
from quintain.formats.manifest import sha256_of
from quintain.formats.rows import read_rows
from quintain.records.agent import Agent, ModelRef
from quintain.records.job import JobResult, TrainSpec
from quintain.records.seams import Reporter
from quintain.records.training import DATASET_KINDS


def run(spec: TrainSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Copy the dataset in (or let the agent act), train, and hand over the agent.

    Raises:
        InvalidInput: the dataset on disk is not the one that the job was started for.
        TrainingFailed: the run could not go on.
    """
    reporter.phase("preparing")
    inputs = _fill_inputs(spec, directory / "inputs")
    reporter.phase("importing")
    from quintain.trainers.training import Data, train

    if spec.environment is None:
        kind = DATASET_KINDS[spec.method]
        splits = {
            split: list(read_rows(inputs, split, kind=kind)) if f"{split}.jsonl" in spec.dataset_files else []
            for split in ("train", "validation")
        }
        report = train(spec, Data(**splits), directory, reporter)
    else:
        from quintain.worker.online import collector

        report = train(spec, Data(), directory, reporter, collector(spec, directory, reporter))
    details = report.model_dump(mode="json")
    if report.stopped:
        return JobResult(report=details)
    reporter.output("agent", _agent(spec, directory.name))
    return JobResult(dataset_id=spec.dataset_id, final_loss=report.final_loss, report=details)


def _agent(spec: TrainSpec, job_id: str) -> Agent:
    """The trained agent acts as its parent did: same prompt, same sampling, same way of writing turns."""
    if spec.config.lora is None:
        model = ModelRef(source="folder", path=spec.output_dir)
    else:
        model = spec.agent.model.model_copy(update={"adapter": spec.output_dir})
    return spec.agent.model_copy(
        update={
            "id": None,
            "version": None,
            "created_at": None,
            "name": spec.name,
            "model": model,
            "parent": spec.agent.id,
            "dataset_id": spec.dataset_id,
            "job_id": job_id,
            "description": f"{spec.method} of {spec.agent.id} on {spec.dataset_id or spec.environment}",
        }
    )


def _fill_inputs(spec: TrainSpec, folder: Path) -> Path:
    """Link (or copy) the dataset's files into the job, so that the job stays whole if the dataset is deleted."""
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
