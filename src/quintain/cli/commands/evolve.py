"""`quintain evolve`: start an evolution, watch it, and show what each round brought."""

from __future__ import annotations

from rich.console import Console

from quintain.cli.commands.library import share
from quintain.cli.commands.train import document_of, follow_config
from quintain.cli.layout import print_table
from quintain.cli.session import CommandRun
from quintain.errors import InvalidInput
from quintain.records.jobs.evolve import RoundReport
from quintain.records.jobs.job import JobResult
from quintain.records.text import printable
from quintain.records.wording import shown
from quintain.tools.training.foreign_files import canonical_document

_COLUMNS = ("round", "explored", "solved", "selected", "success", "gain [95 %]", "decision")


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
    rounds = [RoundReport.model_validate(one) for one in result.report.get("rounds", ())]
    rows = []
    for one in rounds:
        gain = "" if one.gain is None else f"{one.gain:+.1%} [{one.ci_low or 0:+.0%}, {one.ci_high or 0:+.0%}]"
        cells = (one.round, one.explored, share(one.explored_success), one.selected, share(one.success))
        rows.append((*cells, gain, one.decision.replace("_", " ")))
    print_table(console, _COLUMNS, rows)
    console.print(printable(f"It ended by {result.report.get('stopped')}."))
    final = result.report.get("final", {})
    gain_line = f"On tasks that no round was selected by: {share(final.get('before'))} before, {share(final.get('after'))} after"
    if "gain" in final:
        gain_line += (
            f" ({final['gain']:+.1%}, 95 % {final['ci_low']:+.1%} to {final['ci_high']:+.1%}, p = {final['p']:.2g})"
        )
    console.print(f"{gain_line}.")
    console.print(printable(f"agent: {result.agent}"))
