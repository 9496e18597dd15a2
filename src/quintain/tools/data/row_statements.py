"""What the rows of a file state about the runs that were read of them: pairs, labels, and which are examples to follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from quintain.datasets.dataset_writer import ExportOptions
from quintain.datasets.selection import ExportCounts
from quintain.errors import InvalidInput
from quintain.records.dataset import IMITATED, PAIRED
from quintain.records.trajectory import PAIR_MARK, OutcomeStatus, Trajectory
from quintain.records.wording import counted
from quintain.scoring.preferences.mining import Pair, gap
from quintain.tools.data.dataset_folders import ROW_DEFAULTS, logged_margin
from quintain.tools.data.dataset_lines import RowStatements
from quintain.tools.data.unread_columns import note_imitated


class StoredRun(NamedTuple):
    """A stored run and its row's statements about it."""

    id: str
    good: bool | None
    """Preferred, or labelled desirable; None if the row does not state it."""
    pair: str | None
    """Name shared by both sides of a pair."""
    scores: Mapping[str, float]
    ended: bool
    """Whether the row states how the run ended."""
    reward: float | None


def stored_run(trajectory_id: str, run: Trajectory) -> StoredRun:
    """Return a run that is stored under this id with what its row states."""
    mark, ended = run.extra.get(PAIR_MARK), run.outcome.status is not OutcomeStatus.UNKNOWN
    scores, reward = run.outcome.scores, run.outcome.reward
    if isinstance(mark, Mapping):
        return StoredRun(trajectory_id, mark.get("side") == "chosen", str(mark.get("pair")), scores, ended, reward)
    return StoredRun(trajectory_id, run.logged_label, None, scores, ended, reward)


def row_statements(
    runs: Sequence[StoredRun], options: ExportOptions, tally: ExportCounts
) -> tuple[RowStatements, list[str]]:
    """Return the rows' statements about their runs, and the ids of runs that this dataset kind can use."""
    runs = _agreeing(runs, options, tally)
    if options.kind in PAIRED:
        stated = _pairs(runs, tally)
        limit = options.making["max_pairs_per_task"]
        if stated and limit != ROW_DEFAULTS[options.kind]["max_pairs_per_task"]:
            raise InvalidInput(
                f"`max_pairs_per_task` is {limit}, and the rows state their pairs, which all stay; leave it out"
            )
        pairs = _wide(stated, options.making["margin"], tally)
        ids = dict.fromkeys([run for pair in pairs for run in (pair.chosen, pair.rejected)])
        if not stated and not any(run.pair for run in runs):  # pairs are mined of all runs
            ids = dict.fromkeys(run.id for run in runs)
        return RowStatements(pairs, {run.id: float(run.good) for run in runs if run.good is not None}), list(ids)
    if options.kind == "kto":
        labels = {run.id: float(run.good) for run in runs if run.good is not None}
    else:
        # Only what was preferred is an example to follow.
        if options.kind in IMITATED:
            tally.leave_out("undesirable", sum(run.good is False for run in runs))
            runs = [run for run in runs if run.good is not False]
            if options.kind == "sft" and not options.criteria.chooses:
                unsorted = [run for run in runs if run.good is None and not run.ended]
                tally.notes += note_imitated(
                    run.scores.get("score") if run.reward is None else run.reward for run in unsorted
                )
        labels = {}
    ids = dict.fromkeys(run.id for run in runs)
    tally.leave_out("duplicate", len(runs) - len(ids))
    return RowStatements(values=labels), list(ids)


def _agreeing(runs: Sequence[StoredRun], options: ExportOptions, tally: ExportCounts) -> list[StoredRun]:
    """Return the runs without those that one row labels good and another one bad, where labels decide."""
    labels: dict[str, set[bool]] = {}
    for run in runs:
        if run.pair is None and run.good is not None:
            labels.setdefault(run.id, set()).add(run.good)
    by_label = options.kind == "sft" or options.criteria.scorer is None
    agreed = [run for run in runs if not by_label or len(labels.get(run.id, ())) < 2]
    tally.leave_out("labels_disagree", len(runs) - len(agreed))
    return agreed


def _pairs(runs: Sequence[StoredRun], tally: ExportCounts) -> list[Pair]:
    """Return each pair of the rows once, in the direction that most of its rows state; count rows outside pairs."""
    sides: dict[str, dict[bool, StoredRun]] = {}
    for run in runs:
        if run.pair is not None and run.good is not None:
            sides.setdefault(run.pair, {})[run.good] = run
    rows = Counter(run.pair for run in runs if run.good)
    whole = {name: held for name, held in sides.items() if len(held) == 2}
    stated = {(held[True].id, held[False].id): rows[name] for name, held in whole.items()}
    pairs = [
        Pair(
            task="",
            chosen=held[True].id,
            rejected=held[False].id,
            margin=logged_margin(held[True].scores, held[False].scores),
        )
        for held in whole.values()
    ]
    against = {(other, one): n for (one, other), n in stated.items() if one != other}
    for_it = [stated[two] - against.get(two, 0) for two in ((pair.chosen, pair.rejected) for pair in pairs)]
    taken, ties = sum(n > 0 for n in for_it), for_it.count(0)
    tally.leave_out("raters_disagree", 2 * ties)
    tally.leave_out("duplicate", len(runs) - 2 * (taken + ties) if pairs else 0)
    if outvoted := len(pairs) - taken - ties:
        tally.notes.append(f"{counted(outvoted, 'pair')} in two directions: the one that more rows state is taken")
    return [pair for pair, n in zip(pairs, for_it, strict=True) if n > 0]


def _wide(pairs: list[Pair], margin: float, tally: ExportCounts) -> list[Pair]:
    """Return the pairs whose stated scores differ by more than the margin; without a margin all, in the direction stated."""
    if not margin:
        return pairs
    scored = [pair for pair in pairs if pair.margin is not None]
    wide = [pair for pair in scored if gap(pair.margin or 0.0, margin) > 0]
    tally.leave_out("no_margin", 2 * (len(pairs) - len(scored)))
    tally.leave_out("below_margin", 2 * (len(scored) - len(wide)))
    return wide
