"""What a plan would take: measured by earlier jobs where there are such, else by the model of cost."""

from __future__ import annotations

from typing import NamedTuple

from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.hyperparameters.methods import DistillConfig, DPOConfig, GRPOConfig, PPOConfig, TrainingConfig
from quintain.records.jobs.plan import Blocker, Estimate
from quintain.tools.services import Services
from quintain.tools.training.methods import EVOLVE
from quintain.tools.training.planning.cost import disk_mb, memory_parts, operations, seconds, threads_of
from quintain.tools.training.planning.dataset_size import CHARACTERS_A_TOKEN, DataFacts
from quintain.tools.training.planning.device import Device, free_disk_mb, has_bf16, matmul_flops, slowdown
from quintain.tools.training.planning.earlier_jobs import Measured, measured_online
from quintain.tools.training.planning.model_files import ModelFacts
from quintain.tools.training.planning.settings import largest_pass, planned_steps, work_of

_BUSY = 1.5
"""Slowdown from which the estimate mentions it."""


class EstimateRequest(NamedTuple):
    """What is planned."""

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
        free = f"{result.available_memory_mb:.0f} MiB"
        place = f"{free} were stated" if result.memory_is_stated else f"the {result.device} has {free} free"
        found.append(
            Blocker(
                code="out_of_memory",
                message=f"it needs about {result.memory_mb:.0f} MiB and {place}",
                remedy="choose a smaller model, lora with a lower rank, a smaller max_length or batch_tokens, or another machine",
            )
        )
    if result.disk_mb and result.available_disk_mb is not None and result.disk_mb > result.available_disk_mb:
        found.append(
            Blocker(
                code="no_disk",
                message=f"it writes about {result.disk_mb:.0f} MiB and the home folder has {result.available_disk_mb:.0f} MiB left",
                remedy="free space there, set keep_checkpoints to 1, or train adapters (lora)",
            )
        )
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
    counted, name = data.counted, (asked.agent.id or asked.agent.name) if asked.agent else "..."
    steps = planned_steps(asked.method, asked.config, data.rows)
    result = result.model_copy(update={"steps": steps, "tokens": counted.tokens if counted else None})
    if counted is None:
        result = result.model_copy(update={"tokens_range": data.tokens_range})
        unknown["tokens"] = Hint(call("preview_dataset", dataset_id=asked.dataset_id, model=name), " counts them")
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
            "this machine has no earlier training of this kind, and the rate cannot be measured before one: start one with "
            "max_steps=2, then plan again"
        )
        return result
    if counted is not None:
        return result.model_copy(update={"duration_s": _duration(asked, asked.model, data, counted.tokens, rate)})
    low, high = (_duration(asked, asked.model, data, tokens, rate) for tokens in data.tokens_range)
    unknown["duration_s"] = unknown["tokens"]
    return result.model_copy(update={"duration_range_s": (low, high)})


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
        f"No such job has run here yet: the duration is by a model of cost and {rate / 1e9:.0f} GFLOP/s, measured now."
    )
    if (busy := slowdown(asked.device)) >= _BUSY:
        reasons.append(f"The processors are busy, so its start is reckoned to take {busy:.1f} times as long as alone.")
    return rate


def _acting(
    services: Services, result: Estimate, asked: EstimateRequest, unknown: dict[str, Hint], reasons: list[str]
) -> Estimate:
    """A method that acts: how long its episodes are nobody knows before one has run."""
    unknown.setdefault("memory_mb", Hint("the caches of episodes come on top: the first run shows how much"))
    remedy = Hint(
        "the duration of episodes is unknown: start it with fewer rounds (rollouts=1, or iterations=1), then plan again"
    )
    config = asked.config
    if asked.method == EVOLVE or not isinstance(config, DistillConfig | DPOConfig | GRPOConfig | PPOConfig):
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
