"""`quintain evolve`: start an evolution, watch it, and show what each round brought."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from quintain.cli.commands.evaluate import print_report
from quintain.cli.commands.jobs import follow_start, show_job
from quintain.cli.commands.train import request_of
from quintain.cli.session import CommandRun
from quintain.errors import InvalidInput
from quintain.evaluation.reports.report import Report
from quintain.records.documents import read_document
from quintain.records.jobs.job import JobResult
from quintain.records.wording import shown
from quintain.tools.jobs.evolution_report import evolution_sections
from quintain.tools.training.config_files import start_config


def run_evolve(use: CommandRun) -> int:
    """Start an evolution and follow it."""
    config: Path | None = use.own["config"]
    document = {"method": "evolve", **(read_document(config) if config is not None else {})}
    if document["method"] != "evolve" or "stages" in document:
        raise InvalidInput(
            f"{config} is a file of method {shown(document['method'])}; start it with quintain train --config"
        )
    settings = dict(use.arguments.get("hyperparameters", {}))
    chosen = {name: use.own[name] for name in ("iterations", "train") if use.own[name] is not None}
    if twice := sorted(chosen.keys() & settings.keys()):
        raise InvalidInput(f"--{twice[0]} and --set {twice[0]} give the same setting; give one of them")
    folder = config.absolute().parent if config is not None else Path.cwd()
    services = use.services()
    document |= request_of(use.arguments)
    where = "arguments" if config is None else "config"
    view = follow_start(services, use, start_config(services, document, {**settings, **chosen}, folder, where=where))
    return show_job(use, view, _show)


def _show(console: Console, result: JobResult) -> None:
    print_report(console, Report(f"agent: {result.agent}", evolution_sections(result)))
