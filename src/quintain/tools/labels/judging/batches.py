"""Choose the runs of a judging batch and show them: blind, in an order that a seed decides, within a bound of text.

An assistant first gets runs that nobody has judged yet, a person runs that others have judged, for agreement and calibration.
Then runs of unknown outcome come before those of known outcome, tasks take turns, and a hash of seed and id decides the rest, so
that a batch is a fair sample. Corrections are given out only where the filter asks for them.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice
from typing import NamedTuple

from quintain.datasets.selection import agent_digest, comparison_key
from quintain.errors import InvalidInput
from quintain.records.filters import TrajectoryFilter, TrajectorySummary
from quintain.records.labels.judging import BatchItem, Judge, JudgingBatch, JudgingMode, Rubric
from quintain.records.seeds import stable_seed
from quintain.records.tags import CORRECTION, LIVE, REPLACED
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.scoring.judges.datamarking import datamark, mark_of
from quintain.scoring.judges.questions import rubric_text
from quintain.scoring.judges.shown_run import ShownRun, show_run
from quintain.store.database.paging import read_pages
from quintain.tools.services import Services

SCANNED = 5_000
"""Number of newest matching runs that a batch is chosen from."""

GROUP = 5
"""Runs of a group at most."""

TEXT_CHARS = 60_000
"""Size of a whole batch, some 20,000 tokens: hosts cut longer answers."""

_RUN_CHARS: dict[Judge, dict[JudgingMode, int]] = {
    "assistant": {"score": 16_000, "steps": 16_000, "pairwise": 10_000, "group": 6_000},
    "person": {"score": 6_000, "steps": 8_000, "pairwise": 4_000, "group": 2_500},
}
"""Largest size of one run; people read less."""
_LONGER_CHARS = 100_000
"""Largest size of one run for those who ask for more of it."""
_REPEAT_EVERY = 4
"""One of this many pairs of a batch is shown again in the other order."""
_TRIES = 20
"""Pairs or groups that are tried for each one that is requested."""
_SAME_TASK = 20
"""Runs of one task that are paired."""
_READ_AT_ONCE = 50


@dataclass(frozen=True)
class BatchRequest:
    """A batch that is asked for."""

    id: str
    judge: Judge
    rater: str
    mode: JudgingMode
    rubric: Rubric
    limit: int
    seed: int
    filter: TrajectoryFilter | None = None
    ids: tuple[str, ...] | None = None


class Candidate(NamedTuple):
    """A run that can be judged."""

    id: str
    task: str
    is_known: bool


class Choice(NamedTuple):
    """The items to judge, and how many runs they were chosen from."""

    items: Iterator[tuple[str, ...]]
    """The runs of each."""
    matching: int
    """Runs that the filter or the ids found, of those that are not forgotten."""
    corrections: int
    """Of these, corrections that were left out."""
    open: int
    """Of these, recordings that still go on."""


class ShownItem(NamedTuple):
    """One item as the judge sees it."""

    item: BatchItem
    text: str
    views: tuple[ShownRun, ...]
    runs: tuple[Trajectory, ...]


def choose(services: Services, request: BatchRequest) -> Choice:
    """Return the items to judge next, most useful first, without those that this rater has answered by this rubric."""
    done = _answered(services, request)
    candidates, counts = _candidates(services, request)
    return Choice(_items(services, request, candidates, done), **counts)


def _items(
    services: Services, request: BatchRequest, candidates: Sequence[Candidate], done: set[frozenset[str]]
) -> Iterator[tuple[str, ...]]:
    if request.mode in {"score", "steps"}:
        open_ones = [one for one in candidates if frozenset((one.id,)) not in done]
        return ((one.id,) for one in _in_turn(services, request, open_ones))
    tasks: defaultdict[str, list[Candidate]] = defaultdict(list)
    for one in sorted(candidates, key=lambda one: stable_seed(request.seed, one.id)):
        tasks[one.task].append(one)
    several = _comparable(services, {task: runs for task, runs in tasks.items() if len(runs) > 1})
    if request.mode == "pairwise":
        return _pairs(services, request, several, done)
    return _groups(services, request, several, done)


def _answered(services: Services, request: BatchRequest) -> set[frozenset[str]]:
    """Sets of runs that the rater has judged together under this rubric, in this mode."""
    return {
        frozenset(item.trajectory_ids)
        for batch in services.store.judging.iterate(request.rater)
        if batch.mode == request.mode and batch.rubric == request.rubric
        for item in batch.items
        if item.item_id in batch.answered
    }


def _comparable(services: Services, tasks: dict[str, list[Candidate]]) -> dict[str, list[Candidate]]:
    """The runs of each task by all that export asks of two runs: of a prompt without an id also the rest of it, and the tools."""
    groups = {task: runs for task, runs in tasks.items() if task.startswith("id:")}
    rest = {one.id: one for task, runs in tasks.items() if task not in groups for one in runs}
    keys = {run.id: comparison_key(run) for run in services.store.trajectories.iterate(ids=list(rest))} if rest else {}
    for run_id, one in rest.items():
        if run_id in keys:
            groups.setdefault(keys[run_id], []).append(one)
    return {task: runs for task, runs in groups.items() if len(runs) > 1}


def _candidates(services: Services, request: BatchRequest) -> tuple[list[Candidate], dict[str, int]]:
    """The runs that can be judged, and how many there were to choose from (fields of `Choice`)."""
    found: list[Candidate] = []
    counts = {"matching": 0, "corrections": 0, "open": 0}
    asked_for = request.ids is not None or CORRECTION in (request.filter.tags or () if request.filter else ())
    for line in _lines(services, request):
        # Of a long prompt only the start is here; what is shown together is compared in full later.
        task = f"id:{line.environment or ''}:{line.task_id}" if line.task_id else f"prompt:{line.prompt}"
        counts["matching"] += 1
        is_left_out = CORRECTION in line.tags and (not asked_for or REPLACED in line.tags)
        counts["open"] += LIVE in line.tags
        counts["corrections"] += is_left_out and LIVE not in line.tags
        if LIVE not in line.tags and not is_left_out:
            found.append(Candidate(line.id, task, line.outcome is not OutcomeStatus.UNKNOWN))
        if len(found) == SCANNED:
            break
    return found, counts


def _lines(services: Services, request: BatchRequest) -> Iterable[TrajectorySummary]:
    store = services.store.trajectories
    if request.ids is None:
        return read_pages(partial(store.search, request.filter or TrajectoryFilter()))
    if request.filter is not None or not request.ids:
        raise InvalidInput(
            "give `filter` or `trajectory_ids` with at least one id, not both; without either every stored run counts"
        )
    ids = list(dict.fromkeys(request.ids))
    store.iterate(ids=ids)  # refuses unknown ones
    return store.summaries(ids)


def _in_turn(services: Services, request: BatchRequest, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Sort runs, most useful first, as the docstring of this module describes."""
    judged = services.store.scores.by_scorers(("judge", "people"), [one.id for one in candidates])
    others = {run for run, scores in judged.items() if any(score.rater != request.rater for score in scores)}
    turn: Counter[str] = Counter()
    ranked: list[tuple[tuple[bool, bool, int, int], Candidate]] = []
    for one in sorted(candidates, key=lambda one: stable_seed(request.seed, one.id)):
        first = (one.id in others) == (request.judge == "person")
        ranked.append(((not first, one.is_known, turn[one.task], stable_seed(request.seed, one.id)), one))
        turn[one.task] += 1
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


