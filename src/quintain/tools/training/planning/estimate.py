"""Time and memory of a plan: measured by earlier jobs where there are such, else by the model of cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from quintain.errors import Conflict
from quintain.next_step import Hint, ToolCall, call
from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters.methods import ActingConfig, TrainingConfig
from quintain.records.jobs.job import Job, JobStatus, TrainSpec
from quintain.records.jobs.plan import Blocker, Estimate
from quintain.records.wording import size_text
from quintain.tools.services import Services
from quintain.tools.training.methods import EVOLVE
from quintain.tools.training.planning.cost import (
    PassSize,
    TrainingWork,
    disk_mb,
    memory_parts,
    operations,
    seconds,
    threads_of,
)
from quintain.tools.training.planning.dataset_size import CHARACTERS_A_TOKEN, DataFacts
from quintain.tools.training.planning.device import Device, free_disk_mb, has_bf16, matmul_flops, slowdown
from quintain.tools.training.planning.model_files import ModelFacts, read_model
from quintain.tools.training.planning.settings import largest_pass, planned_steps, work_of

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
    try:
        known = services.store.jobs.page(status=JobStatus.SUCCEEDED, kind="train", limit=_LOOKED_AT).items
    except Conflict:  # a newer version wrote one; without it a training starts all the same
        return
    for job in known:
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
    # A training that acts or plays held-out tasks goes on under the same name after each; its beginning counts.
    phases = {event.name: event.time for event in reversed(services.store.jobs.events(job.id, type="phase"))}
    if job.started_at is None or job.ended_at is None or not {"training", "saving"} <= phases.keys():
        return None
    training = (phases["saving"] - phases["training"]).total_seconds()
    whole = (job.ended_at - job.started_at).total_seconds()
    return _Times(whole - training, training) if training > 0 else None


_BUSY = 1.5
"""Slowdown from which the estimate mentions it."""


class EstimateRequest(NamedTuple):
    """The planned training."""

    method: str
    config: TrainingConfig
    agent: Agent | None
    environment: str | None
    dataset_id: str | None
    data: DataFacts | None
    model: ModelFacts | str
    """Its sizes, or why they are not known."""
    device: Device
    earlier: Measured | None


class ExplainedEstimate(NamedTuple):
    """An estimate with the sentences that explain it."""

    estimate: Estimate
    reasons: tuple[str, ...]


def estimate(services: Services, asked: EstimateRequest) -> ExplainedEstimate:
    """Estimate memory, disk and duration; unknown figures are null, and `unknown` names the call that measures them."""
    unknown, reasons = dict[str, Hint](), list[str]()
    result = size_estimate(services, asked)
    if isinstance(asked.model, str):
        unknown |= dict.fromkeys(("memory_mb", "duration_s", "disk_mb"), Hint(asked.model))
    if asked.environment is not None:
        result = _acting(services, result, asked, unknown, reasons)
    elif asked.data is None:
        unknown["duration_s"] = Hint("there is nothing to learn from yet: see `blockers`")
    else:
        result = _on_data(result, asked, asked.data, unknown, reasons)
    if asked.device.is_stated:
        reasons.append("Memory is compared with what was stated; duration and free disk are those of this machine.")
    if asked.earlier is not None:
        which = "of this model" if asked.earlier.same_model else "of other models"
        reasons.append(f"Earlier trainings {which} ({', '.join(asked.earlier.jobs)}) went into the estimate.")
    return ExplainedEstimate(result.model_copy(update={"unknown": unknown}), tuple(reasons))


def size_estimate(services: Services, asked: EstimateRequest) -> Estimate:
    """Estimate memory and disk, without a duration; null where the model's sizes are unknown."""
    result = Estimate(
        device=asked.device.kind,
        available_memory_mb=asked.device.memory_mb if asked.device.is_stated else _known(asked.device.memory_mb),
        memory_is_stated=asked.device.is_stated,
        available_disk_mb=_known(free_disk_mb(services.settings.home)),
    )
    return result if isinstance(asked.model, str) else _with_sizes(result, asked, asked.model)


