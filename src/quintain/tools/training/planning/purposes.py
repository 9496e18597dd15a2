"""Purposes of a training, as a closed set that a caller chooses from. No text is interpreted."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from quintain.errors import InvalidInput
from quintain.records.hyperparameters.methods import LoraConfig, ReplayConfig

Purpose = Literal[
    "imitate",
    "prefer",
    "learn_from_marks",
    "improve_by_acting",
    "score_runs",
    "label_steps",
    "find_tools",
    "absorb_text",
    "short_answers",
    "measure_only",
    "keep_skills",
    "fit_memory",
    "finish_sooner",
]


class Meaning(NamedTuple):
    """A purpose: its sentence and the methods that serve it, the usual one first."""

    sentence: str
    methods: tuple[str, ...] = ()
    is_listed: bool = True
    """Whether the list of tools has the sentence; False where the name says as much."""


PURPOSES: dict[Purpose, Meaning] = {
    "imitate": Meaning("do what good runs did", ("sft", "bc")),
    "prefer": Meaning("take the better of two runs of a task", ("dpo", "orpo", "simpo", "ranking")),
    "learn_from_marks": Meaning("from runs marked good or bad, without pairs", ("kto",)),
    "improve_by_acting": Meaning("try tasks, do more of what worked", ("grpo", "evolve", "dpo", "ppo")),
    "score_runs": Meaning("a reward model for whole runs", ("reward",)),
    "label_steps": Meaning("a process reward model for steps", ("prm",)),
    "find_tools": Meaning("a retriever of tools", ("retriever",)),
    "absorb_text": Meaning("learn from plain texts", ("pretrain",)),
    "short_answers": Meaning("succeed in fewer words", ("grpo", "evolve"), is_listed=False),
    "measure_only": Meaning("measure an agent, train nothing", is_listed=False),
    "keep_skills": Meaning("forget as little as possible of what the model can do", is_listed=False),
    "fit_memory": Meaning("train on a machine with little memory", is_listed=False),
    "finish_sooner": Meaning("spend less time, at some cost in quality", is_listed=False),
}
"""The first nine choose a method. The last three are constraints that change settings."""

REWARDS: dict[Purpose, dict[str, Any]] = {"short_answers": {"parts": {"outcome": 1, "length": 1}, "combine": "product"}}
"""Purpose -> the reward that serves it."""

Goal = Annotated[
    tuple[Purpose, ...] | None,
    Field(
        max_length=len(PURPOSES),
        description="One or several. "
        + "; ".join(f"{name}: {meaning.sentence}" for name, meaning in PURPOSES.items() if meaning.is_listed)
        + ".",
    ),
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
]


class Constraint(NamedTuple):
    """Settings that serve a constraint, and why."""

    settings: dict[str, Any]
    reason: str


def methods_for(goal: tuple[Purpose, ...]) -> tuple[str, ...]:
    """Return the methods that the purposes ask for, the usual one first; empty where they name constraints alone.

    Several purposes with methods are stages of one plan. The first one is planned; see `later_stages`.
    """
    return next((PURPOSES[purpose].methods for purpose in goal if PURPOSES[purpose].methods), ())


def later_stages(goal: tuple[Purpose, ...]) -> tuple[Purpose, ...]:
    """Return the purposes with methods after the first, which need trainings of their own."""
    return tuple(purpose for purpose in dict.fromkeys(goal) if PURPOSES[purpose].methods)[1:]


def require_combinable(goal: tuple[Purpose, ...]) -> None:
    """Refuse purposes that exclude each other.

    Raises:
        InvalidInput: `measure_only` beside another purpose.
    """
    if "measure_only" in goal and len(set(goal)) > 1:
        others = ", ".join(purpose for purpose in goal if purpose != "measure_only")
        raise InvalidInput(
            f"goal: expected 'measure_only' alone or purposes of a training, got 'measure_only' with {others}; plan them apart"
        )


def constraints(goal: tuple[Purpose, ...], method: str) -> list[Constraint]:
    """Return the settings by which a method serves the constraints among the purposes.

    LoRA learns less and forgets less than training all weights (Biderman et al. 2024, arXiv 2405.09673).
    """
    lora = {"lora": LoraConfig().model_dump()}
    found = list[Constraint]()
    if "keep_skills" in goal:
        found.append(Constraint(lora, "keep_skills: adapters forget less than all weights."))
        if method in ("sft", "bc"):
            replay = {"replay": ReplayConfig().model_dump()}
            found.append(Constraint(replay, "keep_skills: `replay` mixes in examples of earlier trainings."))
        if method in ("grpo", "ppo"):
            found.append(Constraint({"kl_coefficient": 0.01}, "keep_skills: a KL term pulls to the start model."))
        if method in ("dpo", "kto", "ranking"):
            found.append(Constraint({}, f"keep_skills: the reference model of {method} already limits the change."))
    if "fit_memory" in goal:
        small = {**lora, "gradient_checkpointing": True}
        found.append(
            Constraint(
                small, "fit_memory: adapters, and activations computed twice; `quantization` also packs the base."
            )
        )
    if "finish_sooner" in goal:
        once = (
            {"rollouts": 5}
            if method in ("grpo", "ppo")
            else {"iterations": 1}
            if method == "evolve"
            else {"epochs": 1.0}
        )
        found.append(
            Constraint(once, f"finish_sooner: {', '.join(f'{name} {value:g}' for name, value in once.items())}.")
        )
    return found
