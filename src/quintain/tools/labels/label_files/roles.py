"""Which column of a file of labels is what: as the caller names it, as exports of others call it, or by what it contains."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from quintain.errors import InvalidInput
from quintain.importers.outcome_fields import COLUMNS as OUTCOMES
from quintain.importers.outcome_fields import as_verdict
from quintain.records.wording import counted, list_names, nearest, shown
from quintain.tools.data.row_bounds import fits
from quintain.tools.labels.label_files.rows import Row
from quintain.tools.services import Services

NO_RUNS = "no_runs_named"
"""Code of the error that no column names stored runs."""
SAMPLE = 500
"""First rows by which columns are distinguished."""
_VALUES = 1_000
"""Different values of a column that are kept."""

_COLUMNS = ("run", "label", "outcome", "rater", "rubric", "comment", "step", "kind")
_PAIRS = ("chosen", "rejected", "a", "b", "better")
_MARKS = ("good", "bad", "worst", "best", "person", "table")
"""Names in `columns` that state a value, not a column."""

_KNOWN: Mapping[str, tuple[str, ...]] = {
    "label": (
        *(
            "score",
            "value",
            "stringvalue",
            "rating",
            "stars",
            "grade",
            "label",
            "verdict",
            "thumbs",
            "vote",
            "feedback",
        ),
        *("choice", "choices", "responses", "responsevalue"),
    ),
    "rater": (
        *(
            "rater",
            "annotator",
            "annotatorid",
            "annotatorname",
            "authoruserid",
            "completedby",
            "reviewer",
            "reviewerid",
        ),
        *("labeler", "users", "responsesusers", "userid", "username", "identifier"),
    ),
    "rubric": ("rubric", "criterion", "metric", "annotationname", "key", "name"),
    "comment": ("comment", "comments", "explanation", "rationale", "reason", "note", "notes"),
    "step": ("step", "stepindex"),
    "kind": ("annotatorkind", "feedbacksourcetype", "source"),
}
"""Role -> names of its column in exports of Langfuse, LangSmith, Phoenix, Argilla, Label Studio and others, the surest first."""

_PEOPLE = {"human": True, "llm": False, "code": False, "annotation": True, "eval": False, "app": True, "model": False}
"""Values of a kind by Phoenix, Langfuse and LangSmith -> whether a person rated. Whose word `api` is nobody knows."""
_OPEN = ("api", "autoeval")


class Join(NamedTuple):
    """How rows name runs."""

    place: str
    """Where runs have the name, such as `session_id`."""
    inside: bool
    """Whether only their content tells."""


@dataclass
class Profile:
    """The columns of a table with their values in its first rows, and how often each value occurs in all."""

    values: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    rows: int = 0

    def add(self, row: Row) -> None:
        """Look at a row."""
        self.rows += 1
        for column, cell in row.cells.items():
            counts = self.values[column]
            for value in cell if isinstance(cell, list) else [cell]:
                if value not in (None, "") and not isinstance(value, list) and len(counts) < _VALUES:
                    counts[str(value)] += 1
            if self.rows <= SAMPLE:
                self.names[column].update(row.texts(column))

    @property
    def columns(self) -> list[str]:
        """The columns that have values."""
        return [column for column, counts in self.values.items() if counts]


@dataclass(frozen=True)
class Roles:
    """What the columns are."""

    join: Join
    run: str | None = None
    labels: tuple[str, ...] = ()
    """Several are criteria of one answer."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Role -> column."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Role -> the value that all rows have."""
    marks: Mapping[str, str] = field(default_factory=dict)

    @property
    def pair(self) -> tuple[str, str] | None:
        """The columns of the two runs that a row compares."""
        names = next((two for two in (_PAIRS[:2], _PAIRS[2:4]) if set(two) <= self.others.keys()), None)
        return None if names is None else (self.others[names[0]], self.others[names[1]])

    def of(self, role: str, row: Row) -> str | None:
        """Return what a row says of a role."""
        if role in self.fixed:
            return self.fixed[role]
        found = row.texts(self.others[role]) if role in self.others else []
        return found[0] if found else None

    def described(self) -> str:
        """Return a sentence about which column was read as what."""
        columns = {"run": self.run, "label": ", ".join(self.labels) or None, **self.others}
        parts = [f"{role} {column!r}" for role, column in columns.items() if column is not None]
        parts += [f"{role} {value!r} for all rows" for role, value in self.fixed.items()]
        return f"Columns: {'; '.join(parts)}. The run is named by its {self.join.place}."


def find_roles(services: Services, profile: Profile, columns: Mapping[str, str]) -> Roles:
    """Return the roles of the columns of a table.

    Raises:
        InvalidInput: a name in `columns` is none of ours or of the file, no column names stored runs, or none or several
            may be the label.
    """
    named, fixed, marks = _named(profile, columns)
    without = {role for role, column in columns.items() if not column}
    pair = [named[name] for name in _PAIRS[:4] if name in named]
    pair = pair or ([] if {"run", "label"} & named.keys() else _own_pair(profile))
    keys = [named["run"]] if "run" in named else pair
    run, join = _join(services, profile, keys)
    others = {role: column for role, column in named.items() if role not in ("run", "label")}
    if pair:
        others |= {name: name for name in (*_PAIRS[:4], "better") if name in pair and name not in named.values()}
        others |= {"better": "better"} if "better" in profile.columns and "better" not in named else {}
        known = _known_roles(profile, {*pair, *others.values()}, {*others, *fixed, *without})
        return Roles(join, None, (), others | known, fixed, marks)
    labels = tuple(part.strip() for part in named["label"].split(",")) if "label" in named else ()
    others |= _known_roles(profile, {run, *labels}, {*others, *fixed, *without}, labels[0] if labels else "")
    if not labels and "outcome" not in named:
        found = _label(profile, {run, *others.values()}, marks)
        if found is None and "outcome" not in others:
            raise _no_label(profile, {run, *others.values()})
        labels = () if found is None else (found,)
    roles = Roles(join, run, labels, others, fixed, marks)
    _require_people(profile, roles)
    return roles


def _named(profile: Profile, columns: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return roles by column, roles with one value for all rows (`=VALUE`), and marks."""
    valid = (*_COLUMNS, *_PAIRS, *_MARKS)
    for name in columns:
        if name not in valid:
            raise InvalidInput(
                f"columns: expected names of {', '.join(valid)}, got {shown(name)}{nearest(name, valid)}; correct it"
            )
    marks = {name: value for name, value in columns.items() if name in _MARKS}
    fixed = {
        name: value[1:].strip() for name, value in columns.items() if name in ("rater", "rubric") and value[:1] == "="
    }
    named = {name: value for name, value in columns.items() if value and name not in marks and name not in fixed}
    for name, column in named.items():
        parts = [part.strip() for part in column.split(",")] if name == "label" else [column]
        if absent := [part for part in parts if part not in profile.values]:
            constant = '; one for all rows is written "=NAME"' if name in ("rater", "rubric") else ""
            raise InvalidInput(
                f"columns: expected a column of the file ({', '.join(map(repr, list(profile.values)[:30]))}), got "
                f"{shown(absent[0])} for {name}{nearest(absent[0], profile.values)}; correct it{constant}"
            )
    return named, fixed, marks


