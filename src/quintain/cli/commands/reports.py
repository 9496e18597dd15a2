"""`quintain report`, and reports of evaluations and comparisons in files, by the ending of their name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from quintain.cli.completion import completion_of
from quintain.cli.main import HomeOption
from quintain.cli.session import Session, plain_console, write_file
from quintain.errors import InvalidInput
from quintain.evaluation.reports.figures import forest_plot
from quintain.evaluation.reports.report import as_html, as_markdown, comparison_report, evaluation_report
from quintain.records.evaluation import Comparison, Evaluation
from quintain.records.text import printable
from quintain.tools.jobs.plots import save_report
from quintain.tools.jobs.record_reports import report_of
from quintain.tools.services import Services

ENDINGS = (".md", ".html", ".json")


def require_ending(path: Path | None) -> None:
    """Refuse a report without a format, before anything is computed.

    Raises:
        InvalidInput: names the endings.
    """
    if path is not None and path.suffix.lower() not in ENDINGS:
        raise InvalidInput(f"--report {str(path)!r} must end with {', '.join(ENDINGS)}")


def report(
    id: Annotated[
        str,
        typer.Argument(help="Job, comparison, evaluation, agent or dataset.", autocompletion=completion_of("id", None)),
    ],
    out: Annotated[
        Path | None, typer.Option(help="File to write; default: reports/ID.html in the home folder.")
    ] = None,
    home: HomeOption = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print the paths as JSON.")] = False,
) -> None:
    """Write one HTML page about a job, comparison, evaluation, agent or dataset. It needs no network, so it can be sent."""
    console = plain_console()
    with Session(home) as session:
        services = session.services()
        if out is not None:
            write_file(out, as_html(*report_of(services, id)), "the report")
            paths = [str(out)]
        else:
            paths = [str(services.settings.home / path) for path in _saved(services, id)]
        if json_out:
            console.print(json.dumps({"paths": paths}), soft_wrap=True)
        else:
            console.print(printable(f"Report: {paths[0]}"), soft_wrap=True)
            for path in paths[1:]:
                console.print(printable(f"Picture: {path}"), soft_wrap=True)


def _saved(services: Services, id: str) -> tuple[str, ...]:
    try:
        return save_report(services, id)
    except OSError as error:
        folder = services.settings.reports_dir
        raise InvalidInput(f"cannot write to {str(folder)!r}: {error.strerror}; name a file with --out") from None


def write_report(found: Evaluation | Comparison, path: Path) -> None:
    """Write a report: Markdown, HTML (of a comparison with its chart), or JSON with everything.

    Raises:
        InvalidInput: another ending, or a file that cannot be written.
    """
    require_ending(path)
    if path.suffix.lower() == ".json":
        text = found.model_dump_json(indent=2) + "\n"
    else:
        report = comparison_report(found) if isinstance(found, Comparison) else evaluation_report(found)
        if path.suffix.lower() == ".md":
            text = as_markdown(report)
        else:
            text = as_html(report, forest_plot(found) if isinstance(found, Comparison) else None)
    write_file(path, text, "the report")
