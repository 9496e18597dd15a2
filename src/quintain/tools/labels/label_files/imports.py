"""Import labels: the rows of a file that name stored runs become scores, preferences and outcomes, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from quintain.errors import InvalidInput
from quintain.importers.protocol import Report
from quintain.next_step import Hint, ToolCall, call
from quintain.records.imports import ImportedFile, Rejected
from quintain.records.wording import counted, size_text
from quintain.tools.labels.judging.agreement import agreement
from quintain.tools.labels.label_files.answers import AnswerReader, Answers, lines_of, name_of
from quintain.tools.labels.label_files.roles import NO_RUNS, Profile, Roles, find_roles, unread_note
from quintain.tools.labels.label_files.rows import NO_ROWS, LabelTable, label_tables
from quintain.tools.labels.label_files.storing import Stored, store_answers
from quintain.tools.results import ImportResult
from quintain.tools.services import Services

_SHOWN = 50
_PAIRS_SHOWN = 3


def import_labels(
    services: Services, place: Path, columns: Mapping[str, str], *, limit_bytes: int, dry_run: bool, max_files: int
) -> ImportResult:
    """Store the labels of a file, or with `dry_run` show what would be stored; a label that is stored already stays.

    Raises:
        InvalidInput: it is no file of rows or too large, or its columns do not say what is labelled, and how.
    """
    table, roles, profile = _table(services, place, columns, limit_bytes)
    report = Report("labels")
    answers = AnswerReader(services, table, roles, profile).read(report)
    stored = store_answers(services, answers, name_of(place.name), dry_run=dry_run)
    notes = (roles.described(), unread_note(profile, roles), *lines_of(answers), *_agreement(services, answers, stored))
    rejected = [
        Rejected(file=place.name, line=line or None, reason=services.redacted(why)) for line, why in answers.rejected
    ]
    file = ImportedFile(file=place.name, format="labels", confidence=1.0, rejected=len(rejected))
    return ImportResult(
        format="labels",
        confidence=1.0,
        imported=stored.new,
        updated=stored.changed,
        duplicates=stored.known,
        forgotten=0,
        rejected=tuple(rejected[: max(_SHOWN, max_files)]),
        rejected_count=len(rejected) + report.n_rejected - len(report.rejected),
        refused_count=0,
        files=(file,),
        file_count=1,
        unchanged_files=0,
        notes=tuple(services.redacted(note) for note in notes if note),
        labels=tuple(stored.examples),
        next_step=_next_step(answers, stored, dry_run=dry_run),
    )


def _table(
    services: Services, place: Path, columns: Mapping[str, str], limit_bytes: int
) -> tuple[LabelTable, Roles, Profile]:
    """Return the table of a file that names stored runs, and its columns; of a database the only one that does."""
    found: list[tuple[LabelTable, Roles, Profile]] = []
    refusal: InvalidInput | None = None
    tables = label_tables(place, columns.get("table"))
    if (size := place.stat().st_size) > limit_bytes:
        raise InvalidInput(
            f"expected at most {size_text(limit_bytes)} of labels, got {size_text(size)} in {place.name}; leave out the columns with "
            "texts of the runs, or split the file",
            code="too_large",
        )
    for table in tables:
        profile, damage = Profile(), Report()
        for row in table.rows(damage):
            profile.add(row)
        if not profile.rows:
            why = damage.rejected[0][1] if damage.rejected else "it has none"
            refusal = refusal or InvalidInput(f"expected rows in {place.name}, got none: {why}", code=NO_ROWS)
            continue
        try:
            found.append((table, find_roles(services, profile, columns), profile))
        except InvalidInput as error:
            if error.code != NO_RUNS and len(tables) > 1:
                error = InvalidInput(f"table {table.table}: {error.message}", code=error.code)
            refusal = error if refusal is None or refusal.code in (NO_RUNS, NO_ROWS) else refusal
    if len(found) > 1:
        names = ", ".join(str(table.table) for table, _, _ in found)
        raise InvalidInput(
            f"columns: several tables of {place.name} label runs ({names}); choose one: columns={{'table': ...}}"
        )
    if not found:
        raise refusal or InvalidInput(f"expected rows in {place.name}, got none; correct the file", code=NO_ROWS)
    return found[0]


def _agreement(services: Services, answers: Answers, stored: Stored) -> list[str]:
    """Return a note on how far the raters of the file agree with each other and with those who rated before."""
    found = agreement(services, stored.batches) if stored.batches else None
    own = {rater.name for _, rater in answers.of_runs}
    pairs = [pair for pair in found.pairs if own & {pair.a, pair.b}] if found is not None else []
    agreements = [
        f"{pair.a} and {pair.b} on {counted(pair.n, 'run')}"
        + ("" if pair.kappa is None else f", Cohen's kappa {pair.kappa:.2f}")
        for pair in pairs[:_PAIRS_SHOWN]
    ]
    return [f"Raters of the same runs: {'; '.join(agreements)}."] if agreements else []


def _next_step(answers: Answers, stored: Stored, *, dry_run: bool) -> Hint:
    rejected = f"{counted(len(answers.rejected), 'row')} rejected, each with its reason. " if answers.rejected else ""
    if dry_run:
        would = (
            f"{counted(stored.new, 'label')} would be new and {stored.changed} changed"
            if stored.new or stored.changed
            else "Nothing is new"
        )
        return Hint(
            f"{rejected}{would}; nothing was stored. Without a dry run they are; `columns` corrects what a column was read as."
        )
    if not (stored.new or stored.changed or stored.known):
        return Hint(f"{rejected}No label was stored: correct the file, or name its columns in `columns`.")
    steps: list[str | ToolCall] = []
    if answers.of_runs:
        name = _scorer(answers)
        steps += [call("score_trajectories", scorer=name, filter=...), " reads the labels, "]
        steps += [
            call("export_dataset", kind="kto", name="labelled", scorer=name, filter=...),
            " makes a dataset of good and bad runs. ",
        ]
    if answers.pairs:
        steps += [
            call("export_dataset", kind="dpo", name="pairs", pairs="recorded", filter=...),
            " makes a dataset of the pairs. ",
        ]
    if answers.outcomes:
        steps += [call("export_dataset", kind="sft", name="good", filter=...), " takes the runs that succeeded. "]
    known = "" if stored.new or stored.changed else "Nothing new: these labels are stored. "
    return Hint(rejected, known, *steps)


def _scorer(answers: Answers) -> str:
    """Return the name of the scorer that reads the labels by the rubric of most of them, those of people first."""
    names = Counter(f"{rater.scorer}:{rater.rubric}" for _, rater in answers.of_runs)
    return max(names, key=lambda name: (names[name], name))
