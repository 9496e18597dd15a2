"""Training data of an evolution round: its runs are valued, selected as runs, pairs or groups, and frozen as a dataset.

All runs are selected from by outlines without text. The selected ones are read again from the files of their stages, one at a time,
when their rows are written.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from quintain.datasets.dataset_writer import ExportOptions, write_dataset
from quintain.datasets.rows import read_rows, trajectories_of
from quintain.datasets.selection import (
    Criteria,
    ExportCounts,
    ValuedRun,
    agent_digest,
    comparison_key,
    filter_runs,
)
from quintain.datasets.splits import KeyedRow, task_key
from quintain.jobs.directory import STAGE_RESULT, output_records, output_records_at, write_atomically
from quintain.records.dataset import Dataset, DatasetKind, DatasetOutput, DatasetRow, GroupRow, PairRow, StepValues
from quintain.records.evaluation import EpisodeResult
from quintain.records.jobs.evolve import EvolveConfig, Rule, round_dataset_id
from quintain.records.jobs.job import EvolveSpec
from quintain.records.record import Record
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Trajectory
from quintain.scoring.preferences.mining import Candidate, form_groups, mine_pairs
from quintain.worker.rollouts.earlier_episodes import RESULT
from quintain.worker.rollouts.job_rewards import Rewards, batches_of, step_values
from quintain.worker.rollouts.online_rollouts import reward_of


class PlayedEpisode(NamedTuple):
    """An episode in the output file of its stage."""

    run: Trajectory
    result: EpisodeResult
    place: tuple[Path, int]
    """The folder of its stage, and the offset of its line."""

    @property
    def key(self) -> str:
        """Key that is the same when the episode is played again."""
        return f"{self.run.task.environment or ''}/{self.result.task_id}/{self.result.repeat}"


def read_episodes(folder: Path) -> Iterator[PlayedEpisode]:
    """Yield the episodes that a stage has played, in order, with their ids."""
    for offset, fields in output_records(folder, "trajectory"):
        yield _episode(fields, (folder, offset))


def _episode(fields: dict[str, Any], place: tuple[Path, int]) -> PlayedEpisode:
    run = Trajectory.model_validate(fields).identified()
    return PlayedEpisode(run, EpisodeResult.model_validate(run.extra[RESULT]), place)


def episode_at(place: tuple[Path, int]) -> PlayedEpisode:
    """Return the episode at a place."""
    folder, offset = place
    return _episode(next(output_records_at(folder, "trajectory", [offset])), place)


class Outline(NamedTuple):
    """The part of an episode that selection needs, without its text."""

    key: str
    """Unique in its round, and equal whenever the run is played again."""
    task: str
    reward: float | None
    """Higher is better; None: without a verdict."""
    compared: str = ""
    """Key shared by runs that may be compared."""
    content: str = ""
    unusable: str | None = None
    """Reason why it cannot be learned from, or None."""
    place: tuple[Path, int] = Path(), 0
    steps: StepValues = ()


class SelectedRows(NamedTuple):
    """The rows of a round."""

    selected: int
    """Runs in them."""
    lines: Iterator[KeyedRow]


class RunWorth(NamedTuple):
    """Value of a run, and of its steps where the reward values steps."""

    reward: float | None
    steps: StepValues = ()


def outlines_of(played: Iterable[PlayedEpisode], worth_of: Callable[[Trajectory], RunWorth]) -> Iterator[Outline]:
    """Yield outlines of the episodes, with the reason if no export could learn from them."""
    seen = Counter[tuple[str, str]]()
    for episode in played:
        run, tally = episode.run, ExportCounts()
        reward, steps = worth_of(run)
        usable = list(filter_runs([ValuedRun(run, reward)], Criteria(needs_value=True), tally))
        reason = None if usable else next(iter(tally.dropped))
        content = agent_digest(run)
        seen[task_key(run), content] += 1
        if reason is None and seen[task_key(run), content] > 1:
            reason = "duplicate"
        compared = comparison_key(run)
        yield Outline(episode.key, task_key(run), reward, compared, content, reason, episode.place, steps)


def _good_runs(config: EvolveConfig, runs: Sequence[Outline], seed: int, tally: ExportCounts) -> SelectedRows:
    """Select runs, one row per run and without duplicates within a task."""
    tally.dropped.update(run.unusable for run in runs if run.unusable is not None)
    kept = _choose(config, [run for run in runs if run.unusable is None], seed, tally)
    chosen = [run for run in runs if run.key in kept]

    def lines() -> Iterator[KeyedRow]:
        for run in chosen:
            trajectory = _read(run)
            yield KeyedRow(run.task, DatasetRow(trajectory=trajectory, reward=run.reward, step_values=run.steps))

    return SelectedRows(len(chosen), lines())


def _pairs(config: EvolveConfig, runs: Sequence[Outline], seed: int, tally: ExportCounts) -> SelectedRows:
    """Select the best and the worst run of each task whose best run was selected."""
    usable = _repeats_too(runs, tally)
    kept = _choose(config, usable, seed, ExportCounts())
    mined = mine_pairs(
        (Candidate(run.compared, run.key, run.reward or 0.0, run.content) for run in usable),
        mode="best_worst",
        seed=seed,
    )
    by_key = {run.key: run for run in usable}
    pairs = [pair for pair in mined.pairs if pair.chosen in kept]
    tally.dropped.update(mined.runs_left_out)
    tally.dropped["chosen_not_selected"] += 2 * (len(mined.pairs) - len(pairs))

    def lines() -> Iterator[KeyedRow]:
        for pair in pairs:
            chosen, rejected = by_key[pair.chosen], by_key[pair.rejected]
            yield KeyedRow(chosen.task, PairRow(chosen=_read(chosen), rejected=_read(rejected), margin=pair.margin))

    return SelectedRows(2 * len(pairs), lines())


def _groups(config: EvolveConfig, runs: Sequence[Outline], seed: int, tally: ExportCounts) -> SelectedRows:
    """Select all runs of each task with different rewards, with the log-probs of their sampling."""
    usable = _repeats_too(runs, tally)
    formed = form_groups(Candidate(run.compared, run.key, run.reward or 0.0, run.content) for run in usable)
    by_key = {run.key: run for run in usable}
    tally.dropped.update(formed.runs_left_out)

    def lines() -> Iterator[KeyedRow]:
        for group in formed.groups:
            members = [by_key[key] for key in group.trajectory_ids]
            steps = tuple(member.steps for member in members)
            row = GroupRow(
                key=members[0].task,
                trajectories=tuple(map(_read, members)),
                rewards=group.rewards,
                step_values=steps if any(steps) else (),
            )
            yield KeyedRow(members[0].task, row)

    return SelectedRows(sum(len(group.rewards) for group in formed.groups), lines())


SELECTIONS = {"sft": _good_runs, "bc": _good_runs, "dpo": _pairs, "grpo": _groups}
"""Method -> its selection."""


def _repeats_too(runs: Sequence[Outline], tally: ExportCounts) -> list[Outline]:
    """Return the usable runs including duplicates: in a comparison, each counts as often as it was sampled."""
    usable = [run for run in runs if run.unusable in {None, "duplicate"}]
    tally.dropped.update(run.unusable for run in runs if run.unusable not in {None, "duplicate"})
    return usable


def _choose(config: EvolveConfig, runs: Sequence[Outline], seed: int, tally: ExportCounts) -> set[str]:
    chosen = select_runs(runs, config.select, ratio=config.ratio, threshold=config.threshold, seed=seed)
    tally.dropped.update(chosen.left_out)
    return set(chosen.kept)


def _read(run: Outline) -> Trajectory:
    return episode_at(run.place).run


class Selection(NamedTuple):
    """The result of `select_runs`."""

    kept: list[str]
    """Keys, in the order in which the runs came."""
    left_out: Counter[str]
    """Reason -> runs: `no_verdict`, `below_threshold`, `below_ratio` or `not_drawn`; with `kept` they add up to all."""


def select_runs(
    runs: Sequence[Outline], rule: Rule, *, ratio: float = 1.0, threshold: float | None = None, seed: int = 0
) -> Selection:
    """Select runs to learn from.

    Args:
        runs: With distinct keys.
        rule: `top_k`: the best `ratio` of the runs with a verdict, a part of a run counting as a whole one, of those that earned
            `threshold`; among equal scores runs of tasks that have fewer chosen come first, then chance. `threshold`: all that
            earned it. `rejection`: each with probability min(max(score, 0), 1), independently.
        ratio: Of `top_k`, above 0, at most 1.
        threshold: Least score; None: none. Of `top_k` and `threshold`.
        seed: Of the chance.
    """
    left_out = Counter[str]()
    known: list[tuple[Outline, float]] = []
    for run in runs:
        if run.reward is None:
            left_out["no_verdict"] += 1
        else:
            known.append((run, run.reward))
    if rule == "rejection":
        chosen = {run.key for run, score in known if _chance(seed, run.key) < score}
        left_out["not_drawn"] = len(known) - len(chosen)
    else:
        good = [(run, score) for run, score in known if threshold is None or score >= threshold]
        left_out["below_threshold"] = len(known) - len(good)
        most = len(good) if rule == "threshold" else min(len(good), math.ceil(ratio * len(known) - 1e-9))
        chosen = {run.key for run in _ranked(good, seed)[:most]}
        left_out["below_ratio"] = len(good) - most
    return Selection([run.key for run in runs if run.key in chosen], +left_out)


def _ranked(runs: Sequence[tuple[Outline, float]], seed: int) -> list[Outline]:
    """Return the best first; among equals the first of each task before the second of any."""
    drawn = sorted(runs, key=lambda pair: (-pair[1], _chance(seed, pair[0].key)))
    before = Counter[str]()
    ranked = list[tuple[float, int, int, Outline]]()
    for run, score in drawn:
        ranked.append((-score, before[run.task], len(ranked), run))
        before[run.task] += 1
    return [run for *_, run in sorted(ranked)]


def _chance(seed: int, key: str) -> float:
    """Return a number in [0, 1) for a run."""
    return (stable_seed(seed, key) >> 10) / 2**53


_KINDS: dict[str, DatasetKind] = {"sft": "sft", "bc": "sft", "dpo": "dpo", "grpo": "grpo"}


class RoundDataset(Record):
    """Result of the selection."""

    selected: int
    left_out: dict[str, int]
    """Reason -> number of this round's runs that are in no row."""
    output: DatasetOutput | None
    """The dataset, or None if no run was selected."""
    reward: dict[str, Any] = Field(default_factory=dict)
    """Report of the named reward."""


