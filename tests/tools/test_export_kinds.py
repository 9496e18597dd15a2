"""Every kind of dataset out of the same stored runs, through the tool and its dict calls."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from quintain.datasets.rows import read_rows, trajectories_of
from quintain.datasets.splits import task_key
from quintain.errors import InvalidInput, NotFound, QuintainError
from quintain.exporters.protocol import Export
from quintain.exporters.registry import EXPORTERS
from quintain.files import sha256_of
from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import Curation, Dataset
from quintain.records.filters import TrajectoryFilter
from quintain.records.trajectory import Actor, AgentInfo, OutcomeStatus, SampledTokens, Step, Task, Trajectory
from quintain.tools import RLTrainingTool
from quintain.tools.data.dataset_folders import first_rows
from quintain.tools.data.datasets import export_dataset
from quintain.tools.results import ExportResult
from quintain.tools.services import Services
from store_shelves import model_folder
from tools.stored_records import add_runs, add_scores, new_score
from trajectory_runs import answer, call, run, user

S, F, T, U, E = (
    OutcomeStatus.SUCCESS,
    OutcomeStatus.FAILURE,
    OutcomeStatus.TRUNCATED,
    OutcomeStatus.UNKNOWN,
    OutcomeStatus.ERROR,
)


def _said(task_id: str, text: str, status: OutcomeStatus, reward: float | None = None, **fields: Any) -> Trajectory:
    """A run of `task_id` that answers `text`; its last turn was sampled as the ids 7 and 8."""
    sampled = SampledTokens(token_ids=(7, 8), logprobs=(-0.5, -0.25), tokenizer="tok")
    turn = Step(actor=Actor.AGENT, message=text, sampled=sampled)
    return run(task_id, user(), turn, status=status, reward=reward, tags=("k",), **fields)


def _mixed() -> list[Trajectory]:
    """14 runs: task a 2 good 2 bad, b 1 good 1 cut short, c 2 good, d 1 bad; unknown, error, held-out, mute, repeated."""
    held = Task(id="held", prompt="p", environment="quintain/inventory", metadata={"split": "held_out"})
    return [
        _said("a", "a1", S),
        _said("a", "a2", S),
        _said("a", "a3", F),
        _said("a", "a4", F),
        _said("b", "b1", S),
        _said("b", "b2", T),
        _said("c", "c1", S),
        _said("c", "c2", S),
        _said("d", "d1", F),
        _said("a", "a5", U),
        _said("b", "b3", E),
        _said("held", "h", S, task=held),
        _said("a", " ", F),
        _said("a", "a1", S, episode_key="again"),
    ]


ALWAYS_OUT = {"outcome_unknown": 1, "outcome_error": 1, "held_out_task": 1, "no_trainable_step": 1}


def _export(services: Services, kind: str, **arguments: Any) -> ExportResult:
    chosen = {} if "trajectory_ids" in arguments else {"filter": TrajectoryFilter(tags=("k",))}
    return export_dataset(services, kind, f"d-{kind}", **(chosen | arguments))


def _rows(result: ExportResult, split: str = "train") -> list[Any]:
    return list(read_rows(Path(result.path), split, kind=result.kind))


def _manifest(result: ExportResult) -> dict[str, Any]:
    return dict(json.loads((Path(result.path) / "manifest.json").read_text(encoding="utf-8")))


def _accounts(services: Services, result: ExportResult, seen: int) -> None:
    """Every run that was looked at is a member or left out for one reason."""
    members = services.store.datasets.member_ids(result.dataset_id)
    held = {t.id for split in result.splits for row in _rows(result, split) for t in trajectories_of(row)}
    assert set(members) == held
    assert result.trajectories == len(members)
    assert len(members) + sum(result.dropped.values()) == seen
    assert services.store.datasets.get(result.dataset_id).kind == result.kind


def test_pairs_of_one_task_hold_both_whole_runs(services: Services) -> None:
    """Task a: 2 x 2 pairs (the limit is 4), b: 1; c has only successes, d one run."""
    add_runs(services, *_mixed())
    result = _export(services, "dpo")
    pairs = {(row.chosen.steps[-1].message, row.rejected.steps[-1].message) for row in _rows(result)}
    assert pairs == {("a1", "a3"), ("a1", "a4"), ("a2", "a3"), ("a2", "a4"), ("b1", "b2")}
    assert (result.rows, result.trajectories) == (5, 6)
    assert result.dropped == {**ALWAYS_OUT, "duplicate": 1, "no_contrast": 2, "group_of_one": 1}
    _accounts(services, result, 14)
    for row in _rows(result):
        assert row.margin == 1.0
        assert row.chosen.steps[-1].sampled.token_ids == (7, 8)
        assert row.rejected == services.store.trajectories.get(row.rejected.id)
    assert result.next_step.startswith("Train on it with start_training(method='dpo', model=")
    assert "Methods that learn from it too: orpo, simpo." in result.next_step
    manifest = _manifest(result)
    assert (manifest["selection"]["margin"], manifest["selection"]["max_pairs_per_task"]) == (0.0, 4)
    assert manifest["counts"] == {"trajectories": 6, "tasks_without_row": {"no_contrast": 1, "group_of_one": 1}}
    one = _export(services, "dpo", max_pairs_per_task=1)  # of each task one pair: two runs of task a are left out
    assert (one.rows, one.dropped["pair_limit"]) == (2, 2)
    _accounts(services, one, 14)


def test_a_pair_whose_sides_wrote_the_same_is_dropped_and_counted(services: Services) -> None:
    """The same words met another answer of the world: 1 good, 1 bad, and a bad one that differs."""
    look = [Step(actor=Actor.AGENT, message="look", observations=({"content": seen},)) for seen in ("x", "y")]
    kinds = [(look[0], S), (look[1], F), (answer("other"), F)]
    add_runs(services, *[run("t", user(), step, status=status, tags=("k",)) for step, status in kinds])
    result = _export(services, "dpo")
    assert (result.rows, result.dropped) == (1, {"equal_sides": 1})
    with pytest.raises(InvalidInput, match=r"equal_sides 2\. For equal_sides: runs that were valued differently"):
        _export(services, "dpo", filter=None, trajectory_ids=[t.id for t in _first(services, 2)])


def _first(services: Services, n: int) -> list[Trajectory]:
    return list(services.store.trajectories.iterate())[:n]


def _score(services: Services, ids: list[str], values: list[float | None], scorer: str = "rules") -> None:
    add_scores(services, *(new_score(i, scorer, value) for i, value in zip(ids, values, strict=True)))


def test_stored_scores_decide_in_place_of_outcomes_and_a_margin_bounds_them(services: Services) -> None:
    """Scores 0.9, 0.5, 0.4 and none, margin 0.4: only 0.9 over 0.4; 0.5 is too near to both."""
    ids = add_runs(services, *[_said("t", text, U) for text in "wxyz"])
    _score(services, ids, [0.9, 0.5, 0.4, None])
    result = _export(services, "dpo", scorer="rules", margin=0.4)
    (row,) = _rows(result)
    assert (row.chosen.id, row.rejected.id, row.margin) == (ids[0], ids[2], 0.5)
    assert result.dropped == {"unscored": 1, "below_margin": 1}
    assert _manifest(result)["selection"]["scorer"] == "rules"
    mix = "mix(outcome=0.5, rules=0.5)"
    _score(services, ids[:2], [0.2, 0.4], mix)
    for named in (mix, {"rules": 0.5, "outcome": 0.5}):
        (row,) = _rows(_export(services, "dpo", scorer=named))
        assert (row.chosen.id, row.margin) == (ids[1], 0.2)
    with pytest.raises(NotFound, match=r"by 'mix\(rules=1, cap=0.9\)'; first score_trajectories\(scorer=.*, filter=\{"):
        _export(services, "dpo", scorer={"parts": {"rules": 1}, "cap": 0.9})


def test_good_and_bad_runs_are_labelled_without_pairs(services: Services) -> None:
    """By outcome 5 good and 4 bad ones; task structure does not matter."""
    add_runs(services, *_mixed())
    result = _export(services, "kto")
    labels = {row.trajectory.steps[-1].message: row.desirable for row in _rows(result)}
    assert labels == {
        **dict.fromkeys(["a1", "a2", "b1", "c1", "c2"], True),
        **dict.fromkeys(["a3", "a4", "b2", "d1"], False),
    }
    assert result.dropped == {**ALWAYS_OUT, "duplicate": 1}
    _accounts(services, result, 14)
    assert "It has 5 desirable, 4 undesirable runs" in result.next_step
    assert "method='kto'" in result.next_step


def test_the_bound_of_good_is_the_scores_that_reach_it(services: Services) -> None:
    """0.5 is good by default; with min_score 0.7 only 0.7 is."""
    ids = add_runs(services, *[_said("t", text, U) for text in "xyz"])
    _score(services, ids, [0.5, 0.7, 0.4])
    for bound, good in ((None, [True, True, False]), (0.7, [False, True, False])):
        result = _export(services, "kto", scorer="rules", min_score=bound)
        assert [row.desirable for row in _rows(result)] == good


def test_groups_hold_all_attempts_of_a_task_with_their_rewards(services: Services) -> None:
    """Task a: 2 good (one repeated: 3 samples), 2 bad; b: 1, 0; c has no variance, d one run. An error is no reward."""
    add_runs(services, *_mixed())
    result = _export(services, "grpo")
    groups = {row.key: row.rewards for row in _rows(result)}
    assert groups == {"id:quintain/inventory:a": (1, 1, 0, 0, 1), "id:quintain/inventory:b": (1, 0)}
    assert result.dropped == {**ALWAYS_OUT, "no_variance": 2, "group_of_one": 1}
    _accounts(services, result, 14)
    assert "method='grpo'" in result.next_step
    assert "it too: ranking" in result.next_step


def test_rewards_of_the_environment_come_before_verdicts_in_groups(services: Services) -> None:
    """A failure without a reward is 0, an unknown outcome with one has it, below 0 too; a crash has none."""
    statuses = [(F, 0.25), (S, 1.0), (F, None), (U, 0.5), (U, -1.0), (E, 0.75)]
    add_runs(services, *[_said("t", str(i), status, reward) for i, (status, reward) in enumerate(statuses)])
    (row,) = _rows(result := _export(services, "grpo"))
    assert row.rewards == (0.25, 1.0, 0.0, 0.5, -1.0)
    assert result.dropped == {"outcome_error": 1}


def test_sft_rows_carry_the_selecting_score_else_the_reward(services: Services) -> None:
    ids = add_runs(services, *[_said("t", "x", S, 1.0), _said("u", "y", S)])
    assert [row.reward for row in _rows(_export(services, "sft"))] == [1.0, None]
    _score(services, ids, [0.6, 0.8])
    assert [row.reward for row in _rows(_export(services, "sft", scorer="rules", min_score=0.6))] == [0.6, 0.8]
    best_half = _export(services, "sft", scorer="rules", curation=Curation(top_share=0.5))
    assert ([row.reward for row in _rows(best_half)], best_half.dropped) == ([0.8], {"below_top_share": 1})


@pytest.mark.parametrize("kind", ["dpo", "grpo", "kto"])
def test_splits_of_every_kind_share_no_task_and_no_run(services: Services, kind: str) -> None:
    """40 tasks with a good and a bad run each, about a quarter for validation and for a test, however the rows are made."""
    add_runs(services, *[_said(f"t{i}", status.value, status) for i in range(40) for status in (S, F)])
    result = _export(services, kind, validation_share=0.25, test_share=0.25, seed=3)
    sides = [
        [{task_key(t) for t in trajectories_of(row)} for row in _rows(result, split)]
        for split in ("train", "validation", "test")
    ]
    assert all(len(tasks) == 1 for side in sides for tasks in side), "a row holds runs of one task"
    train, *held_back = (set().union(*side) for side in sides)
    assert len(train) + sum(map(len, held_back)) == len(train.union(*held_back)) == 40
    assert all(3 <= len(tasks) <= 20 for tasks in held_back)
    _accounts(services, result, 80)
    tiny = _export(services, kind, validation_share=0.01)
    if kind == "kto":  # a split gets both labels
        assert [row.desirable for row in _rows(tiny, "validation")] in ([True, False], [False, True])
        return
    (warning,) = tiny.warnings
    assert "expected 0.01 of 40 tasks (0.4) in validation, got " in warning


def test_many_rows_are_made_from_batches_of_stored_runs(services: Services) -> None:
    """3 tasks of 30 runs, 20 pairs each: more than one batch, and every side is the run that its id names."""
    add_runs(services, *[_said(f"t{i % 3}", f"{i}", S if i % 2 else F) for i in range(90)])
    result = _export(services, "dpo", max_pairs_per_task=20)
    assert result.rows == 60
    assert all((row.chosen.outcome.status, row.rejected.outcome.status) == (S, F) for row in _rows(result))
    assert [len(row.trajectories) for row in _rows(_export(services, "grpo"))] == [30, 30, 30]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("dpo", {"min_score": 0.5}, "`min_score` is 0.5, but kind 'dpo'"),
    ("grpo", {"min_score": 0.5}, "kind 'grpo'"),
    ("sft", {"scorer": "rules"}, r"set `min_score`, or for the best half `curation` to \{'top_share': 0.5\}"),
    ("sft", {"min_score": 0.5}, "`min_score` is 0.5 without a `scorer`"),
    ("sft", {"margin": 0.1}, "`margin` is 0.1, but only kind 'dpo'"),
    ("kto", {"max_pairs_per_task": 2}, "`max_pairs_per_task` is 2"),
    ("kto", {"scorer": "magic"}, "expected a scorer, got 'magic'"),
    ("dpo", {"outcomes": ["success"]}, "outcome_failure 4, no_contrast 4.*For outcome_failure: collect"),
    ("grpo", {"scorer": "rules"}, "unscored 13, held_out_task 1. For unscored: score these runs first"),
    ("kto", {"outcomes": ["unknown"]}, r"For outcome_success: change the outcomes to keep \(now: unknown\)"),
]


def test_what_cannot_be_is_told_with_its_remedy_and_leaves_nothing(services: Services) -> None:
    add_runs(services, *_mixed())
    for kind, arguments, said in REFUSED:
        with pytest.raises(QuintainError, match=said):
            _export(services, kind, **arguments)
    assert services.store.datasets.page().items == ()
    folder = services.settings.datasets_dir
    assert not folder.exists() or list(folder.iterdir()) == []


def test_a_folder_goes_when_the_store_does_not_take_the_dataset(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_runs(services, *_mixed())

    def refuse(*_: Any) -> None:
        raise InvalidInput("full")

    monkeypatch.setattr(type(services.store.datasets), "add", refuse)
    with pytest.raises(InvalidInput, match="full"):
        _export(services, "kto")
    assert list(services.settings.datasets_dir.iterdir()) == []


# ---- curation ---------------------------------------------------------------------------------------------------------


def _curated(services: Services, kind: str, **curation: Any) -> ExportResult:
    arguments = {
        name: curation.pop(name) for name in ("validation_share", "test_share", "seed", "outcomes") if name in curation
    }
    return _export(services, kind, curation=Curation(**curation), **arguments)


def _messages(result: ExportResult) -> set[str]:
    return {t.agent_steps[-1].message for row in _rows(result) for t in trajectories_of(row)}


def test_the_best_share_of_the_runs_stays_and_every_drop_is_counted(services: Services) -> None:
    """Rewards 0.0 .. 0.9 and one unknown; from 0.2 on there are 8, the best quarter of them is 0.9 and 0.8."""
    add_runs(services, *[*(_said(f"t{i}", f"{i}", S, i / 10) for i in range(10)), _said("t", "unknown", S)])
    result = _curated(services, "sft", min_reward=0.2, top_share=0.25)
    assert (_messages(result), result.dropped) == (
        {"8", "9"},
        {"below_min_reward": 2, "below_top_share": 6, "reward_unknown": 1},
    )
    _accounts(services, result, 11)
    assert _manifest(result)["selection"]["curation"] == {"min_reward": 0.2, "top_share": 0.25}
    assert _messages(_curated(services, "sft", top_share=0.1)) == {"9"}


def test_near_duplicates_go_over_all_tasks_but_good_and_bad_ones_stay_to_be_told_apart(services: Services) -> None:
    text = " ".join(f"word{i}" for i in range(200))
    runs = [("a", text, S), ("b", f"{text} more", S), ("a", f"{text} less", F), ("c", "something else", S)]
    add_runs(services, *[_said(*run) for run in runs])
    result = _curated(services, "sft", near_duplicates=0.9, outcomes=["success", "failure"])
    assert (_messages(result), result.dropped) == ({text, "something else"}, {"near_duplicate": 2})
    _accounts(services, result, 4)
    assert _messages(_curated(services, "kto", near_duplicates=0.9)) == {text, f"{text} less", "something else"}
    assert _messages(_curated(services, "dpo", near_duplicates=0.9)) == {text, f"{text} less"}


def _classed(services: Services, kind: str, **counts: int) -> None:
    """Tasks of each class by `task.type`; for `dpo` and `grpo` each has a good and a bad run."""
    runs = []
    for name, n in counts.items():
        for i in range(n):
            task = Task(id=f"{name}{i}", prompt=f"{name} {i}", type=name)
            runs += [_said("", "good", S, task=task)]
            runs += [] if kind == "sft" else [_said("", "bad", F, task=task)]
    add_runs(services, *runs)


@pytest.mark.parametrize(("kind", "runs_of_a_row"), [("sft", 1), ("dpo", 2), ("grpo", 2)])
def test_rows_are_sampled_by_class_and_the_distribution_is_told(
    services: Services, kind: str, runs_of_a_row: int
) -> None:
    """8 tasks of selection, 4 of timing, 1 of planning, weights 3 to 1: all 8 and a third of 8, rounded down."""
    _classed(services, kind, tool_selection=8, timing_decision=4, multi_step_planning=1)
    weights = {"tool_selection": 3, "timing_decision": 1, "tool_retrieval": 5}
    result = _curated(services, kind, task_weights=weights)
    assert result.distribution == {
        "multi_step_planning": {"before": 1, "after": 0},
        "timing_decision": {"before": 4, "after": 2},
        "tool_retrieval": {"before": 0, "after": 0},
        "tool_selection": {"before": 8, "after": 8},
    }
    assert "no run is of class tool_retrieval, so the others share the sample" in result.warnings[0]
    assert (result.rows, result.dropped) == (10, {"not_sampled": 3 * runs_of_a_row})
    assert _manifest(result)["distribution"] == result.distribution
    _accounts(services, result, 13 * runs_of_a_row)
    assert _rows(_curated(services, kind, task_weights=weights)) == _rows(result), "equal arguments give equal rows"
    few = _curated(services, kind, task_weights=weights, max_rows=4)
    assert [few.distribution[name]["after"] for name in ("tool_selection", "timing_decision")] == [3, 1]


def test_a_mapping_of_classes_goes_before_the_rules(services: Services) -> None:
    _classed(services, "sft", tool_selection=2, timing_decision=2)
    classes = {"tool_selection0": "tool_retrieval", "timing_decision": "multi_step_planning"}
    result = _curated(services, "sft", task_weights={"tool_retrieval": 1}, task_classes=classes)
    assert (result.rows, {name: n["before"] for name, n in result.distribution.items()}) == (
        1,
        {"tool_retrieval": 1, "tool_selection": 1, "multi_step_planning": 2},
    )


def test_a_reward_dataset_holds_the_pairs_of_dpo(services: Services) -> None:
    add_runs(services, *_mixed())
    own = Agent(name="gemma", model=ModelRef(source="folder", path=model_folder("gemma")))
    services.store.agents.add(own, services.clock())
    pairs, reward = _export(services, "dpo"), _export(services, "reward")
    assert _rows(reward) == _rows(pairs)
    assert (reward.kind, reward.dropped) == ("reward", pairs.dropped)
    assert reward.next_step.startswith("Train on it with start_training(method='reward', model='gemma'")


def _judged(task: str, status: OutcomeStatus, *rewards: float | None) -> Trajectory:
    steps = [Step(actor=Actor.AGENT, message=f"{task}{i}", reward=reward) for i, reward in enumerate(rewards)]
    return run(task, user(), *steps, status=status, tags=("k",))


def test_step_labels_are_what_was_recorded_or_the_outcome_when_asked(services: Services) -> None:
    add_runs(services, _judged("a", U, 1.0, None, 0.0), _judged("b", S, None, None), _judged("c", F, 0.5, 3.0))
    recorded = _export(services, "prm")
    assert [row.labels for row in _rows(recorded)] == [(1.0, None, 0.0)]
    assert recorded.dropped == {"no_step_labels": 1, "step_label_range": 1}
    _accounts(services, recorded, 3)
    traced = _curated(services, "prm", step_labels="outcome")
    assert [row.labels for row in _rows(traced)] == [(1.0, 1.0), (0.0, 0.0)]
    assert traced.dropped == {"outcome_unknown": 1}
    assert _manifest(traced)["selection"]["curation"] == {"step_labels": "outcome"}


def test_a_benchmark_holds_each_task_with_its_references_evaluation_tasks_included(services: Services) -> None:
    add_runs(services, *_mixed())
    result = _export(services, "benchmark")
    rows = {row.task.id: row for row in _rows(result, "test")}
    assert result.splits == {"test": 5}
    assert {task: len(row.references) for task, row in rows.items()} == {"a": 6, "b": 3, "c": 2, "d": 1, "held": 1}
    assert rows["a"].references[0].success is True
    assert rows["d"].references[0].success is False
    assert result.dropped == {"no_trainable_step": 1}
    assert len(services.store.datasets.member_ids(result.dataset_id)) == 13


def test_a_benchmark_names_tools_plan_and_range_of_rewards(services: Services) -> None:
    good = run("t", user(), call("look"), call("take"), status=S, reward=1.0, tags=("k",))
    bad = run("t", user(), call("take"), status=F, reward=0.25, tags=("k",))
    add_runs(services, *[bad, good])
    (row,) = _rows(_export(services, "benchmark"), "test")
    assert (row.plan, row.target_tools, row.reward_range) == (("look", "take"), ("look", "take"), (0.25, 1.0))
    assert [tool["function"]["name"] for tool in row.tools] == ["look", "take"]


def test_tasks_that_leak_between_splits_are_told_and_stand_on_one_side_when_asked(services: Services) -> None:
    """40 tasks under 40 names ask for one of 10 things: with half for validation nearly all of them leak."""
    asked = [f"Please put the box number {i} on the shelf above the door" for i in range(10)]
    tasks = [Task(id=f"t{i}", prompt=asked[i % 10]) for i in range(40)]
    add_runs(services, *[_said("", f"done {i}", S, task=task) for i, task in enumerate(tasks)])
    result = _curated(services, "sft", validation_share=0.5)
    leaks = _manifest(result)["leaking_tasks"]
    assert leaks >= 10
    assert any(f"{leaks} tasks outside train ask in the same words" in warning for warning in result.warnings)
    result = _curated(services, "sft", validation_share=0.5, near_duplicates=1.0)
    assert "leaking_tasks" not in _manifest(result)
    assert result.warnings == ()
    sides = [{row.trajectory.task.prompt for row in _rows(result, split)} for split in result.splits]
    assert all(sides)
    assert not sides[0] & sides[1]


def test_models_with_restricting_terms_are_warned_of_refused_or_left_out(services: Services, home: Path) -> None:
    claude = AgentInfo(name="a", model="claude-sonnet-4-5")
    add_runs(services, *[_said("a", "x", S, agent=claude), _said("b", "y", S, agent=AgentInfo(name="a", model="mine"))])
    warned = _export(services, "sft")
    assert "Anthropic" in warned.warnings[0]
    assert _manifest(warned)["dataset"]["licence_notes"] == list(warned.warnings)
    assert _manifest(warned)["model_terms"] == "warn"
    blocking = replace(services, settings=services.settings.model_copy(update={"model_terms": "block"}))
    with pytest.raises(QuintainError, match=r"claude-sonnet-4-5.*source_models"):
        _export(blocking, "sft")
    kept = _curated(blocking, "sft", source_models=["!claude-*"])
    assert (kept.dropped, kept.warnings) == ({"source_model": 1}, ())
    assert services.store.datasets.get(kept.dataset_id).source_models == {"mine": 1}


def test_counts_of_redactions_are_summed(services: Services) -> None:
    counts = [{"email": 2}, {"email": 1, "aws_key": 3}]
    add_runs(services, *[_said(f"t{i}", f"{i}", S, redactions=found) for i, found in enumerate(counts)])
    assert _manifest(_export(services, "sft"))["redactions"] == {"email": 3, "aws_key": 3}


UNFIT_CURATION: list[tuple[str, dict[str, Any], str]] = [
    ("dpo", {"min_reward": 0.5}, "`curation.min_reward` does not go with kind 'dpo', which takes good and bad runs"),
    ("grpo", {"near_duplicates": 0.9}, "near_duplicates` does not go with kind 'grpo'.*it goes with dpo, kto, prm"),
    ("kto", {"top_share": 0.5}, "top_share"),
    ("sft", {"step_labels": "outcome"}, "it goes with prm"),
    ("sft", {"task_classes": {"a": "tool_selection"}}, "no `task_weights` to sample by"),
    ("benchmark", {"validation_share": 0.1}, "`validation_share` is 0.1, but all of a benchmark is for testing"),
    ("benchmark", {"test_share": 0.1}, "`test_share` is 0.1, but all of a benchmark is for testing"),
    ("sft", {"validation_share": 0.6, "test_share": 0.5}, "expected shares whose sum is below 1"),
    ("text", {"max_rows": 9}, "`curation.max_rows` does not go with kind 'text'; leave it out"),
    ("sft", {"min_steps": 9}, "too_few_steps 6.*For too_few_steps: lower `curation.min_steps`"),
]


def test_curation_that_does_not_go_with_a_kind_is_refused(services: Services) -> None:
    add_runs(services, *_mixed())
    for kind, curation, said in UNFIT_CURATION:
        with pytest.raises(InvalidInput, match=said):
            _curated(services, kind, **curation)
    assert services.store.datasets.page().items == ()


# ---- other formats ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Numbers:
    """A format that writes the number of agent steps of each row, and cannot hold long ones."""

    name: str = "numbers"
    kinds: frozenset[str] = frozenset({"sft"})
    breaks: bool = False

    def write(self, dataset: Dataset, rows: Any, folder: Path) -> Export:
        export = Export(notes={"read it with int()": None})
        for split in dataset.splits:
            (folder / "deep").mkdir(exist_ok=True)
            with (folder / "deep" / f"{split}.txt").open("w", encoding="utf-8") as file:
                for row in rows(split):
                    if len(row.trajectory.agent_steps) > 2:
                        export.dropped["too_long"] += 1
                        continue
                    file.write(f"{len(row.trajectory.agent_steps)}\n")
                    export.rows[f"{split}.txt"] += 1
        if self.breaks:
            raise InvalidInput("cannot go on")
        return export


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.exporters.registry.EXPORTERS", (_Numbers(), _Numbers("broken", breaks=True)))


@pytest.mark.usefixtures("numbers")
def test_a_dataset_is_written_in_another_format_beside_it_with_the_hashes_of_its_files(services: Services) -> None:
    add_runs(services, *[_judged(f"t{i}", S, *[None] * (i + 1)) for i in range(3)])
    result = _export(services, "sft", format="numbers")
    folder = services.settings.exports_dir / f"{result.dataset_id}-numbers"
    assert (result.path, result.format) == (str(folder), "numbers")
    assert (folder / "deep/train.txt").read_text(encoding="utf-8") == "1\n2\n"
    assert (folder / "SHA256SUMS").read_text(
        encoding="utf-8"
    ) == f"{sha256_of(folder / 'deep/train.txt')}  deep/train.txt\n"
    assert result.warnings == ("numbers: left out 1 row, too_long", "read it with int()")
    assert (result.rows, result.dataset_rows) == (2, 3)
    assert "contains 2 of 3 rows for numbers" in result.next_step
    assert services.store.datasets.get(result.dataset_id).rows == 3
    assert list(services.settings.exports_dir.iterdir()) == [folder]


@pytest.mark.usefixtures("numbers")
def test_a_format_that_cannot_hold_the_rows_is_refused_and_leaves_nothing(services: Services) -> None:
    add_runs(services, *_mixed())
    for kind, format, said in (
        ("kto", "numbers", "format 'numbers' supports the kinds sft, got 'kto'"),
        ("sft", "number", "did you mean 'numbers'.*valid: quintain, broken, numbers"),
    ):
        with pytest.raises(QuintainError, match=said):
            _export(services, kind, format=format)
    assert services.store.datasets.page().items == (), "nothing is frozen for a format that cannot be written"
    with pytest.raises(InvalidInput, match="cannot go on"):
        _export(services, "sft", format="broken")
    assert list(services.settings.exports_dir.iterdir()) == []
    assert services.store.datasets.page().items == (), "nor is the dataset left where writing fails"
    assert list(services.settings.datasets_dir.iterdir()) == []


def test_rows_and_splits_are_those_that_the_folder_holds(services: Services) -> None:
    """OpenAI's format takes no call of a tool without a schema: of three runs, it can hold the one without calls."""
    plain = run("t0", user(), answer("Four."), tags=("k",))
    calls = [run(f"t{i}", user(), call(item="box"), answer("Done."), tools=(), tags=("k",)) for i in (1, 2)]
    add_runs(services, *[plain, *calls])
    result = _export(services, "sft", format="openai")
    lines = (Path(result.path) / "train.jsonl").read_text(encoding="utf-8").splitlines()
    assert (len(lines), result.rows, result.splits, result.dataset_rows) == (1, 1, {"train": 1}, 3)
    assert services.store.datasets.get(result.dataset_id).rows == 3
    native = _export(services, "sft", seed=1)
    assert (native.rows, native.dataset_rows, native.splits) == (3, 3, {"train": 3})


