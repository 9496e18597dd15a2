"""`quintain runs`, `agents`, `datasets`, `environments` and `library`: what is stored and available, as tables."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from rich.console import Console

from quintain.cli.answers import run_tool
from quintain.cli.command_lines import explain_for_terminal
from quintain.cli.layout import Column, print_facts, print_table
from quintain.cli.session import CommandRun, plain_console, show_next_step, write_file
from quintain.environments.references import short_reference
from quintain.records.filters import TrajectorySummary
from quintain.records.run_summary import RunSummary
from quintain.records.text import printable
from quintain.records.wording import counted
from quintain.tools.results import LibraryResult, SearchResult

Row = Callable[[Mapping[str, Any]], tuple[object, ...]]


def run_runs(use: CommandRun) -> int:
    """Show a page of runs, or write all that match as a table. Return the exit status."""
    if (file := use.own["csv"]) is None:
        return run_tool(use)
    services, cursor, n_runs, text = use.services(), None, 0, io.StringIO(newline="")
    writer = csv.DictWriter(text, list(TrajectorySummary.model_fields))
    writer.writeheader()
    while True:
        page: SearchResult = use.call(services, limit=200, cursor=cursor, summary=False)
        for one in page.items:
            row = one.model_dump(mode="json") | {"tags": " ".join(one.tags)}
            writer.writerow({name: _cell(value) for name, value in row.items()})
        n_runs += len(page.items)
        if (cursor := page.next_cursor) is None:
            break
    if str(file) == "-":
        sys.stdout.write(text.getvalue())
        return 0
    write_file(file, text.getvalue(), "the table")
    console = plain_console()
    if use.json_out:
        console.print(json.dumps({"runs": n_runs, "csv": str(file)}))
    else:
        console.print(printable(f"{counted(n_runs, 'run')}: {file}"))
    return 0


def _cell(value: object) -> object:
    """Return a value of a table that a spreadsheet opens: text of a log is no formula there, and steers no terminal."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


def show_runs(console: Console, found: SearchResult) -> None:
    """Print runs, with the score by which they are sorted, else with their reward."""
    value = "score" if any(one.score is not None for one in found.items) else "reward"
    numbers = (Column(value, right=True), Column("turns", right=True))
    rows = [
        (one.id, one.outcome.value, getattr(one, value), one.steps, _short(one.agent), one.prompt or one.task_id)
        for one in found.items
    ]
    if rows:
        print_table(console, ("run", "outcome", *numbers, "agent", Column("task", cut=True)), rows)
    if found.summary is not None:
        _show_summary(console, found.summary)
    show_next_step(console, found)


def _show_summary(console: Console, figures: RunSummary) -> None:
    """Print the figures of all runs that a search found."""
    rate = figures.rate
    success = None
    if rate is not None and rate.value is not None:
        success = (
            f"{share(rate.value)} of {rate.n} with a verdict (95 %: {share(rate.ci_low)} to {share(rate.ci_high)})"
        )
    known = figures.model_dump(mode="json")
    tokens = ("input_tokens", "output_tokens", "tokens_per_success")
    console.print()
    print_facts(
        console,
        {
            "runs": f"{counted(figures.runs, 'run')} of {counted(figures.tasks, 'task')}",
            "outcomes": known["outcomes"],
            "success": success,
            "pass@k": {f"k={one.k}": share(one.value) for one in figures.pass_at_k},
            "pass^k": {f"k={one.k}": share(one.value) for one in figures.pass_hat_k},
            "failures": known["failures"],
            "turns of a run": figures.mean_turns,
            **{name: known[name] for name in (*tokens, "cost_usd", "cost_per_success")},
            "accuracy of labels": figures.accuracy,
            "macro F1 of labels": figures.macro_f1,
        },
    )
    if figures.tools:
        columns = [Column("tool"), *(Column(name, right=True) for name in ("calls", "errors", "runs", "successes"))]
        tools = [(name, one.calls, one.errors, one.runs, one.successes) for name, one in figures.tools.items()]
        print_table(console, columns, tools)
    if figures.labels:
        columns = [Column("label"), *(Column(name, right=True) for name in ("precision", "recall", "f1"))]
        rows = [
            (name, one.precision, one.recall, one.f1, ", ".join(f"{answer} {n}" for answer, n in one.answered.items()))
            for name, one in figures.labels.items()
        ]
        print_table(console, [*columns, Column("answered")], rows)
    console.print()


