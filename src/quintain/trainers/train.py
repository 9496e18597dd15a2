"""Train an agent's model by any method: load, create examples, run the loop, save, report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from quintain.errors import QuintainError
from quintain.records.dataset import GroupRow, Row
from quintain.records.hyperparameters import DistillConfig, GRPOConfig, OnlineConfig, PPOConfig, RetrieverConfig
from quintain.records.job import TrainSpec
from quintain.records.protocols import Reporter
from quintain.trainers.data.example_selection import Selection, select
from quintain.trainers.data.examples import ExampleBatch, ExampleMaker
from quintain.trainers.data.streams import Example
from quintain.trainers.distributed.passes import SharedPasses
from quintain.trainers.distributed.process_group import ProcessGroup, group_of
from quintain.trainers.distributed.sharding import gather_full_params
from quintain.trainers.engine.machine import tune_allocator
from quintain.trainers.loop.checkpoints import disk_errors_explained
from quintain.trainers.loop.ewc import WeightPenalty, weight_penalty
from quintain.trainers.loop.identity import run_identity
from quintain.trainers.loop.loop import resume
from quintain.trainers.loop.loop import train as run_loop
from quintain.trainers.loop.objectives import Objective, settled
from quintain.trainers.loop.optimizer import adamw
from quintain.trainers.loop.precision import loss_scale
from quintain.trainers.loop.probes import Probes, append_samples
from quintain.trainers.loop.report import (
    TrainingReport,
    above_limit,
    changing_positions,
    empty_steps,
    left_out,
    nothing_supervised,
    report_of,
    rising_loss,
    start_kept,
    without_validation,
)
from quintain.trainers.loop.run import Run, Sampler
from quintain.trainers.loop.schedule import EpochSource, ExampleSource
from quintain.trainers.loop.sinks import open_sinks
from quintain.trainers.models import LoadedModel, save_model
from quintain.trainers.preparation import (
    Prepared,
    prepared,
    require_whole_model,
    seed_everything,
    with_heads,
    with_rate,
)
from quintain.trainers.reference_log_probs import References
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.reward_model_term import RewardModelTerm
from quintain.trainers.rollout_advantages import rollout_stage
from quintain.trainers.rollout_source import RolloutSource
from quintain.trainers.run_objectives import run_objective, synced_reference
from quintain.trainers.sampler_correction import corrected
from quintain.trainers.teachers import Teacher, cached_with_teacher, with_advantages

Collect = Callable[[LoadedModel, Renderer, int], list[GroupRow]]
"""Lets the live model act and returns the groups of an iteration; none if it was stopped."""

Figures = Callable[[Sequence[str]], dict[str, float | None]]
"""Returns figures of the examples with these keys, such as means of the parts of their reward."""


def _no_figures(keys: Sequence[str]) -> dict[str, float | None]:
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
    figures: Figures = _no_figures
    """Of a step's examples, for its metrics."""


class Training(NamedTuple):
    """A training of the first process, which all processes of its group run."""

    spec: TrainSpec
    data: Data
    """Without what only the first process has."""
    directory: Path
    has_teacher: bool


Collector = Callable[[TrainSpec, Path, Reporter], Collect]
"""Returns the function by which a process collects rollouts of an online training."""


def train(
    spec: TrainSpec, data: Data, directory: Path, reporter: Reporter, collect: Collect | None = None
) -> TrainingReport:
    """Train an agent's model; resume from the newest complete checkpoint below `directory`, if there is one.

    With `processes` above 1, this is the first process of a group, and the others are in `follow`.

    Args:
        spec: Agent, method with its hyperparameters, seed and output folder.
        data: The dataset's rows; empty for online training.
        directory: The job's folder.
        reporter: Receives phases, steps, checkpoints and warnings, and can stop the run.
        collect: Online training: lets the model act.

    Raises:
        TrainingFailed: Nothing to learn from (`nothing_supervised`), or a loss that is not finite (`diverged`).
        Conflict: The checkpoints belong to another run.
        InvalidInput: `processes` is above 1, and no launcher has started them (`no_process_group`).
    """
    if spec.environment is not None:
        require_whole_model(spec)
    spec = with_heads(spec, [*data.train, *data.validation])
    group = group_of(spec.config.processes)
    has_teacher = data.teacher is not None
    if group.size > 1:
        common = replace(data, teacher=None, figures=_no_figures)
        group.from_first(lambda: Training(spec, common, directory, has_teacher))
    return _train(Training(spec, data, directory, has_teacher), reporter, collect, group)


