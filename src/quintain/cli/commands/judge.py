"""`quintain judge`: a person judges at the terminal, or by files; and how far raters agree."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from quintain.cli.command_lines import explain_for_terminal
from quintain.cli.commands.record import read_json
from quintain.cli.layout import print_table
from quintain.cli.session import CommandRun, plain_console, show_next_step
from quintain.errors import InvalidInput
from quintain.records.text import printable
from quintain.records.wording import shown
from quintain.tools.catalog import Answer, Entry, Question, tool
from quintain.tools.invocation import call, check
from quintain.tools.labels.judging.agreement import agreement
from quintain.tools.labels.judging.results import Agreement, SubmitResult
from quintain.tools.labels.judging.tools import ROUNDS, ask_person
from quintain.tools.services import Services

_MAX_BYTES = 16 * 2**20
_STOP = "q"


def run_judge(use: CommandRun) -> int:
    """Judge, make a batch, take answers, or show the agreement; returns the exit status: 0 done, 2 refused."""
    services = use.services()
    if use.own["agreement"]:
        _show_agreement(use, agreement(services, services.store.judging.iterate()))
    elif use.own["answers"] is not None:
        use.show(call(services, tool("submit_scores").for_operator, _answers(use.own["answers"])), _show_submitted)
    elif use.json_out or use.arguments["judge"] == "assistant":
        use.print_json(use.call(services))
    else:
        _interview(use, services, check(use.spec, use.arguments))
    return 0


def _answers(file: str) -> dict[str, Any]:
    value = read_json(file, _MAX_BYTES)
    if not isinstance(value, dict):
        raise InvalidInput(
            f'{file!r} contains {shown(value)}; expected answers as {{"batch_id": ..., "scores": [...]}}'
        )
    return value


def _interview(use: CommandRun, services: Services, arguments: dict[str, Any]) -> None:
    """Ask at the terminal until all wanted items are judged, none is left, or the person stops."""
    console, left = plain_console(), arguments["limit"]
    while left > 0:
        asked = ask_person(services, None, **{**arguments, "limit": min(left, ROUNDS)})
        stopped = False
        while isinstance(asked, Question):
            answer, stopped = (Answer("decline", asked.state), True) if stopped else _answer(console, asked)
            asked = ask_person(services, answer, **arguments)
        if asked is None:
            raise InvalidInput(
                "only a person is asked at the terminal; an assistant judges with --judge assistant --json"
            )
        if asked.submitted is not None:
            _show_submitted(console, asked.submitted)
        else:
            show_next_step(console, asked)
        left -= ROUNDS
        if stopped or asked.submitted is None:
            return


def _answer(console: Console, question: Question) -> tuple[Answer, bool]:
    """Return the person's answer, and whether they stop here; a complete form counts even then."""
    console.print(printable(question.message))
    console.print(f"\nAn empty line skips an optional entry; {_STOP} stops, and earlier answers stay stored.")
    values: dict[str, str] = {}
    for entry in question.entries:
        value = _line(console, entry)
        if value is None:
            is_whole = bool(values) and all(one.name in values for one in question.entries if one.required)
            return Answer("accept" if is_whole else "decline", question.state, values), True
        if value:
            values[entry.name] = value
    return Answer("accept", question.state, values), False


def _line(console: Console, entry: Entry) -> str | None:
    """Return one entry of the form; a choice may be shortened. None: the person stops."""
    options = f" [{' / '.join(entry.options)}]" if entry.options else ""
    while True:
        try:
            value = console.input(printable(f"{entry.title}{options}: "), markup=False, emoji=False).strip()
        except (EOFError, KeyboardInterrupt):
            console.print()
            return None
        if value.lower() == _STOP:
            return None
        if not value and not entry.required:
            return ""
        meant = [option for option in entry.options if value and option.lower().startswith(value.lower())]
        if not entry.options and value:
            return value
        if len(meant) == 1 or value in entry.options:
            return value if value in entry.options else meant[0]
        console.print(f"Please choose one of: {', '.join(entry.options)}")


def _show_submitted(console: Console, result: SubmitResult) -> None:
    console.print(f"{result.accepted} stored, {len(result.rejected)} rejected, {len(result.remaining)} open.")
    for one in result.rejected:
        console.print(printable(f"{one.item_id}: {explain_for_terminal(one.reason, 'judge')}"))
    for warning in result.warnings:
        console.print(printable(explain_for_terminal(warning, "judge")))
    for run in result.corrections:
        console.print(f"Correction stored as {run}.")


def _show_agreement(use: CommandRun, found: Agreement | None) -> None:
    console = plain_console()
    if use.json_out:
        console.print(found.model_dump_json() if found else "null", emoji=False)
        return
    if found is None:
        console.print("No run was judged by two raters, and no pair was shown in both orders: nothing to compare.")
        return
    rows = [
        (pair.a, pair.b, pair.n, *map(_number, (pair.kappa, pair.kappa_weighted, pair.mean_difference)))
        for pair in found.pairs
    ]
    print_table(console, ("rater", "rater", "runs", "kappa", "weighted kappa", "mean difference"), rows)
    console.print(f"All raters: alpha {_number(found.alpha)} over {found.shared_runs} runs that several gave a value.")
    if found.shared_preferences:
        pairs = f"{found.shared_preferences} pairs of runs that several compared"
        console.print(f"Preferences: alpha {_number(found.preference_alpha)} over {pairs}.")
    for order in found.order:
        console.print(
            printable(
                f"{order.rater}: {order.consistent} of {order.swapped} pairs answered alike in both orders; first place "
                f"{order.first}, second {order.second}, p = {_number(order.p)}."
            )
        )


def _number(value: object) -> str:
    return "not defined" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
