"""`quintain score` and `quintain calibrate`: score stored runs, audit the rewards, and fit a scorer to labels."""

from __future__ import annotations

from collections import Counter

from rich.console import Console

from quintain.cli.command_lines import explain_for_terminal
from quintain.cli.commands.jobs import follow_start, show_job
from quintain.cli.session import CommandRun, plain_console, show_next_step, write_file
from quintain.records.labels.audit import AuditReport
from quintain.records.text import printable
from quintain.records.wording import counted
from quintain.tools.labels.calibration import calibration_picture, calibration_table
from quintain.tools.results import ScoreResult, ScoreSummary

SUSPICIOUS = 1
"""Exit status where the audit flags the rewards."""


def run_score(use: CommandRun) -> int:
    """Score the chosen runs, by a job where a model scores them, and show the result; 1 where the audit flags the rewards."""
    combine = {"combine": "lower_bound"} if use.own["lower_bound"] else {}
    services = use.services()
    result = use.call(services, **combine)
    if result.job_id is not None:
        return show_job(use, follow_start(services, use, result))
    use.show(result, _show)
    return SUSPICIOUS if result.audit and result.audit["verdict"] == "suspicious" else 0


def run_calibrate(use: CommandRun) -> int:
    """Fit, print and draw; returns the exit status: 0 fitted, 2 refused."""
    console = plain_console()
    services = use.services()
    fitted = use.call(services)
    if use.json_out:
        use.print_json(fitted)
    else:
        spearman = "unknown" if fitted.spearman is None else f"{fitted.spearman:.2f}"
        console.print(printable(f"{fitted.calibration_id}: {fitted.n_labels} labels"))
        console.print(f"Held-out error {fitted.error_before:.4f} -> {fitted.error_after:.4f}, Spearman {spearman}")
        for line in calibration_table(services, fitted.calibration_id).splitlines():
            console.print(printable(line))
        for warning in fitted.warnings:
            console.print(printable(f"! {warning}"), style="yellow")
        show_next_step(console, fitted)
    if (picture := use.own["picture"]) is not None:
        write_file(picture, calibration_picture(services, fitted.calibration_id), "the picture")
        if not use.json_out:
            console.print(printable(f"Picture: {picture}"))
    return 0


def _show(console: Console, result: ScoreResult) -> None:
    console.print(
        printable(f"{result.scorer}: {counted(result.scored, 'run')} scored, {result.unscored_count:,} not"),
        style="bold",
    )
    for name, summary in ({"value": result.summary} | dict(result.components)).items():
        console.print(printable(f"  {name:<24} {_statistics(summary)}"))
    for reason, n in Counter(result.reasons).most_common():
        console.print(printable(f"  unscored {n:,}: {explain_for_terminal(reason, 'score')}"), style="yellow")
    for name, calibration in result.calibrations.items():
        console.print(printable(f"  {name} goes through calibration {calibration}"))
    for warning in result.warnings:
        console.print(printable(f"  note: {explain_for_terminal(warning, 'score')}"), style="yellow")
    if result.audit is not None:
        _show_audit(console, AuditReport.model_validate(result.audit))
    show_next_step(console, result, "score")


def _statistics(summary: ScoreSummary) -> str:
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
        console.print(printable(f"    {explain_for_terminal(finding.remedy, 'score')}"))
    for check, why in report.unchecked.items():
        console.print(printable(f"  not checked: {check}: {why}"))
