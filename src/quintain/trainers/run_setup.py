"""Assembly of a training run before its first step, alike in every process: examples, references, source, optimizer."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from quintain.records.dataset import GroupRow, Row
from quintain.records.hyperparameters.methods import (
    DistillConfig,
    GRPOConfig,
    KTOConfig,
    OnlineConfig,
    RetrieverConfig,
    TrainingConfig,
)
from quintain.records.jobs.job import TrainSpec
from quintain.records.protocols import Reporter
from quintain.trainers.data.example_selection import Selection
from quintain.trainers.data.examples import ExampleBatch, ExampleMaker
from quintain.trainers.data.retrieval_examples import relevant_tools
from quintain.trainers.data.streams import Example
from quintain.trainers.distributed.passes import SharedPasses
from quintain.trainers.distributed.process_group import ProcessGroup
from quintain.trainers.distributed.sharding import whole_copy
from quintain.trainers.loop.checkpoints import disk_errors_explained
from quintain.trainers.loop.ewc import WeightPenalty, weight_penalty
from quintain.trainers.loop.identity import run_identity
from quintain.trainers.loop.loop import Run, Sampler
from quintain.trainers.loop.objectives import Objective, complete_settings, mismatched_examples, objective_of
from quintain.trainers.loop.optimizer import adamw
from quintain.trainers.loop.precision import loss_scale
from quintain.trainers.loop.probes import Probes, append_samples
from quintain.trainers.loop.report import changing_positions
from quintain.trainers.loop.schedule import EpochSource, ExampleSource
from quintain.trainers.loop.sinks import ReportedRun, open_sinks
from quintain.trainers.models.loading import LoadedModel
from quintain.trainers.preparation import PreparedModel
from quintain.trainers.reference_log_probs import References
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.rollouts.advantages import rollout_stage
from quintain.trainers.rollouts.reward_model_term import RewardModelTerm
from quintain.trainers.rollouts.sampler_correction import with_importance_weights, with_old_logprobs
from quintain.trainers.rollouts.source import RolloutSource
from quintain.trainers.teachers import Teacher, cached_with_teacher, with_advantages

Collect = Callable[[LoadedModel, Renderer, int], list[GroupRow]]
"""Lets the live model act and returns the groups of an iteration; none if it was stopped."""

Figures = Callable[[Sequence[str]], dict[str, float | None]]
"""Returns figures of the examples with these keys, such as means of the parts of their reward."""


Evaluate = Callable[[LoadedModel, Renderer], dict[str, float | None]]
"""Measures the live model on held-out tasks; no figures if it was stopped."""


def no_figures(keys: Sequence[str]) -> dict[str, float | None]:
    """Return no figures."""
    return {}


@dataclass(frozen=True)
class Data:
    """The rows of a dataset's splits."""

    train: Sequence[Row] = ()
    validation: Sequence[Row] = ()
    earlier: Sequence[Row] = ()
    """The training rows of the earlier skill that EWC keeps."""
    teacher: Teacher | None = None
    """The teacher of a distillation; None where the rows have its log-probs."""
    figures: Figures = no_figures
    """Of a step's examples, for its metrics."""
    evaluate: Evaluate | None = None
    """Measures an online training between its steps; None: it is not measured."""


class Training(NamedTuple):
    """A training of the first process, which all processes of its group run."""

    spec: TrainSpec
    data: Data
    """Without what only the first process has."""
    directory: Path
    has_teacher: bool
    all_collect: bool = False
    """Whether every process takes part in rollouts."""


class Acting(NamedTuple):
    """How an online method collects its groups, and the counts of skipped ones."""

    collect: Collect
    dataset: ExampleBatch


