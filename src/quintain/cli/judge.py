"""`quintain judge`: a person judges at the terminal, or by files; and how far raters agree."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from quintain.cli.border import REFUSED, Command
from quintain.cli.remedies import in_commands
from quintain.errors import InvalidInput, NotFound
from quintain.exporters.preview_page import printable
from quintain.records.filters import TrajectoryFilter
from quintain.records.judging import Judge, JudgingMode
from quintain.records.record import shown
from quintain.scoring.judges.rubrics import read_rubric_file
from quintain.tools.calls import check
from quintain.tools.catalog import CATALOG
from quintain.tools.labels.judging.agreement import agreement
from quintain.tools.labels.judging.results import Agreement, JudgingBatchResult, SubmitResult
from quintain.tools.labels.judging.tools import ROUNDS, ask_person, get_judging_batch, submit_file, submit_scores
from quintain.tools.services import Services
from quintain.tools.spec import Answer, Entry, Question

_MAX_BYTES = 16 * 2**20
_STOP = "q"
_BATCH = next(spec for spec in CATALOG if spec.function is get_judging_batch)
_SUBMIT = next(spec for spec in CATALOG if spec.function is submit_scores)


@dataclass(frozen=True)
class Asked:
    """What the command line asks for; None and empty: not asked."""

    answers: str | None
    """JSON file of answers to a batch; `-` is standard input."""
    judge: Judge
    mode: JudgingMode
    rubric: str | None
    """Name, or a JSON or YAML file."""
    rater: str | None
    limit: int
    seed: int
    filter: Mapping[str, Any]
    """Fields of `TrajectoryFilter`."""
    agreement: bool


def run_judge(asked: Asked, *, json_out: bool, home: Path | None) -> int:
    """Judge, give out a batch, take answers, or show the agreement; returns the exit status: 0 done, 2 refused."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    with Command(home) as command:
        services = command.services()
        if asked.agreement:
            _agreement(console, agreement(services, services.store.judging.iterate()), json_out=json_out)
        elif asked.answers is not None:
            _submitted(console, submit_file(services, **check(_SUBMIT, _answers(asked.answers))), json_out=json_out)
        elif json_out or asked.judge == "assistant":
            console.print(get_judging_batch(services, **_arguments(asked)).model_dump_json(), emoji=False)
        else:
            _interview(console, services, _arguments(asked))
        return 0
    return REFUSED


def _arguments(asked: Asked) -> dict[str, Any]:
    """The arguments of `get_judging_batch`, checked as it checks them."""
    rubric: Any = asked.rubric
    if rubric is not None and Path(rubric).suffix.lower() in {".json", ".yaml", ".yml"}:
        rubric = read_rubric_file(Path(rubric)).model_dump(mode="json")
    chosen = TrajectoryFilter.model_validate({name: value for name, value in asked.filter.items() if value})
    given = {
        "limit": asked.limit,
        "judge": asked.judge,
        "mode": asked.mode,
        "rubric": rubric,
        "rater": asked.rater,
        "seed": asked.seed,
        "filter": None if chosen.is_empty else chosen,
    }
    return check(_BATCH, {name: value for name, value in given.items() if value is not None})


def _answers(file: str) -> dict[str, Any]:
    try:
        data = sys.stdin.buffer.read(_MAX_BYTES + 1) if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise NotFound(
            f"{file!r} cannot be read ({error.strerror}); give a JSON file, or - for standard input"
        ) from None
    if len(data) > _MAX_BYTES:
        raise InvalidInput(
            f"{file!r} holds more than {_MAX_BYTES:,} bytes; submit the answers in parts", code="too_large"
        )
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{file!r} is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise InvalidInput(f'{file!r} holds {shown(value)}; answers are {{"batch_id": ..., "scores": [...]}}')
    return value


def _interview(console: Console, services: Services, arguments: dict[str, Any]) -> None:
    """Ask at the terminal until all that was wanted is judged, nothing is left, or the person stops."""
    left = arguments["limit"]
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
        _round(console, asked)
        left -= ROUNDS
        if stopped or asked.submitted is None:
            return


def _answer(console: Console, question: Question) -> tuple[Answer, bool]:
    """What the person puts in, and whether they stop here; what was complete by then is an answer all the same."""
    console.print(printable(question.message))
    console.print(f"\nAn empty line leaves out what may stay empty; {_STOP} stops, and what was answered stays.")
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
    """What the person puts in; a choice may be shortened. None: they stop."""
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


def _round(console: Console, result: JudgingBatchResult) -> None:
    if result.submitted is not None:
        _submitted(console, result.submitted, json_out=False)
    else:
        console.print(printable(in_commands(result.next_step)))


def _submitted(console: Console, result: SubmitResult, *, json_out: bool) -> None:
    if json_out:
        console.print(result.model_dump_json(), emoji=False)
        return
    console.print(f"{result.accepted} stored, {len(result.rejected)} rejected, {len(result.remaining)} open.")
    for one in result.rejected:
        console.print(printable(in_commands(f"{one.item_id}: {one.reason}")))
    for warning in result.warnings:
        console.print(printable(in_commands(warning)))
    for run in result.corrections:
        console.print(f"Correction stored as {run}.")


def _agreement(console: Console, found: Agreement | None, *, json_out: bool) -> None:
    if json_out:
        console.print(found.model_dump_json() if found else "null", emoji=False)
        return
    if found is None:
        console.print(
            "No runs were judged by two raters, and no pair was shown in both orders: there is nothing to compare."
        )
        return
    table = Table("rater", "rater", "runs", "kappa", "weighted kappa", "mean difference", box=None)
    for pair in found.pairs:
        _row(table, pair.a, pair.b, pair.n, pair.kappa, pair.kappa_weighted, pair.mean_difference)
    console.print(table)
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


def _row(table: Table, *cells: object) -> None:
    table.add_row(*(printable(cell) if isinstance(cell, str) else _number(cell) for cell in cells))


def _number(value: object) -> str:
    return "not defined" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
