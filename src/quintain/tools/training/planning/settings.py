"""Settings of a plan: the defaults of the method, adapted to model, data and memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from quintain.records.hyperparameters.learning_rates import default_rate
from quintain.records.hyperparameters.methods import (
    ACTING_ONLY,
    ActingConfig,
    LoraConfig,
    OnlineConfig,
    SFTConfig,
    TrainingConfig,
)
from quintain.records.jobs.evolve import EvolveConfig
from quintain.records.jobs.plan import Blocker, Branch
from quintain.records.jobs.recipe import TrainStage
from quintain.records.wording import counted, size_text
from quintain.tools.training.methods import EVOLVE, check_evolution, check_settings, merge_settings
from quintain.tools.training.planning.cost import PassSize, TrainingWork, memory_parts
from quintain.tools.training.planning.dataset_size import DataFacts
from quintain.tools.training.planning.device import Device
from quintain.tools.training.planning.largest_model import largest_model
from quintain.tools.training.planning.model_files import ModelFacts

ADAPTERS_FROM = 100_000_000
"""Number of parameters from which on adapters are trained instead of all weights."""

_FEWEST_STEPS = 20
_SMALLEST_BATCH = {
    "kto": (8, "the pairs of a step are too few to estimate kto's KL term"),
    "retriever": (16, "the tools of a step are too few to tell the needed one from"),
}
"""Method -> fewest examples in a step, and what fewer would be too few for.

The mismatched pairs of a step estimate KTO's KL term. TRL's page on its KTOTrainer asks for at least 4 in the batch of that
estimate and 16 to 128 in an optimizer step. Here both are one batch, and 8 is between them. Retrievers trained on 60 calls had
an MRR of 0.08 with 4 in a step, 0.10 with 8, and 0.13 with 16 and 32 (three epochs, two seeds).
"""
_FEWEST_BATCH_TOKENS = 512
_ROOM = 0.9
"""Share of the free memory that a plan may take."""

_SHOWN = ("epochs", "batch_size", "batch_tokens", "learning_rate", "lora")
_SHOWN_ONLINE = (
    "rollouts",
    "tasks_per_step",
    "group_size",
    "updates_per_rollout",
    "batch_tokens",
    "learning_rate",
    "lora",
)
_SHOWN_OF_EVOLVE = ("iterations", "tasks_per_iteration", "attempts", "train", "training")
"""Settings that a plan always lists; others only where they differ from the default."""

_REFERENCED = frozenset({"dpo", "kto", "ranking"})


class PlanSettings(NamedTuple):
    """Settings of a plan."""

    hyperparameters: dict[str, Any]
    """In the form that start_training takes."""
    config: TrainingConfig
    """The same, validated; for evolve, the settings of the training in each round."""
    branches: tuple[Branch, ...] = ()
    """Decisions that depend on model, data and memory."""
    rate: str = ""
    """A sentence on the learning rate; empty if the request set it."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the settings are as they are, in sentences."""
        return (*(branch.answer for branch in self.branches), *([self.rate] if self.rate else []))


def settle(
    method: str,
    settings: Mapping[str, Any],
    *,
    model: ModelFacts | None,
    data: DataFacts | None,
    device: Device,
    acts: bool = False,
    memory_ratio: float = 1.0,
) -> PlanSettings:
    """Settle the settings of a method; settings of the request are kept.

    `memory_ratio` is the measured divided by the modelled memory of earlier jobs.
    """
    if method == EVOLVE:
        return _settle_evolution(settings, model)
    if settings.get("quantization") is not None:
        settings = {"lora": {}, **settings}  # quantised weights carry adapters
    changes, branches = _by_model(model, settings)
    if data is not None:
        more, more_branches = _by_data(method, data, settings)
        changes, branches = {**changes, **more}, [*branches, *more_branches]
    config, described = check_settings(method, merge_settings(changes, settings)), ""
    if model is not None and device.memory_mb is not None:
        config, fitted = _fitted(method, config, settings, model, data, device, memory_ratio)
        branches += [_largest(config, settings, device), fitted]
    if model is not None and config.learning_rate is None:
        rate = default_rate(method, model.hidden, adapters=config.lora is not None)
        config = config.model_copy(update={"learning_rate": rate.value})
        described = f"Learning rate {rate.value:g}: {rate.rule}."
    return PlanSettings(_shown(config, acts=acts), config, tuple(branches), described)