class RunSetup:
    """A run before its first step: assembles the parts."""

    def __init__(self, training: Training, reporter: Reporter, ready: PreparedModel, group: ProcessGroup) -> None:
        self.spec, self.data, self.directory, self.has_teacher, self.all_collect = training
        self.reporter, self.group, self.ready = reporter, group, ready
        self.loaded, self.engine, self.machine, self.format, *_ = ready
        config = self.spec.config
        self.passes = SharedPasses(group, self.spec.seed, sharded=config.sharding == "full")
        context = self.loaded.context_tokens
        self.maker = ExampleMaker.of(self.loaded.tokenizer, self.spec.agent.template, config, context)
        self.renderer = self.maker.renderer
        if self.data.teacher is not None:
            self.data.teacher.require_tokenizer(self.loaded.tokenizer)
        self.reward_model = RewardModelTerm.of(self.spec) if group.is_first else None

    def examples_of(self, rows: Sequence[Row]) -> ExampleBatch:
        """Return the examples of rows; groups get the rewards of a reward model added, by the first process."""
        if self.spec.reward_agent is None:
            return self.maker.make(rows)

        def valued() -> tuple[list[Row], Counter[str]]:
            assert self.reward_model is not None
            mixed, left_out = self.reward_model.rows(rows), Counter(self.reward_model.left_out)
            self.reward_model.left_out.clear()
            return mixed, left_out

        mixed, left_out = self.group.from_first(valued)
        dataset = self.maker.make(mixed)
        dataset.left_out_members.update(left_out)
        return dataset

    def corrected(self, examples: Sequence[Example]) -> list[Example]:
        """Return the examples with the importance correction to the current model, where the settings ask for it."""
        config = self.spec.config
        if not isinstance(config, GRPOConfig) or config.importance_cap is None:
            return list(examples)
        return with_importance_weights(
            examples, self.engine, cap=config.importance_cap, batch_tokens=config.batch_tokens, passes=self.passes
        )

    def figures_of(self, keys: Sequence[str]) -> dict[str, float | None]:
        """Return figures of the examples with these keys: parts of their reward, and terms of a reward model."""
        return self.data.figures(keys) | (self.reward_model.means(keys) if self.reward_model else {})

    def warnings(self) -> list[str]:
        """Return warnings for the user before the first step."""
        warnings = [*self.loaded.warnings, *self.renderer.warnings, *self.machine.notes]
        context = self.loaded.context_tokens
        if (asked := self.spec.config.max_length or 0) > context:
            warnings.append(f"max_length {asked} exceeds the model's context; rows are cut at {context} tokens")
        warnings += changing_positions(self.loaded.model, self.spec.config, self.maker.max_length)
        if self.engine.reason:
            warnings.append(f"training takes the {self.engine.path} path, not the fastest: {self.engine.reason}")
        if self.format.note:
            warnings.append(self.format.note)
        return warnings

    def with_teacher_tokens(self, examples: list[Example], split: str) -> list[Example]:
        """Return the examples of a split with the likeliest tokens of the teacher, which the first process asks."""
        config, teacher = self.spec.config, self.data.teacher
        assert isinstance(config, DistillConfig)
        top_k = config.teacher_top_k
        self.reporter.phase("teacher")
        path = self.directory / "checkpoints" / f"teacher-{split}.npz"

        def ask() -> list[Example]:
            assert teacher is not None
            return cached_with_teacher(examples, teacher, top_k, path, self.renderer.fingerprint)

        return self.group.from_first(ask)

    def to_act(self) -> LoadedModel:
        """Return the model for acting: of a sharded one, a whole copy in the first process. Collective."""
        if not self.passes.sharded:
            return self.loaded
        is_first, structure = self.group.is_first, self.ready.structure
        copy: LoadedModel | None = pickle.loads(structure) if is_first and structure else None
        plain = torch.nn.Module() if copy is None else copy.model
        with self.passes.running():
            whole_copy(plain, self.loaded.model, self.loaded.model.device)
        return self.loaded._replace(model=plain)

    def penalty(self) -> WeightPenalty | None:
        """Return EWC's penalty, measured on the start model or its predecessor; None if it is off."""
        if self.spec.config.ewc is None:
            return None
        self.reporter.phase("fisher")

        def measured() -> WeightPenalty | None:
            rows, directory = self.data.earlier, self.directory
            return weight_penalty(self.spec, self.loaded, self.engine, self.format, self.maker, rows, directory)

        own: list[WeightPenalty | None] = []
        self.group.from_first(lambda: own.append(measured()))
        return own[0] if own else measured()  # the others read the file of the first process

    def run(self, selection: Selection, held_out: list[Example], acting: Acting | None) -> Run:
        """Create the run at step 0, with the reference log-probs that its objective needs."""
        spec, config, model = self.spec, self.spec.config, self.loaded.model
        references = References.of(spec, self.loaded, self.engine, self.directory, self.reporter, self.passes)
        training = selection.examples
        objective = _run_objective(
            complete_settings(config, training), training, held_out, references, self.maker.max_length
        )
        identity = run_identity(spec, self.ready.weight_samples, training)
        training, held_out = (self.corrected(examples) for examples in (training, held_out))
        if isinstance(
            config, GRPOConfig
        ):  # else every ratio of a validation would be 1 where they are unknown, and no step the best
            held_out = with_old_logprobs(held_out, self.engine, config.batch_tokens, self.passes)
        if objective.needs_reference:
            held_out = references.with_logprobs(held_out)
        if objective.needs_reference and not references.follows:
            training = references.with_logprobs(training)
        if self.has_teacher and acting is None:
            training, held_out = (
                self.with_teacher_tokens(training, "train"),
                self.with_teacher_tokens(held_out, "validation"),
            )
        source: ExampleSource
        if acting is None:
            source = EpochSource(training, config, spec.seed, selection.curriculum, self.figures_of)
        else:
            source = _rollout_source(self, objective, references, acting)
        penalty, is_first = self.penalty(), self.group.is_first
        return Run(
            config=config,
            engine=self.engine,
            machine=self.machine,
            optimizer=adamw(model, config),
            scale=loss_scale(model.device, enabled=self.format.scales_loss),
            source=source,
            objective=objective,
            acts=acting is not None,
            penalty=penalty,
            validation=held_out,
            checkpoints=self.directory / "checkpoints",
            identity=identity,
            reporter=self.reporter,
            sinks=open_sinks(
                config.report_to if is_first else (),
                named=ReportedRun(spec.name, config.report_project, config.report_run),
                folder=self.directory,
                warn=self.reporter.warn,
            ),
            tokenizer=self.loaded.tokenizer,
            sample=_sampler(self) if is_first else None,
            evaluate=_evaluator(self, source.total_steps) if is_first else None,
            reference=references if references.follows else None,
            passes=self.passes,
        )


