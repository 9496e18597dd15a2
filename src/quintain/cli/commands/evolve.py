"""`quintain evolve`: start an evolution, watch it, and show what each round brought."""

from __future__ import annotations

from rich.console import Console

from quintain.cli.commands.evaluate import print_report
from quintain.cli.commands.train import document_of, follow_config
from quintain.cli.session import CommandRun
from quintain.errors import InvalidInput
from quintain.evaluation.reports.report import Report
from quintain.records.jobs.job import JobResult
from quintain.records.wording import shown
from quintain.tools.jobs.evolution_report import evolution_sections
from quintain.tools.training.foreign_files import canonical_document


def run_evolve(use: CommandRun) -> int:
    """Start an evolution and follow it."""
    document = document_of(use)
    method = canonical_document(document).get("method", "evolve")
    if method != "evolve" or "stages" in document:
        raise InvalidInput(
            f"{use.own['config']} is a file of method {shown(method)}; start it with quintain train --config"
        )
    settings = dict(use.arguments.get("hyperparameters", {}))
    chosen = {name: use.own[name] for name in ("iterations", "train") if use.own[name] is not None}
    if twice := sorted(chosen.keys() & settings.keys()):
        raise InvalidInput(f"--{twice[0]} and --set {twice[0]} give the same setting; give one of them")
    return follow_config(use, document, {**settings, **chosen}, _show)


def _show(console: Console, result: JobResult) -> None:
    print_report(console, Report(f"agent: {result.agent}", evolution_sections(result)))