def _pairs(
    services: Services, request: BatchRequest, tasks: dict[str, list[Candidate]], done: set[frozenset[str]]
) -> Iterator[tuple[str, ...]]:
    """Pairs of a task, tasks in turn; the last of a batch are some of the first, in the other order."""

    def of_task(runs: Sequence[Candidate]) -> Iterator[tuple[Candidate, Candidate]]:
        for one, other in combinations(islice(_distinct(services, runs), _SAME_TASK), 2):
            if frozenset((one.id, other.id)) not in done:
                yield one, other

    in_order = sorted(tasks.items(), key=lambda task: stable_seed(request.seed, task[0]))
    pairs = _one_of_each([of_task(runs) for _, runs in in_order])
    return (_shuffled(request.seed, [one.id, other.id]) for one, other in pairs)


def _groups(
    services: Services, request: BatchRequest, tasks: dict[str, list[Candidate]], done: set[frozenset[str]]
) -> Iterator[tuple[str, ...]]:
    for _, runs in sorted(tasks.items(), key=lambda task: stable_seed(request.seed, task[0])):
        distinct = _distinct(services, runs)
        while len(group := [one.id for one in islice(distinct, GROUP)]) > 1:
            if frozenset(group) not in done:
                yield _shuffled(request.seed, group)


