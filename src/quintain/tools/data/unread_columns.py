"""Notes on rows, splits and columns of a file that were not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from quintain.importers.run_builder import NO_RUN
from quintain.importers.training_data.preference import VERDICTS
from quintain.records.wording import counted, list_names, shown
from quintain.tools.data.row_reading import RIVALS, SPLIT
from quintain.tools.data.speaker_lines import SPEAKERS

TASKS = "rows that only ask are tasks, which an agent plays as `environment='quintain/tasks?file=PATH'`"
_FEW = 5
_ROWS = 10
"""A column of at most so many values, in at least so many rows, may state a verdict."""


def note_unread_splits(splits: Mapping[str, int]) -> str:
    """Return a note that rows of other splits became those of train."""
    found = ", ".join(f"{counted(n, 'row')} of {name}" for name, n in sorted(splits.items()))
    return f"the column {SPLIT!r} was not read, so {found} are like all others; `columns={{'split': 'split'}}` reads it"


def note_imitated(ratings: Iterable[float | None]) -> list[str]:
    """Return a note that examples to imitate have ratings that differ and left none of them out."""
    known = sorted({rating for rating in ratings if rating is not None})
    if len(known) < 2:
        return []
    return [
        f"the ratings of these rows go from {known[0]:g} to {known[-1]:g}, and the worst are examples to imitate like the best: "
        "`curation={'min_reward': ...}` or {'top_share': 0.5} leaves them out, where `columns={'reward': ...}` names the ratings; "
        "kinds dpo and grpo learn from the difference"
    ]


def note_sorting(columns: Sequence[str]) -> list[str]:
    """Return a note on columns that sort examples to imitate into a few kinds, as a label would."""
    if not columns:
        return []
    listed = list_names([shown(name) for name in columns], _FEW)
    return [
        f"the examples are of a few kinds by {listed}, and all are taken; if that says which answers are good: "
        f"`columns={{'label': {columns[0]!r}, 'good': VALUE}}` too"
    ]


def note_unread_verdict(rows: Iterable[Any], columns: Mapping[str, str]) -> list[str]:
    """Return a note on columns that may state which of two named answers is better, where no label is named.

    They have a name that others use for it, or else a few values.
    """
    if "label" in columns or not columns.keys() >= RIVALS:
        return []
    table = [row for row in rows if isinstance(row, Mapping)]
    named = [name for name in VERDICTS if any(name in row for row in table)][:1] or _of_few_values(table, columns)
    if not named:
        return []
    listed = list_names([shown(name) for name in named], 5)
    return [
        f"{columns['chosen']!r} was taken as the better answer in all rows, and the column {listed} was not read; if it names the "
        f"better one: `columns={{'label': {named[0]!r}, 'good': VALUE, 'bad': VALUE}}` too"
    ]


def _of_few_values(table: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> list[str]:
    """Return the columns that are named for nothing and sort the rows into a few kinds."""
    values: dict[str, Counter[str]] = {}
    for row in table:
        for name, value in row.items():
            if name not in columns.values() and isinstance(value, str | int) and value != "":
                values.setdefault(name, Counter())[str(value)] += 1
    return [name for name, found in values.items() if 1 < len(found) <= _FEW and found.total() >= _ROWS]


def unread_remedy(columns: Mapping[str, str], reasons: Collection[str]) -> str:
    """Return what to state in `columns` where no row could be read with these, for these reasons."""
    if set(reasons) == {NO_RUN}:
        return TASKS
    if "role" in columns and "assistant" not in columns:
        return 'state the role of the agent to train, such as `columns={"assistant": "Support"}`: others are users then'
    if "messages" in columns and not set(SPEAKERS) <= columns.keys():
        return (
            'if the messages are a text, state how the lines of its speakers begin, such as `columns={"user": "Customer", '
            '"assistant": "Bot"}`'
        )
    if columns:
        return "correct `columns`, or the rows in the file"
    return (
        'name their fields, such as `columns={"prompt": ..., "response": ...}`, or messages, chosen, rejected, label, '
        f"text, or session_id, role and content of one message a row; {TASKS}"
    )
