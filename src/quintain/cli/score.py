"""`quintain score`: score stored runs from a terminal, see what could not be scored and why, and audit the rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from quintain.cli.border import REFUSED, Command
from quintain.cli.remedies import in_commands
from quintain.errors import InvalidInput
from quintain.exporters.preview_page import printable
from quintain.records.audit import AuditReport
from quintain.records.documents import read_document
from quintain.records.filters import TrajectoryFilter
from quintain.records.record import counted, explain
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.results import ScoreResult, ScoreSummary

_EVER = datetime(1970, 1, 1, tzinfo=UTC)
SUSPICIOUS = 1
"""Exit status where the audit flags the rewards."""


@dataclass(frozen=True)
class Asked:
    """What the command line asks for; None and empty: not asked."""

    scorer: str
    """A name, or a mix as `outcome=0.6,rules=0.4`."""
    everything: bool
    """Take every stored run."""
    filter: Mapping[str, Any]
    """Fields of `TrajectoryFilter`."""
    options: Mapping[str, Any]
    """Further arguments of `score_trajectories`."""


def run_score(asked: Asked, *, json_out: bool, home: Path | None) -> int:
    """Score the chosen runs and show the result.

    Returns:
        0: done, or a job was started; 1: the audit flags the rewards; 2: the request was refused.
    """
    console = Console(soft_wrap=True, highlight=False, markup=False)
    with Command(home) as command:
        arguments = {name: value for name, value in asked.options.items() if value is not None}
        if Path(str(arguments.get("rubric", ""))).suffix.lower() in {".json", ".yaml", ".yml"}:
            arguments["rubric"] = read_document(Path(arguments["rubric"]))
        scorer, chosen = _scorer(asked.scorer), _filter(asked)
        result = score_trajectories(command.services(), scorer, chosen, **arguments)
        if json_out:
            console.print(result.model_dump_json(), emoji=False)
        else:
            _show(console, result)
        return SUSPICIOUS if result.audit and result.audit["verdict"] == "suspicious" else 0
    return REFUSED


def _scorer(written: str) -> str | dict[str, float]:
    """`rules`, or `outcome=0.6,rules=0.4`.

    Raises:
        InvalidInput: a weight that is no number, or a name that comes twice.
    """
    if "=" not in written:
        return written
    pairs = [part.strip().rpartition("=") for part in written.split(",")]
    try:
        mix = {name.strip(): float(weight) for name, _, weight in pairs}
    except ValueError:
        mix = {}
    if not mix or "" in mix or len(mix) < len(pairs):
        raise InvalidInput(
            f"the mix {written!r:.80} must be NAME=WEIGHT,NAME=WEIGHT, each name once, such as outcome=0.6,rules=0.4"
        )
    return mix


def _filter(asked: Asked) -> TrajectoryFilter:
    chosen = {name: value for name, value in asked.filter.items() if value is not None and value != []}
    if asked.everything and not chosen:
        chosen = {"since": _EVER}
    if not chosen:
        raise InvalidInput(
            "which runs? Name them with --agent, --environment, --task-type, --tag or --text, or take every stored run with --all",
            code="empty_filter",
        )
    try:
        return TrajectoryFilter.model_validate(chosen)
    except ValidationError as error:
        raise InvalidInput(explain(error, "option")) from None


def _show(console: Console, result: ScoreResult) -> None:
    if result.job_id is not None:
        console.print(printable(f"{result.job_id} {result.status}: quintain jobs watch {result.job_id}"))
        console.print(printable(in_commands(result.next_step)))
        return
    console.print(
        printable(f"{result.scorer}: {counted(result.scored, 'run')} scored, {result.unscored_count:,} not"),
        style="bold",
    )
    for name, summary in ({"value": result.summary} | dict(result.components)).items():
        console.print(printable(f"  {name:<24} {_told(summary)}"))
    for reason, n in Counter(result.reasons).most_common():
        console.print(printable(f"  unscored {n:,}: {reason}"), style="yellow")
    for name, calibration in result.calibrations.items():
        console.print(printable(f"  {name} goes through calibration {calibration}"))
    if result.audit is not None:
        _show_audit(console, AuditReport.model_validate(result.audit))
    console.print(printable(in_commands(result.next_step)))


def _told(summary: ScoreSummary) -> str:
    if summary.mean is None or summary.minimum is None or summary.maximum is None:
        return "no value"
    return f"mean {summary.mean:.3f}, {summary.minimum:.3f} to {summary.maximum:.3f} ({summary.n:,})"


def _show_audit(console: Console, report: AuditReport) -> None:
    style = "bold red" if report.verdict == "suspicious" else "bold green" if report.verdict == "clean" else "bold"
    console.print(
        printable(f"audit: {report.verdict}, {report.n_rewarded:,} of {counted(report.n, 'run')} have a reward"),
        style=style,
    )
    for finding in report.findings:
        console.print(printable(f"  {finding.severity} {finding.check} ({finding.count:,}): {finding.evidence}"))
        console.print(printable(f"    {finding.remedy}"))
    for check, why in report.unchecked.items():
        console.print(printable(f"  not checked: {check}: {why}"))
