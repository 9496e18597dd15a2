"""`quintain train`: start a training or a recipe from a file or from options, and watch it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from quintain.cli.commands.jobs import follow_start, show_job
from quintain.cli.session import CommandRun, in_line, plain_console
from quintain.errors import InvalidInput
from quintain.records.documents import read_document
from quintain.records.hyperparameters.foreign_settings import DATASETS
from quintain.records.jobs.job import JobResult
from quintain.records.text import printable
from quintain.records.wording import shown
from quintain.tools.training.config_files import start_config
from quintain.tools.training.foreign_files import canonical_document
from quintain.tools.training.start import copy_model, output_folder

_SOURCES = ("dataset", "text", "environment")


def run_train(use: CommandRun) -> int:
    """Start what the file and the options ask for and follow it."""
    config: Path | None = use.own["config"]
    request = request_of(use.arguments)
    document = _document(config, request)
    services = use.services()
    settings = use.arguments.get("hyperparameters", {})
    folder = config.absolute().parent if config is not None else Path.cwd()
    stated = _folder(document.pop("output_dir", None))
    named = use.own["output_dir"] or stated
    if use.detach and named is not None:
        text = f"{named} gets no copy of the model, because --detach returns before; use quintain export-agent later"
        plain_console(stderr=True).print(printable(text))
    with output_folder(None if use.detach else named) as target:
        where = "arguments" if config is None else "config"
        started = start_config(services, document, settings, folder, where=where)
    view = follow_start(services, use, started)
    if target is not None and view.result is not None and view.result.agent:
        agent = services.store.agents.get(view.result.agent)
        copy_model(agent.model.own_path, target)
        plain_console(stderr=use.json_out).print(printable(f"model: {target}"))
    return show_job(use, view, _show)


def _folder(name: object) -> Path | None:
    """Return the folder of `output_dir` of a config file, to which the trained model is copied."""
    if not isinstance(name, str | None):
        raise InvalidInput(f"output_dir: expected a path, got {shown(name)}; name a folder, or leave it out")
    return None if name is None else Path(name).expanduser()


def request_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `start_training`, without its settings, by the names of config files."""
    names = {"dataset_id": "dataset"}
    return {names.get(name, name): value for name, value in arguments.items() if name != "hyperparameters"}


def _document(config: Path | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if config is None and "method" not in arguments:
        raise InvalidInput(
            "expected a method, got none; give --config FILE, or --method with --dataset or --environment"
        )
    document = canonical_document(read_document(config)) if config is not None else {}
    if any(source in arguments for source in _SOURCES):
        document = {key: value for key, value in document.items() if key not in {*_SOURCES, *DATASETS}}
    return {**document, **arguments}


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
            console.print(printable(f"{name}: {in_line(value)}"))
    for stage in result.report.get("stages", ()):
        results = {name: stage.get(name) for name in ("agent", "final_loss", "success_rate")}
        console.print(printable(f"  {stage['stage']}: {in_line(results)}"))
