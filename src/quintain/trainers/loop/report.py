"""The report of a training run, and its warnings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from quintain.errors import TrainingFailed
from quintain.records.hyperparameters.methods import GRPOConfig, KTOConfig, PPOConfig, RewardConfig, TrainingConfig
from quintain.records.record import Record
from quintain.trainers.data.example_batch import reasons, remedies_for
from quintain.trainers.data.example_selection import Selection
from quintain.trainers.data.examples import ExampleBatch
from quintain.trainers.data.streams import Example
from quintain.trainers.engine.rotary import Rotary
from quintain.trainers.loop.loop import PARTS, Run
from quintain.trainers.loop.precision import Format
from quintain.trainers.rollouts.constraint import constraint_of
from quintain.trainers.rollouts.source import RolloutSource

_MANY_STEPS = 20
"""From this number of steps on, the lowest loss of half of them does not depend on single batches."""
_CLEARLY_HIGHER = 0.1
"""Nats a token, where the first loss is near 0."""


class TrainingReport(Record):
    """Report of a training run."""

    method: str
    steps: int
    planned_steps: int
    first_loss: float | None = Field(description="Loss of the first step; nats a token for SFT.")
    final_loss: float | None = Field(description="Loss of the last step.")
    validation_loss: float | None = Field(default=None, description="Loss on the validation split, newest.")
    best_validation_loss: float | None = None
    held_out: dict[str, tuple[float, float]] = Field(
        default_factory=dict,
        description="How well the labels of the validation split are met, by metric: sum and count; of the final weights.",
    )
    best_step: int | None = Field(default=None, description="Step whose weights were kept, with a validation split.")
    ended_early: str | None = None
    learning_rate: float | None = Field(default=None, description="Peak learning rate.")
    learning_rate_rule: str = Field(
        default="", description="Rule that gave it: as requested, or method, width, adapters."
    )
    supervised_tokens: int = Field(description="Tokens in the loss, summed over the steps.")
    tokens: int = Field(description="Tokens of the rows, shared prefixes counted in each, padding in none.")
    rows: int = Field(description="Token rows of the training examples; online, of all rollouts.")
    examples: int = Field(description="Training examples: runs, pairs or groups; online, of all rollouts.")
    examples_read: int | None = Field(
        default=None, description="At most so many of them were in a step; fewer than all with few steps. Null: online."
    )
    dropped: dict[str, int] = Field(default_factory=dict, description="Reason -> dataset rows that gave no example.")
    left_out_members: dict[str, int] = Field(default_factory=dict, description="Reason -> runs left out of groups.")
    unweighted_runs: dict[str, int] = Field(
        default_factory=dict,
        description="Reason -> runs whose steps all weigh alike, with step_weighting or step_level.",
    )
    truncated_turns: int = Field(default=0, description="Agent turns that fell off the end of rows that were too long.")
    empty_steps: int = Field(default=0, description="Steps without a usable example, such as groups of equal rewards.")
    replayed: int = Field(default=0, description="Examples that came from the replay buffer.")
    engine: str = Field(description="`packed` or `padded`, and why.")
    precision: str = Field(description="Number format of forward and backward passes.")
    precision_rule: str = Field(default="", description="Why it was chosen: as requested, or a measurement.")
    matmul_gflops: float | None = Field(default=None, description="Measured matmul rate of this machine.")
    warnings: tuple[str, ...] = ()
    resumed_from_step: int | None = Field(
        default=None, description="Step of the checkpoint that this attempt began with."
    )
    constraint: dict[str, float | None] | None = Field(
        default=None, description="Limit on the mean cost; mean cost and multiplier of the last rollout."
    )
    stopped: bool = Field(default=False, description="Asked to stop: there is a checkpoint and no final model.")


def left_out(batch: ExampleBatch, n_rows: int, config: TrainingConfig, max_length: int, split: str = "") -> list[str]:
    """Return warnings about data that is left out; `split` names data other than the training split."""
    sentences, where = [], f" of the {split} split" if split else ""
    if batch.dropped:
        sentences.append(
            f"{batch.dropped.total()} of {n_rows} dataset rows{where} give no example: {reasons(batch.dropped)}"
        )
    if batch.left_out_members:
        n = batch.left_out_members.total()
        sentences.append(f"{n} runs{where} were left out of their groups: {reasons(batch.left_out_members)}")
    if batch.left_out_calls:
        n = batch.left_out_calls.total()
        sentences.append(f"{n} calls{where} teach a retriever nothing: {reasons(batch.left_out_calls)}")
    if batch.unweighted:
        remedy = "score steps by what tells them apart (rules, a judge with mode steps, montecarlo) and export with it"
        sentences.append(f"{_unweighted(batch, where)}; {remedy}")
    if batch.truncated_turns:
        sentences.append(f"{batch.truncated_turns} agent turns{where} {_truncation(config, max_length)}")
    return sentences


def _unweighted(batch: ExampleBatch, where: str = "") -> str:
    return (
        f"the steps of {batch.unweighted.total()} runs{where} weigh alike, because their values rank none of them "
        f"({reasons(batch.unweighted)})"
    )


def _truncation(config: TrainingConfig, max_length: int) -> str:
    """Return why agent turns are left out, and the remedy; SFT and its kin can have `chunk`."""
    longer = "raise max_length where the model's context allows it"
    chunk = getattr(config, "chunk", None)
    if chunk:
        return f"do not fit into {max_length} tokens even in a chunk of their own, with the opening of the run; {longer}, or shorten them"
    split = ", set chunk" if chunk is not None else ""
    return f"fell off the end of rows longer than {max_length} tokens; {longer}{split}, or shorten observations"


BALANCED = (1.0, 4 / 3)
"""Bounds of n_D lambda_D / (n_U lambda_U), good by bad examples with their weights (arXiv 2402.01306; TRL's KTOTrainer)."""


def label_warnings(config: TrainingConfig, examples: Sequence[Example], held_out: Sequence[Example]) -> list[str]:
    """Return warnings about KTO's labels: all of one kind, in a split, or outweighed beyond `BALANCED`."""
    if not isinstance(config, KTOConfig) or not examples:
        return []
    sentences = [
        f"all {len(of)} {what} are {'good' if of[0].value[0] > 0 else 'bad'}, so {effect}; export runs of both labels"
        for what, of, effect in (
            ("training examples", examples, "there is no contrast to learn from"),
            ("validation examples", held_out, "their loss and the choice of the best step ignore the other label"),
        )
        if len({one.value[0] > 0 for one in of}) == 1
    ]
    n_good = sum(one.value[0] > 0 for one in examples)
    good = sum(one.weight for one in examples if one.value[0] > 0)
    bad = sum(one.weight for one in examples if one.value[0] < 0)
    if not good or not bad:
        return sentences
    ratio, (least, most) = good * config.desirable_weight / (bad * config.undesirable_weight), BALANCED
    if least <= ratio * (1 + 1e-9) and ratio <= most * (1 + 1e-9):
        return sentences
    name = "desirable_weight" if ratio < least else "undesirable_weight"
    weight = getattr(config, name) * (least / ratio if ratio < least else ratio / most)
    weight = math.ceil(weight * 100) / 100
    remedy = f"set {name} to {weight:g}" if weight <= 100 else "add runs of the rarer label"
    sentences.append(
        f"{n_good} good and {len(examples) - n_good} bad examples weigh {ratio:.3g} to 1 with desirable_weight "
        f"{config.desirable_weight:g} and undesirable_weight {config.undesirable_weight:g}, outside KTO's range of 1 to 4/3; "
        + remedy
    )
    return sentences


def idle_options(config: TrainingConfig, examples: Sequence[Example]) -> list[str]:
    """Return warnings about options without effect on these examples, which lack what the options weigh."""
    idle: dict[str, list[str]] = {}
    if isinstance(config, GRPOConfig) and not any(row.old_logprob is not None for e in examples for row in e.rows):
        ratios = ("importance_cap",) if config.importance_cap is not None else ("clip_low", "clip_high", "delta")
        idle["no run has log-probs of the agent that wrote it"] = [name for name in ratios if config.is_changed(name)]
    if isinstance(config, RewardConfig):
        if not any(example.value[0] for example in examples):
            idle["no pair has a margin"] = ["margin_weight"] if config.margin_weight else []
        if not config.heads:
            idle["no run has parts of a reward"] = ["parts_weight"] if config.is_changed("parts_weight") else []
    return [
        f"{why}, so {' and '.join(names)} {'have' if len(names) > 1 else 'has'} no effect; leave {'them' if len(names) > 1 else 'it'} out"
        for why, names in idle.items()
        if examples and names
    ]


def without_validation(config: TrainingConfig, *, online: bool) -> list[str]:
    """Return a warning about settings that have no effect without validation examples."""
    asked = [name for name in ("early_stopping_patience", "validate_every_steps") if getattr(config, name) is not None]
    if not asked:
        return []
    remedy = "evaluate the agent afterwards, or set kl_stop" if online else "export with `validation_share`"
    return [
        f"there are no validation examples, so {' and '.join(asked)} {'have' if len(asked) > 1 else 'has'} no effect; {remedy}"
    ]


def changing_positions(model: Any, config: TrainingConfig, max_length: int) -> list[str]:
    """Return warnings about a model whose rotary factors depend on the length of a row; see `engine.rotary`."""
    sentences = []
    for grows, tokens in Rotary.of(model).borders:
        if max_length <= tokens or not (grows or isinstance(config, GRPOConfig | PPOConfig)):
            continue
        change = (
            f"(dynamic) change with every token above {tokens}, and cached keys keep their factors, so longer runs are trained "
            "slightly differently from how they were sampled"
            if grows
            else f"(longrope) change in rows above {tokens} tokens: the tokens of a longer run up to there were sampled with the "
            "short factors and are trained with the long ones, so their ratio does not start at 1"
        )
        remedy = f"set max_length to {tokens} or less where it must be exact"
        sentences.append(f"this model's rotary factors {change}; {remedy}")
    return sentences


def nothing_supervised(
    dropped: Mapping[str, int], what: str, max_length: int, context: int, *, online: bool = False
) -> TrainingFailed:
    """Return the error of a run without anything to learn from; `what` are its rows or groups."""
    remedies = remedies_for(dropped, online=online)
    if "too_long" in dropped:
        length = f"raise max_length above {max_length}"
        remedies.append(
            length if max_length < context else f"choose runs that fit into the model's context of {context} tokens"
        )
    return TrainingFailed(
        f"none of the {what} gives an example ({reasons(dropped) or 'there are none'}); "
        f"{'; '.join(remedies) or 'choose other data'}",
        code="nothing_supervised",
    )


def above_limit(run: Run) -> TrainingFailed | None:
    """Return the error of a run whose constraint is enforced and whose last rollout cost more; None otherwise."""
    constraint, excess = constraint_of(run.config), _excess(run)
    if constraint is None or not constraint.enforce or excess is None:
        return None
    return TrainingFailed(
        f"{excess}, and constraint.enforce is on, so no agent is stored; {_LOWER_COST}, or set enforce to false",
        code="above_limit",
    )


_LOWER_COST = "raise rollouts, constraint.rate or constraint.multiplier"


def _excess(run: Run) -> str | None:
    """Return by what the last rollout cost more than the constraint allows; None where it did not."""
    known = _constraint(run)
    if known is None or (known["mean_cost"] or 0) <= (known["limit"] or 0):
        return None
    return f"expected a mean cost of at most {known['limit']:g} in the last rollout, got {known['mean_cost']:.4g}"


def _constraint(run: Run) -> dict[str, float | None] | None:
    constraint, figures = constraint_of(run.config), run.source.metrics()
    if constraint is None or "mean_cost" not in figures:
        return None
    return {"limit": constraint.limit, **{name: figures[name] for name in ("mean_cost", "cost_multiplier")}}


def end_warnings(run: Run, batch: ExampleBatch) -> Iterator[tuple[str, str]]:
    """Yield the codes and messages of the warnings about a finished run, whose rollouts filled the batch."""
    tally, lower = run.tally, f"train again with a learning_rate below {run.config.learning_rate:g}"
    is_kept = bool(run.validation) and run.config.keep_best
    if is_kept and tally.get("best_step") == 0:
        yield (
            "start_kept",
            f"no step had a lower validation loss than the start model ({tally['best_loss']:.4g}), so the agent has its "
            f"weights; {lower}, or on other data",
        )
    if isinstance(run.source, RolloutSource) and (n := int(tally.get("empty_steps", 0))):
        remedies = "; ".join(remedies_for(run.source.skipped, online=True)) or "choose other tasks"
        yield "empty_steps", f"{n} of {run.step} steps had no example ({reasons(run.source.skipped)}); {remedies}"
    counts = run.source.counts if isinstance(run.source, RolloutSource) else {}
    if counts and constraint_of(run.config) is not None:
        if not counts["costly_rollouts"]:
            yield (
                "no_costs",
                "no run had a cost, so the constraint changed nothing; check what constraint.cost names, or leave it out",
            )
        elif excess := _excess(run):
            yield "above_limit", f"{excess}; {_LOWER_COST}"
    elif counts and counts["level_rollouts"] == counts["rollouts"] and _learns_from_equals(run.config, batch):
        yield "equal_rewards", f"in every rollout {remedies_for({'no_variance': 1}, online=True)[0]}"
    if isinstance(run.source, RolloutSource) and batch.unweighted:
        yield "unweighted_steps", f"{_unweighted(batch)}; take a `reward` with a part that values steps, such as rules"
    longest = getattr(run.config, "overlong_tokens", None)
    if longest is not None and run.resumed_from is None and not batch.penalised:  # an earlier attempt had its own runs
        yield (
            "no_overlong_run",
            f"no run was so long that overlong_tokens={longest} lowered its reward; lower it, or leave it out",
        )
    if run.ended_early:
        yield "ended_early", f"the run ended after step {run.step} of {run.total}: {run.ended_early}"
    first, final = tally.get("first_loss"), tally.get("final_loss")
    if isinstance(run.config, GRPOConfig | PPOConfig) or first is None or final is None:
        return  # the loss of a policy gradient does not measure progress
    bound = 2 * abs(first) + 1
    if run.objective.linear:  # nats a token: worse than uniform guessing is worse than any start
        guessing = math.log(run.engine.model.config.get_text_config(decoder=True).vocab_size)
        bound = min(bound, max(first + 1, guessing))
    if final > bound:
        harm = "" if is_kept else ", and the agent is likely worse than before"
        yield (
            "diverged",
            f"the loss rose from {first:.4g} to {final:.4g}: the run has diverged{harm}; {lower}, or with grad_clip on",
        )
    elif not is_kept and _stays_higher(run, first):
        yield (
            "loss_rose",
            f"the first step had a loss of {first:.4g} and no step of the second half one below {tally['late_loss']:.4g}: the "
            f"agent may be worse than before; compare it with its start, {lower}, or export the dataset with `validation_share`, "
            "which keeps the best weights",
        )


def _learns_from_equals(config: TrainingConfig, batch: ExampleBatch) -> bool:
    """Whether runs of equal reward are examples too, by a baseline that is not their group."""
    by_role = isinstance(config, GRPOConfig) and config.self_play is not None and not batch.penalised
    return isinstance(config, PPOConfig) or by_role


def _stays_higher(run: Run, first: float) -> bool:
    """Whether all of the last half of many steps had a far higher loss than the first."""
    late = run.tally.get("late_loss")
    if late is None or not run.objective.linear or run.total < _MANY_STEPS:
        return False
    return getattr(run.config, "curriculum", None) is None and late > max(2 * first, first + _CLEARLY_HIGHER)


def report_of(
    run: Run,
    batch: ExampleBatch,
    selection: Selection,
    number_format: Format,
    warnings: tuple[str, ...],
    *,
    stopped: bool,
) -> TrainingReport:
    """Return the report of a run that has ended or was stopped."""
    tally = run.tally
    rate = run.machine.matmul_flops
    best = tally.get("best_step")
    n_rows = sum(len(example.rows) for example in selection.examples)
    counts = {"rows": n_rows, "examples": len(selection.examples)}
    read: int | None = min(counts["examples"], run.step * run.config.batch_size)
    if isinstance(run.source, RolloutSource):
        counts, read = run.source.counts, None
    return TrainingReport(
        method=str(run.config.method),  # type: ignore[attr-defined]
        steps=run.step,
        planned_steps=run.total,
        first_loss=tally.get("first_loss"),
        final_loss=tally.get("final_loss"),
        validation_loss=tally.get("validation_loss"),
        best_validation_loss=tally.get("best_loss"),
        held_out={
            name: (tally[f"{name}_{PARTS[0]}"], tally[f"{name}_{PARTS[1]}"])
            for name in run.objective.agreement
            if f"{name}_{PARTS[1]}" in tally
        },
        best_step=int(best) if best is not None and run.config.keep_best else None,
        ended_early=run.ended_early,
        supervised_tokens=int(tally.get("supervised_tokens", 0)),
        tokens=int(tally.get("tokens", 0)),
        rows=counts["rows"],
        examples=counts["examples"],
        examples_read=read,
        dropped=dict(batch.dropped),
        left_out_members=dict(batch.left_out_members),
        unweighted_runs=dict(batch.unweighted),
        truncated_turns=batch.truncated_turns,
        empty_steps=int(tally.get("empty_steps", 0)),
        replayed=selection.replayed,
        engine=f"{run.engine.path}: {run.engine.reason}" if run.engine.reason else run.engine.path,
        precision=number_format.name,
        precision_rule=number_format.rule,
        matmul_gflops=round(rate / 1e9, 1) if rate else None,
        warnings=warnings,
        resumed_from_step=run.resumed_from,
        constraint=_constraint(run),
        stopped=stopped,
    )
