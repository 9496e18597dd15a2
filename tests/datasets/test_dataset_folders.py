"""Dataset folders: what stays, what is dropped and why, splits by task, files that appear whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.datasets.dataset_writer import ExportOptions, write_dataset
from quintain.datasets.manifest import read_manifest
from quintain.datasets.rows import read_rows
from quintain.datasets.selection import Criteria, ExportCounts, ValuedRun, filter_runs
from quintain.datasets.splits import KeyedRow, split_of, stratifying_moves, task_key, uneven_split
from quintain.errors import Conflict, InvalidInput, NotFound
from quintain.files import sha256_of
from quintain.records.dataset import Dataset, DatasetRow, GroupRow, LabelledRow, PairRow, SplitName
from quintain.records.trajectory import Actor, AgentInfo, OutcomeStatus, Step, Task, Trajectory
from trajectory_runs import NOW, answer, call, run, user

SUCCESSES = Criteria(outcomes=frozenset({OutcomeStatus.SUCCESS}))


def _options(**fields: Any) -> ExportOptions:
    return ExportOptions(**({"dataset_id": "ds-1", "name": "good-runs", "created_at": NOW} | fields))


def _write(
    runs: Iterable[Trajectory],
    folder: Path,
    criteria: Criteria = SUCCESSES,
    value: Callable[[Trajectory], float | None] = lambda run: run.outcome.reward,
    **fields: Any,
) -> Dataset:
    """A dataset of kind sft: the runs that stay, each in a row with its value."""
    tally = ExportCounts()
    stay = filter_runs((ValuedRun(run, value(run)) for run in runs), criteria, tally)
    lines = (KeyedRow(task_key(run), DatasetRow(trajectory=run, reward=worth)) for run, worth, _ in stay)
    return write_dataset(lines, folder, _options(criteria=criteria, **fields), tally).dataset


def _kept(folder: Path) -> list[str | None]:
    return [row.trajectory.task.id for row in read_rows(folder, "train")]


def _mixed() -> list[Trajectory]:
    """Two good runs and one for each reason to drop."""
    held_out = Task(id="held", prompt="p", metadata={"split": "held_out"})
    untrainable = Step(actor=Actor.AGENT, message="x", train=False)
    return [
        run("good", reward=1.0).identified(),
        run("fail", status=OutcomeStatus.FAILURE, reward=0.0),
        run("unknown", status=OutcomeStatus.UNKNOWN),
        run("error", status=OutcomeStatus.ERROR),
        run("cut", status=OutcomeStatus.TRUNCATED),
        run(None, task=held_out),
        run("good", reward=1.0, episode_key="job/good/1"),
        run("mute", user(), untrainable, Step(actor=Actor.AGENT, message=" "), Step(actor=Actor.AGENT, thought="")),
        run("also", user(), call("take", item="x"), agent=AgentInfo(name="a", model="m-2")),
    ]


def test_only_successes_of_training_tasks_stay_and_every_drop_has_its_reason(tmp_path: Path) -> None:
    folder = tmp_path / "datasets" / "ds-1"
    dataset = _write(iter(_mixed()), folder)
    assert _kept(folder) == ["good", "also"]
    assert dataset.dropped == {
        "outcome_failure": 1,
        "outcome_unknown": 1,
        "outcome_error": 1,
        "outcome_truncated": 1,
        "held_out_task": 1,
        "duplicate": 1,
        "no_trainable_step": 1,
    }
    assert dataset.rows + sum(dataset.dropped.values()) == len(_mixed())
    assert (dataset.rows, dataset.splits) == (2, {"train": 2})
    # "good" has two agent steps of an unnamed model, "also" one of m-2.
    assert dataset.source_models == {"unknown": 2, "m-2": 1}
    assert dataset.environments == {"quintain/inventory": 2}


def test_rows_come_back_whole_and_the_manifest_holds_the_dataset(tmp_path: Path) -> None:
    folder = tmp_path / "ds-1"
    dataset = _write(_mixed(), folder)
    rows = list(read_rows(folder, "train", dataset.files["train.jsonl"]))
    assert rows[0].trajectory == _mixed()[0]
    assert [(row.weight, row.reward) for row in rows] == [(1.0, 1.0), (1.0, None)]
    assert read_manifest(folder) == dataset
    (tmp_path / "plain").mkdir()
    assert folder.stat().st_mode == (tmp_path / "plain").stat().st_mode, "others may read what the umask allows"
    assert dataset.created_at == NOW
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["selection"]["outcomes"] == ["success"]
    assert manifest["counts"] == {"trajectories": 2, "tasks_without_row": {}}
    moved = folder.rename(tmp_path / "moved")
    assert read_manifest(moved).path == str(moved)


def test_held_out_tasks_and_other_outcomes_stay_only_when_asked(tmp_path: Path) -> None:
    kept = frozenset({OutcomeStatus.FAILURE, OutcomeStatus.UNKNOWN})
    _write(_mixed(), tmp_path / "a", Criteria(outcomes=kept))
    assert _kept(tmp_path / "a") == ["fail", "unknown"]
    _write(_mixed(), tmp_path / "b", Criteria(outcomes=SUCCESSES.outcomes, include_held_out=True))
    assert _kept(tmp_path / "b") == ["good", "held", "also"]


def test_runs_below_the_bound_and_runs_of_unknown_value_are_told_apart(tmp_path: Path) -> None:
    """Worth 0.7, 0.69 and unknown; the bound 0.7 is met by 0.7. Without a scorer an unknown value is an unknown outcome."""
    runs = [run(task, status=OutcomeStatus.UNKNOWN) for task in ("a", "b", "c")]
    worth = {"a": 0.7, "b": 0.69}
    criteria = Criteria(scorer="judge", needs_value=True, min_value=0.7)
    dataset = _write(runs, tmp_path / "a", criteria, lambda run: worth.get(run.task.id or ""))
    assert _kept(tmp_path / "a") == ["a"]
    assert dataset.dropped == {"below_min_score": 1, "unscored": 1}
    dataset = _write(runs, tmp_path / "b", Criteria(needs_value=True), lambda run: worth.get(run.task.id or ""))
    assert _kept(tmp_path / "b") == ["a", "b"]
    assert dataset.dropped == {"outcome_unknown": 1}


def test_equal_runs_stay_where_each_sample_counts(tmp_path: Path) -> None:
    runs = [run("a", episode_key=f"job/a/{i}") for i in range(3)]
    assert _write(runs, tmp_path / "once").dropped == {"duplicate": 2}
    assert _write(runs, tmp_path / "each", Criteria(keep_repeats=True)).rows == 3


@pytest.mark.parametrize(
    ("runs", "fields", "said"),
    [
        ([], {}, "no trajectory was selected"),
        (
            [
                run("a", status=OutcomeStatus.UNKNOWN),
                run("b", status=OutcomeStatus.UNKNOWN),
                run("c", status="failure"),
            ],
            {},
            r"none of 3.*outcome_unknown 2, outcome_failure 1. For outcome_unknown: where you know how a run ended, state it",
        ),
        ([run("a", status=OutcomeStatus.TRUNCATED)], {}, r"outcome_truncated 1.*outcomes to keep \(now: success\)"),
        (
            [run("a")],
            {"shares": {"validation": 0.999999}},
            r"all 1 rows fell into validation.*set validation_share to 0",
        ),
    ],
)
def test_an_empty_dataset_is_refused_with_the_remedy_and_leaves_nothing(
    tmp_path: Path, runs: list[Trajectory], fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        _write(runs, tmp_path / "datasets" / "ds-1", **fields)
    assert list((tmp_path / "datasets").iterdir()) == []


def test_a_source_that_breaks_leaves_no_folder(tmp_path: Path) -> None:
    def broken() -> Iterator[Trajectory]:
        yield run("a")
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        _write(broken(), tmp_path / "datasets" / "ds-1")
    assert list((tmp_path / "datasets").iterdir()) == []


def test_a_dataset_never_changes(tmp_path: Path) -> None:
    _write([run("a")], tmp_path / "ds-1")
    with pytest.raises(Conflict, match="never changes"):
        _write([run("b")], tmp_path / "ds-1")
    assert _kept(tmp_path / "ds-1") == ["a"]


def test_a_changed_file_is_refused_before_its_first_row(tmp_path: Path) -> None:
    dataset = _write([run("a"), run("b")], tmp_path / "ds-1")
    path = tmp_path / "ds-1" / "train.jsonl"
    assert sha256_of(path) == dataset.files["train.jsonl"]
    path.write_bytes(path.read_bytes().replace(b"red box", b"big box"))
    with pytest.raises(InvalidInput, match=r"dataset_changed.*expected " + dataset.files["train.jsonl"]):
        read_rows(tmp_path / "ds-1", "train", dataset.files["train.jsonl"])
    assert len(list(read_rows(tmp_path / "ds-1", "train"))) == 2


def test_reading_says_what_is_missing_or_broken(tmp_path: Path) -> None:
    folder = tmp_path / "ds-1"
    _write([run("a")], folder)
    assert list(read_rows(folder, "validation")) == []
    path = folder / "train.jsonl"
    path.write_bytes(path.read_bytes() + b'{"trajectory": 1}\n')
    rows = read_rows(folder, "train")
    next(rows)
    with pytest.raises(InvalidInput, match=r"train\.jsonl:2: row\.trajectory"):
        next(rows)
    path.unlink()
    with pytest.raises(NotFound, match="the manifest names it"):
        read_rows(folder, "train")
    with pytest.raises(NotFound, match="expected the folder of an exported dataset"):
        read_rows(tmp_path / "nothing", "train")


@given(st.lists(st.text(max_size=8), min_size=1, max_size=30, unique=True), st.integers(0, 9), st.integers(1, 29))
def test_a_task_keeps_its_side_when_data_is_added(keys: list[str], seed: int, cut: int) -> None:
    shares = {"validation": 0.3, "test": 0.2}
    before = {key: split_of(key, shares, seed) for key in keys[:cut]}
    after = {key: split_of(key, shares, seed) for key in keys}
    assert before.items() <= after.items()


def test_shares_are_met_on_average_and_seeds_differ() -> None:
    """10,000 tasks, shares 0.3 and 0.2: a count is within 5 standard deviations (230 at most) of its mean."""
    keys = [f"task-{i}" for i in range(10_000)]
    sides = [split_of(key, {"validation": 0.3, "test": 0.2}, seed=0) for key in keys]
    assert abs(sides.count("validation") - 3000) < 230
    assert abs(sides.count("test") - 2000) < 200
    assert sides != [split_of(key, {"validation": 0.3, "test": 0.2}, seed=1) for key in keys]


def test_the_split_of_a_task_is_pinned() -> None:
    """Stable over versions: a task that moved between two releases would leak.

    With a share of 1/2 the first bit decides: `printf 0:id:e:t0 | sha256sum` begins below 8 for validation.
    """
    sides = [split_of(f"id:e:t{i}", {"validation": 0.5}, seed=0) for i in range(8)]
    assert "".join(side[0] for side in sides) == "vvvtvttv"


def test_a_split_far_from_its_share_is_reported_with_a_seed_that_meets_it() -> None:
    """Hashes meet a share on average only: of few tasks far more, fewer or none may fall into validation."""
    shares: dict[SplitName, float] = {"validation": 0.3}
    warned = 0
    for seed in range(20):
        sides = {f"id:e:t{i}": split_of(f"id:e:t{i}", shares, seed) for i in range(20)}
        n, warning = list(sides.values()).count("validation"), uneven_split(sides, shares, seed)
        assert (warning is None) == (3 <= n <= 9), (n, warning)  # 6, and at most half as many more or fewer
        if warning is not None:
            warned += 1
            assert f"expected 0.3 of 20 tasks (6) in validation, got {n}: " in warning
            fitting = int(warning.rpartition("seed=")[2].partition(" ")[0])
            assert [split_of(key, shares, fitting) for key in sides].count("validation") == 6
    assert warned > 0
    alone = uneven_split({"t": "train"}, shares, 0)
    assert alone is not None
    assert alone.endswith("take another seed or more tasks")


def test_a_split_without_a_label_gets_the_task_whose_hash_is_nearest() -> None:
    """First bytes of `printf 0:KEY | sha256sum`: a 9d, b e0, c be, d 7d."""
    good, bad, both = {True}, {False}, {True, False}
    labels = {"a": good, "b": good, "c": bad, "d": bad}
    train: dict[str, SplitName] = dict.fromkeys("abcd", "train")
    assert stratifying_moves(train, labels, ["validation"], 0) == {"a": "validation", "d": "validation"}
    assert stratifying_moves(dict.fromkeys("abcd", "validation"), labels, ["validation"], 0) == {
        "b": "train",
        "c": "train",
    }
    assert stratifying_moves(train, dict.fromkeys("abcd", both), ["validation"], 0) == {"d": "validation"}
    whole: dict[str, SplitName] = train | {"b": "validation", "d": "validation"}
    assert stratifying_moves(whole, labels, ["validation"], 0) == {}
    alone = {"a": good, "c": bad, "d": bad}  # the only good task stays in train
    assert stratifying_moves({"a": "train", "c": "train", "d": "validation"}, alone, ["validation"], 0) == {}
    shared = {"a": both, "c": bad, "b": good}  # a move of the task with both labels would leave train without bad rows
    assert stratifying_moves({"a": "train", "b": "train", "c": "validation"}, shared, ["validation"], 0) == {
        "b": "validation"
    }


def test_labelled_rows_are_split_with_both_labels_on_both_sides(tmp_path: Path) -> None:
    """16 good and 42 bad runs; the hash with seed 6 puts 6 bad ones into validation."""
    runs = [(run(f"t{i}", user(f"Task {i}"), answer(f"Done {i}.")), i < 16) for i in range(58)]
    lines = [KeyedRow(task_key(one), LabelledRow(trajectory=one, desirable=good)) for one, good in runs]
    shares: dict[SplitName, float] = {"validation": 0.1}
    hashed = [row.desirable for key, row in lines if split_of(key, shares, 6) == "validation"]  # type: ignore[union-attr]
    assert hashed, "validation has rows"
    assert not any(hashed)
    written = write_dataset(lines, tmp_path / "ds", _options(kind="kto", shares=shares, seed=6), ExportCounts())
    files = written.dataset.files
    found = {
        split: [row.desirable for row in read_rows(tmp_path / "ds", split, files[f"{split}.jsonl"], kind="kto")]
        for split in ("train", "validation")
    }
    assert sorted(found["validation"]) == sorted([*hashed, True])
    assert found["train"].count(True) == 15
    assert written.dataset.splits == {split: len(labels) for split, labels in found.items()}
    assert sorted(path.name for path in (tmp_path / "ds").iterdir()) == [
        "manifest.json",
        "train.jsonl",
        "validation.jsonl",
    ]
    assert not any("all rows" in warning for warning in written.warnings)

    few = [lines[0], *lines[16:]]
    written = write_dataset(few, tmp_path / "few", _options(kind="kto", shares=shares, seed=6), ExportCounts())
    assert any("all rows of split validation are undesirable" in warning for warning in written.warnings)
    written = write_dataset(lines[16:], tmp_path / "bad", _options(kind="kto"), ExportCounts())
    assert any("all rows are undesirable" in warning for warning in written.warnings)


def test_a_task_without_id_is_told_by_its_prompt_and_else_by_its_session() -> None:
    assert task_key(run(None)) == "prompt:Find the red box."
    assert task_key(run(None, task=Task(prompt="  Find the\nred box. "))) == "prompt:Find the red box."
    assert task_key(run(None, task=Task(), session_id="s")) == "run:s"
    assert task_key(run("t1")) == "id:quintain/inventory:t1"


@pytest.mark.parametrize("shares", [(1.0, 0), (-0.1, 0), (float("nan"), 0), (0.5, 0.5)])
def test_shares_that_leave_nothing_for_training_are_refused(tmp_path: Path, shares: tuple[float, float]) -> None:
    with pytest.raises(InvalidInput, match="share"):
        _write([run("a")], tmp_path / "a", shares=dict(zip(("validation", "test"), shares, strict=True)))


def test_rows_of_every_kind_come_back_whole_and_a_shared_run_counts_once(tmp_path: Path) -> None:
    """One pair per good run, the bad run in both: 3 distinct runs, each of 2 agent steps."""
    good, better, bad = (run("t", user(), call(item=item), answer(item)).identified() for item in ("a", "b", "c"))
    rows = {
        "dpo": [PairRow(chosen=good, rejected=bad, margin=1.0), PairRow(chosen=better, rejected=bad)],
        "kto": [LabelledRow(trajectory=good, desirable=True), LabelledRow(trajectory=bad, desirable=False)],
        "grpo": [GroupRow(key="t", trajectories=(good, better, bad), rewards=(1.0, 1.0, 0.0))],
    }
    for kind, expected in rows.items():
        lines = (KeyedRow("t", row) for row in expected)
        written = write_dataset(lines, tmp_path / kind, _options(kind=kind), ExportCounts())
        assert list(read_rows(tmp_path / kind, "train", kind=kind)) == expected
        assert (written.dataset.kind, written.dataset.rows) == (kind, len(expected))
        if kind == "kto":
            assert written.counts == {"trajectories": 2, "desirable": 1, "undesirable": 1}
        else:
            assert set(written.members) == {good.id, better.id, bad.id}
            assert written.counts == {"trajectories": 3}
            assert written.dataset.source_models == {"unknown": 6}


def test_rows_of_another_kind_are_refused_by_line(tmp_path: Path) -> None:
    _write([run("a")], tmp_path / "ds-1")
    with pytest.raises(InvalidInput, match=r"train\.jsonl:1: row\.chosen is required.*kind 'dpo' expected"):
        list(read_rows(tmp_path / "ds-1", "train", kind="dpo"))


def test_rows_without_a_reward_of_earlier_versions_still_read(tmp_path: Path) -> None:
    _write([run("a", reward=1.0)], tmp_path / "ds-1")
    path = tmp_path / "ds-1" / "train.jsonl"
    old = json.loads(path.read_bytes())
    del old["reward"]
    path.write_text(json.dumps(old) + "\n", encoding="utf-8")
    (row,) = read_rows(tmp_path / "ds-1", "train")
    assert (row.reward, row.trajectory.task.id) == (None, "a")