@pytest.mark.parametrize("kind", ["sft", "dpo", "grpo", "benchmark"])
def test_every_format_counts_what_its_folder_holds(services: Services, kind: str) -> None:
    """A session of `hf_sts` is a file, a turn of `trl_prompt_completion` and a run of `atif` a line."""
    runs = [
        run(f"t{i}", user(), *more, answer(f"Four, {right}."), status=S if right else F, tools=(), tags=("k",))
        for i, more in enumerate(([answer("Five?"), user("No.")], [], []))
        for right in (True, False)
    ]
    add_runs(services, *runs)
    for one in EXPORTERS:
        if kind not in one.kinds:
            continue
        result = _export(services, kind, format=one.name)
        folder = Path(result.path)
        held = {split: _rows_held(folder, split, one.name) for split in result.splits}
        assert (result.rows, result.splits) == (sum(held.values()), held), one.name


def _rows_held(folder: Path, split: str, format: str) -> int:
    if format == "hf_sts":
        return len(list((folder / split).glob("*.jsonl")))
    (file,) = folder.glob("benchmark.json") if (folder / "benchmark.json").exists() else folder.glob(f"{split}.*")
    if file.suffix == ".parquet":
        return int(pq.read_metadata(file).num_rows)
    text = file.read_text(encoding="utf-8")
    return len(json.loads(text)) if file.suffix == ".json" else len(text.splitlines())


