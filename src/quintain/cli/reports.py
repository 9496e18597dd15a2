"""Writing reports of evaluations and comparisons to files, by the ending of their name."""

from __future__ import annotations

from pathlib import Path

from quintain.cli.session import write_file
from quintain.errors import InvalidInput
from quintain.evaluation.reports.comparison_figure import forest_plot
from quintain.evaluation.reports.rendering import as_html, as_markdown
from quintain.evaluation.reports.report import comparison_report, evaluation_report
from quintain.records.evaluation import Comparison, Evaluation

ENDINGS = (".md", ".html", ".json")


def require_ending(path: Path | None) -> None:
    """Refuse a report without a format, before anything is computed.

    Raises:
        InvalidInput: names the endings.
    """
    if path is not None and path.suffix.lower() not in ENDINGS:
        raise InvalidInput(f"--report {str(path)!r} must end with {', '.join(ENDINGS)}")


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