def follow(group: ProcessGroup, reporter: Reporter, collector: Collector) -> None:
    """Take part in every training of the first process, until it leaves the group.

    Raises:
        TrainingFailed: The first process has failed (`process_lost`), or the training has.
    """
    while (training := group.from_first(_no_training)) is not None:
        is_online = training.spec.environment is not None
        collect = collector(training.spec, training.directory, reporter) if is_online else None
        _train(training, reporter, collect, group)


def _no_training() -> Training | None:
    return None


def _train(training: Training, reporter: Reporter, collect: Collect | None, group: ProcessGroup) -> TrainingReport:
    """Train, in every process of the group alike."""
    spec, data, directory, _ = training
    tune_allocator(keep=spec.config.sharding == "none")
    reporter.phase("loading_model")
    seed_everything(spec.seed)
    ready = prepared(spec, data.train, directory, group, acts=collect is not None)
    spec, rate_rule = with_rate(spec, ready.loaded)
    start = _Start(training._replace(spec=spec), reporter, ready, group)

    reporter.phase("rendering")
    dataset, held_out = start.examples_of(data.train), start.examples_of(data.validation)
    length = start.maker.max_length
    if collect is None and not dataset.examples:
        raise nothing_supervised(dataset.dropped, f"{len(data.train)} rows", length, start.loaded.context_tokens)
    selection = select(dataset, spec, start.maker, start.engine, directory, start.passes)
    warnings = [*start.warnings(), *left_out(dataset, len(data.train), length), *selection.notes]
    warnings += left_out(held_out, len(data.validation), length, "validation")
    warnings += [] if held_out.examples else without_validation(spec.config, online=collect is not None)
    for warning in warnings:
        reporter.warn("training", warning)
    run = start.run(selection, held_out.examples, collect and _Acting(collect, dataset))
    with closing(run.sinks):
        resume(run)
        reporter.phase("training")
        stopped = run_loop(run)
    if isinstance(run.source, RolloutSource):
        dataset.dropped.update(run.source.skipped)
    if start.reward_model is not None:
        dataset.left_out_members.update(start.reward_model.left_out)
    if not stopped:
        _conclude(run, dataset, start, selection)
    report = report_of(run, dataset, selection, start.format, tuple(warnings), stopped=stopped)
    return report.model_copy(update={"learning_rate": spec.config.learning_rate, "learning_rate_rule": rate_rule})


def _conclude(run: Run, dataset: ExampleBatch, start: _Start, selection: Selection) -> None:
    """Save the model of a finished run, and report warnings about it."""
    reporter = run.reporter
    if (fault := above_limit(run)) is not None:
        raise fault
    if not run.tally.get("supervised_tokens"):
        raise nothing_supervised(
            dataset.dropped,
            "groups of the rollouts",
            start.maker.max_length,
            start.loaded.context_tokens,
            online=isinstance(run.source, RolloutSource),
        )
    if warning := start_kept(run):
        reporter.warn("start_kept", warning)
    if isinstance(run.source, RolloutSource) and (warning := empty_steps(run, run.source.skipped)):
        reporter.warn("empty_steps", warning)
    if run.ended_early:
        reporter.warn("ended_early", f"the run ended after step {run.step} of {run.total}: {run.ended_early}")
    if warning := rising_loss(run):
        reporter.warn("diverged", warning)
    reporter.phase("saving")
    with run.passes.running():
        gather_full_params(start.loaded.model)
    if not run.group.is_first:
        return
    output = Path(start.spec.output_dir)
    with disk_errors_explained(output, run.checkpoints):
        pooled = start.maker.max_length if isinstance(start.spec.config, RetrieverConfig) else None
        save_model(start.loaded.model, start.loaded.tokenizer, output, pooled)
    try:
        selection.remember()
    except QuintainError as error:  # the saved agent is worth more than the replay buffer
        reporter.warn("replay_not_kept", error.message)


