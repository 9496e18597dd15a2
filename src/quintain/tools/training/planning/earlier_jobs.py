"""Time and memory of earlier jobs, the best predictor of the next one."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from quintain.records.agent import ModelRef
from quintain.records.hyperparameters.methods import TrainingConfig
from quintain.records.jobs.job import Job, JobStatus, TrainSpec
from quintain.tools.services import Services
from quintain.tools.training.planning.cost import PassSize, TrainingWork, memory_parts, operations
from quintain.tools.training.planning.device import Device
from quintain.tools.training.planning.model_files import ModelFacts, read_model

_LOOKED_AT = 100
"""Number of newest finished trainings to consider."""

_MOST = 3
"""Number of jobs in an estimate."""


class Measured(NamedTuple):
    """Time and memory of finished trainings, relative to the cost model."""

    jobs: tuple[str, ...]
    same_model: bool
    """Whether they trained the model that is planned for."""
    rate: float
    """Operations of the cost model per second, between first and last step."""
    start_s: float
    """Seconds before the first step and after the last."""
    memory_ratio: float
    """Peak memory divided by the estimate of the cost model."""


class OnlineStep(NamedTuple):
    """Time and memory of an optimizer step that includes acting."""

    job_id: str
    start_s: float
    episode_s: float
    """Seconds of the whole run divided by its episodes."""
    peak_memory_mb: float | None


def measured_figures(services: Services, model: ModelRef, config: TrainingConfig, device: Device) -> Measured | None:
    """Return figures of the newest finished trainings on datasets: of this model, else of models trained in the same way.

    Interrupted jobs are skipped: their duration is not comparable.

    Args:
        services: Whose jobs.
        model: The model to plan for.
        config: Tells adapters from full training, the quantisation of the base, the optimizer and the number of processes.
        device: The device that they are assumed to have run on.
    """
    mine, others = list[_Took](), list[_Took]()
    for job, spec in _finished(services):
        alike = _kind(spec.config) == _kind(config)
        if spec.dataset_id is None or not alike:
            continue
        is_same = _base(spec.agent.model) == _base(model)
        if len(mine if is_same else others) < _MOST and (took := _took(services, job, spec, device)):
            (mine if is_same else others).append(took)
        if len(mine) == _MOST:
            break
    chosen = mine or others
    if not chosen:
        return None
    return Measured(
        jobs=tuple(one.job_id for one in chosen),
        same_model=bool(mine),
        rate=statistics.median(one.rate for one in chosen),
        start_s=statistics.median(one.start_s for one in chosen),
        memory_ratio=statistics.median(one.memory_ratio for one in chosen),
    )


def measured_online(services: Services, model: ModelRef, method: str, environment: str) -> OnlineStep | None:
    """Return figures of the newest finished training of this model by this method in this environment."""
    for job, spec in _finished(services):
        same = spec.method == method and spec.environment == environment and _base(spec.agent.model) == _base(model)
        times = _times(services, job) if same else None
        steps = _number(job, "steps")
        if times is None or not steps:
            continue
        settings = spec.config.model_dump(include={"group_size", "tasks_per_step", "updates_per_rollout"})
        rollouts = steps / settings["updates_per_rollout"]
        episodes = rollouts * settings["group_size"] * settings["tasks_per_step"]
        return OnlineStep(job.id, times.start_s, times.training_s / episodes, job.metrics.get("peak_memory_mb"))
    return None


def _kind(config: TrainingConfig) -> tuple[bool, str | None, str, int]:
    """Return what trainings must share for their time and memory to be compared."""
    return config.lora is None, config.quantization, config.optimizer, config.processes


class _Took(NamedTuple):
    job_id: str
    rate: float
    start_s: float
    memory_ratio: float


class _Times(NamedTuple):
    start_s: float
    training_s: float


def _finished(services: Services) -> Iterator[tuple[Job, TrainSpec]]:
    for job in services.store.jobs.page(status=JobStatus.SUCCEEDED, kind="train", limit=_LOOKED_AT).items:
        if isinstance(job.spec, TrainSpec) and job.attempt == 1 and job.resumed_from is None:
            yield job, job.spec


def _base(model: ModelRef) -> tuple[str, str]:
    # An installation may have moved since; there is one embedded model.
    return model.source, "" if model.source == "starter" else model.path


def _took(services: Services, job: Job, spec: TrainSpec, device: Device) -> _Took | None:
    facts, times = read_model(spec.agent.model), _times(services, job)
    tokens, steps, rows = (_number(job, name) for name in ("tokens", "steps", "rows"))
    peak = job.metrics.get("peak_memory_mb")
    if isinstance(facts, str) or times is None or not (tokens and steps and rows and peak):
        return None
    work = _work_of(spec.config, job, facts, tokens, steps, rows)
    modelled = sum(memory_parts(facts, spec.config, device, work.largest_pass).values())
    return _Took(job.id, operations(facts, spec.config, work) / times.training_s, times.start_s, peak / modelled)


def _work_of(
    config: TrainingConfig, job: Job, facts: ModelFacts, tokens: float, steps: float, rows: float
) -> TrainingWork:
    """Return the work of a finished job from its report."""
    supervised, saved = _number(job, "supervised_tokens"), max(0.0, job.metrics.get("sharing_saved") or 0.0)
    trained_rows = max(1.0, min(config.epochs * rows, steps * config.batch_size))
    computed = tokens * (1.0 - saved) / steps
    row_tokens = min(tokens / trained_rows, facts.context_tokens or tokens)
    return TrainingWork(
        steps=round(steps),
        tokens=tokens,
        row_tokens=row_tokens,
        shared_share=saved,
        trained_share=supervised / tokens,
        largest_pass=PassSize(min(float(config.batch_tokens), computed), row_tokens),
        forward_tokens=0.0,
    )


def _number(job: Job, name: str) -> float:
    """A count of the job's report; 0 where it has none."""
    value = job.result.report.get(name) if job.result else None
    return float(value) if isinstance(value, int | float) else 0.0


def _times(services: Services, job: Job) -> _Times | None:
    phases = {event.name: event.time for event in services.store.jobs.events(job.id, type="phase")}
    if job.started_at is None or job.ended_at is None or not {"training", "saving"} <= phases.keys():
        return None
    training = (phases["saving"] - phases["training"]).total_seconds()
    whole = (job.ended_at - job.started_at).total_seconds()
    return _Times(whole - training, training) if training > 0 else None
