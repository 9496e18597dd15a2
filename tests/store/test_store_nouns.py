"""Scores, datasets, agents, evaluations, comparisons and judging batches in the store."""

from __future__ import annotations

from datetime import datetime

import pytest

from quintain.errors import Conflict, NotFound
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.evaluation import (
    EpisodeResult,
    Evaluation,
    Flip,
    Rate,
)
from quintain.records.labels.judging import BatchItem, Criterion, JudgingBatch, Rubric
from quintain.records.score import Component, Score
from quintain.records.trajectory import OutcomeStatus
from quintain.store.store import Store
from store_shelves import base_agent, compared, dataset, evaluation, measured
from trajectory_runs import NOW, answer, later, run, user


def _score(run_id: str, value: float | None, scorer: str = "rules") -> Score:
    if value is None:
        return Score(trajectory_id=run_id, scorer=scorer, status="unscored", reason="no verdict")
    parts = (Component(name="format", weight=1.0, value=value, feedback="fine"),)
    return Score(trajectory_id=run_id, scorer=scorer, status="scored", value=value, components=parts, feedback="ok")


def test_the_latest_score_wins_and_the_history_stays(store: Store) -> None:
    a, b = (added.id for added in store.trajectories.add_many([run("a"), run("b")], NOW))
    store.scores.add_many([_score(a, 0.1), _score(b, 0.2), _score(a, 0.3, "outcome")], NOW)
    store.scores.add_many([_score(a, None)], later(1))
    latest = store.scores.latest("rules", [a, b, "traj-none"])
    assert latest == {
        a: _score(a, None).model_copy(update={"created_at": later(1)}),
        b: _score(b, 0.2).model_copy(update={"created_at": NOW}),
    }
    assert [(s.scorer, s.value) for s in store.scores.of_trajectory(a)] == [
        ("rules", None),
        ("outcome", 0.3),
        ("rules", 0.1),
    ]


def test_a_score_of_content_that_has_since_grown_is_not_the_latest(store: Store) -> None:
    (first,) = store.trajectories.add_many([run("t", user(), answer("a"), session_id="s")], NOW)
    store.scores.add_many([_score(first.id, 0.9)], NOW)
    store.trajectories.add_many([run("t", user(), answer("a"), answer("b"), session_id="s")], later(1))
    assert store.scores.latest("rules", [first.id]) == {}
    assert [score.value for score in store.scores.of_trajectory(first.id)] == [0.9]
    store.scores.add_many([_score(first.id, 0.4)], later(2))
    assert store.scores.latest("rules", [first.id])[first.id].value == 0.4


def test_scores_of_an_unknown_trajectory_are_refused_all_or_none(store: Store) -> None:
    (a,) = store.trajectories.add_many([run("a")], NOW)
    with pytest.raises(NotFound, match=r"'traj-none'.*" + a.id):
        store.scores.add_many([_score(a.id, 1.0), _score("traj-none", 1.0)], NOW)
    assert store.scores.of_trajectory(a.id) == []


def test_a_dataset_is_found_by_id_or_as_the_newest_of_its_name(store: Store) -> None:
    a, b = (added.id for added in store.trajectories.add_many([run("a"), run("b")], NOW))
    whole = dataset(
        "ds-1",
        dropped={"duplicate": 3},
        files={"train.jsonl": "ab"},
        source_models={"m": 4},
        environments={"e": 2},
        seed=7,
    )
    first = store.datasets.add(whole, [b, a, b], NOW)
    second = store.datasets.add(dataset("ds-2"), [a], later(1))
    assert first == whole.model_copy(update={"created_at": NOW})
    assert store.datasets.get("ds-1") == first
    assert store.datasets.get("good-runs") == second
    assert store.datasets.member_ids("ds-1") == [a, b]
    assert store.datasets.page(limit=1).items == (second,)
    with pytest.raises(NotFound, match=r"'nope'.*ds-2 \(good-runs\), ds-1"):
        store.datasets.get("nope")


def test_a_dataset_never_changes_and_its_members_exist(store: Store) -> None:
    store.datasets.add(dataset("ds-1"), [], NOW)
    with pytest.raises(Conflict, match="ds-1"):
        store.datasets.add(dataset("ds-1"), [], NOW)
    with pytest.raises(NotFound, match="traj-none"):
        store.datasets.add(dataset("ds-2"), ["traj-none"], NOW)
    assert [dataset.id for dataset in store.datasets.page().items] == ["ds-1"]


def _clerk(store: Store, moment: datetime, **fields: object) -> Agent:
    model = ModelRef(source="folder", path="/m/1", adapter="/a")
    return store.agents.add(Agent(**{"name": "clerk", "model": model, **fields}), moment)


def test_versions_count_up_and_equal_content_is_the_same_agent(store: Store) -> None:
    first = _clerk(store, NOW)
    assert (first.id, first.version, first.created_at) == ("agent:clerk@1", 1, NOW)
    assert _clerk(store, later(1)) == first
    second = _clerk(store, later(2), system_prompt="Be brief.", sampling=Sampling(temperature=1))
    assert second.id == "agent:clerk@2"
    # The content of an older version is a new version: what is newest must be what was added last.
    assert _clerk(store, later(3)).id == "agent:clerk@3"
    assert _clerk(store, NOW, name="other").id == "agent:other@1"


