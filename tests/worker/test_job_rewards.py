"""Rewards inside jobs: values and parts by hand, judges in the loop with their costs, and rows of datasets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_endpoint import Answer, Asked, FakeEndpoint, fails, says, serving
from quintain.errors import Unavailable
from quintain.records.dataset import DatasetRow, GroupRow, PairRow
from quintain.records.labels.reward import ContainsReward, JudgePart, LengthReward, RewardPart, RewardSpec
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.scoring.judges.rubrics import RUBRICS
from quintain.worker.rollouts.job_rewards import Rewards
from scripted_judges import by_run, recorded, scored
from trajectory_runs import answer, call, run, user

RUBRIC = RUBRICS["default"]
NAMES = [criterion.name for criterion in RUBRIC.criteria]
SHORT = RewardPart(scorer="short", weight=1, declared=LengthReward(name="short", full_at=0, zero_at=10))
OUTCOME = RewardPart(scorer="outcome", weight=3)


def said(text: str | None, i: int, status: OutcomeStatus = OutcomeStatus.SUCCESS, task: str = "t1") -> Trajectory:
    steps = [user(), call(item="box"), *([] if text is None else [answer(text)])]
    return run(task, *steps, status=status).model_copy(update={"id": f"traj-{i}"})


def judge(endpoint: FakeEndpoint, folder: Path, mode: str = "score") -> RewardPart:
    profile = endpoint.profile(input_usd_per_mtok=1.0, output_usd_per_mtok=2.0, max_attempts=1)
    part = JudgePart(
        endpoint=profile,
        rubric=RUBRIC,
        mode=mode,  # type: ignore[arg-type]
        control="off",
        cache_dir=str(folder / "cache"),
    )
    return RewardPart(scorer="judge:default", weight=1, judge=part)


def test_a_mix_values_each_run_and_each_part_and_leaves_unknown_ones_out(tmp_path: Path) -> None:
    rewards = Rewards(RewardSpec(parts=(OUTCOME, SHORT), cap=0.9), tmp_path)
    runs = [
        said("one two", 0),  # 0.75 * 1 + 0.25 * 0.8 = 0.95, capped at 0.9
        said("one two three four", 1, OutcomeStatus.FAILURE),  # 0.25 * 0.6 = 0.15
        said(None, 2),  # no text
        said("one", 3, OutcomeStatus.UNKNOWN),
        said("one", 4, OutcomeStatus.ERROR),
    ]
    scores = rewards.score([runs])
    assert [scores[one.id or ""].value for one in runs] == [0.9, pytest.approx(0.15), None, None, None]
    assert (
        {score.scorer for score in scores.values()}
        == {"mix(outcome=3, short:length(full_at=0,zero_at=10)=1, cap=0.9)"}
        == {rewards.name}
    )
    rewards.remember({"g": [scores["traj-0"], scores["traj-1"]]})
    assert rewards.figures(["g", "other"]) == {"reward/outcome": 0.5, "reward/short": pytest.approx(0.7)}
    report = rewards.report()
    assert (report["scored"], sum(report["unscored"].values())) == (2, 3)
    assert report["mean"] == pytest.approx((0.9 + 0.15) / 2)


def test_a_product_pays_for_brevity_only_where_the_outcome_is_a_success(tmp_path: Path) -> None:
    """Two of ten words are worth 0.8, five 0.5; a failure is worth 0, however brief, or silent."""
    rewards = Rewards(RewardSpec(parts=(OUTCOME.model_copy(update={"weight": 1}), SHORT), combine="product"), tmp_path)
    brief, long = said("one two", 0), said("a b c d e", 1)
    wrong, silent = said("one", 2, OutcomeStatus.FAILURE), said(None, 3, OutcomeStatus.FAILURE)
    runs = (brief, long, wrong, silent)
    group, pair = rewards.rows(
        [GroupRow(key="t1", trajectories=runs, rewards=(0, 0, 0, 0)), PairRow(chosen=wrong, rejected=long)]
    )
    assert isinstance(group, GroupRow)
    assert isinstance(pair, PairRow)
    assert group.rewards == pytest.approx((0.8, 0.5, 0.0, 0.0))
    assert (pair.chosen.id, pair.rejected.id) == ("traj-1", "traj-2")
    assert rewards.figures(["t1"]) == {"reward/outcome": 0.5, "reward/short": pytest.approx((0.8 + 0.5 + 0.9) / 3)}


def test_rows_of_datasets_get_the_reward_and_a_new_order(tmp_path: Path) -> None:
    rewards = Rewards(RewardSpec(parts=(SHORT,)), tmp_path)
    long, brief, silent, twin = said("a b c d e", 0), said("a", 1), said(None, 2), said("e d c b a", 3)
    rows = rewards.rows(
        [
            GroupRow(key="t1", trajectories=(long, brief, silent), rewards=(1.0, 0.0, 1.0)),
            PairRow(chosen=long, rejected=brief),
            PairRow(chosen=long, rejected=twin),
            PairRow(chosen=long, rejected=silent),
            DatasetRow(trajectory=brief, reward=0.0),
        ]
    )
    group, pair, single = rows
    assert isinstance(group, GroupRow)
    assert isinstance(pair, PairRow)
    assert isinstance(single, DatasetRow)
    assert (group.rewards, [one.id for one in group.trajectories]) == ((0.5, 0.9), ["traj-0", "traj-1"])
    assert (pair.chosen.id, pair.rejected.id, pair.margin) == ("traj-1", "traj-0", pytest.approx(0.4))
    assert single.reward == 0.9
    assert rewards.figures(["t1"]) == {"reward/short": pytest.approx(0.7)}
    assert rewards.figures(["traj-1/traj-0"]) == {"reward/short": pytest.approx(0.7)}


def message(text: str) -> str:
    return next(line for line in text.split("\n") if line.startswith("The answer"))


@pytest.fixture
def liking() -> Iterator[FakeEndpoint]:
    """A judge that likes `good`: alone it values 0.8 with it and 0.2 without; it ranks by how often the word occurs."""

    def reply(asked: Asked, before: int) -> Answer:
        shown = by_run(asked.user)
        if len(shown) > 1:
            places = sorted(range(len(shown)), key=lambda i: -shown[i].count("good"))
            return says(json.dumps({"quotes": [*map(message, shown)], "ranking": [[i + 1] for i in places]}))
        text = recorded(asked.user)
        if "broken" in text:
            return fails(500)
        return says(scored(NAMES, 0.8 if "good" in text else 0.2, message(text)))

    with serving(reply) as endpoint:
        yield endpoint


def test_a_judge_in_the_loop_is_cached_by_content_and_its_cost_is_counted(liking: FakeEndpoint, tmp_path: Path) -> None:
    spec = RewardSpec(parts=(OUTCOME.model_copy(update={"weight": 1}), judge(liking, tmp_path)))
    runs = [
        said("The answer is good", 0),
        said("The answer is bad", 1),
        said("The answer is good", 2),
        said("The answer is broken", 3),
    ]
    rewards = Rewards(spec, tmp_path / "job")
    scores = rewards.score([runs])
    assert [scores[one.id or ""].value for one in runs] == [
        pytest.approx(0.9),
        pytest.approx(0.6),
        pytest.approx(0.9),
        None,
    ]
    assert scores["traj-3"].reason == "judge:default: endpoint 'fake' answered 500: no; tried 1 time"
    assert len(liking.asked) == 3, "two runs say the same"
    rewards.score([[run.model_copy(update={"id": f"{run.id}-later"}) for run in runs[:3]]])
    assert len(liking.asked) == 3
    rewards.close()
    costs = rewards.report()["judges"]["judge:default"]
    assert (costs["judged"], costs["failed"], costs["requests"]) == (7, 1, 3)
    assert costs["usd"] == pytest.approx(2 * (100 * 1 + 10 * 2) / 1e6)


def test_mixes_by_judges_with_another_mode_or_rubric_have_names_of_their_own(
    liking: FakeEndpoint, tmp_path: Path
) -> None:
    plain, ranking = judge(liking, tmp_path), judge(liking, tmp_path, mode="group")
    asked = plain.judges[0].model_copy(update={"rubric": RUBRICS["coding"].model_copy(update={"name": "default"})})
    parts = (plain, ranking, plain.model_copy(update={"judges": (asked,)}))
    names = [Rewards(RewardSpec(parts=(OUTCOME, part)), tmp_path).name for part in parts]
    assert len(set(names)) == 3
    assert all(name.startswith("mix(judge:default#") and name.endswith("=1, outcome=3)") for name in names)
    other_cache = Rewards(RewardSpec(parts=(OUTCOME, judge(liking, tmp_path / "other"))), tmp_path).name
    assert other_cache == names[0], "where answers are kept is no setting"


def test_a_judge_ranks_the_runs_of_a_group_and_equal_texts_share_their_place(
    liking: FakeEndpoint, tmp_path: Path
) -> None:
    rewards = Rewards(RewardSpec(parts=(judge(liking, tmp_path, "group"),)), tmp_path / "job")
    texts = [
        "The answer is one good good",
        "The answer is the second",
        "The answer is three good",
        "The answer is the second",
    ]
    group = [said(text, i) for i, text in enumerate(texts)]
    same = [said("The answer is same", i, task="t2") for i in (10, 11)]
    alone = [said("The answer is alone", 20, task="t3")]
    scores = rewards.score([group, same, alone])
    rewards.close()
    assert [scores[one.id or ""].value for one in group] == [1.0, 0.0, 0.5, 0.0]
    assert [scores[one.id or ""].value for one in same] == [0.5, 0.5]
    assert "ranked" in (scores["traj-20"].reason or "")
    assert len(liking.asked) == 2, "one ranking in both orders"


def test_a_job_that_is_asked_to_stop_gets_no_half_judged_batch(liking: FakeEndpoint, tmp_path: Path) -> None:
    rewards = Rewards(RewardSpec(parts=(judge(liking, tmp_path),)), tmp_path / "job", should_stop=lambda: True)
    assert rewards.score([[said("The answer is good", 0)]]) is None
    rewards.close()


def test_declared_parts_keep_the_name_of_the_reward(tmp_path: Path) -> None:
    part = RewardPart(scorer="polite", declared=ContainsReward(text="please"))
    scores = Rewards(RewardSpec(parts=(part,)), tmp_path).score([[said("please", 0)]])
    assert (scores["traj-0"].scorer, scores["traj-0"].value) == ("polite", 1.0)


def test_a_function_is_imported_by_its_name_and_the_folder_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_rewards.py").write_text("def few(run):\n    return 1 / len(run.steps)\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    part = RewardPart(scorer="few", function="acme_rewards:few", folder=str(tmp_path))
    scores = Rewards(RewardSpec(parts=(part,)), tmp_path).score([[said("please", 0)]])
    assert scores["traj-0"].value == pytest.approx(1 / 3)
    with pytest.raises(Unavailable, match="put its module back into"):
        Rewards(RewardSpec(parts=(part.model_copy(update={"function": "acme_rewards:gone"}),)), tmp_path)


def test_a_part_with_one_value_in_all_runs_is_named(tmp_path: Path) -> None:
    rewards = Rewards(RewardSpec(parts=(OUTCOME, SHORT)), tmp_path)
    rewards.score([[said("a", i, OutcomeStatus.SUCCESS if i % 2 else OutcomeStatus.FAILURE) for i in range(10)]])
    alone = Rewards(RewardSpec(parts=(SHORT,)), tmp_path)
    alone.score([[said("a", i) for i in range(10)]])
    for one in (rewards, alone):
        assert ["part 'short' of the reward was 0.9 in all 10 runs" in text for text in one.constant_parts()] == [True]
