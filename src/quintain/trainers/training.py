"""Train an agent's model by any method: load, make examples, run the loop, save, report."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field

from quintain.errors import TrainingFailed
from quintain.records.dataset import GroupRow, Row
from quintain.records.job import TrainSpec
from quintain.records.record import Record
from quintain.records.seams import Reporter
from quintain.records.training import GRPOConfig, KTOConfig, TrainingConfig
from quintain.trainers.checkpoints import trainable
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine, prepare, tune_allocator
from quintain.trainers.examples import ExampleMaker, Made, mismatched
from quintain.trainers.loop import Run, Sampler, resume
from quintain.trainers.loop import train as run_loop
from quintain.trainers.models import LoadedModel, load_model, save_model
from quintain.trainers.objectives import Objective, objective_of
from quintain.trainers.precision import Format, LossScale, choose
from quintain.trainers.probes import Probes, append_samples
from quintain.trainers.reference import References
from quintain.trainers.rendering import Renderer
from quintain.trainers.rollout_source import RolloutSource
from quintain.trainers.schedule import EpochSource, ExampleSource
from quintain.trainers.selection import Selection, select
from quintain.trainers.sinks import open_sinks
from quintain.trainers.streams import Example

Collect = Callable[[LoadedModel, Renderer, int], list[GroupRow]]
"""Lets the live model act and returns the groups of an iteration; none where it was asked to stop."""


@dataclass(frozen=True)
class Data:
    """The rows of a dataset's splits."""

    train: Sequence[Row] = ()
    validation: Sequence[Row] = ()


class TrainingReport(Record):
    """What a training run did."""

    method: str
    steps: int
    planned_steps: int
    first_loss: float | None = Field(description="Loss of the first step; nats a token for SFT.")
    final_loss: float | None = Field(description="Loss of the last step.")
    validation_loss: float | None = Field(default=None, description="Loss on the validation split, newest.")
    best_validation_loss: float | None = None
    best_step: int | None = Field(default=None, description="Step whose weights were kept, with a validation split.")
    ended_early: str | None = None
    supervised_tokens: int = Field(description="Tokens in the loss, summed over the steps.")
    tokens: int = Field(description="Tokens of the rows, shared prefixes counted in each, padding in none.")
    rows: int = Field(description="Token rows of the training examples.")
    examples: int = Field(description="Training examples: runs, pairs or groups; 0 where rollouts make them.")
    dropped: dict[str, int] = Field(default_factory=dict, description="Reason -> dataset rows that gave no example.")
    left_out_members: dict[str, int] = Field(default_factory=dict, description="Reason -> runs left out of groups.")
    truncated_turns: int = Field(default=0, description="Agent turns that fell off the end of rows that were too long.")
    empty_steps: int = Field(default=0, description="Steps without a usable example, such as groups of equal rewards.")
    replayed: int = Field(default=0, description="Examples that came from the replay buffer.")
    engine: str = Field(description="`packed` or `padded`, and why.")
    precision: str
    matmul_gflops: float | None = Field(default=None, description="Measured matmul rate of this machine.")
    warnings: tuple[str, ...] = ()
    resumed_from_step: int | None = Field(
        default=None, description="Step of the checkpoint that this attempt began with."
    )
    stopped: bool = Field(default=False, description="Asked to stop: there is a checkpoint and no final model.")


def train(
    spec: TrainSpec, data: Data, directory: Path, reporter: Reporter, collect: Collect | None = None
) -> TrainingReport:
    """Train an agent's model; goes on from the newest complete checkpoint below `directory` where there is one.

    Args:
        spec: Agent, method with its hyperparameters, seed and where the final model goes.
        data: The dataset's rows; empty where the method learns online.
        directory: The job's folder.
        reporter: Hears of phases, steps, checkpoints and warnings, and says when to stop.
        collect: Online methods: how the model acts.

    Raises:
        TrainingFailed: nothing to learn from (`nothing_supervised`), or the loss is no longer finite (`diverged`).
        Conflict: the checkpoints belong to another run.
    """
    tune_allocator()
    reporter.phase("loading_model")
    _seed_everything(spec.seed)
    loaded = load_model(spec.agent.model, lora=spec.config.lora, train=True)
    number_format = choose(spec.config.precision, loaded.model.device)
    machine = prepare(loaded.model.device, number_format.autocast or torch.float32)
    start = _Start(spec, data, directory, reporter, loaded, machine, number_format)

    reporter.phase("rendering")
    made, held_out = start.maker.make(data.train), start.maker.make(data.validation)
    if collect is None and not made.examples:
        raise _nothing_supervised(made, len(data.train), start.maker.max_length)
    selection = select(made, spec, start.renderer, start.engine, directory)
    warnings = (*start.warnings(), *_left_out(made, len(data.train), start.maker.max_length), *selection.notes)
    for warning in warnings:
        reporter.warn("training", warning)
    run = start.run(selection, held_out.examples, collect)
    with closing(run.sinks):
        resume(run)
        reporter.phase("training")
        stopped = run_loop(run)
    if run.ended_early:
        reporter.warn("ended_early", f"the run ended after step {run.step} of {run.total}: {run.ended_early}")
    if not stopped:
        reporter.phase("saving")
        save_model(loaded.model, loaded.tokenizer, Path(spec.output_dir))
        selection.remember()
    return _report(run, made, selection, start.format, warnings, stopped=stopped)