def show_library(console: Console, found: LibraryResult) -> None:
    """Print what the library has of one kind."""
    if not found.items:
        console.print(f"No {found.kind} found.")
    elif found.kind in _TABLES:
        columns, row = _TABLES[found.kind]
        print_table(console, columns, [row(item) for item in found.items])
    else:
        print_facts(console, {found.kind: found.items})
    for item in found.items:
        if note := item.get("note"):
            console.print(f"{item['id']}: {note}", markup=False)
    if found.next_cursor:
        console.print(f"There are more: --limit up to 200, or --cursor {found.next_cursor}")
    show_next_step(console, found, "library")


def moment(value: object) -> str:
    """Return a time to the minute, in UTC."""
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return f"{time:%Y-%m-%d %H:%M}" if isinstance(time, datetime) else ""


def share(value: float | None) -> str:
    """Return a rate in percent."""
    return "unknown" if value is None else f"{value:.1%}"


def _short(agent: str) -> str:
    return agent.removeprefix("agent:")


def _dataset(item: Mapping[str, Any]) -> tuple[object, ...]:
    splits = ", ".join(f"{name} {n}" for name, n in item.get("splits", {}).items())
    return item["id"], item["name"], item["kind"], item["rows"], splits, moment(item["created_at"])


def _agent(item: Mapping[str, Any]) -> tuple[object, ...]:
    (result,) = item["results"] or [None]
    tasks = "" if result is None else f"{share(result['success_rate'])} of {result['n']}"
    where = "" if result is None else short_reference(result["environment"])
    origin = item.get("parent") or item["model"]["source"]
    return _short(item["id"]), _short(origin), tasks, where, moment(item["created_at"])


def _evaluation(item: Mapping[str, Any]) -> tuple[object, ...]:
    rate = item["rate"]
    return (
        item["id"],
        _short(item["agent_id"]),
        share(rate["value"]),
        rate["n"],
        short_reference(item["environment"]),
        moment(item["created_at"])[:10],
    )


def _comparison(item: Mapping[str, Any]) -> tuple[object, ...]:
    agents = ", ".join(map(_short, item["agents"]))
    found = f"{item['significant']} of {item['pairs']}"
    return (
        item["id"],
        agents,
        short_reference(item["environment"]),
        found,
        item["flips"],
        moment(item["created_at"])[:10],
    )


def _environment(item: Mapping[str, Any]) -> tuple[object, ...]:
    tools = item.get("tools")  # of an MCP server a text, where all are taken
    return item["id"], item.get("about") or item.get("unusable") or "", len(tools) if isinstance(tools, list) else ""


def _calibration(item: Mapping[str, Any]) -> tuple[object, ...]:
    return item["id"], item["scorer"], item["version"], item["labels"], moment(item["created_at"])


def _scorer(item: Mapping[str, Any]) -> tuple[object, ...]:
    return item["name"], explain_for_terminal(item.get("about") or "", "score"), item.get("source", "")


def _method(item: Mapping[str, Any]) -> tuple[object, ...]:
    return item["method"], item["summary"], item.get("dataset_kind") or ""


_TABLES: Mapping[str, tuple[tuple[Column | str, ...], Row]] = {
    "datasets": (("dataset", "name", "kind", Column("rows", right=True), "splits", "created (UTC)"), _dataset),
    "agents": (("agent", "from", "success", "environment", "created (UTC)"), _agent),
    "evaluations": (
        ("evaluation", "agent", "success", Column("tasks", right=True), "environment", "created"),
        _evaluation,
    ),
    "comparisons": (
        (
            "comparison",
            "agents, best first",
            Column("environment", fold=True),
            "significant",
            Column("flips", right=True),
            "created",
        ),
        _comparison,
    ),
    "environments": (("environment", "about", Column("tools", right=True)), _environment),
    "calibrations": (("calibration", "scorer", "version", "labels", "created (UTC)"), _calibration),
    "scorers": (("scorer", "about", "source"), _scorer),
    "methods": (("method", "about", "data"), _method),
}
