"""The next step after an import, read within the call or by a job: from the logs to data for training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from quintain.importers.run_builder import NO_RUN
from quintain.next_step import Hint, ToolCall, call
from quintain.records.imports import ImportReport
from quintain.records.wording import clip, counted, list_names
from quintain.tools.data.unread_columns import TASKS


def after_import(report: ImportReport, runs: Mapping[str, Any] | None, *, dry_run: bool) -> Hint:
    """Return what to do next; `runs` is a filter for the imported runs, where one selects them."""
    these: Any = runs or ...
    unread = _unread_step(report)
    first = Hint(unread, " ") if unread else unread
    met_before = report.updated or report.duplicates or report.unchanged or report.forgotten
    if not (report.imported or met_before):
        only_ask = {one.reason for one in report.rejected} == {NO_RUN}
        other = f"{TASKS[0].upper()}{TASKS[1:]}." if only_ask else "Set `format` if the logs have a known format."
        return Hint("No run was found. ", first, other)
    if dry_run and not (report.unchanged and not report.imported):
        return Hint(
            first, "Nothing was stored. Import without a dry run, or name the reader as `format` where it was wrong."
        )
    gone = f"{counted(report.forgotten, 'run')} left out, forgotten earlier. " if report.forgotten else ""
    if report.imported or report.updated:
        return Hint(
            gone,
            *_labels_step(report, these),
            "Look at them with ",
            call("search_trajectories", filter=runs),
            *_outcome_step(report, these),
            *((" ", unread) if unread else ()),
        )
    if report.duplicates or report.unchanged:
        is_all = not report.n_rejected and not report.n_refused
        known = "Nothing new: these runs were imported before. " if is_all else "No run is new. "
        return Hint(gone, known, first, "With `again`, unchanged files are read again.")
    return Hint(
        f"{gone}Nothing else was in these logs; ",
        call("get_lineage", id=...),
        " shows what a forgotten run had touched.",
    )


def _unread_step(report: ImportReport) -> Hint:
    """Return how much was not read, and what reads tables and JSON of no known format; empty if everything was read."""
    counts = {"file": (report.n_refused, "not read"), "record": (report.n_rejected, "rejected")}
    unread = [f"{counted(n, noun)} {what}" for noun, (n, what) in counts.items() if n]
    step = Hint(f"{' and '.join(unread)}, each listed with its reason." if unread else "")
    if not report.n_unknown_rows:
        return step
    rows = call("export_dataset", kind="sft", name="rows", path=..., columns={"prompt": ..., "response": ...})
    return Hint(
        step,
        " Tables and rows with columns of their own become a dataset by ",
        rows,
        "; where a row is one message, name session_id, role and content; where a cell is a whole chat, messages, with the "
        "words before each speaker's lines as user and assistant. Labels of stored runs come in after the runs: ",
        call("import_trajectories", path=..., columns={"run": ..., "label": ...}),
        ". A format of your own is read by an importer in a package of yours.",
    )


def _outcome_step(report: ImportReport, these: Any) -> Iterator[str | ToolCall]:
    """Yield how runs become a dataset: by the outcomes that their logs state or, where these do not, that someone adds."""
    score = call("score_trajectories", scorer="rules", filter=these)
    if not report.unknown_outcomes:
        yield ". Freeze those that succeeded with "
        yield call("export_dataset", kind="sft", name="runs", filter=these)
        yield ", or score them by their steps: "
        yield score
    else:
        yield f". {counted(report.unknown_outcomes, 'outcome')} unknown: state those that you know: "
        yield call("record_trajectory", trajectory_id=..., outcome=...)
        yield ", those of a table with "
        yield call("import_trajectories", path=..., columns={"run": ..., "outcome": ...})
        if report.columns:
            named = list_names([repr(clip(name, 40)) for name in report.columns], 6)
            yield f"; or let a column of the rows ({named}: of few values) state it: "
            yield call("export_dataset", kind="kto", name="labels", path=..., columns={"label": ..., "good": ...})
        yield "; or score the runs: "
        yield score
        yield "; or train on them unchecked: "
        yield call("export_dataset", kind="sft", name="runs", filter=these, outcomes=["success", "unknown"])
    yield "."


def _labels_step(report: ImportReport, these: Any) -> Iterator[str | Hint]:
    """Yield what to do with the answers that the logs compare or label."""
    if report.paired:
        pairs = call("record_preferences", source="imported", filter=these)
        yield Hint("These logs compare answers: ", pairs, " makes pairs of them for training. ")
    if report.labelled:
        labels = call("export_dataset", kind="kto", name="labels", filter=these)
        yield Hint("These logs label answers good or bad: ", labels, " makes a dataset of both. ")
    if report.paired or report.labelled:
        yield "Kind sft leaves the rejected answers out. "