def test_a_job_makes_one_agent_however_often_its_outputs_are_read(store: Store) -> None:
    first = _clerk(store, NOW, job_id="job-1")
    _clerk(store, NOW, job_id="job-2")
    assert _clerk(store, later(1), job_id="job-1", description="read again") == first
    assert len(store.agents.page().items) == 2


def test_an_agent_is_found_by_every_form_of_its_name(store: Store) -> None:
    first = _clerk(store, NOW)
    second = _clerk(store, NOW, description="new")
    for reference in ("agent:clerk@1", "clerk@1"):
        assert store.agents.get(reference) == first
    for reference in ("agent:clerk", "clerk", "clerk@2", "agent:clerk@2"):
        assert store.agents.get(reference) == second
    for reference in ("clerk@3", "cler", "", "agent:", "clerk@", "clerk@x", "/m/1", "a:b", "clerk@1@1", "clerk@0"):
        assert store.agents.find(reference) is None
    with pytest.raises(NotFound, match=r"'ghost'; known names: clerk"):
        store.agents.get("ghost")


def _evaluation(evaluation_id: str, agent_id: str = "agent:clerk@1", environment: str = "e") -> Evaluation:
    episode = EpisodeResult(task_id="t1", status=OutcomeStatus.SUCCESS, reward=1.0, turns=2, trajectory_id="x")
    by_type = {"sort": Rate(successes=0, n=0, value=None, ci_low=None, ci_high=None)}
    return evaluation(evaluation_id, agent_id, environment=environment, results=(episode,), by_type=by_type)


def test_evaluations_come_back_whole_and_are_added_once(store: Store) -> None:
    first = store.evaluations.add(_evaluation("eval-1"), NOW)
    assert first == _evaluation("eval-1").model_copy(update={"created_at": NOW})
    assert store.evaluations.add(_evaluation("eval-1", environment="other"), later(1)) == first
    second = store.evaluations.add(_evaluation("eval-2", environment="f"), NOW)
    store.evaluations.add(_evaluation("eval-3", agent_id="agent:other@1"), NOW)
    assert store.evaluations.get("eval-1") == first
    assert store.evaluations.of_agent("agent:clerk@1") == [second, first]
    assert [e.id for e in store.evaluations.page(environment="e").items] == ["eval-3", "eval-1"]
    page = store.evaluations.page(limit=2)
    assert [e.id for e in store.evaluations.page(limit=2, cursor=page.next_cursor).items] == ["eval-1"]
    with pytest.raises(NotFound, match="expected the id of a stored evaluation, got 'eval-9'"):
        store.evaluations.get("eval-9")


def test_comparisons_come_back_whole_and_are_added_once(store: Store) -> None:
    a, b = (measured(store, f"eval-{name}", base_agent(store, name), f"job-{name}") for name in "ab")
    stored = compared(store, "cmp-1", a, b)
    assert stored.created_at == NOW
    assert store.evaluations.get_comparison("cmp-1") == stored
    flip = Flip(task_id="t", solved_by="agent:b@1", failed_by="agent:a@1")
    again = stored.model_copy(update={"flips": (flip,)})
    assert store.evaluations.add_comparison(again, later(1)) == stored
    whole = again.model_copy(update={"id": "cmp-2", "created_at": None})
    assert store.evaluations.add_comparison(whole, later(1)) == whole.model_copy(update={"created_at": later(1)})
    assert store.evaluations.get_comparison("cmp-2").flips == (flip,)
    with pytest.raises(NotFound, match=r"cmp-9.*cmp-2, cmp-1"):
        store.evaluations.get_comparison("cmp-9")
    compared(store, "cmp-3", a, measured(store, "eval-clerk", base_agent(store, "clerk"), "job-clerk"))
    for words, ids in {"Clerk agent:a": ["cmp-3"], "agent:b@1": ["cmp-2", "cmp-1"], "clerk nobody": []}.items():
        assert [one.id for one in store.evaluations.page_comparisons(text=words).items] == ids


def batch(number: int, rater: str) -> JudgingBatch:
    rubric = Rubric(name="r", criteria=(Criterion(name="c", description="Good?"),))
    items = tuple(BatchItem(item_id=f"i{n}", trajectory_ids=("traj-a", "traj-b")) for n in (1, 2))
    return JudgingBatch(
        id=f"batch-{number}", judge="assistant", rater=rater, mode="pairwise", rubric=rubric, items=items
    )


def test_answers_add_up_and_earlier_votes_stay(store: Store) -> None:
    store.judging.add(batch(1, "assistant"), NOW)
    store.judging.record_answers("batch-1", ["i1"], {"i1": "a"})
    store.judging.record_answers("batch-1", ["i1", "i2"], {"i1": "tie"})
    found = store.judging.get("batch-1")
    assert (found.answered, found.votes) == (("i1", "i2"), {"i1": ("a", "tie")})
    with pytest.raises(NotFound, match="the newest are batch-1"):
        store.judging.record_answers("batch-2", ["i1"])