def _sampler(start: RunSetup) -> Sampler | None:
    """Return the function that samples on probes, if the settings ask for it and the data has openings."""
    spec, data, reporter = start.spec, start.data, start.reporter
    rows = data.validation or data.train
    if spec.config.sample_every_steps is None:
        return None
    if not rows:
        reporter.warn("no_probes", "sample_every_steps has no effect online, where rollouts are stored")
        return None
    probes = Probes.of(rows, start.renderer, start.loaded.context_tokens, seed=spec.seed)

    def sample(step: int) -> dict[str, float | None]:
        samples, diversity = probes.write(start.loaded, step)
        file = start.directory / "samples.jsonl"
        with disk_errors_explained(file, start.directory / "checkpoints"):
            append_samples(file, samples)
        return diversity.metrics()

    return sample


def _evaluator(start: RunSetup, total: int) -> Sampler | None:
    """Return the function that measures success between the steps, if the settings ask for it."""
    evaluate, every = start.data.evaluate, start.spec.config.evaluate_every_steps
    if evaluate is None or every is None:
        return None

    def measured(step: int) -> dict[str, float | None]:
        if step % every and step != total:
            return {}
        with start.engine.precision():
            return evaluate(start.loaded, start.renderer)

    return measured


def _rollout_source(start: RunSetup, objective: Objective, references: References, acting: Acting) -> RolloutSource:
    config = start.spec.config
    assert isinstance(config, OnlineConfig)

    def make(group: GroupRow) -> list[Example] | str:
        examples = start.maker.of_rollout(group, acting.dataset)
        if isinstance(examples, str):
            return examples
        examples = start.corrected(examples)
        if references.follows:
            return examples
        if start.has_teacher:
            scored = start.group.from_first(lambda: with_advantages(examples, start.data.teacher))  # type: ignore[arg-type]
            return references.with_logprobs(scored, keep=False) if objective.needs_reference else scored
        return references.with_logprobs(examples, keep=False) if objective.needs_reference else examples

    whole: list[LoadedModel] = []

    def before() -> None:
        whole[:] = [start.to_act()]

    def act(iteration: int) -> list[GroupRow]:
        # In the number format of training: otherwise the ratio to the behaviour policy would not start at 1.
        with start.engine.precision():
            return acting.collect(whole.pop(), start.renderer, iteration)

    return RolloutSource(
        act,
        make,
        rollouts=config.rollouts,
        updates_per_rollout=config.updates_per_rollout,
        minibatches=config.minibatches,
        seed=start.spec.seed,
        stage=rollout_stage(config, start.engine, start.passes),
        group=start.group,
        before=before,
        all_collect=start.all_collect,
        max_steps=start.spec.config.max_steps,
        reward_model=start.reward_model,
        figures_of=start.data.figures,
    )


def _run_objective(
    config: TrainingConfig,
    training: Sequence[Example],
    held_out: Sequence[Example],
    references: References,
    max_length: int,
) -> Objective:
    """Return the objective of a run, with KTO's mismatched runs scored by the reference."""
    unpaired: dict[str, Example] = {}
    if isinstance(config, KTOConfig):
        for examples in (training, held_out):
            found = mismatched_examples(examples, max_length)
            unpaired |= dict(zip(found, references.with_logprobs(list(found.values())), strict=True))
    relevant = relevant_tools([*training, *held_out]) if isinstance(config, RetrieverConfig) else {}
    objective = objective_of(config, unpaired, relevant)
    objective.needs_reference |= config.kl_stop is not None
    return objective