class _Start:
    """A run before its first step: the parts and how they fit together."""

    def __init__(
        self,
        spec: TrainSpec,
        data: Data,
        directory: Path,
        reporter: Reporter,
        loaded: LoadedModel,
        machine: Machine,
        number_format: Format,
    ) -> None:
        self.spec, self.data, self.directory, self.reporter = spec, data, directory, reporter
        self.loaded, self.machine, self.format = loaded, machine, number_format
        config = spec.config
        self.renderer = Renderer.of(loaded.tokenizer, spec.agent.template)
        self.engine = Engine.of(
            loaded.model,
            share_prefixes=config.share_prefixes,
            gradient_checkpointing=config.gradient_checkpointing,
            autocast=number_format.autocast,
        )
        length = min(config.max_length or loaded.context_tokens, loaded.context_tokens)
        self.maker = ExampleMaker(self.renderer, config, length)

    def warnings(self) -> list[str]:
        """What the user should know before the first step."""
        warnings = [*self.renderer.warnings, *self.machine.notes]
        context = self.loaded.context_tokens
        if (asked := self.spec.config.max_length or 0) > context:
            warnings.append(f"max_length {asked} is more than the model's context; rows are cut at {context} tokens")
        if self.engine.reason:
            warnings.append(f"training takes the {self.engine.path} path, not the fastest: {self.engine.reason}")
        if self.format.note:
            warnings.append(self.format.note)
        return warnings

    def run(self, selection: Selection, held_out: list[Example], collect: Collect | None) -> Run:
        """The run at step 0, with the reference log-probs that its objective needs."""
        spec, config, model = self.spec, self.spec.config, self.loaded.model
        references = References.of(spec, self.loaded, self.engine, self.directory, self.reporter)
        training = selection.examples
        objective = _objective(config, training, held_out, references, self.maker.max_length)
        identity = _identity(spec, model, training)
        if objective.needs_reference:
            training, held_out = references.added(training), references.added(held_out)
        source: ExampleSource
        if collect is None:
            source = EpochSource(training, config, spec.seed, selection.curriculum)
        else:
            source = _rollout_source(self.loaded, self.maker, self.engine, objective, references, collect)
        return Run(
            config=config,
            engine=self.engine,
            machine=self.machine,
            optimizer=_optimizer(model, config),
            scale=LossScale(model.device, enabled=self.format.scales_loss),
            source=source,
            objective=objective,
            validation=held_out,
            checkpoints=self.directory / "checkpoints",
            identity=identity,
            reporter=self.reporter,
            sinks=open_sinks(config.report_to, run_name=spec.name, folder=self.directory, warn=self.reporter.warn),
            sample=_sampler(self.loaded, self.renderer, self.data, spec, self.directory / "samples.jsonl"),
        )


def _objective(
    config: TrainingConfig,
    training: Sequence[Example],
    held_out: Sequence[Example],
    references: References,
    max_length: int,
) -> Objective:
    unpaired: dict[str, Example] = {}
    if isinstance(config, KTOConfig):
        for examples in (training, held_out):
            found = mismatched(examples, max_length)
            unpaired |= dict(zip(found, references.added(list(found.values())), strict=True))
    if isinstance(config, GRPOConfig) and config.loss == "dr_grpo" and config.max_tokens is None:
        config = config.model_copy(update={"max_tokens": _longest_run(training, config)})
    objective = objective_of(config, unpaired)
    objective.needs_reference |= config.kl_stop is not None
    return objective


def _longest_run(examples: Sequence[Example], config: GRPOConfig) -> int:
    """Agent tokens of the longest run; online, where runs are yet to come, what a run may have."""
    if not examples:
        return config.max_new_tokens * (config.max_turns or 8)
    return max(
        sum(row.n_supervised for row, m in zip(example.rows, example.member, strict=True) if m == member)
        for example in examples
        for member in range(example.n_members)
    )


def _sampler(loaded: LoadedModel, renderer: Renderer, data: Data, spec: TrainSpec, path: Path) -> Sampler | None:
    """Writes what the model says on its probes, where the settings ask for it and the data has openings for it."""
    rows = data.validation or data.train
    if spec.config.sample_every_steps is None or not rows:
        return None
    probes = Probes.of(rows, renderer, loaded.context_tokens, seed=spec.seed)

    def sample(step: int) -> dict[str, float | None]:
        written = probes.write(loaded, step)
        append_samples(path, written.samples)
        return written.diversity.metrics()

    return sample


