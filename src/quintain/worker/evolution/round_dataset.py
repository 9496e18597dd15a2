"""Training data of an evolution round: selected runs as the rows of a frozen dataset.

Runs are in the files of the stages that played them and are read one at a time. Selected runs are read again.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
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
from quintain.jobs.directory import STAGE_RESULT, read_lines, write_atomically
from quintain.records.dataset import Dataset, DatasetKind, DatasetOutput, DatasetRow, GroupRow, PairRow, StepValues
from quintain.records.evaluation import EpisodeResult
from quintain.records.evolve import EvolveConfig, round_dataset_id
from quintain.records.job import EvolveSpec
from quintain.records.record import Record
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Trajectory
from quintain.scoring.preferences.mining import Candidate, form_groups, mine_pairs
from quintain.scoring.self_training_selection import ScoredRun, select_runs
from quintain.worker.job_kinds.rollouts import RESULT
from quintain.worker.job_rewards import Rewards, step_values
from quintain.worker.online_rollouts import reward_of

_TASKS = 16
"""Tasks whose runs a reward values together."""
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


class PlayedEpisode(NamedTuple):
    """An episode in the output file of its stage."""

    run: Trajectory
    result: EpisodeResult
    place: tuple[Path, int]
    """The file, and the offset of the line."""

    @property
    def key(self) -> str:
        """Key that is the same when the episode is played again."""
        return f"{self.run.task.environment or ''}/{self.result.task_id}/{self.result.repeat}"


def read_episodes(folder: Path) -> Iterator[PlayedEpisode]:
    """Yield the episodes that a stage has played, in order, with their ids."""
    path, offset = folder / "outputs" / "trajectory.jsonl", 0
    while lines := read_lines(path, offset).lines:
        for line in lines:
            yield _parse_episode(line, (path, offset))
            offset += len(line) + 1


def _parse_episode(line: bytes, place: tuple[Path, int]) -> PlayedEpisode:
    run = Trajectory.model_validate(json.loads(line)["record"]).identified()
    return PlayedEpisode(run, EpisodeResult.model_validate(run.extra[RESULT]), place)


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
        outlines = list(_outlines(played, lambda run: _Worth(reward_of(run))))
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
        outlines = list(_outlines((_episode_at(place) for _, place in places), lambda run: scores[run.id or ""]))
    rows = _CHOICES[config.train](config, outlines, stable_seed(spec.seed, "select", number), tally)
    dataset = None
    if rows.selected:
        earlier = _rows_before(before) if before is not None and config.accumulates else iter(())
        dataset = _freeze(spec, number, chain(earlier, rows.lines), tally, job_id)
    frozen = RoundDataset(selected=rows.selected, left_out=dict(+tally.dropped), output=dataset, reward=report)
    write_atomically(path, frozen.model_dump_json().encode())
    return frozen


class _Outline(NamedTuple):
    """The part of an episode that selection needs, without its text."""

    key: str
    task: str
    compared: str
    """Key shared by runs that may be compared."""
    reward: float | None
    content: str
    unusable: str | None
    """Reason why it cannot be learned from, or None."""
    place: tuple[Path, int]
    steps: StepValues = ()


class _Rows(NamedTuple):
    selected: int
    lines: Iterator[KeyedRow]


class _Worth(NamedTuple):
    """Value of a run, and of its steps where the reward values steps."""

    reward: float | None
    steps: StepValues = ()


def _scores(rewards: Rewards, places: Iterable[tuple[str, tuple[Path, int]]]) -> dict[str, _Worth] | None:
    """Value the episodes at these places, all of a task together; None if the job was asked to stop."""
    tasks: dict[str, list[tuple[Path, int]]] = {}
    for task, place in places:
        tasks.setdefault(task, []).append(place)
    values: dict[str, _Worth] = {}
    groups = iter(tasks.values())
    while batch := list(islice(groups, _TASKS)):
        runs = [[_episode_at(place).run for place in of_task] for of_task in batch]
        scores = rewards.score(runs)
        if scores is None:
            return None
        for run in chain.from_iterable(runs):
            score = scores[run.id or ""]
            values[run.id or ""] = _Worth(score.value, *step_values([run], [score]))
    return values


def _episode_at(place: tuple[Path, int]) -> PlayedEpisode:
    path, offset = place
    with path.open("rb") as file:
        file.seek(offset)
        return _parse_episode(file.readline(), place)


def _outlines(played: Iterable[PlayedEpisode], worth_of: Callable[[Trajectory], _Worth]) -> Iterator[_Outline]:
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
        yield _Outline(episode.key, task_key(run), compared, reward, content, reason, episode.place, steps)


def _good_runs(config: EvolveConfig, runs: Sequence[_Outline], seed: int, tally: ExportCounts) -> _Rows:
    """Select runs, one row per run and without duplicates within a task."""
    tally.dropped.update(run.unusable for run in runs if run.unusable is not None)
    kept = _choose(config, [run for run in runs if run.unusable is None], seed, tally)
    chosen = [run for run in runs if run.key in kept]

    def lines() -> Iterator[KeyedRow]:
        for run in chosen:
            trajectory = _read(run)
            yield KeyedRow(run.task, DatasetRow(trajectory=trajectory, reward=run.reward, step_values=run.steps))

    return _Rows(len(chosen), lines())


def _pairs(config: EvolveConfig, runs: Sequence[_Outline], seed: int, tally: ExportCounts) -> _Rows:
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

    return _Rows(2 * len(pairs), lines())


def _groups(config: EvolveConfig, runs: Sequence[_Outline], seed: int, tally: ExportCounts) -> _Rows:
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

    return _Rows(sum(len(group.rewards) for group in formed.groups), lines())


_CHOICES = {"sft": _good_runs, "bc": _good_runs, "dpo": _pairs, "grpo": _groups}


def _repeats_too(runs: Sequence[_Outline], tally: ExportCounts) -> list[_Outline]:
    """Return the usable runs including duplicates: in a comparison, each counts as often as it was sampled."""
    usable = [run for run in runs if run.unusable in {None, "duplicate"}]
    tally.dropped.update(run.unusable for run in runs if run.unusable not in {None, "duplicate"})
    return usable


def _choose(config: EvolveConfig, runs: Sequence[_Outline], seed: int, tally: ExportCounts) -> set[str]:
    scored = [ScoredRun(run.key, run.task, run.reward) for run in runs]
    chosen = select_runs(scored, config.select, ratio=config.ratio, threshold=config.threshold, seed=seed)
    tally.dropped.update(chosen.left_out)
    return set(chosen.kept)


def _read(run: _Outline) -> Trajectory:
    return _episode_at(run.place).run


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
    shutil.rmtree(folder, ignore_errors=True)  # from an attempt that died before it reported the dataset
    written = write_dataset(lines, folder, options, tally)
    return DatasetOutput(dataset=written.dataset, trajectory_ids=tuple(written.members))