def work_of(
    method: str, config: TrainingConfig, data: DataFacts, model: ModelFacts | None, tokens: float
) -> TrainingWork:
    """Return the work of a training on a dataset whose training split has `tokens` tokens."""
    counts = data.counted
    rows = max(1, data.examples)
    steps = planned_steps(method, config, rows)
    room = float(config.max_length or (model.context_tokens if model else None) or tokens or 1)
    row_tokens = min(room, tokens / max(1.0, counts.token_rows if counts else data.runs))
    longest = min(room, float(counts.longest)) if counts else row_tokens
    shared = data.shared_share if config.share_prefixes else 0.0
    step_tokens = tokens / rows * min(config.batch_size, rows) * (1.0 - shared)
    referenced = method in _REFERENCED or config.kl_stop is not None or getattr(config, "kl_coefficient", 0) > 0
    held = counts.validation_tokens if counts else tokens * data.validation_rows / rows
    return TrainingWork(
        steps=steps,
        tokens=tokens / rows * min(steps * config.batch_size, rows * config.epochs),
        row_tokens=row_tokens,
        shared_share=shared,
        trained_share=counts.trained_tokens / max(1, counts.tokens) if counts else data.agent_share,
        largest_pass=PassSize(max(longest, min(float(config.batch_tokens), step_tokens)), longest),
        forward_tokens=held * config.epochs + (tokens if referenced else 0.0),
        characters=float(data.characters),
    )


def planned_steps(method: str, config: TrainingConfig, rows: int, environment: str | None = None) -> int:
    """Count the optimizer steps of a training on `rows` rows, or online."""
    stage = TrainStage(label="planned", method=method, rows=rows, environment=environment, config=config)
    return stage.planned_steps


