"""`quintain lineage`: ancestors and descendants of a record, as trees. `quintain forget`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from quintain.cli.layout import Column, print_table
from quintain.cli.session import CommandRun, plain_console, show_next_step, write_file
from quintain.records.filters import TrajectoryFilter
from quintain.records.lineage import LineageNode
from quintain.records.text import printable
from quintain.records.wording import counted
from quintain.tools.data.lineage import LineageResult, node_text
from quintain.tools.jobs.plots import lineage_picture
from quintain.tools.results import ForgetResult
from quintain.tools.services import Services

_STYLES = {"forgotten": "red", "blocked": "red", "tainted": "yellow", "removed": "red"}
_CHOSEN = 5
"""Runs of a filter that a dry run names."""


def run_lineage(use: CommandRun) -> int:
    """Print the lineage of a thing; draw a picture where asked. Returns the exit status."""
    console = Console(emoji=False)
    services = use.services()
    found = use.call(services)
    if use.json_out:
        use.print_json(found)
    else:
        _print(console, found)
    if (png := use.own["png"]) is not None:
        write_file(png, lineage_picture(services, use.arguments["id"]), "the picture")
        console.print(f"Picture: {png}", soft_wrap=True, markup=False)
    return 0


def run_forget(use: CommandRun) -> int:
    """Print what forgetting would do, then forget where asked and confirmed. Returns the exit status."""
    console, services = plain_console(), use.services()
    if use.arguments.get("dry_run", True) or not use.own["yes"]:
        planned = use.call(services, dry_run=True)
        if not use.json_out:
            _print_chosen(console, services, use.arguments.get("filter"))
            _print_report(console, planned)
        elif use.arguments.get("dry_run", True):
            use.print_json(planned)
    if use.arguments.get("dry_run", True):
        return 0
    if not use.own["yes"] and not typer.confirm("Remove all this for good? This cannot be undone"):
        return 1
    done = use.call(services)
    use.show(done, _print_report)
    return 0


def _print_chosen(console: Console, services: Services, chosen: dict[str, Any] | None) -> None:
    """Print the first runs that a filter chooses, so that a person sees whether they are the right ones."""
    if chosen is not None:
        found = services.store.trajectories.search(TrajectoryFilter.model_validate(chosen), limit=_CHOSEN).items
        rows = [(one.id, one.outcome.value, one.prompt or one.task_id) for one in found]
        print_table(console, ("run", "outcome", Column("task", cut=True)), rows)


def _print(console: Console, found: LineageResult) -> None:
    for thing in found.things:
        console.print(_tree(thing, "derived from", found.ancestors, [(e.target, e.source) for e in found.edges]))
        console.print(_tree(thing, "used by", found.descendants, [(e.source, e.target) for e in found.edges]))
    if found.learned_from is not None:
        runs = counted(found.learned_from.count, "run")
        console.print(
            f"Its training data has {runs}, with those of its base agents and those that a training left out."
        )
    if found.shaped is not None:
        shaped = printable(", ".join(found.shaped)) or "none"
        console.print(f"Agents that learned from it: {shaped}.", markup=False)
    if found.truncated:
        console.print("There is more; see it with a larger --depth, or ask for one of these ids.")


def _tree(thing: LineageNode, what: str, nodes: Sequence[LineageNode], steps: Sequence[tuple[str, str]]) -> Tree:
    """Everything in one direction; what hangs on several things is shown in full below the first of them."""
    by_id = {node.id: node for node in nodes}
    tree = Tree(f"{_line(thing)} [dim]{what}[/dim]")
    shown = {thing.id}
    waiting = [(thing.id, tree)]
    while waiting:
        current, branch = waiting.pop(0)
        for after in dict.fromkeys(end for start, end in steps if start == current and end in by_id):
            if after in shown:
                branch.add(f"[dim]{escape(by_id[after].kind)} {_safe(after)} (see its own line)[/dim]")
            else:
                shown.add(after)
                waiting.append((after, branch.add(_line(by_id[after]))))
    if not tree.children:
        tree.add("[dim]nothing that is stored[/dim]")
    return tree


def _line(node: LineageNode) -> str:
    text = _safe(node_text(node))
    return f"[{_STYLES[node.mark]}]{text}[/]" if node.mark else text


def _safe(text: str) -> str:
    """A stored text, which others wrote: neither markup nor control characters."""
    return escape(printable(text))


def _print_report(console: Console, report: ForgetResult) -> None:
    runs, scores = counted(report.runs, "run"), counted(report.scores_removed, "score")
    what = "Would forget" if report.dry_run else "Forgotten"
    if report.runs or report.before:
        console.print(f"{what}: {runs} ({report.before} before), {scores} removed.")
    if report.twins:
        also = "with them" if report.twins_forgotten else "not forgotten"
        equal = counted(report.twins_count, "equal run")
        console.print(f"{equal} under other ids, {also}: {printable(', '.join(report.twins))}", markup=False)
    if report.touched:
        rows = [(thing.kind, thing.id, thing.state, thing.remedy) for thing in report.touched]
        print_table(console, ("touched", "id", "state", "remedy"), rows)
    removed, left = "Removed", "Still on the disk, delete it yourself"
    if report.dry_run:
        removed, left = "Would be removed", "Would stay on the disk"
    for title, paths in ((removed, report.removed), (left, report.copies)):
        for path in paths:
            console.print(printable(f"{title}: {path}"), soft_wrap=True, markup=False)
    show_next_step(console, report, "forget")
