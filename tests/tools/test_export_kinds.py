"""Every kind of dataset out of the same stored runs, through the tool and its dict calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import InvalidInput, QuintainError
from quintain.formats.rows import read_rows, trajectories_of
from quintain.formats.splits import task_key
from quintain.records.filters import TrajectoryFilter
from quintain.records.score import Score
from quintain.records.trajectory import Actor, OutcomeStatus, SampledTokens, Step, Task, Trajectory
from quintain.settings import Settings
from quintain.tools import RLTrainingTool
from quintain.tools.dataset_folders import first_rows, freeze_text, new_options
from quintain.tools.datasets import export_dataset
from quintain.tools.results import ExportResult
from quintain.tools.services import Services, open_services
from trajectory_runs import NOW, answer, run, user

S, F, T, U, E = (
    OutcomeStatus.SUCCESS,
    OutcomeStatus.FAILURE,
    OutcomeStatus.TRUNCATED,
    OutcomeStatus.UNKNOWN,
    OutcomeStatus.ERROR,
)


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    opened = open_services(settings)
    yield opened
    opened.close()


def _said(task_id: str, text: str, status: OutcomeStatus, reward: float | None = None, **fields: Any) -> Trajectory:
    """A run of `task_id` that answers `text`; its last turn was sampled as the ids 7 and 8."""
    sampled = SampledTokens(token_ids=(7, 8), logprobs=(-0.5, -0.25), tokenizer="tok")
    turn = Step(actor=Actor.AGENT, message=text, sampled=sampled)
    return run(task_id, user(), turn, status=status, reward=reward, tags=("k",), **fields)


def _store(services: Services, runs: list[Trajectory]) -> list[str]:
    return [added.id for added in services.store.trajectories.add_many(runs, NOW)]


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
    return export_dataset(services, kind, f"d-{kind}", **(chosen | arguments))  # type: ignore[arg-type]


def _rows(result: ExportResult, split: str = "train") -> list[Any]:
    return list(read_rows(Path(result.path), split, kind=result.kind))


def _manifest(result: ExportResult) -> dict[str, Any]:
    return dict(json.loads((Path(result.path) / "manifest.json").read_text(encoding="utf-8")))


def _accounts(services: Services, result: ExportResult, seen: int) -> None:
    """Every run that was looked at is a member or left out for one reason."""
    members = services.store.datasets.members(result.dataset_id)
    held = {t.id for split in result.splits for row in _rows(result, split) for t in trajectories_of(row)}
    assert set(members) == held
    assert result.trajectories == len(members)
    assert len(members) + sum(result.dropped.values()) == seen
    assert services.store.datasets.get(result.dataset_id).kind == result.kind


def test_pairs_of_one_task_hold_both_whole_runs(services: Services) -> None:
    """Task a: 2 x 2 pairs (the limit is 4), b: 1; c has only successes, d one run."""
    _store(services, _mixed())
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
    assert result.next_step.startswith("Train on it: start_training(method='dpo', model=")
    assert "orpo and simpo learn from it too" in result.next_step
    manifest = _manifest(result)
    assert (manifest["selection"]["margin"], manifest["selection"]["max_pairs_per_task"]) == (0.0, 4)
    assert manifest["counts"] == {"trajectories": 6, "tasks_without_row": {"no_contrast": 1, "group_of_one": 1}}


def test_the_limit_spreads_pairs_over_distinct_runs(services: Services) -> None:
    """Two pairs of task a use all 4 runs; with one pair each, 2 runs of task a are left out by the limit."""
    _store(services, _mixed())
    two = _rows(_export(services, "dpo", max_pairs_per_task=2))
    assert len(two) == 3
    assert {t.steps[-1].message for row in two for t in trajectories_of(row)} == {"a1", "a2", "a3", "a4", "b1", "b2"}
    one = _export(services, "dpo", max_pairs_per_task=1)
    assert (one.rows, one.dropped["pair_limit"]) == (2, 2)
    _accounts(services, one, 14)


def test_a_pair_whose_sides_wrote_the_same_is_dropped_and_counted(services: Services) -> None:
    """The same words met another answer of the world: 1 good, 1 bad, and a bad one that differs."""
    look = [Step(actor=Actor.AGENT, message="look", observations=({"content": seen},)) for seen in ("x", "y")]
    kinds = [(look[0], S), (look[1], F), (answer("other"), F)]
    _store(services, [run("t", user(), step, status=status, tags=("k",)) for step, status in kinds])
    result = _export(services, "dpo")
    assert (result.rows, result.dropped) == (1, {"equal_sides": 1})
    with pytest.raises(InvalidInput, match=r"equal_sides 2\. For equal_sides: runs that were valued differently"):
        _export(services, "dpo", filter=None, trajectory_ids=[t.id for t in _first(services, 2)])


def _first(services: Services, n: int) -> list[Trajectory]:
    return list(services.store.trajectories.iterate())[:n]


def _score(services: Services, ids: list[str], values: list[float | None]) -> None:
    scores = [
        Score(trajectory_id=i, scorer="rules", status="unscored", reason="?")
        if value is None
        else Score(trajectory_id=i, scorer="rules", status="scored", value=value)
        for i, value in zip(ids, values, strict=True)
    ]
    services.store.scores.add_many(scores, NOW)


def test_stored_scores_decide_in_place_of_outcomes_and_a_margin_bounds_them(services: Services) -> None:
    """Scores 0.9, 0.5, 0.4 and none, margin 0.4: only 0.9 over 0.4; 0.5 is too near to both."""
    ids = _store(services, [_said("t", text, U) for text in "wxyz"])
    _score(services, ids, [0.9, 0.5, 0.4, None])
    result = _export(services, "dpo", scorer="rules", margin=0.4)
    (row,) = _rows(result)
    assert (row.chosen.id, row.rejected.id, row.margin) == (ids[0], ids[2], 0.5)
    assert result.dropped == {"unscored": 1, "below_margin": 1}
    assert _manifest(result)["selection"]["scorer"] == "rules"


def test_good_and_bad_runs_are_labelled_without_pairs(services: Services) -> None:
    """By outcome 5 good and 4 bad ones; task structure does not matter."""
    _store(services, _mixed())
    result = _export(services, "kto")
    labels = {row.trajectory.steps[-1].message: row.desirable for row in _rows(result)}
    assert labels == {
        **dict.fromkeys(["a1", "a2", "b1", "c1", "c2"], True),
        **dict.fromkeys(["a3", "a4", "b2", "d1"], False),
    }
    assert result.dropped == {**ALWAYS_OUT, "duplicate": 1}
    _accounts(services, result, 14)
    assert "It holds 5 desirable, 4 undesirable runs" in result.next_step
    assert "method='kto'" in result.next_step


def test_the_bound_of_good_is_the_scores_that_reach_it(services: Services) -> None:
    """0.5 is good by default; with min_score 0.7 only 0.7 is."""
    ids = _store(services, [_said("t", text, U) for text in "xyz"])
    _score(services, ids, [0.5, 0.7, 0.4])
    for bound, good in ((None, [True, True, False]), (0.7, [False, True, False])):
        result = _export(services, "kto", scorer="rules", min_score=bound)
        assert [row.desirable for row in _rows(result)] == good


def test_groups_hold_all_attempts_of_a_task_with_their_rewards(services: Services) -> None:
    """Task a: 2 good (one repeated: 3 samples), 2 bad; b: 1, 0; c has no variance, d one run. An error is no reward."""
    _store(services, _mixed())
    result = _export(services, "grpo")
    groups = {row.key: row.rewards for row in _rows(result)}
    assert groups == {"id:quintain/inventory:a": (1, 1, 0, 0, 1), "id:quintain/inventory:b": (1, 0)}
    assert result.dropped == {**ALWAYS_OUT, "no_variance": 2, "group_of_one": 1}
    _accounts(services, result, 14)
    assert "method='grpo'" in result.next_step
    assert "ranking learn" in result.next_step


def test_rewards_of_the_environment_come_before_verdicts_in_groups(services: Services) -> None:
    """Rewards 0.25 and 1; a failure without a reward is 0, an unknown outcome with one has it, a crash has none."""
    statuses = [(F, 0.25), (S, 1.0), (F, None), (U, 0.5), (E, 0.75)]
    _store(services, [_said("t", str(i), status, reward) for i, (status, reward) in enumerate(statuses)])
    (row,) = _rows(result := _export(services, "grpo"))
    assert row.rewards == (0.25, 1.0, 0.0, 0.5)
    assert result.dropped == {"outcome_error": 1}


def test_sft_rows_carry_the_selecting_score_else_the_reward(services: Services) -> None:
    ids = _store(services, [_said("t", "x", S, 1.0), _said("u", "y", S)])
    assert [row.reward for row in _rows(_export(services, "sft"))] == [1.0, None]
    _score(services, ids, [0.6, 0.8])
    assert [row.reward for row in _rows(_export(services, "sft", scorer="rules", min_score=0.6))] == [0.6, 0.8]


@pytest.mark.parametrize("kind", ["dpo", "grpo", "kto"])
def test_splits_of_every_kind_share_no_task_and_no_run(services: Services, kind: str) -> None:
    """40 tasks with a good and a bad run each, about a quarter for validation, however the rows are made."""
    _store(services, [_said(f"t{i}", status.value, status) for i in range(40) for status in (S, F)])
    result = _export(services, kind, validation_share=0.25, seed=3)
    sides = [
        [{task_key(t) for t in trajectories_of(row)} for row in _rows(result, split)]
        for split in ("train", "validation")
    ]
    assert all(len(tasks) == 1 for side in sides for tasks in side), "a row holds runs of one task"
    train, validation = (set().union(*side) for side in sides)
    assert not train & validation
    assert len(train | validation) == 40
    assert 3 <= len(validation) <= 20
    _accounts(services, result, 80)


def test_many_rows_are_made_from_batches_of_stored_runs(services: Services) -> None:
    """3 tasks of 30 runs, 20 pairs each: more than one batch, and every side is the run that its id names."""
    _store(services, [_said(f"t{i % 3}", f"{i}", S if i % 2 else F) for i in range(90)])
    result = _export(services, "dpo", max_pairs_per_task=20)
    assert result.rows == 60
    assert all((row.chosen.outcome.status, row.rejected.outcome.status) == (S, F) for row in _rows(result))
    assert [len(row.trajectories) for row in _rows(_export(services, "grpo"))] == [30, 30, 30]


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        ("dpo", {"min_score": 0.5}, "`min_score` is 0.5, but kind 'dpo'"),
        ("grpo", {"min_score": 0.5}, "kind 'grpo'"),
        ("sft", {"margin": 0.1}, "`margin` is 0.1, but only kind 'dpo'"),
        ("kto", {"max_pairs_per_task": 2}, "`max_pairs_per_task` is 2"),
        ("kto", {"scorer": "magic"}, "no scorer 'magic'"),
        ("dpo", {"outcomes": ["success"]}, "outcome_failure 4, no_contrast 4.*For outcome_failure: collect"),
        ("grpo", {"scorer": "rules"}, "unscored 13, held_out_task 1. For unscored: score these runs first"),
        ("kto", {"outcomes": ["unknown"]}, r"For outcome_success: change the outcomes to keep \(now: unknown\)"),
    ],
)
def test_what_cannot_be_is_told_with_its_remedy_and_leaves_nothing(
    services: Services, kind: str, arguments: dict[str, Any], said: str
) -> None:
    _store(services, _mixed())
    with pytest.raises(QuintainError, match=said):
        _export(services, kind, **arguments)
    assert services.store.datasets.page().items == ()
    folder = services.settings.datasets_dir
    assert not folder.exists() or list(folder.iterdir()) == []


def test_a_mix_selects_by_its_stored_scores(services: Services) -> None:
    ids = _store(services, [_said("t", text, U) for text in "xy"])
    mix = "mix(outcome=0.5, rules=0.5)"
    services.store.scores.add_many(
        [Score(trajectory_id=i, scorer=mix, status="scored", value=v) for i, v in zip(ids, (0.2, 0.4), strict=True)],
        NOW,
    )
    (row,) = _rows(_export(services, "dpo", scorer=mix))
    assert (row.chosen.id, row.margin) == (ids[1], 0.2)


def test_a_folder_goes_when_the_store_does_not_take_the_dataset(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    _store(services, _mixed())

    def refuse(*_: Any) -> None:
        raise InvalidInput("full")

    monkeypatch.setattr(type(services.store.datasets), "add", refuse)
    with pytest.raises(InvalidInput, match="full"):
        _export(services, "kto")
    assert list(services.settings.datasets_dir.iterdir()) == []


# ---- dict calls -------------------------------------------------------------------------------------------------------


@pytest.fixture
def tool(home: Path) -> Iterator[RLTrainingTool]:
    opened = RLTrainingTool(home)
    yield opened
    opened.close()


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
    assert len(stored.datasets.members(stored.datasets.get("pairs").id)) == 3


@pytest.mark.parametrize("kind", ["dpo", "kto", "grpo"])
def test_single_runs_become_pairs_labels_or_groups_by_their_outcome(tool: RLTrainingTool, kind: str) -> None:
    """One good and one bad run: 1 pair, 2 labelled runs, 1 group."""
    dataset = tool.register_dataset("mine", [_chat("12", "success"), _chat("13", "failure")], kind=kind)
    assert _loaded(tool, dataset)["dataset_size"] == {"dpo": 1, "kto": 2, "grpo": 1}[kind]


@pytest.mark.parametrize(
    ("kind", "rows", "said"),
    [
        ("dpo", [{"chosen": _chat("12")}], r"runs\[0\] has \['chosen'\]; every row.*`rejected`"),
        ("dpo", [{"chosen": _chat("12"), "rejected": _chat("13")}, 5], r"runs\[1\] has int"),
        ("dpo", [{"chosen": _chat("12"), "rejected": _chat("12", "failure")}], r"runs\[0\] prefers.*equal agent text"),
        ("dpo", [{"chosen": _chat("12"), "rejected": _chat("13", task="Size?")}], r"runs\[0\].*several tasks"),
        ("grpo", [{"runs": [_chat("12")], "rewards": [1]}], r"runs\[0\] must hold at least two"),
        ("grpo", [{"runs": [_chat("12"), _chat("13")], "rewards": [1, "x"]}], "one number for each"),
        ("grpo", [{"runs": [_chat("12"), _chat("13")], "rewards": [1, 1]}], "equal rewards"),
        ("sft", [{"chosen": _chat("12"), "rejected": _chat("13")}], "kind is 'sft'; pairs make kind 'dpo'"),
        ("dpo", [_chat("12", "success")], "group_of_one 1"),
    ],
)
def test_malformed_rows_are_named_and_nothing_is_frozen(
    tool: RLTrainingTool, kind: str, rows: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        tool.register_dataset("bad", rows, kind=kind)
    assert tool._open().store.datasets.page().items == ()


def test_a_name_that_cannot_be_one_is_refused_for_ready_made_rows_too(tool: RLTrainingTool) -> None:
    with pytest.raises(InvalidInput, match=r"name: .*\.\./x"):
        tool.register_dataset("../x", [{"chosen": _chat("12"), "rejected": _chat("13")}], kind="dpo")


def test_a_text_dataset_is_known_to_the_store(services: Services) -> None:
    written = freeze_text(services, ["one", "two"], new_options(services, "texts", "text"))
    assert services.store.datasets.get("texts") == written.dataset
    assert services.store.datasets.members(written.dataset.id) == []


def test_the_first_rows_of_any_kind_make_a_smaller_dataset(tool: RLTrainingTool) -> None:
    pairs = [{"chosen": _chat("12"), "rejected": _chat(text)} for text in ("13", "14", "15")]
    whole = tool.register_dataset("pairs", pairs, kind="dpo")
    services = tool._open()
    store, source = services.store, services.store.datasets.get(whole)
    assert first_rows(services, source, 3) == whole
    part = store.datasets.get(first_rows(services, source, 2) or "")
    assert (part.kind, part.rows, len(store.datasets.members(part.id))) == ("dpo", 2, 3)
    assert part.name.startswith("pairs-first-2-")
    assert first_rows(services, source, 2) == part.id, "the one that there is"
    assert first_rows(services, source, 1, make=False) is None
    assert len(store.datasets.page().items) == 2
    both = [list(read_rows(Path(store.datasets.get(name).path), "train", kind="dpo")) for name in (whole, part.id)]
    assert both[1] == both[0][:2]
