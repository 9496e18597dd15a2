"""`quintain evolve`: start an evolution, watch it, and see what each round brought and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from quintain.cli.border import REFUSED, Command
from quintain.cli.jobs import watch
from quintain.cli.train import read_settings
from quintain.errors import InvalidInput
from quintain.exporters.preview_page import printable
from quintain.records.documents import read_document
from quintain.records.evolve import RoundReport
from quintain.records.job import UNFINISHED, JobResult
from quintain.records.record import shown
from quintain.tools.training.config_files import start_config

_COLUMNS = ("round", "explored", "solved", "selected", "success", "gain [95 %]", "decision")


def run_evolve(
    config: Path | None,
    given: Mapping[str, Any],
    chosen: Mapping[str, Any],
    settings: Sequence[str],
    *,
    detach: bool,
    home: Path | None,
) -> int:
    """Start an evolution and follow it; returns the exit status.

    Args:
        config: A file with a request of method `evolve`.
        given: Parts of the request that take the place of the file's.
        chosen: Settings that have options of their own.
        settings: Settings as KEY=VALUE, which go before the file's.
        detach: Do not wait for the end.
        home: The home folder; None: the one of the settings.

    Returns:
        0: succeeded (or started, with `detach`); 1: ended otherwise; 2: not started; 130: left running by Ctrl-C.
    """
    console = Console(soft_wrap=True)
    with Command(home) as command:
        document = {"method": "evolve", **(read_document(config) if config is not None else {})}
        if document["method"] != "evolve" or "stages" in document:
            raise InvalidInput(
                f"{config} is a file of method {shown(document['method'])}; quintain train --config takes those"
            )
        changes = read_settings(settings)
        if twice := sorted(chosen.keys() & changes.keys()):
            raise InvalidInput(f"--{twice[0]} and --set {twice[0]} say the same; give one of them")
        folder = config.absolute().parent if config is not None else Path.cwd()
        services = command.services()
        started = start_config(services, {**document, **given}, {**changes, **chosen}, folder)
        if detach:
            console.print(started.job_id, markup=False)
            return 0
        view = watch(services, started.job_id, console)
        if view.status in UNFINISHED:
            return 130
        if view.result is not None:
            _show(console, view.result)
        if view.error is not None:
            told = f"[{view.error.code}] {view.error.message} {view.error.hint}".strip()
            console.print(printable(told), style="red", markup=False)
        console.print(printable(f"{view.job_id} is {view.status}. {view.next_step}"), markup=False)
        return 0 if view.status == "succeeded" else 1
    return REFUSED


def _show(console: Console, result: JobResult) -> None:
    rounds = [RoundReport.model_validate(one) for one in result.report.get("rounds", ())]
    table = Table(*_COLUMNS, box=None)
    for one in rounds:
        gain = "" if one.gain is None else f"{one.gain:+.1%} [{one.ci_low or 0:+.0%}, {one.ci_high or 0:+.0%}]"
        cells = (one.round, one.explored, _share(one.explored_success), one.selected, _share(one.success))
        table.add_row(*map(str, cells), gain, one.decision.replace("_", " "))
    console.print(table)
    console.print(printable(f"It ended by {result.report.get('stopped')}."), markup=False)
    final = result.report.get("final", {})
    told = f"On tasks that no round was chosen by: {_share(final.get('before'))} before, {_share(final.get('after'))} after"
    if "gain" in final:
        told += f" ({final['gain']:+.1%}, 95 % {final['ci_low']:+.1%} to {final['ci_high']:+.1%}, p = {final['p']:.2g})"
    console.print(f"{told}.", markup=False, highlight=False)
    console.print(printable(f"agent: {result.agent}"), markup=False)


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"