def shortages(result: Estimate) -> list[Blocker]:
    """What does not fit."""
    found = list[Blocker]()
    if result.memory_mb and result.available_memory_mb is not None and result.memory_mb > result.available_memory_mb:
        free = size_text(result.available_memory_mb * 2**20)
        place = f"{free} were stated" if result.memory_is_stated else f"the {result.device} has {free} free"
        found.append(
            Blocker(
                code="out_of_memory",
                message=f"it needs about {size_text(result.memory_mb * 2**20)} and {place}",
                remedy="choose a smaller model, lora with a lower rank, a smaller max_length or batch_tokens, or another machine",
            )
        )
    if result.disk_mb and result.available_disk_mb is not None and result.disk_mb > result.available_disk_mb:
        written, left = (size_text(mb * 2**20) for mb in (result.disk_mb, result.available_disk_mb))
        message = f"it writes about {written} and the home folder has {left} left"
        remedy = "free space there, set keep_checkpoints to 1, or train adapters (lora)"
        found.append(Blocker(code="no_disk", message=message, remedy=remedy))
    return found


def slow_format(precision: str, device: Device) -> list[Blocker]:
    """Return a blocker if bf16 is set for a CPU that has no instructions for it."""
    if precision != "bf16" or device.kind != "cpu" or has_bf16() is not False:
        return []
    return [
        Blocker(
            code="no_bf16",
            message="precision is bf16, and this processor has no instructions for it, so it is slower than fp32",
            remedy="set precision to auto or fp32",
        )
    ]


def long_rows(config: TrainingConfig, model: ModelFacts | str) -> list[Blocker]:
    """Return a blocker if rows may be longer than the model's context, where the job cuts them."""
    context = None if isinstance(model, str) else model.context_tokens
    if context is None or config.max_length is None or config.max_length <= context:
        return []
    return [
        Blocker(
            code="beyond_context",
            message=f"max_length is {config.max_length} and the model's context has {context} tokens, where rows are cut",
            remedy=f"leave max_length out, or set it to {context} or less; `chunk` splits longer runs where the method has it",
        )
    ]


def _with_sizes(result: Estimate, asked: EstimateRequest, model: ModelFacts) -> Estimate:
    size = largest_pass(asked.method, asked.config, asked.data, model)
    ratio = asked.earlier.memory_ratio if asked.earlier and asked.earlier.same_model else 1.0
    parts = {name: mb * ratio for name, mb in memory_parts(model, asked.config, asked.device, size).items()}
    return result.model_copy(
        update={
            "memory_mb": _rounded(sum(parts.values())),
            "memory_parts_mb": {name: _rounded(mb) for name, mb in parts.items()},
            "disk_mb": _rounded(disk_mb(model, asked.config)),
            "measured_by": asked.earlier.jobs if asked.earlier else (),
        }
    )


def _on_data(
    result: Estimate, asked: EstimateRequest, data: DataFacts, unknown: dict[str, Hint], reasons: list[str]
) -> Estimate:
    counted, name = data.counted, asked.agent.id_or_name if asked.agent else "..."
    steps = planned_steps(asked.method, asked.config, data.examples)
    result = result.model_copy(update={"steps": steps, "tokens": counted.tokens if counted else None})
    if counted is None:
        result = result.model_copy(update={"tokens_range": data.tokens_range})
        preview = call("preview_dataset", dataset_id=asked.dataset_id, model=name, hyperparameters=data.sight or None)
        unknown["tokens"] = Hint(preview, " counts them")
        fewest, most = CHARACTERS_A_TOKEN
        reasons.append(
            f"Nobody has counted its tokens: {data.characters:,} characters are taken for {data.tokens_range[0]:,} to "
            f"{data.tokens_range[1]:,} tokens ({most:g} to {fewest:g} characters each)."
        )
    rate = None if isinstance(asked.model, str) else _rate(asked, asked.model, reasons)
    if isinstance(asked.model, str):
        return result
    if rate is None:
        unknown["duration_s"] = Hint(
            "this machine has no earlier training of this kind, and the rate cannot be measured before one: start a short one, ",
            _short_training(asked, max_steps=2),
            ", then plan again",
        )
        return result
    if counted is not None:
        return result.model_copy(update={"duration_s": _duration(asked, asked.model, data, counted.tokens, rate)})
    low, high = (_duration(asked, asked.model, data, tokens, rate) for tokens in data.tokens_range)
    unknown["duration_s"] = unknown["tokens"]
    return result.model_copy(update={"duration_range_s": (low, high)})