def fitting_batch(method: str, config: TrainingConfig, rows: int) -> int:
    """Return the batch size, halved until the epochs make at least 20 optimizer steps, or the method's smallest batch."""
    size, whole = config.batch_size, config.model_copy(update={"max_steps": None})
    bounds = (getattr(bound, "ge", 1) for bound in type(config).model_fields["batch_size"].metadata)
    smallest = max(_SMALLEST_BATCH.get(method, (1, ""))[0], *bounds, 1)
    while (
        size > smallest and planned_steps(method, whole.model_copy(update={"batch_size": size}), rows) < _FEWEST_STEPS
    ):
        size = max(smallest, size // 2)
    return size


def small_batch(config: TrainingConfig) -> list[Blocker]:
    """Return a blocker if a step has fewer examples than the method's estimates need."""
    smallest, why = _SMALLEST_BATCH.get(config.method, (1, ""))  # type: ignore[attr-defined]
    if config.batch_size >= smallest:
        return []
    message = f"batch_size is {config.batch_size}, and {why}"
    return [Blocker(code="small_batch", message=message, remedy=f"set batch_size to {smallest} or more")]


def idle_settings(config: TrainingConfig, *, acts: bool) -> list[Blocker]:
    """Return a blocker if settings have no effect on what the method learns from; they are accepted because files share them."""
    if not isinstance(config, ActingConfig):
        return []
    idle = [
        name for name in (("epochs", "batch_size") if acts else OnlineConfig.model_fields) if config.is_changed(name)
    ]
    if not idle:
        return []
    has, where = "have" if len(idle) > 1 else "has", "in an environment" if acts else "on a dataset"
    remedy = (
        "give rollouts, and tasks_per_step and group_size" if acts else "leave it out, or give `environment` instead"
    )
    return [Blocker(code="no_effect", message=f"{' and '.join(idle)} {has} no effect {where}", remedy=remedy)]


def early_end(method: str, config: TrainingConfig, rows: int, environment: str | None) -> list[Blocker]:
    """Return a blocker if a training ends before `max_steps`; other trainers repeat the rows until they reach it."""
    steps = planned_steps(method, config.model_copy(update={"max_steps": None}), rows, environment)
    if config.max_steps is None or steps >= config.max_steps:
        return []
    what, raised = ("the rollouts", "rollouts") if environment else (f"{config.epochs:g} epochs", "epochs")
    message = f"max_steps is {config.max_steps}, and {what} end after {counted(steps, 'optimizer step')}"
    return [Blocker(code="early_end", message=message, remedy=f"raise {raised} to train that long")]


def _by_model(model: ModelFacts | None, settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[Branch]]:
    """Choose between adapters and all weights by the size of the model."""
    if model is None or ("lora" in settings and model.adapter is None):
        return {}, []
    changes, size = dict[str, Any](), f"The model has {model.parameters / 1e6:.3g}M parameters"
    bound = f"{ADAPTERS_FROM / 1e6:.0f}M parameters"
    if model.adapter is not None:
        changes["lora"] = model.adapter.model_dump()
        answer = "The agent has an adapter, which is trained on with its own settings."
        other = "with lora null it is merged, and all weights are trained"
    elif model.parameters >= ADAPTERS_FROM:
        changes["lora"] = LoraConfig().model_dump()
        answer, other = f"{size}: adapters (LoRA) are enough for it.", f"below {bound}: all weights"
    else:
        answer, other = f"{size}, few enough to train all of them.", f"from {bound} on: adapters (LoRA)"
    return changes, [Branch(question="Adapters or all weights?", answer=answer, otherwise=other)]


def _by_data(method: str, data: DataFacts, settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[Branch]]:
    changes, branches = dict[str, Any](), list[Branch]()
    config = check_settings(method, settings)
    if "batch_size" not in settings and (size := fitting_batch(method, config, data.rows)) < config.batch_size:
        changes["batch_size"] = size
        usual = config.batch_size
        answer = f"{data.rows} rows make few optimizer steps, so a step takes {size} instead of {usual}."
        other = f"with rows for {_FEWEST_STEPS} steps or more: batch_size {usual}"
        branches.append(Branch(question="Are there enough rows?", answer=answer, otherwise=other))
    cut = data.counted.cut_rows if data.counted else 0
    if cut and isinstance(config, SFTConfig):
        changes["chunk"] = True
        answer = f"{cut} rows are longer than the model reads: `chunk` splits them at step borders."
        other = "with shorter rows, or a longer context: no `chunk`"
        branches.append(Branch(question="Do the rows fit into the context?", answer=answer, otherwise=other))
    return changes, branches


def _fitted(
    method: str,
    config: TrainingConfig,
    settings: Mapping[str, Any],
    model: ModelFacts,
    data: DataFacts | None,
    device: Device,
    ratio: float,
) -> tuple[TrainingConfig, Branch]:
    """Adapt the settings to the memory, least costly remedy first: adapters, smaller passes, gradient checkpointing."""
    remedies, room = dict[str, str](), _ROOM * (device.memory_mb or 0.0)

    def needs(one: TrainingConfig) -> float:
        return ratio * sum(memory_parts(model, one, device, largest_pass(method, one, data, model)).values())

    def remaining() -> list[tuple[str, Any, str]]:
        smaller = max(_FEWEST_BATCH_TOKENS, config.batch_tokens // 2)
        possible = [
            ("lora", config.lora or LoraConfig(), "adapters in place of all weights"),
            ("batch_tokens", smaller, f"passes of {smaller} tokens"),
            ("gradient_checkpointing", True, "activations computed twice"),
            *([("offload_activations", True, "activations in main memory")] if device.kind == "cuda" else []),
            *([("optimizer", "adamw_bf16", "weights, gradients and moments in bf16")] if _can_be_bf16(config) else []),
        ]
        return [one for one in possible if one[0] not in settings and getattr(config, one[0]) != one[1]]

    for _ in range(16):
        if needs(config) <= room:
            break
        if not (left := remaining()):
            break
        name, value, remedy = left[0]
        config = config.model_copy(update={name: value})
        remedies[name] = remedy
    answer = f"It needs about {size_text(needs(config) * 2**20)}, and {size_text(room * 2**20)} may be taken."
    other = f"with less memory: {', '.join(remedy for *_, remedy in remaining()) or 'a smaller model'}"
    if remedies:
        answer, other = (
            f"To fit into memory: {', '.join(remedies.values())}. {answer}",
            "with more memory: none of these",
        )
    return config, Branch(question="Does it fit into the memory?", answer=answer, otherwise=other)


def _largest(config: TrainingConfig, settings: Mapping[str, Any], device: Device) -> Branch:
    """Tell how large a model may be, with adapters and with all weights trained, in small passes unless others are asked for."""
    small = {"batch_tokens": _FEWEST_BATCH_TOKENS, "gradient_checkpointing": True}
    config = config.model_copy(update={name: value for name, value in small.items() if name not in settings})
    size = PassSize(config.batch_tokens, config.batch_tokens)

    def largest(**changes: Any) -> str:
        one = config.model_copy(update=changes)
        most = largest_model(
            lambda model: sum(memory_parts(model, one, device, size).values()), _ROOM * (device.memory_mb or 0.0)
        )
        return "none" if most is None else f"about {most / 1e9:.2g}B parameters"

    passes = f"passes of {config.batch_tokens} tokens" + (", computed twice" if config.gradient_checkpointing else "")
    adapters, whole = largest(lora=config.lora or LoraConfig()), largest(lora=None, quantization=None)
    return Branch(
        question="How large may a model be?",
        answer=f"The largest model of usual shape that fits by adapters, in {passes} (longer rows take more): {adapters}.",
        otherwise=f"with all weights trained: {whole}",
    )


def _can_be_bf16(config: TrainingConfig) -> bool:
    """Whether all weights can be trained in bf16 with the other settings."""
    alone = config.processes == 1 and config.sharding == "none"
    return alone and config.lora is None and config.precision in ("auto", "bf16")


def largest_pass(method: str, config: TrainingConfig, data: DataFacts | None, model: ModelFacts) -> PassSize:
    """Return the size of the largest forward pass; of `batch_tokens` where the data is unknown."""
    if data is None:
        return PassSize(config.batch_tokens, min(config.batch_tokens, model.context_tokens or config.batch_tokens))
    tokens = data.counted.tokens if data.counted else data.tokens_range[1]
    return work_of(method, config, data, model, float(tokens)).largest_pass


def _settle_evolution(settings: Mapping[str, Any], model: ModelFacts | None) -> PlanSettings:
    changes, branches = _by_model(model, settings.get("training") or {})
    config, training = check_evolution(merge_settings({"training": changes} if changes else {}, settings))
    described = ""
    if model is not None and training.learning_rate is None:
        rate = default_rate(config.train, model.hidden, adapters=training.lora is not None)
        described = f"Learning rate {rate.value:g} of each round: {rate.rule}."
    return PlanSettings(_differing(config, _SHOWN_OF_EVOLVE), training, tuple(branches), described)


def _shown(config: TrainingConfig, *, acts: bool) -> dict[str, Any]:
    online = acts and isinstance(config, OnlineConfig)
    shown = _differing(config, _SHOWN_ONLINE if online else _SHOWN)
    return shown if online else {name: value for name, value in shown.items() if name not in ACTING_ONLY}


def _differing(config: TrainingConfig | EvolveConfig, always: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings to show: `always`, and those that differ from the default."""
    fields = type(config).model_fields
    named = [*always, *(name for name in fields if getattr(config, name) != fields[name].default)]
    shown = config.model_dump(mode="json", include=set(named) - {"method"})
    return {name: shown[name] for name in dict.fromkeys(named) if name in shown}
