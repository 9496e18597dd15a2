"""Lineage both ways, and forgetting, in the store."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pydantic import ValidationError

from quintain.errors import Conflict, NotFound
from quintain.records.filters import TrajectoryFilter
from quintain.records.hyperparameters.methods import GRPOConfig, SFTConfig
from quintain.records.jobs.job import RecipeSpec
from quintain.records.jobs.job_events import JobEvent
from quintain.records.lineage import Lineage
from quintain.records.score import Score
from quintain.store.database import engine
from quintain.store.job_spans import Span
from quintain.store.lineage.links import Ref
from quintain.store.store import Store, open_store
from store_shelves import base_agent, compared, dataset, job, measured, rollout, trained, training
from trajectory_runs import NOW, answer, later, run, user


def add(store: Store, *names: str, **fields: object) -> list[str]:
    return [added.id for added in store.trajectories.add_many([run(name, **fields) for name in names], NOW)]


def ids(view: Lineage) -> set[str]:
    return {node.id for node in view.nodes}


def up(store: Store, kind: str, id: str, depth: int = 20) -> Lineage:
    return store.lineage.ancestors([Ref(kind, id)], depth)


def down(store: Store, kind: str, id: str, depth: int = 20) -> Lineage:
    return store.lineage.descendants([Ref(kind, id)], depth)


def test_a_run_leads_to_everything_that_was_made_of_it_and_back(store: Store) -> None:
    base = base_agent(store)
    job(store, "job-collect", rollout(base))
    (first,) = add(store, "a", job_id="job-collect")
    (other,) = add(store, "b")
    store.scores.add_many([Score(trajectory_id=first, scorer="rules", status="scored", value=0.5)], NOW)
    store.datasets.add(dataset("ds-1"), [first, other], NOW)
    clerk = trained(store, "job-train", training(base, "ds-1"))
    a, b = measured(store, "eval-a", base, "job-a"), measured(store, "eval-b", clerk, "job-b")
    compared(store, "cmp-1", a, b)
    checkpoint = JobEvent(attempt=1, seq=0, time=NOW, type="checkpoint", step=30, path="/c")
    store.jobs.ingest_spans([Span("job-train", "events.jsonl", 0, 1, [checkpoint])], NOW)
    after = down(store, "trajectory", first)
    assert ids(after) == {
        *(f"{first}/rules", "ds-1", "job-train", "job-train/30", clerk.id, "job-b", "eval-b", "cmp-1")
    }
    assert {node.kind for node in after.nodes} == {
        *("score", "dataset", "job", "checkpoint", "agent", "evaluation", "comparison")
    }
    assert after.counts["job"] == 2
    before = up(store, "comparison", "cmp-1")
    assert ids(before) == {
        *("eval-a", "eval-b", "job-a", "job-b", base.id, clerk.id, "job-train", "ds-1", first, other, "job-collect")
    }
    assert ("ds-1", "job-train") in {(edge.source, edge.target) for edge in before.edges}
    assert [node.label for node in store.lineage.nodes([Ref("evaluation", "eval-b")])] == ["e (held_out): 1 of 2"]
    for kind, id, parent in (("score", f"{first}/rules", first), ("checkpoint", "job-train/30", "job-train")):
        assert ids(up(store, kind, id, depth=1)) == {parent}
    assert ids(up(store, "agent", clerk.id or "", depth=1)) == {"job-train"}
    assert up(store, "agent", clerk.id or "", depth=1).truncated


def test_many_runs_are_one_thing_with_a_count_and_the_filter_that_finds_them(store: Store) -> None:
    base = base_agent(store)
    job(store, "job-collect", rollout(base))
    runs = add(store, *(f"t{i}" for i in range(12)), job_id="job-collect")
    store.datasets.add(dataset("ds-1"), runs, NOW)
    clerk = trained(store, "job-train", training(base, "ds-1"))
    before = up(store, "agent", clerk.id or "")
    (many,) = (node for node in before.nodes if node.kind == "trajectories")
    assert (many.count, many.filter, before.counts["trajectories"]) == (12, {"dataset_id": "ds-1"}, 12)
    assert store.trajectories.count(TrajectoryFilter(**many.filter or {})) == 12
    assert {"job-collect", base.id} <= ids(before)
    after = down(store, "agent", base.id or "")
    assert {"job-collect/runs", "ds-1", "job-train", clerk.id} <= ids(after)
    assert runs[0] not in ids(after)
    assert store.lineage.training_sources(clerk.id or "").count == 12


def test_an_agent_names_what_its_base_agents_and_its_own_rollouts_taught_it(store: Store) -> None:
    base = base_agent(store)
    (first, second) = add(store, "a", "b")
    store.datasets.add(dataset("ds-1"), [first], NOW)
    store.datasets.add(dataset("ds-2"), [second], NOW)
    clerk = trained(store, "job-1", training(base, "ds-1"))
    online = trained(store, "job-2", training(clerk, environment="e", name="player"))
    (played,) = add(store, "p", job_id="job-2", tags=("rollout", "iteration:0"), episode_key="1")
    prompted = base_agent(store, "prompted", parent=online.id)
    last = trained(store, "job-3", training(prompted, "ds-2", name="last"))
    learned = store.lineage.training_sources(last.id or "")
    assert (learned.count, set(learned.datasets), learned.online_jobs) == (3, {"ds-1", "ds-2"}, ("job-2",))
    found = {item.id for f in learned.filters for item in store.trajectories.search(TrajectoryFilter(**f)).items}
    assert found == {first, second, played}
    assert store.lineage.training_sources(clerk.id or "").count == 1
    assert store.lineage.training_sources(base.id or "").count == 0
    assert set(store.lineage.agents_trained_on([first])) == {clerk.id, online.id, prompted.id, last.id}
    assert set(store.lineage.agents_trained_on([played])) == {online.id, prompted.id, last.id}
    assert store.lineage.agents_trained_on([second]) == [last.id]
    assert online.id in ids(down(store, "trajectory", played))
    assert played in ids(up(store, "agent", online.id or "", depth=2))


def test_the_tasks_of_a_benchmark_from_which_an_agent_learned_are_counted(store: Store) -> None:
    """By task, not by run: another attempt at a task that was learned is no new task."""
    base = base_agent(store)
    first, second = add(store, "a", "b")
    again, new = add(store, "a", "c", job_id="job-other", episode_key="2")
    store.datasets.add(dataset("ds-1"), [first, second], NOW)
    store.datasets.add(dataset("ds-bench"), [again, new], NOW)
    clerk = trained(store, "job-1", training(base, "ds-1"))
    assert store.lineage.tasks_trained_on(clerk.id or "", "ds-bench") == (1, 2)
    assert store.lineage.tasks_trained_on(clerk.id or "", "ds-1") == (2, 2)
    assert store.lineage.tasks_trained_on(clerk.id or "", "job-other") == (1, 2)
    assert store.lineage.tasks_trained_on(base.id or "", "ds-bench") == (0, 2)


def test_the_runs_on_which_a_recipe_measures_taught_nothing(store: Store) -> None:
    base = base_agent(store)
    stages = [
        {"kind": "train", "label": "learn", "method": "grpo", "environment": "e", "config": GRPOConfig().model_dump()},
        {"kind": "evaluate", "label": "measure", "environment": "e"},
    ]
    spec = RecipeSpec.model_validate({"name": "clerk", "agent": base, "stages": stages, "output_dir": "/o"})
    job(store, "job-1", spec)
    clerk = base_agent(store, "clerk", job_id="job-1")
    (played,) = add(store, "p", job_id="job-1", tags=("rollout",), episode_key="1")
    (measured_on,) = add(store, "m", job_id="job-1", tags=("evaluation",), episode_key="2")
    assert store.lineage.training_sources(clerk.id or "").count == 1
    assert store.lineage.agents_trained_on([played]) == [clerk.id]
    assert store.lineage.agents_trained_on([measured_on]) == []


def test_a_replay_buffer_carries_what_earlier_jobs_learned_from(store: Store) -> None:
    base = base_agent(store)
    (first, second) = add(store, "a", "b")
    store.datasets.add(dataset("ds-1"), [first], NOW)
    store.datasets.add(dataset("ds-2"), [second], NOW)
    config = SFTConfig.model_validate({"replay": {"buffer": "mine"}})
    trained(store, "job-1", training(base, "ds-1", name="one", config=config))
    two = trained(store, "job-2", training(base, "ds-2", name="two", config=config))
    assert store.lineage.training_sources(two.id or "").count == 2
    done = store.lineage.forget([first], NOW)
    assert done.replay_buffers == ("mine",)
    three = trained(store, "job-3", training(base, "ds-2", name="three", config=config))
    assert store.lineage.training_sources(three.id or "").count == 1
    assert store.lineage.count_forgotten_sources(two.id or "") == 1
    assert store.lineage.count_forgotten_sources(three.id or "") == 0


def test_training_sources_and_agents_trained_on_are_inverse_relations(store: Store) -> None:
    """In a random history of 12 datasets and 15 trainings, each from an agent that there was before."""
    rng = random.Random(0)
    runs = add(store, *(f"t{i}" for i in range(20)))
    members = {f"ds-{i}": rng.sample(runs, 3) for i in range(12)}
    for dataset_id, held in members.items():
        store.datasets.add(dataset(dataset_id), held, NOW)
    agents = [base_agent(store)]
    expected: dict[str, set[str]] = {agents[0].id or "": set()}
    for i in range(15):
        base, dataset_id = rng.choice(agents), rng.choice(list(members))
        learner = trained(store, f"job-{i}", training(base, dataset_id, name=f"agent{i}"))
        expected[learner.id or ""] = expected[base.id or ""] | set(members[dataset_id])
        agents.append(learner)
    for agent_id, taught in expected.items():
        learned = store.lineage.training_sources(agent_id)
        assert {run_id for held in learned.datasets for run_id in members[held]} == taught
        assert learned.count == len(taught)
    for run_id in runs:
        assert set(store.lineage.agents_trained_on([run_id])) == {
            agent for agent, taught in expected.items() if run_id in taught
        }


def test_an_agent_learned_from_the_training_split_alone(store: Store) -> None:
    """Runs of an unknown split, in datasets of an earlier release, count as learned."""
    first, second, third, old = add(store, "t1", "t2", "t3", "t4")
    store.datasets.add(dataset("ds-0"), [old], NOW)
    store.datasets.add(dataset("ds-1"), {first: "train", second: "validation", third: "train"}, NOW)
    one = trained(store, "job-0", training(base_agent(store), "ds-0", name="one"))
    two = trained(store, "job-1", training(one, "ds-1", name="two"))
    learned = store.lineage.training_sources(two.id or "")
    found = [store.trajectories.search(TrajectoryFilter(**one), limit=9).items for one in learned.filters]
    assert {run.id for page in found for run in page} == {first, third, old}
    assert learned.count == 3
    assert store.lineage.agents_trained_on([second]) == []
    assert store.lineage.agents_trained_on([third]) == [two.id]
    assert store.lineage.tasks_trained_on(two.id or "", "ds-1") == (2, 3)
    held = store.trajectories.search(TrajectoryFilter(dataset_id="ds-1", split="validation"), limit=9)
    assert [run.id for run in held.items] == [second]
    by_name = TrajectoryFilter(dataset_id=dataset("ds-1").name, split="validation")
    assert [run.id for run in store.trajectories.search(by_name, limit=9).items] == [second], "the newest of the name"
    with pytest.raises(ValidationError, match="`split` is one of a dataset"):
        TrajectoryFilter(split="train")


def test_a_view_lists_the_newest_of_very_many_and_counts_the_rest(store: Store) -> None:
    base = base_agent(store)
    for i in range(27):
        job(store, f"job-{i:02d}", rollout(base))
    after = down(store, "agent", base.id or "")
    assert (len(after.nodes), after.counts, after.truncated) == (25, {"job": 27}, True)


def test_a_name_or_a_session_is_understood_and_anything_else_is_refused(store: Store) -> None:
    base_agent(store)
    newest = base_agent(store, description="new")
    store.datasets.add(dataset("ds-1"), [], NOW)
    store.datasets.add(dataset("ds-2"), [], NOW)
    of_session = [run("t", user(text), answer(), session_id="session 7") for text in ("one", "two")]
    runs = [added.id for added in store.trajectories.add_many(of_session, NOW)]
    assert store.lineage.resolve("base") == [Ref("agent", newest.id or "")]
    assert store.lineage.resolve("good-runs") == [Ref("dataset", "ds-2")]
    assert store.lineage.resolve("session 7") == [Ref("trajectory", run_id) for run_id in runs]
    assert store.lineage.resolve(runs[0]) == [Ref("trajectory", runs[0])]
    with pytest.raises(NotFound, match="'nobody'; see search_trajectories"):
        store.lineage.resolve("nobody")


@pytest.mark.usefixtures("sqlite_only")
def test_a_forgotten_run_is_in_no_list_and_its_text_in_no_file(store: Store, tmp_path: Path) -> None:
    secret = "the quick brown fox " * 500
    gone, kept = run("a", user(secret), answer(secret), tags=("mine",), session_id="s"), run("b", tags=("mine",))
    first, second = (added.id for added in store.trajectories.add_many([gone, kept], NOW))
    score = Score(trajectory_id=first, scorer="rules", status="scored", value=1.0, feedback=secret)
    store.scores.add_many([score], NOW)
    assert b"quick brown fox" in (tmp_path / "quintain.db").read_bytes()
    done = store.lineage.forget([first], later(1))
    assert (done.trajectory_ids, done.before, done.scores_removed) == ((first,), (), 1)
    store.engine.dispose()
    assert not any(b"quick brown fox" in path.read_bytes() for path in tmp_path.iterdir())
    for conditions in ({}, {"tags": ("mine",)}, {"outcome": "success"}, {"agent": "unknown"}):
        filter = TrajectoryFilter(**conditions)
        assert [item.id for item in store.trajectories.search(filter).items] == [second]
        assert store.trajectories.count(filter) == 1
        assert [found.id for found in store.trajectories.iterate(filter)] == [second]
    assert [found.id for found in store.trajectories.iterate(ids=[first, second])] == [second]
    assert store.scores.of_trajectory(first) == []
    with pytest.raises(NotFound, match=r"\[forgotten\].*2026-01-02"):
        store.trajectories.get(first)
    with pytest.raises(NotFound, match=r"\[forgotten\]"):
        store.trajectories.grow(first, lambda found: found, NOW)
    with pytest.raises(Conflict, match=r"\[forgotten\]"):
        store.datasets.add(dataset("ds-1"), [second, first], NOW)
    with pytest.raises(NotFound):
        store.scores.add_many([score], NOW)
    assert store.lineage.forgotten([first, second, "traj-none"]) == {first}
    assert [node.mark for node in store.lineage.nodes([Ref("trajectory", first)])] == ["forgotten"]


def test_a_forgotten_run_leaves_no_text_in_the_write_ahead_log_of_a_newer_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "wal_is_safe", lambda _version: True)
    store = open_store(f"sqlite:///{tmp_path / 'quintain.db'}")
    (added,) = store.trajectories.add_many([run("a", user("the quick brown fox"), answer())], NOW)
    assert b"quick brown fox" in (tmp_path / "quintain.db-wal").read_bytes()
    store.lineage.forget([added.id], later(1))
    assert not any(b"quick brown fox" in path.read_bytes() for path in tmp_path.iterdir())
    store.close()


def test_a_run_that_is_forgotten_while_a_stream_is_read_is_not_given_out(store: Store) -> None:
    runs = add(store, *(f"t{i}" for i in range(60)))
    stream = store.trajectories.iterate()
    seen = [next(stream).id]
    store.lineage.forget([runs[55]], NOW)
    seen += [found.id for found in stream]
    assert seen == [*runs[:55], *runs[56:]]


def test_neither_the_same_log_nor_the_grown_session_comes_back(store: Store) -> None:
    steps = (user(), answer("a"), answer("b"), answer("c"))
    log = run("t", *steps[:3], session_id="s")
    (first,) = (added.id for added in store.trajectories.add_many([log], NOW))
    store.lineage.forget([first], NOW)
    shorter, longer = run("t", *steps[:2], session_id="s"), run("t", *steps, session_id="s")
    assert store.trajectories.add_many([log, shorter, longer], later(1)) == [(first, "forgotten")] * 3
    assert store.trajectories.count(TrajectoryFilter()) == 0
    other_opening = run("t", user("Another thing."), answer("a"), session_id="s")
    assert [added.created for added in store.trajectories.add_many([other_opening], NOW)] == [True]


def test_of_a_forgotten_session_no_run_comes_in(store: Store) -> None:
    runs = [run("t", user(text), answer("a"), session_id="s") for text in ("one", "two", "three")]
    stored = [added.id for added in store.trajectories.add_many(runs[:2], NOW)]
    store.lineage.forget(stored, NOW, session_id="s")
    assert [added.created for added in store.trajectories.add_many(runs, NOW)] == [False] * 3
    assert store.trajectories.count(TrajectoryFilter()) == 0
    stranger = run("t", user("one"), answer("a"), session_id="another")
    assert [added.created for added in store.trajectories.add_many([stranger], NOW)] == [True]


def test_forgetting_names_what_the_run_touched_and_is_done_once(store: Store) -> None:
    base = base_agent(store)
    (first, second) = add(store, "a", "b", source={"uri": "/logs/a.jsonl"})
    store.datasets.add(dataset("ds-1"), [first, second], NOW)
    store.datasets.add(dataset("ds-2"), [second], NOW)
    clerk = trained(store, "job-1", training(base, "ds-1"))
    child = trained(store, "job-2", training(clerk, "ds-2", name="child"))
    clean = trained(store, "job-3", training(base, "ds-2", name="clean"))
    measured(store, "eval-1", child, "job-4")
    done = store.lineage.forget([first], NOW)
    assert (done.touched.datasets, set(done.touched.agents)) == (("ds-1",), {clerk.id, child.id})
    assert set(done.touched.jobs) == {"job-1", "job-2", "job-4"}
    assert (done.touched.evaluations, done.sources) == (("eval-1",), ("/logs/a.jsonl",))
    assert store.lineage.datasets_with_forgotten(["ds-1", "ds-2"]) == {"ds-1": 1}
    assert [store.lineage.count_forgotten_sources(agent.id or "") for agent in (base, clerk, child, clean)] == [
        0,
        1,
        1,
        0,
    ]
    marks = {node.id: node.mark for node in up(store, "agent", child.id or "").nodes}
    assert marks | {"ds-2": None} == marks | {"ds-1": "blocked", clerk.id: "tainted", first: "forgotten", "ds-2": None}
    again = store.lineage.forget([first], later(1))
    assert (again.trajectory_ids, again.before, again.touched) == ((), (first,), done.touched)
    with pytest.raises(NotFound, match="traj-none"):
        store.lineage.forget([second, "traj-none"], NOW)
    assert store.lineage.forgotten([second]) == set()