def _distinct(services: Services, runs: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield the runs of a task in order, of those that say the same only the first; they are read as they are needed."""
    seen: set[str] = set()
    for start in range(0, len(runs), _READ_AT_ONCE):
        part = runs[start : start + _READ_AT_ONCE]
        stored = services.store.trajectories.iterate(ids=[one.id for one in part])
        digests = {run.id: agent_digest(run) for run in stored}
        for one in part:
            digest = digests.get(one.id)
            if digest is not None and digest not in seen:
                seen.add(digest)
                yield one


def _one_of_each(waiting: list[Iterator[tuple[Candidate, Candidate]]]) -> Iterator[tuple[Candidate, Candidate]]:
    while waiting:
        still = []
        for source in waiting:
            if (found := next(source, None)) is not None:
                yield found
                still.append(source)
        waiting = still


def _shuffled(seed: int, runs: Sequence[str]) -> tuple[str, ...]:
    """Return the order in which runs are shown together, shuffled so that no place means anything."""
    together = ",".join(sorted(runs))
    return tuple(sorted(runs, key=lambda run: stable_seed(seed, together, run)))


def fill(services: Services, request: BatchRequest, chosen: Iterable[tuple[str, ...]]) -> tuple[list[ShownItem], str]:
    """Return the items of a batch, up to `request.limit`, and why they are fewer; no reason where they are not.

    A batch has no more text than a judge can be given at once.
    """
    repeats = request.limit // _REPEAT_EVERY if request.mode == "pairwise" else 0
    room = TEXT_CHARS * (request.limit - repeats) // request.limit
    items: list[ShownItem] = []
    fewer = "nothing else is left to judge"
    for runs in islice(chosen, request.limit * _TRIES):
        if len(items) == request.limit - repeats:
            fewer = ""
            break
        shown = show_item(services, request, BatchItem(item_id=f"i{len(items) + 1}", trajectory_ids=runs))
        if shown is None:
            continue
        room -= len(shown.text)
        if items and room < 0:
            fewer = f"a batch has at most {TEXT_CHARS:,} characters; the rest comes with the next batch"
            break
        items.append(shown)
    for first in items[:repeats]:
        item = BatchItem(
            item_id=f"i{len(items) + 1}", trajectory_ids=first.item.trajectory_ids[::-1], repeats=first.item.item_id
        )
        if (shown := show_item(services, request, item)) is not None:
            items.append(shown)
    return items, fewer if len(items) < request.limit else ""


def mark_of_batch(batch_id: str) -> str:
    """Return the datamark of a batch: its id is random, and younger than every text that it shows."""
    return mark_of(stable_seed(0, "datamark", batch_id))


def show_item(services: Services, asked: BatchRequest | JudgingBatch, item: BatchItem) -> ShownItem | None:
    """Return an item as its judge sees it; None for runs of different tasks, or that are equal, forgotten, or grown since."""
    if services.store.lineage.forgotten(item.trajectory_ids):
        return None
    runs = tuple(services.store.trajectories.get(run_id) for run_id in item.trajectory_ids)
    if len(runs) > 1 and (len(set(map(comparison_key, runs))) > 1 or len(set(map(agent_digest, runs))) < len(runs)):
        return None
    views = _views(asked.mode, runs, _RUN_CHARS[asked.judge][asked.mode])
    plain = "\n\n".join(view.text for view in views)
    digest = hashlib.sha256(plain.encode()).hexdigest()[:16]
    if item.shown not in {None, digest}:
        return None
    if isinstance(asked, JudgingBatch) and item.item_id in asked.longer:
        views = _views(asked.mode, runs, _LONGER_CHARS)
        plain = "\n\n".join(view.text for view in views)
    text = (
        plain
        if asked.judge == "person"
        else f"{datamark(plain, mark_of_batch(asked.id))}\n\n{rubric_text(asked.rubric)}"
    )
    return ShownItem(item.model_copy(update={"shown": digest}), text, views, runs)


def names_of(mode: JudgingMode, n: int) -> list[str]:
    """Return the names of an item's runs, in the order in which they are shown."""
    return ["A", "B"] if mode == "pairwise" else [str(place + 1) for place in range(n)]


def _views(mode: JudgingMode, runs: Sequence[Trajectory], chars: int) -> tuple[ShownRun, ...]:
    labels = ["RUN"] if len(runs) == 1 else [f"RUN {name}" for name in names_of(mode, len(runs))]
    return tuple(show_run(run, budget_chars=chars, label=label) for run, label in zip(runs, labels, strict=True))
