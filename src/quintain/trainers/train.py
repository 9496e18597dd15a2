"""Train an agent's model by any method: load, create examples, run the loop, save, report."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from quintain.errors import QuintainError
from quintain.records.dataset import GroupRow
from quintain.records.hyperparameters.methods import RetrieverConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.protocols import Reporter
from quintain.trainers.data.example_selection import Selection, select
from quintain.trainers.data.examples import ExampleBatch
from quintain.trainers.distributed.process_group import ProcessGroup, group_of
from quintain.trainers.distributed.sharding import gather_full_params
from quintain.trainers.engine.machine import tune_allocator
from quintain.trainers.loop.checkpoints import disk_errors_explained
from quintain.trainers.loop.loop import Run, resume
from quintain.trainers.loop.loop import train as run_loop
from quintain.trainers.loop.report import (
    TrainingReport,
    above_limit,
    end_warnings,
    idle_options,
    label_warnings,
    left_out,
    nothing_supervised,
    report_of,
    without_validation,
)
from quintain.trainers.models.loading import LoadedModel, save_model
from quintain.trainers.preparation import (
    prepare_training,
    seed_everything,
    with_heads,
    with_rate,
)
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.rollouts.source import RolloutSource
from quintain.trainers.run_setup import Acting, Collect, Data, RunSetup, Training, no_figures


def train(
    spec: TrainSpec,
    data: Data,
    directory: Path,
    reporter: Reporter,
    collect: Collect | None = None,
    *,
    all_collect: bool = False,
) -> TrainingReport:
    """Train an agent's model; resume from the newest complete checkpoint below `directory`, if there is one.

    With `processes` above 1, this is the first process of a group, and the others are in `follow`.

    Args:
        spec: Agent, method with its hyperparameters, seed and output folder.
        data: The dataset's rows; empty for online training.
        directory: The job's folder.
        reporter: Receives phases, steps, checkpoints and warnings, and can stop the run.
        collect: Online training: lets the model act.
        all_collect: Whether it lets the models of the other processes act too, with those that `follow` got.

    Raises:
        TrainingFailed: Nothing to learn from (`nothing_supervised`), or a loss that is not finite (`diverged`).
        Conflict: The checkpoints belong to another run.
        InvalidInput: `processes` is above 1, and no launcher has started them (`no_process_group`).
    """
    spec = with_heads(spec, [*data.train, *data.validation])
    group = group_of(spec.config.processes)
    has_teacher = data.teacher is not None
    if group.size > 1:
        common = replace(data, teacher=None, figures=no_figures, evaluate=None)
        group.from_first(lambda: Training(spec, common, directory, has_teacher, all_collect))
    return _train(Training(spec, data, directory, has_teacher, all_collect), reporter, collect, group)


def follow(group: ProcessGroup, reporter: Reporter, partner: Callable[[TrainSpec, Path, Reporter], Collect]) -> None:
    """Take part in every training of the first process, until it leaves the group.

    Args:
        group: The processes.
        reporter: Requests a stop; the first process reports to it.
        partner: Returns what a process calls to take part in rollouts, where all do.

    Raises:
        TrainingFailed: The first process has failed (`process_lost`), or the training has.
    """
    while (training := group.from_first(_no_training)) is not None:
        spec, directory = training.spec, training.directory
        collect = partner(spec, directory, reporter) if training.all_collect else _not_collected
        _train(training, reporter, collect, group)


def _no_training() -> Training | None:
    return None


def _not_collected(loaded: LoadedModel, renderer: Renderer, iteration: int) -> list[GroupRow]:
    raise AssertionError("only the first process collects rollouts")


def _train(training: Training, reporter: Reporter, collect: Collect | None, group: ProcessGroup) -> TrainingReport:
    """Train, in every process of the group alike."""
    spec, data, directory, *_ = training
    collect = collect if spec.environment is not None else None
    tune_allocator(keep=spec.config.sharding == "none")
    reporter.phase("loading_model")
    seed_everything(spec.seed)
    ready = prepare_training(spec, data.train, directory, group, acts=collect is not None)
    spec, rate_rule = with_rate(spec, ready.loaded)
    start = RunSetup(training._replace(spec=spec), reporter, ready, group)

    reporter.phase("rendering")
    dataset, held_out = start.examples_of(data.train), start.examples_of(data.validation)
    length = start.maker.max_length
    if collect is None and not dataset.examples:
        raise nothing_supervised(dataset.dropped, f"{len(data.train)} rows", length, start.loaded.context_tokens)
    selection = select(dataset, spec, start.maker, start.engine, directory, start.passes)
    warnings = [*start.warnings(), *left_out(dataset, len(data.train), spec.config, length), *selection.notes]
    warnings += left_out(held_out, len(data.validation), spec.config, length, "validation")
    warnings += label_warnings(spec.config, dataset.examples, held_out.examples)
    warnings += idle_options(spec.config, dataset.examples)
    warnings += [] if held_out.examples else without_validation(spec.config, online=collect is not None)
    for warning in warnings:
        reporter.warn("training", warning)
    run = start.run(selection, held_out.examples, collect and Acting(collect, dataset))
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


def _conclude(run: Run, dataset: ExampleBatch, start: RunSetup, selection: Selection) -> None:
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
    for code, warning in end_warnings(run, dataset):
        reporter.warn(code, warning)
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
