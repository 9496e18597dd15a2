"""The answers in the rows of a file of labels: what each rater says of each run, and the rows that say nothing of one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quintain.importers.protocol import Report
from quintain.next_step import Hint, call
from quintain.records.filters import TrajectorySummary
from quintain.records.tags import LIVE, tag_error
from quintain.records.trajectory import OutcomeStatus
from quintain.records.wording import counted, list_names, shown
from quintain.tools.data.row_bounds import number_in
from quintain.tools.labels.label_files.readings import Reading, outcome_status, reading_of, unread_label
from quintain.tools.labels.label_files.roles import Profile, Roles, is_person
from quintain.tools.labels.label_files.rows import LabelTable, Row, exploded
from quintain.tools.services import Services

MOST_CHARS = 20_000
"""Characters of a comment that are kept, as of an answer given by hand."""


class Rater(NamedTuple):
    """Who answers, and by what."""

    name: str
    """As in `Score.rater`."""
    rubric: str
    is_person: bool = True

    @property
    def scorer(self) -> str:
        """Under which the answers are stored."""
        return "people" if self.is_person else "judge"


@dataclass
class Answer:
    """What a rater says of a run."""

    line: int
    values: dict[str, float] = field(default_factory=dict)
    """Criterion -> value."""
    comment: str = ""
    steps: dict[int, tuple[dict[str, float], str]] = field(default_factory=dict)
    """Agent step -> its values and comment."""


class Pair(NamedTuple):
    """Two runs that a row compares."""

    line: int
    rater: Rater
    stated: dict[str, Any]


@dataclass
class Answers:
    """All that the rows of a file say."""

    of_runs: dict[tuple[str, Rater], Answer] = field(default_factory=dict)
    outcomes: dict[str, tuple[int, str, OutcomeStatus]] = field(default_factory=dict)
    """Run -> row, rater, and how it ended."""
    pairs: list[Pair] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)
    empty: int = 0
    """Rows without a label."""
    changed: int = 0
    """Answers that a later row of the same rater changes."""

    def reject(self, line: int, reason: str) -> None:
        """Note a row from which nothing is taken."""
        self.rejected.append((line, reason))


class _Refusal(Exception):
    """Why nothing is taken from a row."""


@dataclass
class AnswerReader:
    """Reads the rows of a table by the roles of its columns."""

    services: Services
    table: LabelTable
    roles: Roles
    profile: Profile
    runs: dict[str, list[str]] = field(init=False)
    """Name -> runs that have it."""
    stored: dict[str, TrajectorySummary] = field(init=False)
    readings: dict[str, Reading] = field(init=False)

    def __post_init__(self) -> None:
        """Look up every run that the rows name."""
        roles, store = self.roles, self.services.store.trajectories
        self.keys = roles.pair or (roles.run or "",)
        names = {name for row in self.table.rows(Report()) for key in self.keys for name in row.texts(key)}
        self.runs = store.named(names, inside=roles.join.inside).get(roles.join.place, {})
        ids = [run for found in self.runs.values() for run in found]
        self.stored = {run.id: run for run in store.summaries(ids)}
        self.forgotten = self.services.store.lineage.forgotten(sorted(names))
        self.readings = {one: reading_of(self.profile.values[one], one, roles.marks) for one in roles.labels}

    def read(self, report: Report) -> Answers:
        """Return the answers of all rows; those from which nothing is taken are listed with their reason."""
        answers = Answers()
        for row in self.table.rows(report):
            for part in exploded(row, self.roles.labels):
                try:
                    if self.roles.pair is None:
                        self._take(part, answers)
                    else:
                        answers.pairs.append(self._pair(part, self.roles.pair))
                except _Refusal as refusal:
                    answers.reject(row.line, str(refusal))
        for line, reason in report.rejected:
            answers.reject(line or 0, reason)
        answers.rejected.sort()
        return answers

    def _take(self, row: Row, answers: Answers) -> None:
        roles = self.roles
        cells = {label: cell for label in roles.labels if (cell := row.cells.get(label)) not in (None, "")}
        ended = row.cells.get(roles.others["outcome"]) if "outcome" in roles.others else None
        if not cells and ended in (None, ""):
            answers.empty += 1
            return
        run, rater = self._run(row, self.keys[0]), self._rater(row)
        values = {name_of(label): self._value(label, cell) for label, cell in cells.items()}
        status = None if ended in (None, "") else outcome_status(ended, roles.marks)
        if ended not in (None, "") and status is None:
            valid = ", ".join(OutcomeStatus)
            raise _Refusal(
                f"expected true, false, or one of {valid} in {roles.others['outcome']!r}, the outcome, got {shown(ended)}"
            )
        if status not in (None, OutcomeStatus.UNKNOWN):
            answers.outcomes[run] = row.line, rater.name, status
        if values:
            self._answer(row, answers, run, rater, values)

    def _answer(self, row: Row, answers: Answers, run: str, rater: Rater, values: dict[str, float]) -> None:
        if "rubric" in self.roles.others and len(values) == 1:
            values = dict.fromkeys([rater.rubric], *values.values())
        step, comment = self._step(row, run), self._comment(row)
        answer = answers.of_runs.setdefault((run, rater), Answer(row.line))
        if step is not None:
            answers.changed += answer.steps.get(step, (values,))[0] != values
            answer.steps[step] = values, comment
        else:
            answers.changed += bool(answer.values) and answer.values != values
            answer.values, answer.comment, answer.line = values, comment, row.line

    def _value(self, label: str, cell: Any) -> float:
        if (value := self.readings[label](cell)) is None:
            raise _Refusal(unread_label(label, cell, self.roles.marks))
        return value

    def _run(self, row: Row, key: str) -> str:
        """Return the run that a row names."""
        names = row.texts(key)
        if not names:
            raise _Refusal(f"expected the name of a run in {key!r}, got none")
        if names[0] in self.forgotten:
            raise _Refusal(f"the run {names[0]} was forgotten")
        found = [run for run in self.runs.get(names[0], ()) if run in self.stored]
        if not found:
            raise _Refusal(f"no stored run has {shown(names[0])} as its {self.roles.join.place}")
        if len(found) > 1:
            raise _Refusal(
                f"{counted(len(found), 'run')} have {shown(names[0])} as their {self.roles.join.place} ({list_names(found, 3)}); name "
                "the one that is meant by its own id"
            )
        if LIVE in self.stored[found[0]].tags:
            close = call("record_trajectory", trajectory_id=found[0], live="close")
            raise _Refusal(Hint(f"{found[0]} is still being recorded; close it first: ", close))
        return found[0]

    def _rater(self, row: Row) -> Rater:
        """Return who rated; a name that is a secret or an address is replaced by one that stays the same."""
        person, name = is_person(self.roles, row), self.roles.of("rater", row) or ""
        if name and (self.services.redacted(name) != name or tag_error(name)):
            name = f"rater-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        kind = "person" if person else "assistant"
        name = name.removeprefix(f"{kind}:")
        rubric = self.roles.of("rubric", row) or "+".join(self.roles.labels) or "preference"
        return Rater(f"{kind}:{name}" if name not in ("", kind) else kind, name_of(rubric), person)

    def _comment(self, row: Row) -> str:
        return self.services.redacted((self.roles.of("comment", row) or "")[:MOST_CHARS])

    def _step(self, row: Row, run: str) -> int | None:
        column = self.roles.others.get("step")
        cell = None if column is None else row.cells.get(column)
        if cell in (None, ""):
            return None
        number, n = number_in(cell), self.stored[run].steps
        if number is None or not number.is_integer() or not 0 <= number < n:
            raise _Refusal(f"expected an agent step of {run} in {column!r}, 0..{n - 1}, got {shown(cell)}")
        return int(number)

    def _pair(self, row: Row, columns: Sequence[str]) -> Pair:
        """Return the two runs of a row and which is better, as `record_preferences` takes it."""
        runs = [self._run(row, column) for column in columns]
        step = self._step(row, runs[0])
        more = {"reason": self._comment(row)[:2000]} | ({} if step is None else {"step": step})
        if "chosen" in self.roles.others:
            return Pair(row.line, self._rater(row), dict(zip(("chosen", "rejected"), runs, strict=True)) | more)
        preferred = self.roles.of("better", row) or ""
        names = [
            {side, column.lower(), *(name.lower() for name in row.texts(column)), run}
            for side, column, run in zip("ab", columns, runs, strict=True)
        ]
        better = [side for side, known in zip("ab", names, strict=True) if preferred.lower() in known]
        if preferred.lower() != "tie" and len(better) != 1:
            raise _Refusal(
                f"expected a, b, tie, or the id of one of the two runs in {self.roles.others.get('better')!r}, got {shown(preferred)}"
            )
        return Pair(
            row.line, self._rater(row), {"a": runs[0], "b": runs[1], "better": better[0] if better else "tie"} | more
        )


def name_of(text: str) -> str:
    """Return the name that a text of the file gives a rubric or criterion: judges read it, so that it has no sentences."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:100]
    return name or f"labels-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def lines_of(answers: Answers) -> Iterator[str]:
    """Yield notes on what was left out or replaced."""
    if answers.empty:
        yield f"{counted(answers.empty, 'row')} without a label."
    if answers.changed:
        yield (
            f"{counted(answers.changed, 'answer')} of one rater on the same run changed by a later row, which counts; if several people "
            "rated, name the column of their names as rater."
        )
