"""`quintain train`: start a training or a recipe from a file or from options, and watch it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from quintain.cli.commands.jobs import follow_start, show_job
from quintain.cli.session import CommandRun, one_line, plain_console
from quintain.errors import InvalidInput
from quintain.records.documents import read_document
from quintain.records.jobs.job import JobResult
from quintain.records.text import printable
from quintain.tools.training.config_files import start_config, stated_folder
from quintain.tools.training.start import copy_model, output_folder

_KEYS = {"dataset_id": "dataset"}
"""Argument of `start_training` -> key of config files."""


def run_train(use: CommandRun) -> int:
    """Start what the file and the options ask for and follow it."""
    if use.own["config"] is None and "method" not in use.arguments:
        raise InvalidInput(
            "expected a method, got none; give --config FILE, or --method with --dataset or --environment"
        )
    return follow_config(use, document_of(use), use.arguments.get("hyperparameters", {}), _show)


def document_of(use: CommandRun) -> dict[str, Any]:
    """Return the file of --config as a mapping; empty without one."""
    config: Path | None = use.own["config"]
    return {} if config is None else read_document(config)


def follow_config(
    use: CommandRun,
    document: Mapping[str, Any],
    settings: Mapping[str, Any],
    show: Callable[[Console, JobResult], None],
) -> int:
    """Start what a file and the options ask for, follow it, and copy its model to the folder that is named."""
    config: Path | None = use.own["config"]
    folder, where = (Path.cwd(), "arguments") if config is None else (config.absolute().parent, "config")
    given = use.own.get("output_dir")
    named = stated_folder(document) if given is None else str(given)
    if use.detach and named is not None:
        text = f"{named} gets no copy of the model, because --detach returns before; use quintain export-agent later"
        plain_console(stderr=True).print(printable(text))
    options = {_KEYS.get(name, name): value for name, value in use.arguments.items() if name != "hyperparameters"}
    services = use.services()
    with output_folder(None if use.detach else named) as target:
        started = start_config(services, document, settings, folder, where=where, options=options)
    view = follow_start(services, use, started)
    if target is not None and view.result is not None and view.result.agent:
        agent = services.store.agents.get(view.result.agent)
        copy_model(agent.model.own_path, target)
        plain_console(stderr=use.json_out).print(printable(f"model: {target}"))
    return show_job(use, view, show)


def _show(console: Console, result: JobResult) -> None:
    facts = {
        "agent": result.agent,
        "loss of the last step": result.final_loss,
        "validation loss": result.report.get("best_validation_loss"),
        "success rate": result.success_rate,
        "evaluation": result.evaluation_id,
    }
    for name, value in facts.items():
        if value is not None:
            console.print(printable(f"{name}: {one_line(value)}"))
    for stage in result.report.get("stages", ()):
        results = {name: stage.get(name) for name in ("agent", "final_loss", "success_rate")}
        console.print(printable(f"  {stage['stage']}: {one_line(results)}"))