def _short_training(asked: EstimateRequest, **fewer: int) -> ToolCall:
    agent = ... if asked.agent is None else asked.agent.id_or_name
    where = {"dataset_id": asked.dataset_id, "environment": asked.environment}
    if asked.method != EVOLVE:
        fewer = asked.config.model_dump(mode="json", exclude_defaults=True, exclude={"method"}) | fewer
    return call("start_training", method=asked.method, model=agent, **where, hyperparameters=fewer)


def _duration(asked: EstimateRequest, model: ModelFacts, data: DataFacts, tokens: float, rate: float) -> float:
    work = work_of(asked.method, asked.config, data, model, tokens)
    if asked.earlier is not None:
        return _rounded(asked.earlier.start_s + operations(model, asked.config, work) / rate)
    return _rounded(seconds(model, asked.config, work, rate, slowdown(asked.device)))


def _rate(asked: EstimateRequest, model: ModelFacts, reasons: list[str]) -> float | None:
    """Operations a second: as earlier jobs had, else by this machine's matrix products; None where neither is known."""
    if asked.earlier is not None:
        return asked.earlier.rate
    if asked.device.kind != "cpu" or asked.config.processes > 1:
        return None
    rate = matmul_flops() * threads_of(model, asked.device) / asked.device.threads
    reasons.append(
        f"No such job has run here yet: the duration is estimated from its operations at {rate / 1e9:.0f} GFLOP/s, measured now."
    )
    if (busy := slowdown(asked.device)) >= _BUSY:
        reasons.append(f"The processors are busy: its start may take {busy:.1f} times as long as on an idle machine.")
    return rate


def _acting(
    services: Services, result: Estimate, asked: EstimateRequest, unknown: dict[str, Hint], reasons: list[str]
) -> Estimate:
    """A method that acts: how long its episodes are nobody knows before one has run."""
    unknown.setdefault("memory_mb", Hint("the caches of episodes come on top: the first run shows how much"))
    short = _short_training(asked, **({"iterations": 1} if asked.method == EVOLVE else {"rollouts": 1}))
    remedy = Hint("the duration of episodes is unknown: start it with fewer rounds, ", short, ", then plan again")
    config = asked.config
    if asked.method == EVOLVE or not isinstance(config, ActingConfig):
        unknown["duration_s"] = remedy
        return result
    result = result.model_copy(update={"steps": planned_steps(asked.method, config, 0, asked.environment)})
    model = asked.agent.model if asked.agent else None
    found = measured_online(services, model, asked.method, asked.environment or "") if model else None
    if found is None or result.steps is None:
        unknown["duration_s"] = remedy
        return result
    unknown.pop("memory_mb", None)
    episodes = result.steps / config.updates_per_rollout * config.group_size * config.tasks_per_step
    reasons.append(f"{found.job_id} took {found.episode_s:.2g} s an episode here, and {episodes:.0f} are planned.")
    return result.model_copy(
        update={
            "duration_s": _rounded(found.start_s + episodes * found.episode_s),
            "memory_mb": _known(found.peak_memory_mb),
            "memory_parts_mb": {},
            "measured_by": (found.job_id,),
        }
    )


def _rounded(value: float) -> float:
    """To three significant digits: no estimate is better."""
    return float(f"{value:.3g}")


def _known(value: float | None) -> float | None:
    return None if value is None else _rounded(value)
