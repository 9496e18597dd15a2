"""Datasets: freeze chosen runs, or ready-made rows, into an immutable folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from quintain.artifacts.locations import HUB
from quintain.datasets import near_duplicates
from quintain.datasets.dataset_writer import WrittenDataset
from quintain.datasets.selection import Criteria, ExportCounts
from quintain.errors import InvalidInput
from quintain.exporters.dataset_conversion import require_kind
from quintain.exporters.registry import exporter
from quintain.next_step import Hint, call
from quintain.records.artifacts import PushSpec
from quintain.records.dataset import IMITATED, PAIRED, Curation, DatasetKind, SplitName, as_cell
from quintain.records.filters import TrajectoryFilter
from quintain.records.record import require_number
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.records.wording import counted
from quintain.tools.data.dataset_folders import ROW_DEFAULTS, convert_or_remove, freeze, new_options
from quintain.tools.data.dataset_lines import lines_of
from quintain.tools.data.lineage import note_other_splits
from quintain.tools.data.row_references import freeze_path
from quintain.tools.labels.reward_parsing import RewardInput
from quintain.tools.labels.scorer_resolution import full_scorer_name
from quintain.tools.labels.scoring import name_of_mix
from quintain.tools.results import ExportResult
from quintain.tools.roots import PushTo, destination_of
from quintain.tools.run_selection import RunFilter, select, short_schema
from quintain.tools.services import Services
from quintain.tools.training.agents import own_model
from quintain.tools.training.methods import learning_from

_SHOWN = 20
"""Rejected rows in an answer; the manifest lists more."""

_CONTRASTED = frozenset({*PAIRED, "kto", "grpo"})
"""Kinds that need good and bad runs."""

_ONLY_FOR: dict[str, frozenset[str]] = {
    "min_reward": frozenset({"sft", "prm", "benchmark"}),
    "max_reward": frozenset({"sft", "prm", "benchmark"}),
    "top_share": frozenset({"sft", "prm"}),
    "best_per_task": frozenset({"sft"}),
    "best_per": frozenset({"sft"}),
    "near_duplicates": near_duplicates.KINDS,
    "step_labels": frozenset({"prm"}),
    "parts_of": frozenset({"reward"}),
}
"""Field of `Curation` -> kinds that support it; other fields apply to any kind of runs."""


Kind = Annotated[
    DatasetKind,
    Field(
        description="sft: good runs; dpo, reward: pairs of a task; kto: runs marked good or bad; grpo: groups of a task; "
        "prm: judged steps; benchmark: tasks with references; text: plain text (`path`)."
    ),
]
RowsPath = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=4096,
        description="Rows instead: JSON lines, CSV, Parquet, folder, URL, Hub name; a+b: datasets.",
    ),
]
Columns = Annotated[
    dict[str, str] | None,
    BeforeValidator(
        lambda given: {name: as_cell(one) for name, one in given.items()} if isinstance(given, dict) else given
    ),
    Field(
        description="prompt, response, chosen, label, reward ... -> its column; "
        "good, bad -> label's value, values (a|b) or bound (>=4); assistant -> role's."
    ),
]
PairsFrom = Literal["mined", "recorded", "recorded:mined", "person", "assistant", "endpoint", "agent", "imported"]
Pairs = Annotated[
    PairsFrom,
    Field(description="dpo, reward: mined from the runs, else recorded preferences, all or of one source."),
]
Scorer = Annotated[
    RewardInput | None, Field(description="Whose stored scores value runs (outcomes); sft: with `min_score`.")
]
_number = BeforeValidator(require_number)
MinScore = Annotated[
    float | None, Field(ge=0, le=1, description="sft: keep from here on; kto: good from here on (0.5)."), _number
]
Margin = Annotated[float | None, Field(ge=0, lt=1, description="dpo: chosen is better by more (0)."), _number]
MaxPairs = Annotated[int | None, Field(ge=1, le=100, description="dpo: at most so many (4)."), _number]
ValidationShare = Annotated[float, Field(ge=0, lt=1, description="Share of tasks to validate on."), _number]
TestShare = Annotated[float, Field(ge=0, lt=1, description="Share of tasks to test on."), _number]
Outcomes = Annotated[
    list[Literal["success", "failure", "error", "truncated", "unknown"]] | None,
    Field(
        min_length=1,
        description="Keep these outcomes, unknown: not stated; default: any, for sft without `scorer` success.",
    ),
]
CurationSettings = Annotated[
    Curation | None,
    Field(description="Filters, sampling, step labels: began_since, best_per, max_rows, ...: guide://curation."),
    short_schema("object", maxProperties=len(Curation.model_fields)),
]
HeldOut = Annotated[bool, Field(description="Also take evaluation tasks, which then measure nothing.")]


def export_dataset(
    services: Services,
    kind: Kind,
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="Its name.")],
    filter: RunFilter = None,
    trajectory_ids: Annotated[list[str] | None, Field(max_length=100_000, description="Runs by id.")] = None,
    path: RowsPath = None,
    columns: Columns = None,
    scorer: Scorer = None,
    min_score: MinScore = None,
    margin: Margin = None,
    max_pairs_per_task: MaxPairs = None,
    pairs: Pairs = "mined",
    outcomes: Outcomes = None,
    curation: CurationSettings = None,
    validation_share: ValidationShare = 0.0,
    test_share: TestShare = 0.0,
    include_held_out: HeldOut = False,
    seed: Annotated[int, Field(ge=0, description="Of the split."), _number] = 0,
    format: Annotated[str, Field(max_length=60, description="quintain, or a format to also write it in.")] = "quintain",
    push_to: PushTo = None,
) -> ExportResult:
    """Freeze chosen runs into a dataset for start_training; every run left out is counted with its reason.

    By default, runs on held-out tasks and runs without a verdict are left out. dpo and grpo compare several
    attempts of one task.
    """
    curation = _checked_curation(kind, curation, scorer if path is None else None)
    mining = {"margin": margin, "max_pairs_per_task": max_pairs_per_task}
    _require_recorded(kind, pairs, {"path": path, "scorer": scorer, **mining}, curation)
    named, tally = _named(services, scorer, filter, trajectory_ids, curation)
    making = _making(kind, named, min_score, curation, mining) if pairs == "mined" else _recorded(pairs)
    selection = {
        "outcomes": outcomes,
        "include_held_out": include_held_out,
        "ready_made": path is not None,
        "recorded": pairs != "mined",
    }
    options = replace(
        new_options(services, name, kind),
        seed=seed,
        shares=_shares(kind, {"validation": validation_share, "test": test_share}),
        criteria=_criteria(kind, named, min_score, curation, selection),
        making=making,
    )
    destination, format = _destination(services, push_to, format)
    if format != "quintain":
        require_kind(exporter(format), options.kind)
    if path is not None:
        if filter is not None or trajectory_ids is not None:
            raise InvalidInput("`path` has the rows; leave `filter` and `trajectory_ids` out, or leave `path` out")
        written = freeze_path(services, path, columns or {}, options, tally)
    else:
        _require_runs(kind, columns, curation)
        tally.notes += note_other_splits(services, filter, kind)
        runs = _all_counted(select(services, filter, trajectory_ids), len(set(trajectory_ids or ())), tally)
        written = freeze(services, lines_of(services, runs, options, tally), options, tally)
    return _pushed(services, _converted(services, _result(services, written, tally), written, format), destination)


def _checked_curation(kind: str, curation: Curation | None, scorer: RewardInput | None) -> Curation:
    """Return the curation; a scorer of stored runs gives the step labels of `prm` unless they are named.

    Raises:
        InvalidInput: A field does not apply to this kind of dataset; names the field and the kinds that it goes with.
    """
    curation = curation or Curation()
    for name in sorted(curation.model_fields_set):
        kinds = _ONLY_FOR.get(name)
        if kind == "text" or (kinds is not None and kind not in kinds):
            why = ", which takes good and bad runs" if kind in _CONTRASTED else ""
            go = "leave it out" if kinds is None else f"it goes with {', '.join(sorted(kinds))}: leave it out"
            raise InvalidInput(f"`curation.{name}` does not go with kind {kind!r}{why}; {go}")
    if curation.task_classes is not None and curation.task_weights is None:
        raise InvalidInput("`curation.task_classes` is there and no `task_weights` to sample by; give both, or neither")
    if kind != "prm" or scorer is None or "step_labels" in curation.model_fields_set:
        return curation
    return curation.model_copy(update={"step_labels": "scores"})


def _named(
    services: Services,
    scorer: RewardInput | None,
    filter: TrajectoryFilter | None,
    ids: Sequence[str] | None,
    curation: Curation,
) -> tuple[str | None, ExportCounts]:
    """Return the full name of the scorer, None if outcomes decide, and counts that begin with its warnings."""
    if scorer is None:
        return None, ExportCounts()
    if not isinstance(scorer, str):
        return name_of_mix(services, scorer, filter, ids), ExportCounts()
    found = full_scorer_name(services, scorer, filter, ids, steps=curation.step_labels == "scores")
    return found.name, ExportCounts(notes=list(found.warnings))


def _shares(kind: str, shares: dict[SplitName, float]) -> dict[SplitName, float]:
    """Return the shares; a test split is there only if it was asked for."""
    for name, share in shares.items():
        if kind == "benchmark" and share:
            raise InvalidInput(f"`{name}_share` is {share}, but all of a benchmark is for testing; leave it out")
    return {name: share for name, share in shares.items() if share or name == "validation"}


def _require_runs(kind: str, columns: dict[str, str] | None, curation: Curation) -> None:
    if kind == "text":
        raise InvalidInput("expected files for kind 'text': name one, or a folder of them, as `path`")
    if columns is not None or curation.where is not None:
        name = "columns" if columns is not None else "curation.where"
        raise InvalidInput(f"`{name}` names the fields of a file; give its `path` too, or leave it out")


def _all_counted(runs: Iterator[Trajectory], asked: int, tally: ExportCounts) -> Iterator[Trajectory]:
    """Yield the runs; requested ids without a run were forgotten and are counted."""
    came = 0
    for run in runs:
        came += 1
        yield run
    tally.leave_out("forgotten", max(0, asked - came))


def _criteria(
    kind: str, scorer: str | None, min_score: float | None, curation: Curation, selection: dict[str, Any]
) -> Criteria:
    """Return the criteria; `selection` has the further arguments."""
    by_outcome = kind in _CONTRASTED or (kind == "prm" and curation.step_labels == "outcome")
    by_steps = kind == "prm" and curation.step_labels == "scores"
    if by_steps and scorer is None:
        raise InvalidInput(
            "`curation.step_labels` is 'scores', which needs a `scorer`; set it to judge, people or montecarlo"
        )
    by_value = not selection["recorded"] and (by_outcome or (scorer is not None and not by_steps))
    return Criteria(
        outcomes=_kept(kind, scorer, selection["outcomes"], ready_made=selection["ready_made"]),
        labelled=kind == "sft" and selection["outcomes"] is None,
        scorer=scorer,
        needs_value=by_value or curation.top_share is not None,
        min_value=min_score if kind == "sft" else None,
        # A benchmark is measured on, never trained on.
        include_held_out=selection["include_held_out"] or kind == "benchmark",
        # The label of a row's answer in an earlier log does not count: that of its file does.
        imitated=kind in IMITATED and not selection["ready_made"],
        # Rows that state no outcome were chosen by their author; those that state one in other words may be failures.
        readable=kind == "sft" and scorer is None and selection["ready_made"] and selection["outcomes"] is None,
        # Of recorded preferences the pairs are looked at once each, not the runs: one may stand in several.
        keep_repeats=kind in {"grpo", "benchmark"} or selection["recorded"],
        curation=curation,
    )


def _making(
    kind: str, scorer: str | None, min_score: float | None, curation: Curation, mining: dict[str, Any]
) -> dict[str, Any]:
    """Return the settings of this kind besides the criteria, with defaults; reject arguments of another kind."""
    if kind == "sft" and min_score is not None and scorer is None:
        raise InvalidInput(f"`min_score` is {min_score} without a `scorer`; name the scorer whose stored scores decide")
    if kind == "sft" and scorer is not None and min_score is None and not curation.ranks:
        raise InvalidInput(
            f"expected a bound for the scores of {scorer!r}, got none; set `min_score`, or for the best half "
            "`curation` to {'top_share': 0.5}"
        )
    if kind not in {"sft", "kto"} and min_score is not None:
        raise InvalidInput(f"`min_score` is {min_score}, but kind {kind!r} takes good and bad runs; leave it out")
    if kind not in PAIRED and (named := [name for name, value in mining.items() if value is not None]):
        raise InvalidInput(
            f"`{named[0]}` is {mining[named[0]]}, but only kind 'dpo' and kind 'reward' make pairs; leave it out"
        )
    given = {"desirable_from": min_score, **mining}
    return {
        name: default if given[name] is None else given[name] for name, default in ROW_DEFAULTS.get(kind, {}).items()
    }


def _require_recorded(kind: str, pairs: str, mining: dict[str, Any], curation: Curation) -> None:
    if pairs == "mined":
        return
    if kind not in PAIRED:
        raise InvalidInput(f"`pairs` is {pairs!r}, but only kind 'dpo' and kind 'reward' make pairs; leave it out")
    if named := [name for name, value in mining.items() if value is not None]:
        raise InvalidInput(
            f"`{named[0]}` goes with pairs that are mined now, and `pairs` is {pairs!r}, which takes preferences as they were "
            f"recorded; leave `{named[0]}` out, or pairs"
        )
    if curation.near_duplicates is not None:
        raise InvalidInput(
            f"`curation.near_duplicates` would part pairs, and `pairs` is {pairs!r}; leave it out (equal pairs go in once)"
        )


def _recorded(pairs: str) -> dict[str, Any]:
    source = pairs.removeprefix("recorded:")
    return {"pairs": pairs, "sources": [] if source == "recorded" else [source]}


def _kept(
    kind: str, scorer: str | None, outcomes: Sequence[str] | None, *, ready_made: bool
) -> frozenset[OutcomeStatus]:
    if outcomes is not None:
        return frozenset(map(OutcomeStatus, outcomes))
    if kind != "sft" or scorer is not None:
        return frozenset(OutcomeStatus)
    # Rows for fine-tuning were chosen by their author; most of them state no outcome.
    return frozenset({OutcomeStatus.SUCCESS, OutcomeStatus.UNKNOWN} if ready_made else {OutcomeStatus.SUCCESS})


def _result(services: Services, written: WrittenDataset, tally: ExportCounts) -> ExportResult:
    dataset = written.dataset
    labels = ", ".join(f"{n} {label}" for label, n in written.counts.items() if label != "trajectories")
    return ExportResult(
        dataset_id=dataset.id,
        kind=dataset.kind,
        rows=dataset.rows,
        dataset_rows=dataset.rows,
        trajectories=written.counts["trajectories"],
        dropped=dataset.dropped,
        splits=dataset.splits,
        path=dataset.path,
        warnings=written.warnings,
        redactions=dict(written.redactions),
        distribution=tally.distribution,
        rejected=tuple(tally.rejected[:_SHOWN]),
        resource_uri=f"dataset://{dataset.id}",
        next_step=Hint(f"It has {labels} runs. " if labels else "", _next_step(services, dataset.kind, dataset.id)),
    )


def _next_step(services: Services, kind: DatasetKind, dataset_id: str) -> Hint:
    methods = learning_from(kind)
    if not methods:
        from quintain.tools.evaluation.suites import measuring_step  # few exports are benchmarks

        return measuring_step(services, services.store.datasets.get(dataset_id))
    others = f" Methods that learn from it too: {', '.join(methods[1:])}." if methods[1:] else ""
    train = call("start_training", method=methods[0], model=own_model(services), dataset_id=dataset_id)
    return Hint("Train on it with ", train, f".{others}")


def _converted(services: Services, result: ExportResult, written: WrittenDataset, format: str) -> ExportResult:
    """Return the answer with the folder of the other format, if one was requested."""
    if format == "quintain":
        return result
    folder, export = convert_or_remove(services, written.dataset, format)
    left_out = [f"{format}: left out {counted(n, 'row')}, {reason}" for reason, n in export.dropped.items()]
    rows, held = export.rows.total(), export.splits.total() or result.rows - export.dropped.total()
    by_split = {Path(name).stem: n for name, n in export.rows.items()}
    several = "" if rows == held else f"{counted(rows, 'row')}, from "
    return result.model_copy(
        update={
            "rows": rows,
            "splits": by_split if by_split.keys() <= result.splits.keys() else dict(export.splits),
            "format": format,
            "path": str(folder),
            "warnings": (*result.warnings, *left_out, *export.notes),
            "next_step": Hint(
                f"The exported folder contains {several}{held:,} of {counted(result.rows, 'row')} for {format}; the dataset itself is "
                f"{written.dataset.id}. ",
                result.next_step,
            ),
        }
    )


def _destination(services: Services, push_to: str | None, format: str) -> tuple[str | None, str]:
    """Return where the dataset is pushed to, and the format for it: to the Hub goes one with a card."""
    destination = destination_of(services, push_to)
    to_hub = destination is not None and destination.startswith(f"{HUB}:")
    return destination, "hub" if to_hub and format == "quintain" else format


def _pushed(services: Services, result: ExportResult, destination: str | None) -> ExportResult:
    """Start a job that uploads the exported folder, and name it in the answer; without a destination, do nothing."""
    if destination is None:
        return result
    spec = PushSpec(dataset_id=result.dataset_id, folder=result.path, destination=destination)
    job = services.jobs.start(spec).job
    follow = call("get_job", job_id=job.id, until="done", wait_s=50)
    step = Hint(f"{job.id} uploads it to {destination}: ", follow, ". ", result.next_step)
    return result.model_copy(update={"push_job_id": job.id, "next_step": step})