def _own_pair(profile: Profile) -> list[str]:
    return next((list(two) for two in (_PAIRS[:2], _PAIRS[2:]) if set(two) <= set(profile.columns)), [])


def _join(services: Services, profile: Profile, keys: Sequence[str]) -> tuple[str, Join]:
    """Return the column that names runs, and where runs have the name: the two that have most names in common.

    Numbers count as names of runs only where the caller names their column.
    """
    columns = {
        column: {name for name in names if keys or not _is_number(name)}
        for column, names in profile.names.items()
        if not keys or column in keys
    }
    every = set[str]().union(*columns.values())
    best: tuple[tuple[int, int], str, Join] | None = None
    for inside in (False, True):
        found = services.store.trajectories.named(every, inside=inside)
        for column, names in columns.items():
            for place, runs in found.items():
                shared = [name for name in names if name in runs]
                single = sum(len(runs[name]) == 1 for name in shared)
                # One text in common with what was kept of a log may be chance.
                is_sure = not inside or len(shared) > 1 or len(names) == 1 or keys
                if shared and is_sure and (best is None or (single, len(shared)) > best[0]):
                    best = (single, len(shared)), column, Join(place, inside)
        if best is not None and 2 * best[0][0] >= len(columns[best[1]]):
            break
    if best is None:
        which = f"column {keys[0]!r}" if keys else "a column"
        raise InvalidInput(
            f"expected {which} with names of stored runs (their id `traj-...`, or a session, trace or other id of their log), got none "
            f"in {list_names([repr(column) for column in profile.columns], 20)}; import the runs first"
            + ("" if keys else ", or name the column: columns={'run': ...}"),
            code=NO_RUNS,
        )
    return best[1], best[2]