def freeze_round(
    spec: EvolveSpec,
    number: int,
    played: Iterable[PlayedEpisode],
    before: Dataset | None,
    folder: Path,
    job_id: str,
    should_stop: Callable[[], bool] = lambda: False,
) -> RoundDataset | None:
    """Select runs and freeze them as a dataset, unless that is done.

    Args:
        spec: Spec of the evolution.
        number: Number of the round, from 1.
        played: The round's episodes. Read once.
        before: Dataset of the newest earlier round with one, or None.
        folder: Folder for the result.
        job_id: Id of the job, part of the dataset names.
        should_stop: Whether the job was asked to stop.

    Returns:
        The selection, or None if the job was asked to stop before all runs were valued.
    """
    path = folder / STAGE_RESULT
    if path.exists():
        return RoundDataset.model_validate_json(path.read_bytes())
    folder.mkdir(parents=True, exist_ok=True)
    config, tally = spec.config, ExportCounts()
    report: dict[str, Any] = {}
    if spec.reward is None:
        outlines = list(outlines_of(played, lambda run: RunWorth(reward_of(run))))
    else:
        places = [(task_key(episode.run), episode.place) for episode in played]
        rewards = Rewards(spec.reward, folder, should_stop, stable_seed(spec.seed, "reward", number))
        try:
            scores = _scores(rewards, places)
        finally:
            rewards.close()
        if scores is None:
            return None
        report = rewards.report()
        outlines = list(outlines_of((episode_at(place) for _, place in places), lambda run: scores[run.id or ""]))
    rows = SELECTIONS[config.train](config, outlines, stable_seed(spec.seed, "select", number), tally)
    dataset = None
    if rows.selected:
        earlier = _rows_before(before) if before is not None and config.accumulates else iter(())
        dataset = _freeze(spec, number, chain(earlier, rows.lines), tally, job_id)
    frozen = RoundDataset(selected=rows.selected, left_out=dict(+tally.dropped), output=dataset, reward=report)
    write_atomically(path, frozen.model_dump_json().encode())
    return frozen