class _Acting(NamedTuple):
    """How an online method collects its groups, and the counts of what it leaves out."""

    collect: Collect
    dataset: ExampleBatch


class _Start:
    """A run before its first step: assembles the parts."""

    def __init__(self, training: Training, reporter: Reporter, ready: Prepared, group: ProcessGroup) -> None:
        self.spec, self.data, self.directory, self.has_teacher = training
        self.reporter, self.group, self.ready = reporter, group, ready
        self.loaded, self.engine, self.machine, self.format, _ = ready
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
        return corrected(
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

    def run(self, selection: Selection, held_out: list[Example], acting: _Acting | None) -> Run:
        """Create the run at step 0, with the reference log-probs that its objective needs."""
        spec, config, model = self.spec, self.spec.config, self.loaded.model
        references = References.of(spec, self.loaded, self.engine, self.directory, self.reporter, self.passes)
        training = selection.examples
        objective = run_objective(settled(config, training), training, held_out, references, self.maker.max_length)
        identity = run_identity(spec, self.ready.weight_samples, training)
        training, held_out = (self.corrected(examples) for examples in (training, held_out))
        if objective.needs_reference:
            held_out = references.with_logprobs(held_out)
        reference = synced_reference(config, references)
        if objective.needs_reference and reference is None:
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
        sinks = config.report_to if is_first else ()
        return Run(
            config=config,
            engine=self.engine,
            machine=self.machine,
            optimizer=adamw(model, config),
            scale=loss_scale(model.device, enabled=self.format.scales_loss),
            source=source,
            objective=objective,
            penalty=penalty,
            validation=held_out,
            checkpoints=self.directory / "checkpoints",
            identity=identity,
            reporter=self.reporter,
            sinks=open_sinks(sinks, run_name=spec.name, folder=self.directory, warn=self.reporter.warn),
            tokenizer=self.loaded.tokenizer,
            sample=_sampler(self) if is_first else None,
            reference=reference,
            passes=self.passes,
        )


def _sampler(start: _Start) -> Sampler | None:
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


def _rollout_source(start: _Start, objective: Objective, references: References, acting: _Acting) -> RolloutSource:
    config = start.spec.config
    assert isinstance(config, OnlineConfig)

    def make(group: GroupRow) -> list[Example] | str:
        examples = start.maker.of_rollout(group, acting.dataset)
        if isinstance(examples, str):
            return examples
        examples = start.corrected(examples)
        if synced_reference(config, references):
            return examples
        if start.has_teacher:
            scored = start.group.from_first(lambda: with_advantages(examples, start.data.teacher))  # type: ignore[arg-type]
            return references.with_logprobs(scored, keep=False) if objective.needs_reference else scored
        return references.with_logprobs(examples, keep=False) if objective.needs_reference else examples

    def act(iteration: int) -> list[GroupRow]:
        # In the number format of training: otherwise the ratio to the behaviour policy would not start at 1.
        with start.engine.precision():
            return acting.collect(start.loaded, start.renderer, iteration)

    return RolloutSource(
        act,
        make,
        rollouts=config.rollouts,
        updates_per_rollout=config.updates_per_rollout,
        minibatches=config.minibatches if isinstance(config, PPOConfig) else 1,
        seed=start.spec.seed,
        stage=rollout_stage(config, start.engine, start.passes),
        group=start.group,
        max_steps=start.spec.config.max_steps,
        reward_model=start.reward_model,
        figures_of=start.data.figures,
    )