def test_a_dataset_of_pairs_is_written_in_atif_too(services: Services) -> None:
    add_runs(services, *_mixed())
    result = _export(services, "dpo", format="atif")
    documents = [
        json.loads(line) for line in (Path(result.path) / "train.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert len(documents) == result.rows == sum(result.splits.values()) == 2 * result.dataset_rows
    assert f"contains {len(documents)} rows, from {result.dataset_rows} of" in result.next_step
    assert {document["extra"]["row"]["side"] for document in documents} == {"chosen", "rejected"}


@pytest.mark.parametrize("kind", ["sft", "dpo", "kto", "grpo", "prm"])
@pytest.mark.parametrize("alone", [False, True])
def test_an_exported_folder_or_file_comes_back_with_its_rows_labels_weights_and_splits(
    services: Services, kind: str, alone: bool
) -> None:
    """Two pairs share their better run; labels of steps are outcomes, which the runs themselves do not state."""
    add_runs(services, *_mixed(), _said("a", "a9", F))
    labels = {"curation": Curation(step_labels="outcome")} if kind == "prm" else {}
    first = _export(services, kind, validation_share=0.3, seed=5, **labels)
    folder = services.settings.inbox_dir / "moved"
    shutil.copytree(first.path, folder)
    lines = (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()
    if "weight" in (row := json.loads(lines[0])):
        (folder / "train.jsonl").write_text("\n".join([json.dumps(row | {"weight": 0.25}), *lines[1:], "{}", ""]))
    name = "moved/train.jsonl" if alone else "moved"
    again = export_dataset(services, kind, "again", path=name)  # type: ignore[arg-type]
    assert again.splits == {split: n for split, n in first.splits.items() if n and (split == "train" or not alone)}
    for split in again.splits:
        before, after = ([_stated(row) for row in _rows(result, split)] for result in (first, again))
        if "weight" in row and split == "train":
            before[0]["weight"] = 0.25
            assert [one.line for one in again.rejected] == [len(lines) + 1]
        assert after == before
    with pytest.raises(InvalidInput, match=r"expected moved.* with their rows as they are.*filter="):
        export_dataset(services, kind, "some", path=name, curation=Curation(max_rows=1))  # type: ignore[arg-type]


def _stated(row: Any) -> dict[str, Any]:
    """Return what a row states, with its runs by id."""
    ids = {"trajectory", "chosen", "rejected", "trajectories"} & type(row).model_fields.keys()
    return {**row.model_dump(exclude=ids), "runs": [run.id for run in trajectories_of(row)]}


# ---- dict calls -------------------------------------------------------------------------------------------------------


def _chat(text: str, outcome: str = "unknown", task: str = "Price?") -> dict[str, Any]:
    messages = [{"role": "user", "content": task}, {"role": "assistant", "content": text}]
    return {"messages": messages, "task": task, "outcome": outcome}


def _loaded(tool: RLTrainingTool, dataset: str) -> dict[str, Any]:
    return dict(json.loads(tool.run({"action": "load_dataset", "dataset": dataset})))


def test_ready_made_pairs_and_groups_are_frozen_as_they_are(tool: RLTrainingTool) -> None:
    pairs = [{"chosen": _chat("12"), "rejected": _chat(text)} for text in ("13", "14")]
    answer_ = _loaded(tool, tool.register_dataset("pairs", pairs, kind="dpo"))
    assert (answer_["format"], answer_["dataset_size"], answer_["sample_keys"]) == ("dpo", 2, ["chosen", "rejected"])
    groups = [{"runs": [_chat("12"), _chat("13")], "rewards": [1, 0.5]}]
    answer_ = _loaded(tool, tool.register_dataset("groups", groups, kind="grpo"))
    assert (answer_["format"], answer_["dataset_size"]) == ("grpo", 1)
    stored = tool._open().store
    assert len(stored.datasets.member_ids(stored.datasets.get("pairs").id)) == 3


def test_single_runs_become_pairs_labels_or_groups_by_their_outcome(tool: RLTrainingTool) -> None:
    """One good and one bad run: 1 pair, 2 labelled runs, 1 group."""
    for kind, size in (("dpo", 1), ("kto", 2), ("grpo", 1)):
        dataset = tool.register_dataset(f"my-{kind}", [_chat("12", "success"), _chat("13", "failure")], kind=kind)
        assert _loaded(tool, dataset)["dataset_size"] == size


MALFORMED: list[tuple[str, list[Any], str]] = [
    ("dpo", [{"chosen": _chat("12")}], r"runs\[0\] has \['chosen'\]; every row.*`rejected`"),
    ("dpo", [{"chosen": _chat("12"), "rejected": _chat("13")}, 5], r"runs\[1\] has int"),
    ("dpo", [{"chosen": _chat("12"), "rejected": _chat("12", "failure")}], r"runs\[0\] prefers.*equal agent text"),
    ("dpo", [{"chosen": _chat("12"), "rejected": _chat("13", task="Size?")}], r"runs\[0\].*several tasks"),
    ("grpo", [{"runs": [_chat("12")], "rewards": [1]}], r"runs\[0\] must hold at least two"),
    ("grpo", [{"runs": [_chat("12"), _chat("13")], "rewards": [1, "x"]}], "one number for each"),
    ("grpo", [{"runs": [_chat("12"), _chat("13")], "rewards": [1, 1]}], "equal rewards"),
    ("sft", [{"chosen": _chat("12"), "rejected": _chat("13")}], "kind is 'sft'; pairs make kind 'dpo'"),
    ("dpo", [_chat("12", "success")], "group_of_one 1"),
]


def test_malformed_rows_are_named_and_nothing_is_frozen(tool: RLTrainingTool) -> None:
    for kind, rows, said in MALFORMED:
        with pytest.raises(InvalidInput, match=said):
            tool.register_dataset("bad", rows, kind=kind)
    with pytest.raises(InvalidInput, match=r"name: .*\.\./x"):
        tool.register_dataset("../x", [{"chosen": _chat("12"), "rejected": _chat("13")}], kind="dpo")
    assert tool._open().store.datasets.page().items == ()


def test_the_first_rows_of_any_kind_make_a_smaller_dataset(tool: RLTrainingTool) -> None:
    pairs = [{"chosen": _chat("12"), "rejected": _chat(text)} for text in ("13", "14", "15")]
    whole = tool.register_dataset("pairs", pairs, kind="dpo")
    services = tool._open()
    store, source = services.store, services.store.datasets.get(whole)
    assert first_rows(services, source, 3) == whole
    part = store.datasets.get(first_rows(services, source, 2) or "")
    assert (part.kind, part.rows, len(store.datasets.member_ids(part.id))) == ("dpo", 2, 3)
    assert part.name.startswith("pairs-first-2-")
    assert first_rows(services, source, 2) == part.id, "the one that there is"
    assert first_rows(services, source, 1, make=False) is None
    assert len(store.datasets.page().items) == 2
    both = [list(read_rows(Path(store.datasets.get(name).path), "train", kind="dpo")) for name in (whole, part.id)]
    assert both[1] == both[0][:2]


def test_the_first_rows_keep_what_is_held_out(services: Services) -> None:
    add_runs(services, *(_said(f"t{n}", f"says {n}", S) for n in range(20)))
    whole = services.store.datasets.get(_export(services, "sft", validation_share=0.3, test_share=0.2).dataset_id)
    part = services.store.datasets.get(first_rows(services, whole, 3) or "")
    assert part.splits == {**whole.splits, "train": 3}
    assert 0 not in part.splits.values()
    assert {name: part.files[name] == digest for name, digest in whole.files.items()} == {
        "train.jsonl": False,
        "validation.jsonl": True,
        "test.jsonl": True,
    }