def _scores(rewards: Rewards, places: Iterable[tuple[str, tuple[Path, int]]]) -> dict[str, RunWorth] | None:
    """Value the episodes at these places, all of a task together; None if the job was asked to stop."""
    tasks: dict[str, list[tuple[Path, int]]] = {}
    for task, place in places:
        tasks.setdefault(task, []).append(place)
    values: dict[str, RunWorth] = {}
    for batch in batches_of(tasks.values()):
        runs = [[episode_at(place).run for place in of_task] for of_task in batch]
        scores = rewards.score(runs)
        if scores is None:
            return None
        for run in chain.from_iterable(runs):
            score = scores[run.id or ""]
            values[run.id or ""] = RunWorth(score.value, *step_values([run], [score]))
    return values


def _rows_before(dataset: Dataset) -> Iterator[KeyedRow]:
    """Yield the rows of an earlier round's dataset, which includes those before it."""
    for row in read_rows(Path(dataset.path), "train", dataset.files["train.jsonl"], kind=dataset.kind):
        yield KeyedRow(task_key(trajectories_of(row)[0]), row)


def _freeze(
    spec: EvolveSpec, number: int, lines: Iterable[KeyedRow], tally: ExportCounts, job_id: str
) -> DatasetOutput:
    config = spec.config
    options = ExportOptions(
        dataset_id=round_dataset_id(job_id, number),
        name=f"{spec.name[:80]}-round-{number}",
        kind=_KINDS[config.train],
        seed=spec.seed,
        criteria=Criteria(needs_value=True, keep_repeats=config.train in {"dpo", "grpo"}),
        making={
            "job_id": job_id,
            "round": number,
            **config.model_dump(mode="json", include={"select", "ratio", "threshold"}),
            "accumulate": config.accumulates,
        },
    )
    folder = Path(spec.datasets_dir) / options.dataset_id
    for left in (folder, *folder.parent.glob(f".{folder.name}-*")):
        shutil.rmtree(left, ignore_errors=True)  # from an attempt that died before it reported the dataset
    written = write_dataset(lines, folder, options, tally)
    return DatasetOutput(dataset=written.dataset, trajectory_ids=tuple(written.members))
