"""Build the rows of each dataset kind from stored runs, with at most a batch of runs in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from quintain.datasets.benchmark import benchmark_row, rank_references, reference_of
from quintain.datasets.dataset_writer import ExportOptions
from quintain.datasets.near_duplicates import drop_near_duplicates
from quintain.datasets.rows import cut_after
from quintain.datasets.sampling import SampleMember, best_runs, distribution, draw_sample, run_value, task_class
from quintain.datasets.selection import (
    Digests,
    ExportCounts,
    ValuedRun,
    agent_digest,
    comparison_key,
    filter_runs,
    is_trainable,
)
from quintain.datasets.split_leaks import near_prompts_together
from quintain.datasets.splits import KeyedRow, task_key
from quintain.datasets.step_labels import (
    StepLabels,
    outcome_labels,
    reason_against,
    recorded_labels,
    score_labels,
)
from quintain.records.dataset import (
    PAIRED,
    DatasetRow,
    LabelledRow,
    PairRow,
    Reference,
    Row,
    StepLabelRow,
    StepValues,
    TaskClass,
)
from quintain.records.trajectory import Trajectory
from quintain.scoring.preferences.consensus import consensus
from quintain.scoring.preferences.forks import fork_step, path_of
from quintain.scoring.preferences.mining import Candidate, Pair, form_groups, mine_pairs
from quintain.scoring.recorded import source_of
from quintain.tools.data.dataset_folders import BATCH_RUNS, group_lines, pair_lines, with_runs
from quintain.tools.evaluation.environment_references import environment_of_job
from quintain.tools.labels.scorer_resolution import (
    group_reward,
    label,
    parts_of_runs,
    reward,
    runs_with_values,
    stored_scores_of,
    verdict,
)
from quintain.tools.services import Services

T = TypeVar("T")


class _Item(NamedTuple, Generic[T]):
    """Source of one row: its value, its runs, and its task class if rows are sampled."""

    row: T
    runs: tuple[str, ...]
    task_class: TaskClass | None


@dataclass(frozen=True)
class RowStatements:
    """Statements of prepared rows about their runs; they take precedence over outcomes and scores."""

    pairs: Sequence[Pair] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    """Run id -> value; 1 and 0 if a row labels it good or bad, chosen or rejected."""


@dataclass
class _Export:
    """State of one export: its inputs, and the classes of tasks seen so far."""

    services: Services
    options: ExportOptions
    tally: ExportCounts
    statements: RowStatements
    classes: dict[str, TaskClass | None] = field(default_factory=dict)
    """Task key -> class of its oldest run, if rows are sampled."""
    labels: dict[str, StepLabels] = field(default_factory=dict)
    """Run id -> step labels, for kind `prm`, until the row is built."""
    step_values: dict[str, StepValues] = field(default_factory=dict)
    """Run id -> values of its steps by the scorer, of runs that are fetched again."""


def lines_of(
    services: Services,
    runs: Iterable[Trajectory],
    options: ExportOptions,
    tally: ExportCounts,
    statements: RowStatements | None = None,
) -> Iterator[KeyedRow]:
    """Stream the rows of a dataset of stored runs.

    The runs are read once, oldest first; `tally` counts those that are left out.
    """
    export = _Export(services, options, tally, statements or RowStatements())
    similar = options.criteria.curation.near_duplicates
    stay = filter_runs(_valued(export, runs), options.criteria, tally)
    if options.kind == "prm":
        stay = _labelled(export, stay)
    if similar is not None:
        stay = drop_near_duplicates(stay, similar, tally, by_value=options.kind != "sft")
    lines = {"dpo": _pairs, "reward": _pairs, "grpo": _groups, "benchmark": _tasks}.get(options.kind, _single)(
        export, stay
    )
    return near_prompts_together(lines, similar) if similar and any(options.shares.values()) else lines


def _single(export: _Export, runs: Iterator[ValuedRun]) -> Iterator[KeyedRow]:
    """Yield rows of kinds with one run each."""
    row = _row_maker(export)
    curation = export.options.criteria.curation
    if not curation.ranks and not curation.samples:
        yield from (KeyedRow(task_key(run.trajectory), row(run)) for run in runs)
        return
    # Which runs stay depends on all of them: they are looked through first without being held, then fetched again.
    kept = _with_steps_kept(export, runs)
    picks = [run_value(run, value, _class(export, run), curation) for run, value, _ in kept]
    picks = best_runs(picks, curation, export.options.seed, export.tally)
    drawn = _drawn(export, [_Item(pick, (pick.trajectory_id,), pick.task_class) for pick in picks])
    for pick, (run,) in with_runs(export.services, ((item.row, item.runs) for item in drawn)):
        yield KeyedRow(task_key(run), row(ValuedRun(run, pick.value, export.step_values.get(_id(run), ()))))


def _pairs(export: _Export, runs: Iterator[ValuedRun]) -> Iterator[KeyedRow]:
    if export.statements.pairs:
        yield from _stated_pairs(export, runs)
        return
    if "pairs" in export.options.making:
        yield from _recorded_pairs(export, runs)
        return
    candidates = _candidates(export, runs, comparison_key)
    mined = mine_pairs(candidates, seed=export.options.seed, **export.options.making)
    export.tally.dropped.update(mined.runs_left_out)
    export.tally.tasks_dropped.update(mined.tasks_left_out)
    items = [_Item(pair, (pair.chosen, pair.rejected), export.classes.get(pair.task)) for pair in mined.pairs]
    yield from pair_lines(export.services, (item.row for item in _drawn(export, items)), _parts_of(export, items))


def _recorded_pairs(export: _Export, runs: Iterator[ValuedRun]) -> Iterator[KeyedRow]:
    """Yield rows of the stored preferences between these runs, by majority of the raters."""
    tasks: dict[str, str] = {}
    for run, *_ in runs:
        tasks[_id(run)] = key = comparison_key(run)
        export.classes.setdefault(key, _class(export, run))
    preferences = export.services.store.preferences.among(tasks, sources=export.options.making["sources"])
    found = consensus(preferences, tasks)
    items = [_Item(pair, (pair.chosen, pair.rejected), export.classes.get(pair.task)) for pair in found.pairs]
    paired = {side for item in items for side in item.runs}
    # Only runs in no pair need a reason, so only those are looked up.
    reasons = {run: "no_preference" for run in tasks if run not in paired}
    elsewhere = export.services.store.preferences.involving(reasons, sources=export.options.making["sources"])
    reasons |= {run: "other_side_not_chosen" for one in elsewhere for run in (one.a, one.b) if run in reasons}
    for reason, without in (("tie", found.ties), ("raters_disagree", found.undecided)):
        reasons |= {side: reason for two in without for side in two if side in reasons}
    export.tally.dropped.update(reasons.values())
    export.tally.preferences = {
        "recorded": len(preferences),
        "sources": dict(Counter(one.source for one in preferences)),
        "raters": dict(Counter(one.rater or one.source for one in preferences)),
        "ties": len(found.ties),
        "undecided": len(found.undecided),
        "raters_disagree": found.disagreements,
    }
    if found.disagreements:
        export.tally.notes.append(
            f"raters disagree on {found.disagreements} of {len(found.pairs) + len(found.ties) + len(found.undecided)} pairs: "
            "the majority decides, and the pair weighs as its share of the raters"
        )
    yield from _rows_once(export, _drawn(export, items))


def _rows_once(export: _Export, items: Iterable[_Item[Pair]]) -> Iterator[KeyedRow]:
    """Yield each pair of contents once, and count runs that end up in no row."""
    items = list(items)
    contents, used, refused, parts = set[Hashable](), set[str](), dict[str, str](), _parts_of(export, items)
    digests = Digests()
    for pair, (chosen, rejected) in with_runs(export.services, ((item.row, item.runs) for item in items)):
        built = _row_of(pair, chosen, rejected, digests)
        if isinstance(built, str) or built[1] in contents:
            reason = built if isinstance(built, str) else "duplicate"
            refused |= dict.fromkeys((pair.chosen, pair.rejected), reason)
            continue
        row, content = built
        if pair.step is None:  # the parts are those of whole runs
            sides = {"chosen_parts": parts.get(pair.chosen, {}), "rejected_parts": parts.get(pair.rejected, {})}
            row = row.model_copy(update=sides)
        contents.add(content)
        used.update((pair.chosen, pair.rejected))
        yield KeyedRow(task_key(chosen), row)
    export.tally.dropped.update(reason for run, reason in refused.items() if run not in used)


def _parts_of(export: _Export, items: Iterable[_Item[Pair]]) -> dict[str, dict[str, float]]:
    """Return run id -> values of its parts by the scorer of `curation.parts_of`; empty without one."""
    scorer = export.options.criteria.curation.parts_of
    return (
        {} if scorer is None else parts_of_runs(export.services, scorer, [run for item in items for run in item.runs])
    )


def _row_of(pair: Pair, chosen: Trajectory, rejected: Trajectory, digests: Digests) -> tuple[PairRow, Hashable] | str:
    """Return the row of a recorded pair and its content key, or the reason why there is none."""
    if comparison_key(chosen) != comparison_key(rejected):
        return "not_comparable"
    before: list[bytes] = []
    if pair.step is not None:
        if fork_step(chosen, rejected) != pair.step:
            return "not_comparable"
        chosen, rejected = cut_after(chosen, pair.step), cut_after(rejected, pair.step)
        if not (is_trainable(chosen.steps[-1]) and is_trainable(rejected.steps[-1])):
            return "no_trainable_step"
        before = [path_of(side, "", 0.0).digests for side in (chosen, rejected)]
    better, worse = digests.of(chosen, pair.step), digests.of(rejected, pair.step)
    if better == worse:
        return "equal_sides"
    row = PairRow(chosen=chosen, rejected=rejected, margin=pair.margin, weight=pair.weight)
    return row, (pair.task, pair.step, better, worse, *before)


def _stated_pairs(export: _Export, runs: Iterator[ValuedRun]) -> Iterator[KeyedRow]:
    """Yield the stated pairs whose sides both remain and differ."""
    known = {candidate.trajectory_id: candidate for candidate in _candidates(export, runs)}
    reasons: dict[str, str] = {}
    items: list[_Item[Pair]] = []
    for pair in export.statements.pairs:
        sides = [known.get(run) for run in (pair.chosen, pair.rejected)]
        if sides[0] and sides[1] and sides[0].content != sides[1].content:
            items.append(_Item(pair, (pair.chosen, pair.rejected), export.classes.get(sides[0].task)))
        else:
            reason = "equal_sides" if sides[0] and sides[1] else "other_side_dropped"
            reasons |= {run: reason for run in (pair.chosen, pair.rejected) if run in known}
    paired = {run for item in items for run in item.runs}
    export.tally.dropped.update(reason for run, reason in reasons.items() if run not in paired)
    yield from pair_lines(export.services, (item.row for item in _drawn(export, items)), _parts_of(export, items))


def _groups(export: _Export, runs: Iterator[ValuedRun]) -> Iterator[KeyedRow]:
    formed = form_groups(_candidates(export, _with_steps_kept(export, runs)))
    export.tally.dropped.update(formed.runs_left_out)
    export.tally.tasks_dropped.update(formed.tasks_left_out)
    items = [_Item(group, group.trajectory_ids, export.classes.get(group.task)) for group in formed.groups]
    yield from group_lines(export.services, (item.row for item in _drawn(export, items)), export.step_values)


def _with_steps_kept(export: _Export, runs: Iterable[ValuedRun]) -> Iterator[ValuedRun]:
    """Yield the runs, and keep the values of their steps for when they are fetched again."""
    for run in runs:
        if any(value is not None for value in run.steps):
            export.step_values[_id(run.trajectory)] = run.steps
        yield run


def _tasks(export: _Export, runs: Iterator[ValuedRun]) -> Iterator[KeyedRow]:
    """Yield one benchmark row a task."""
    references: dict[str, list[Reference]] = {}
    for run, *_ in runs:
        key = task_key(run)
        references.setdefault(key, []).append(reference_of(run))
        export.classes.setdefault(key, _class(export, run))
    items = [
        _Item(rank_references(known), tuple(reference.trajectory_id for reference in known), export.classes[key])
        for key, known in references.items()
    ]
    drawn = ((item.row, (item.row[0].trajectory_id,)) for item in _drawn(export, items))
    reference = cache(partial(environment_of_job, export.services))
    for known, (run,) in with_runs(export.services, drawn):
        place = run.task.environment
        full = reference(run.job_id, place) if run.job_id and place else place
        task = run.task.model_copy(update={"environment": full})
        yield KeyedRow(task_key(run), benchmark_row(run.model_copy(update={"task": task}), known))


def _row_maker(export: _Export) -> Callable[[ValuedRun], Row]:
    options = export.options
    if options.kind == "kto":
        bound = options.making["desirable_from"]
        return lambda run: LabelledRow(
            trajectory=run.trajectory, desirable=run.value is not None and run.value >= bound
        )
    if options.kind == "prm":
        return lambda run: StepLabelRow(trajectory=run.trajectory, **export.labels.pop(_id(run.trajectory))._asdict())
    return lambda run: DatasetRow(trajectory=run.trajectory, reward=run.value, step_values=run.steps)


def _labelled(export: _Export, runs: Iterable[ValuedRun]) -> Iterator[ValuedRun]:
    """Yield the runs with usable step labels, and count the others."""
    for run, known in _with_labels(export, runs):
        if reason := reason_against(known.labels):
            export.tally.dropped[reason] += 1
        else:
            export.labels[_id(run.trajectory)] = known
            yield run


def _with_labels(export: _Export, runs: Iterable[ValuedRun]) -> Iterator[tuple[ValuedRun, StepLabels]]:
    criteria = export.options.criteria
    source, scorer = criteria.curation.step_labels, criteria.scorer
    if source == "recorded":
        yield from ((run, StepLabels(recorded_labels(run.trajectory))) for run in runs)
    elif source == "outcome":
        for run in runs:
            value = verdict(run.trajectory)
            yield run, StepLabels(() if value is None else outcome_labels(run.trajectory, value))
    else:
        stream = iter(runs)
        while batch := list(islice(stream, BATCH_RUNS)):
            scores = stored_scores_of(export.services, scorer or "", [_id(run.trajectory) for run in batch])
            rubric = source_of(scorer or "").rubric
            for run in batch:
                stored_scores = scores.get(_id(run.trajectory), [])
                yield run, score_labels(run.trajectory, [one for one in stored_scores if rubric in {None, one.rubric}])


def _drawn(export: _Export, items: Sequence[_Item[T]]) -> list[_Item[T]]:
    """Return the sampled rows to train on, or all, and those of the validation split; count runs that are in none of them."""
    curation, placed = export.options.criteria.curation, export.options.placed
    if not curation.samples:
        return list(items)
    beside = [item for item in items if placed.get(item.runs[0], "train") != "train"]
    items = [item for item in items if placed.get(item.runs[0], "train") == "train"]
    members = [SampleMember("/".join(item.runs), item.task_class or "") for item in items]
    weights = None if curation.task_weights is None else {str(name): n for name, n in curation.task_weights.items()}
    indices = draw_sample(members, weights, curation.max_rows, export.options.seed)
    if weights is not None:
        found = distribution(members, indices, weights)
        export.tally.distribution.update(found)
        if empty := [name for name, weight in weights.items() if weight > 0 and not found[name]["before"]]:
            export.tally.notes.append(
                f"no run is of class {' or '.join(empty)}, so the others share the sample; name classes yourself with "
                "curation.task_classes, or leave the class out of task_weights"
            )
    drawn = [items[i] for i in indices]
    left_out = {run for item in items for run in item.runs} - {run for item in drawn for run in item.runs}
    if left_out:
        export.tally.dropped["not_sampled"] += len(left_out)
    return drawn + beside


def _class(export: _Export, run: Trajectory) -> TaskClass | None:
    curation = export.options.criteria.curation
    return None if curation.task_weights is None else task_class(run, curation.task_classes)


def _candidates(
    export: _Export, runs: Iterable[ValuedRun], key_of: Callable[[Trajectory], str] = task_key
) -> Iterator[Candidate]:
    for run, value, _ in runs:
        if value is not None:
            key = key_of(run)
            export.classes.setdefault(key, _class(export, run))
            yield Candidate(key, _id(run), value, agent_digest(run))


def _id(run: Trajectory) -> str:
    return run.identified().id or ""


def _valued(export: _Export, runs: Iterable[Trajectory]) -> Iterator[ValuedRun]:
    options, statements, worth = export.options, export.statements.values, _worth(export.options)
    return runs_with_values(
        export.services,
        runs,
        options.criteria.scorer,
        lambda run: statements.get(run.id or "", worth(run)),
        export.tally.notes,
        options.making.get("desirable_from", options.criteria.min_value),
    )


def _worth(options: ExportOptions) -> Callable[[Trajectory], float | None]:
    """Return the function that values a run without a scorer."""
    if options.kind == "grpo":
        return group_reward
    if options.kind in {"kto", *PAIRED} and not options.about:  # ready-made rows state their labels themselves
        return label
    if options.kind in PAIRED and options.about:  # and their ratings
        return lambda run: verdict(run) if (rated := reward(run)) is None else rated
    by_reward = options.kind in {"sft", "benchmark"} or (
        options.kind == "prm" and options.criteria.curation.step_labels == "recorded"
    )
    return reward if by_reward else verdict