def _is_number(name: str) -> bool:
    """Whether a name is a number that may as well be a rating or a count, and no long id."""
    return re.fullmatch(r"[+-]?[0-9.]{1,11}", name) is not None


def _plain(column: str) -> str:
    return re.sub(r"[^a-z0-9]", "", column.lower())


def _known_roles(profile: Profile, taken: set[str], known: Iterable[str], label: str = "") -> dict[str, str]:
    """Return the roles that columns have by their names, without those that are known; of several the nearest to the label."""
    left, taken, found = [role for role in _KNOWN if role not in {*known, "label"}], set(taken), {}
    for role in left:
        for name in _KNOWN[role]:
            fitting = [column for column in profile.columns if column not in taken and _is_called(column, name)]
            fitting.sort(key=lambda column: not column.startswith(f"{label}."))
            if fitting and not (role == "kind" and not _is_kind(profile, fitting[0])):
                found[role] = fitting[0]
                taken.add(fitting[0])
                break
    if "outcome" not in {*known}:
        stated = [
            column
            for column in profile.columns
            if column not in taken and column.lower() in OUTCOMES and column.lower() != "label"
        ]
        found |= {"outcome": stated[0]} if stated else {}
    # `name` and `key` may be of anything; beside who rated they are of what was rated.
    if "rubric" in found and _plain(found["rubric"]) in ("name", "key") and not {"rater", "kind"} & {*found, *known}:
        del found["rubric"]
    return found


def _is_called(column: str, name: str) -> bool:
    return name in (_plain(column), _plain(column.rpartition(".")[2]))


def _is_kind(profile: Profile, column: str) -> bool:
    return all(_plain(value) in (*_PEOPLE, *_OPEN) for value in profile.values[column])


def _label(profile: Profile, taken: set[str], marks: Mapping[str, str]) -> str | None:
    """Return the only column that may be the label: by its name, else by its values; None: none or several."""
    free = [column for column in profile.columns if column not in taken]
    for name in _KNOWN["label"]:
        if fitting := [column for column in free if _is_called(column, name)]:
            return fitting[0] if len(fitting) == 1 else None
    stated = [mark for name, mark in marks.items() if name in ("good", "bad")]
    meant = [
        column
        for column in free
        if all(as_verdict(value) is not None or any(fits(m, value) for m in stated) for value in profile.values[column])
    ]
    only = meant or free
    return only[0] if len(only) == 1 else None


def _no_label(profile: Profile, taken: set[str]) -> InvalidInput:
    free = [repr(column) for column in profile.columns if column not in taken]
    return InvalidInput(
        f"expected one column that may be the label, got {list_names(free, 20) or 'none'}; name it: columns={{'label': ...}}, several "
        "with commas as criteria of one answer; or the runs that a row compares: {'chosen': ..., 'rejected': ...} or {'a': ..., "
        "'b': ..., 'better': ...}",
        code="no_label_column",
    )


def _require_people(profile: Profile, roles: Roles) -> None:
    """Refuse a kind of rater of which it is not known whether it means people: their word calibrates judges."""
    column = roles.others.get("kind")
    if column is None or "person" in roles.marks:
        return
    values = profile.values[column]
    if unclear := [value for value in values if _plain(value) not in _PEOPLE]:
        listed = ", ".join(f"{shown(value)} ({n})" for value, n in values.most_common(8))
        raise InvalidInput(
            f"expected to know which values of {column!r} are people's, got {listed}; state those of people, the others count as a "
            f"judge's: columns={{'person': {unclear[0]!r}}}, several as A|B",
            code="no_rater_kind",
        )


def is_person(roles: Roles, row: Row) -> bool:
    """Whether a row is the word of a person, and not of a judge."""
    kind = roles.of("kind", row)
    if kind is None:
        return True
    return fits(roles.marks["person"], kind) if "person" in roles.marks else _PEOPLE.get(_plain(kind), True)


def unread_note(profile: Profile, roles: Roles) -> str:
    """Return a note on the columns that were not read; empty if there are none."""
    used = {roles.run, *roles.labels, *roles.others.values()}
    left = [column for column in profile.columns if column not in used]
    return f"{counted(len(left), 'column')} not read: {list_names(list(map(repr, left)), 20)}." if left else ""