def _rollout_source(
    loaded: LoadedModel,
    maker: ExampleMaker,
    engine: Engine,
    objective: Objective,
    references: References,
    collect: Collect,
) -> RolloutSource:
    config = maker.config
    assert isinstance(config, GRPOConfig)

    def make(group: GroupRow) -> Example | str:
        example = maker.group(group, Made())
        if isinstance(example, str) or not objective.needs_reference:
            return example
        return references.added([example], keep=False)[0]

    def act(iteration: int) -> list[GroupRow]:
        # In the number format of training: otherwise the ratio to the behaviour policy would not begin at 1.
        with engine.precision():
            return collect(loaded, maker.renderer, iteration)

    return RolloutSource(
        act,
        make,
        rollouts=config.rollouts,
        updates_per_rollout=config.updates_per_rollout,
    )


def _left_out(made: Made, n_rows: int, max_length: int) -> list[str]:
    """What of the data does not get into the training, in the user's words."""
    told = []
    if made.dropped:
        reasons = ", ".join(f"{reason} {n}" for reason, n in sorted(made.dropped.items()))
        told.append(f"{made.dropped.total()} of {n_rows} dataset rows give no example: {reasons}")
    if made.left_out_members:
        reasons = ", ".join(f"{reason} {n}" for reason, n in sorted(made.left_out_members.items()))
        told.append(f"{made.left_out_members.total()} runs were left out of their groups: {reasons}")
    if made.truncated_turns:
        told.append(
            f"{made.truncated_turns} agent turns fell off the end of rows longer than {max_length} tokens; raise "
            "max_length where the model's context allows it, set chunk where the method has it, or shorten observations"
        )
    return told


def _nothing_supervised(made: Made, n_rows: int, max_length: int) -> TrainingFailed:
    return TrainingFailed(
        f"none of the {n_rows} rows gives anything to learn from ({dict(made.dropped)}); mark steps with train=true, "
        f"raise max_length above {max_length}, or choose runs that differ in what they earned",
        code="nothing_supervised",
    )


def _report(
    run: Run, made: Made, selection: Selection, number_format: Format, warnings: tuple[str, ...], *, stopped: bool
) -> TrainingReport:
    tally = run.tally
    rate = run.machine.matmul_flops
    best = tally.get("best_step")
    return TrainingReport(
        method=str(run.config.method),  # type: ignore[attr-defined]
        steps=run.step,
        planned_steps=run.total,
        first_loss=tally.get("first_loss"),
        final_loss=tally.get("final_loss"),
        validation_loss=tally.get("validation_loss"),
        best_validation_loss=tally.get("best_loss"),
        best_step=int(best) if best is not None and run.config.keep_best else None,
        ended_early=run.ended_early,
        supervised_tokens=int(tally.get("supervised_tokens", 0)),
        tokens=int(tally.get("tokens", 0)),
        rows=sum(len(example.rows) for example in selection.examples),
        examples=len(selection.examples),
        dropped=dict(made.dropped),
        left_out_members=dict(made.left_out_members),
        truncated_turns=made.truncated_turns,
        empty_steps=int(tally.get("empty_steps", 0)),
        replayed=selection.replayed,
        engine=f"{run.engine.path}: {run.engine.reason}" if run.engine.reason else run.engine.path,
        precision=number_format.name,
        matmul_gflops=round(rate / 1e9, 1) if rate else None,
        warnings=warnings,
        resumed_from_step=run.resumed_from,
        stopped=stopped,
    )


def _optimizer(model: Any, config: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101); biases and norm weights do not decay."""
    parameters = list(trainable(model).values())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=config.learning_rate, fused=True)


def _identity(spec: TrainSpec, model: Any, examples: Sequence[Example]) -> str:
    """Hash of all that a checkpoint must share with the run that loads it: settings, model and token rows."""
    digest = hashlib.sha256()
    # How often and how many checkpoints are kept, and who hears of it, changes nothing in the result.
    silent = {"checkpoint_every_steps", "keep_checkpoints", "report_to", "sample_every_steps"}
    config = spec.config.model_dump(mode="json", exclude=silent)
    shapes = {name: list(p.shape) for name, p in model.named_parameters()}
    about = [config, spec.seed, spec.agent.model.model_dump(mode="json"), spec.environment, shapes, len(examples)]
    digest.update(json.dumps(about, sort_keys=True).encode())
    for example in examples:
        digest.update(json.dumps([example.member, example.value, example.weight]).encode())
        for row in example.rows:
            for stream in (row.token_ids, row.weight, row.advantage):
                digest.update(b"" if stream is None else stream.tobytes())
    return digest.hexdigest()


def _seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
