"""The job kind `train`: a dataset or an environment in, an agent out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from quintain.datasets.rows import read_rows
from quintain.evaluation.statistics.success_rates import clopper_pearson
from quintain.records.agent import Agent, Agreement, ModelRef
from quintain.records.hyperparameters import DATASET_KINDS, ROLES
from quintain.records.job import JobResult, TrainSpec
from quintain.records.seams import Reporter
from quintain.worker.inputs import fill_inputs


def run(spec: TrainSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Copy the dataset in (or let the agent act), train, and hand over the agent.

    Raises:
        InvalidInput: the dataset on disk is not the one that the job was started for.
        TrainingFailed: the run could not go on.
    """
    reporter.phase("preparing")
    inputs = fill_inputs(spec, directory / "inputs")
    reporter.phase("importing")
    from quintain.trainers.train import Data, train

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
    details = report.model_dump(mode="json", exclude={"held_out"})
    if report.stopped:
        return JobResult(report=details)
    agreement = None
    if spec.method in ROLES:
        agreement = agreement_of(spec.method, report.held_out)
        details["held_out_agreement"] = agreement and agreement.model_dump(mode="json", exclude_none=True)
        if agreement is None:
            reporter.warn(
                "no_held_out", f"{_UNMEASURED}; export with validation_share and train again before you rely on it"
            )
    reporter.output("agent", _agent(spec, directory.name, agreement))
    return JobResult(dataset_id=spec.dataset_id, final_loss=report.final_loss, report=details)


_UNMEASURED = "there are no held-out labels, so nobody knows how often this model is right"

_AGREES = {
    "reward": ("reward_accuracy", "pairs ordered as labelled"),
    "prm": ("step_accuracy", "steps on their label's side of 0.5"),
}
"""Method -> the figure that says how often a model of it is right, and what is counted."""


def agreement_of(method: str, figures: Mapping[str, tuple[float, float]]) -> Agreement | None:
    """How often a model that values runs met the labels of the validation split.

    The pairs of a task and the steps of a run are not independent, so the interval is narrower than it should be; and with
    keep_best the same split chose the weights.

    Args:
        method: `reward` or `prm`.
        figures: Metric -> sum and count over that split.

    Returns:
        None where nothing was held out.
    """
    name, of = _AGREES[method]
    right, n = figures.get(name, (0.0, 0.0))
    rate = clopper_pearson(round(right), round(n))
    if rate.value is None or rate.ci_low is None or rate.ci_high is None:
        return None
    brier, labels = figures.get("brier", (0.0, 0.0))
    return Agreement(
        of=of,
        right=rate.successes,
        n=rate.n,
        rate=rate.value,
        ci_low=rate.ci_low,
        ci_high=rate.ci_high,
        brier=brier / labels if labels else None,
    )


def _agent(spec: TrainSpec, job_id: str, agreement: Agreement | None) -> Agent:
    """The trained agent acts as its parent did: same prompt, same sampling, same way of writing turns.

    One that values runs says in its description how often it is right.
    """
    told = f"; {agreement or _UNMEASURED}" if spec.method in ROLES else ""
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
            "role": ROLES.get(spec.method, "policy"),
            "held_out": agreement,
            "description": f"{spec.method} of {spec.agent.id} on {spec.dataset_id or spec.environment}{told}",
        }
    )
