"""Trajectories in the store: identity, growth of sessions, filters, pages, streams."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quintain.errors import Conflict, InvalidInput, NotFound
from quintain.records.filters import TrajectoryFilter
from quintain.records.imports import RunLink
from quintain.records.labels.preference import Preference
from quintain.records.score import Score
from quintain.records.trajectory import (
    Action,
    Actor,
    AgentInfo,
    ImagePart,
    Observation,
    Outcome,
    OutcomeStatus,
    SampledTokens,
    Step,
    Task,
    TextPart,
    Trajectory,
    Usage,
)
from quintain.store.database import documents
from quintain.store.store import Store
from store_shelves import dataset
from trajectory_runs import NOW, answer, call, later, run, user


def _ids(store: Store, **conditions: object) -> set[str]:
    return {item.id for item in store.trajectories.search(TrajectoryFilter(**conditions), limit=200).items}


def test_a_trajectory_comes_back_as_it_went_in(store: Store) -> None:
    rich = Step(
        actor="agent",
        message=(TextPart(text='Ünïcödé "quoted"\n\\ 😀 \0'), ImagePart(uri="file:///a.png", media_type="image/png")),
        thought="hm",
        reward=0.1 + 0.2,
        train=False,
        timestamp=NOW,
        model="m",
        usage=Usage(input_tokens=3),
        sampled=SampledTokens(token_ids=(1, 2), logprobs=(-0.5, -1e-9), tokenizer="f"),
        copied_context=True,
        extra={"a": [1, None, {"b": 2.5}]},
    )
    whole = run(
        "t1",
        user(),
        rich,
        call("take", n=1),
        reward=0.25,
        session_id="s",
        episode_key="k",
        agent=AgentInfo(name="a", version="2"),
        tags=("x", "y"),
        redactions={"email": 2},
        subagents=("traj-x",),
        continues="traj-y",
        group_id="g",
        job_id="job-1",
        extra={"free": True},
    )
    ((stored_id, created),) = store.trajectories.add_many([whole], NOW)
    assert created
    assert store.trajectories.get(stored_id) == whole.identified()
    assert list(store.trajectories.iterate()) == [whole.identified()]


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), min_size=1, max_size=3))
def test_any_unicode_text_comes_back_and_can_be_found(store: Store, texts: list[str]) -> None:
    whole = run("t", user(), *(answer(text) for text in texts))
    ((stored_id, _),) = store.trajectories.add_many([whole], NOW)
    assert store.trajectories.get(stored_id) == whole.identified()
    for text in texts:
        if text and "\x00" not in text:
            assert stored_id in {t.id for t in store.trajectories.iterate(TrajectoryFilter(text=text))}


def test_the_same_run_again_adds_nothing_whatever_its_outcome_and_times(store: Store) -> None:
    first = run("t1", status=OutcomeStatus.UNKNOWN)
    again = first.model_copy(update={"outcome": Outcome(status=OutcomeStatus.SUCCESS), "tags": ("new",)})
    added = store.trajectories.add_many([first, again], NOW) + store.trajectories.add_many([again], later(1))
    assert [a.created for a in added] == [True, False, False]
    assert len({a.id for a in added}) == 1
    assert store.trajectories.count(TrajectoryFilter()) == 1


def test_a_batch_of_new_and_known_runs_adds_each_new_one_once(store: Store) -> None:
    """The known one stands last, so what was inserted before it is undone, tags included, before all are looked up."""
    known = run("known", tags=("old",))
    (stored,) = store.trajectories.add_many([known], NOW)
    batch = [run(f"new {n}", tags=("fresh",)) for n in range(3)]
    added = store.trajectories.add_many([*batch, batch[0], known], NOW)
    assert [one.status for one in added] == ["new", "new", "new", "known", "known"]
    assert added[3].id == added[0].id
    assert added[4].id == stored.id
    assert _ids(store) == {one.id for one in added}
    assert _ids(store, tags=("fresh",)) == {one.id for one in added[:3]}


def test_equal_runs_of_two_agents_are_two_runs_and_one_without_an_agent_is_neither(store: Store) -> None:
    """Two agents that answer alike are compared on that task too; a repeated import adds nothing."""
    a, b = (run("t1", user(), answer("4"), agent=AgentInfo(name=name)) for name in "ab")
    unnamed = a.model_copy(update={"agent": AgentInfo()})
    first = store.trajectories.add_many([unnamed, a, b], NOW)
    assert [one.status for one in first] == ["new", "completed", "new"]
    assert first[0].id == first[1].id != first[2].id
    assert [one.id for one in store.trajectories.add_many([b, a, unnamed], later(1))] == [one.id for one in first][::-1]
    assert {item.agent for item in store.trajectories.search(TrajectoryFilter(), limit=9).items} == {"a", "b"}
    store.lineage.forget([first[0].id], NOW)
    assert [one.status for one in store.trajectories.add_many([a], later(2))] == ["forgotten"]


def test_an_agent_without_a_name_is_called_by_its_model_until_a_log_names_it(store: Store) -> None:
    """So two models that answer alike are two agents, and `agent=` of a later import still names the runs."""
    a, b = (run("t1", user(), answer("4"), agent=AgentInfo(model=model)) for model in ("gpt-4o", "llama3.2:3b"))
    first = store.trajectories.add_many([a, b, a], NOW)
    assert [one.status for one in first] == ["new", "new", "known"]
    assert [item.id for item in store.trajectories.search(TrajectoryFilter(agent="gpt-4o")).items] == [first[0].id]
    named = a.model_copy(update={"agent": AgentInfo(name="clerk", model="gpt-4o")})
    assert store.trajectories.add_many([named, a], later(1)) == [(first[0].id, "completed"), (first[0].id, "known")]
    assert {item.agent for item in store.trajectories.search(TrajectoryFilter()).items} == {"clerk", "llama3.2:3b"}


def test_a_batch_with_one_bad_trajectory_stores_none(store: Store) -> None:
    taken, other = run("t1").identified(), run("t2")
    store.trajectories.add_many([taken], NOW)
    stranger = run("t3").model_copy(update={"id": taken.id})
    with pytest.raises(Conflict, match=str(taken.id)):
        store.trajectories.add_many([other, stranger], NOW)
    assert store.trajectories.count(TrajectoryFilter()) == 1


@pytest.mark.parametrize(
    ("value", "said"), [(float("nan"), r"\.metadata\.x is nan"), ("\ud800", r"\.metadata\.x contains a lone surrogate")]
)
def test_nan_and_lone_surrogates_never_reach_the_database(store: Store, value: object, said: str) -> None:
    bad = run(task=Task(id="t", metadata={"x": value}))
    with pytest.raises(InvalidInput, match=said):
        store.trajectories.add_many([run("fine"), bad], NOW)
    assert store.trajectories.count(TrajectoryFilter()) == 0


def test_a_lone_surrogate_in_arguments_is_named_though_no_identity_can_be_made_of_it(store: Store) -> None:
    with pytest.raises(InvalidInput, match=r"args\.path contains a lone surrogate"):
        store.trajectories.add_many([run("t", call(path="\ud800"))], NOW)


def test_a_session_that_has_grown_replaces_its_beginning_under_the_same_id(store: Store) -> None:
    steps = (user(), call(item="box"), answer("One."), user("And two?"), answer("Two."))
    short, longer = (run("t", *steps[:n], session_id="s1", tags=(f"n{n}",)) for n in (3, 5))
    other_session = run("t", *steps[:3], session_id="s2")
    (first,) = store.trajectories.add_many([short], NOW)
    (other,) = store.trajectories.add_many([other_session], NOW)
    assert store.trajectories.add_many([longer], later(1)) == [(first.id, "grown")]
    assert store.trajectories.get(first.id) == longer.model_copy(update={"id": first.id, "tags": ("n3", "n5")})
    assert store.trajectories.get(other.id).steps == steps[:3]
    assert store.trajectories.count(TrajectoryFilter()) == 2
    assert _ids(store, tags=("n5",)) == {first.id}
    assert _ids(store, tags=("n3",)) == {first.id}
    # The older copy of the log is known already, and so is the newer.
    assert store.trajectories.add_many([short, longer], later(2)) == [(first.id, "known"), (first.id, "known")]
    assert store.trajectories.get(first.id).steps == steps


def _calls(*results: str, said: str = "", thought: str | None = None, n: int = 2) -> Step:
    """An agent step with `n` parallel calls, of which those named in `results` have an answer."""
    actions = tuple(Action(tool="look", args={"item": str(i)}, call_id=f"c{i}") for i in range(n))
    seen = tuple(Observation(content="seen", call_id=name) for name in results)
    return Step(actor=Actor.AGENT, message=said, thought=thought, actions=actions, observations=seen)


UNFINISHED = {
    "no result": (_calls(), _calls("c0", "c1")),
    "first result": (_calls("c0"), _calls("c0", "c1")),
    "second result": (_calls("c1"), _calls("c0", "c1")),
    "one call": (_calls(n=1), _calls("c0", "c1")),
    "message": (_calls(n=0, said="I will"), _calls("c0", "c1", said="I will look.")),
    "thought": (_calls(n=0, thought="Hm"), _calls("c0", "c1", thought="Hm, two boxes.")),
    "model": (_calls("c0").model_copy(update={"model": None}), _calls("c0").model_copy(update={"model": "m"})),
    "user": (user("And"), user("And two?")),
}
"""A turn as a log that is still written has it, and the finished turn."""


def test_a_session_read_within_a_turn_is_replaced_by_the_finished_one(store: Store) -> None:
    before, after = [(user(),), (user(), answer("One."), user("And?"))], [(), (answer("Two."),)]
    cases = [(name, opening, more) for name in UNFINISHED for opening in before for more in after]
    for number, (name, opening, more) in enumerate(cases, start=1):
        unfinished, finished = UNFINISHED[name]
        start = (user(), answer("One.")) if unfinished.actor is Actor.USER else opening
        half, whole = (
            run("t", *steps, session_id=f"s{number}") for steps in ((*start, unfinished), (*start, finished, *more))
        )
        (first,) = store.trajectories.add_many([half], NOW)
        assert store.trajectories.add_many([whole], later(1)) == [(first.id, "grown")], name
        assert store.trajectories.get(first.id).steps == whole.steps, name
        assert store.trajectories.add_many([half, whole], later(2)) == [(first.id, "known")] * 2, name
        assert store.trajectories.get(first.id).steps == whole.steps, name
        assert store.trajectories.count(TrajectoryFilter()) == number


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((answer("It is red."),), (answer("It is blue."), answer("b"))),
        ((_calls("c0"),), (_calls("c1"), answer("b"))),
        ((_calls(n=1),), (Step(actor=Actor.AGENT, actions=(Action(tool="take", args={}, call_id="c0"),)), answer("b"))),
        ((_calls("c0"),), (_calls(), answer("b"))),
        ((answer("I"), answer("b")), (answer("I see."), answer("b"))),
    ],
    ids=["message", "results", "calls", "fewer", "unfinished before others"],
)
def test_a_turn_that_ends_otherwise_is_a_fork_of_its_session(
    store: Store, one: tuple[Step, ...], other: tuple[Step, ...]
) -> None:
    runs = [run("t", user(), *steps, session_id="s") for steps in (one, other)]
    assert [x.status for x in store.trajectories.add_many(runs, NOW)] == ["new", "new"]


def test_a_session_forgotten_within_its_first_turn_stays_away(store: Store) -> None:
    (first,) = store.trajectories.add_many([run("t", user(), _calls(), session_id="s")], NOW)
    store.lineage.forget([first.id], NOW)
    grown = run("t", user(), _calls("c0", "c1"), answer("b"), session_id="s")
    assert store.trajectories.add_many([grown], later(1)) == [(first.id, "forgotten")]


def test_what_grew_keeps_its_links_and_its_datasets(store: Store) -> None:
    half, sub = run("t", user(), _calls("c0"), session_id="s"), run("sub")
    before = run("before")
    first, child, origin = (added.id for added in store.trajectories.add_many([half, sub, before], NOW))
    store.trajectories.link([RunLink(identity=half.identity, subagents=(sub.identity,), continues=before.identity)])
    store.datasets.add(dataset("ds-1"), [first], NOW)
    store.trajectories.add_many([run("t", user(), _calls("c0", "c1"), session_id="s")], later(1))
    grown = store.trajectories.get(first)
    assert (len(grown.steps[1].observations), grown.subagents, grown.continues) == (2, (child,), origin)
    assert store.datasets.member_ids("ds-1") == [first]


def test_growth_is_seen_within_one_batch_and_a_fork_of_a_session_is_a_row_of_its_own(store: Store) -> None:
    a, b, c = (user(), answer("a")), (user(), answer("a"), user("x"), answer("b")), (user(), answer("a"), user("y"))
    added = store.trajectories.add_many([run("t", *steps, session_id="s") for steps in (a, b, c)], NOW)
    assert [x.created for x in added] == [True, False, True]
    assert added[0].id == added[1].id != added[2].id


def test_another_attempt_of_a_session_is_stored_without_reading_the_others(store: Store) -> None:
    """A part of a long session has 8 million characters, and each is compared with all before it."""
    first = run("t", user(), answer("one"), answer("b"), session_id="s")
    (stored,) = store.trajectories.add_many([first], NOW)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE trajectories SET document = 'not read'")
    other = run("t", user(), answer("two"), answer("b"), session_id="s")
    assert [one.status for one in store.trajectories.add_many([other], later(1))] == ["new"]
    with pytest.raises(Conflict, match="JSON"):  # the beginning is the same, so the whole run must be read
        store.trajectories.add_many([run("t", *first.steps, answer("c"), session_id="s")], later(2))
    assert stored.status == "new"


def test_attempts_with_keys_of_their_own_are_never_merged_as_one_session(store: Store) -> None:
    steps = (user(), answer("a"), answer("b"))
    runs = [run("t", *steps[: 2 + n], session_id="s", episode_key=f"job/t/{n}") for n in (0, 1)]
    assert [x.created for x in store.trajectories.add_many(runs, NOW)] == [True, True]


def test_replacing_a_live_recording_keeps_its_id_and_its_place(store: Store) -> None:
    begun = run("t", user(), answer("a"))
    (first,) = store.trajectories.add_many([begun], NOW)
    (second,) = store.trajectories.add_many([run("t2")], NOW)
    grown = run("t", user(), answer("a"), answer("b"), status=OutcomeStatus.FAILURE, tags=("live",), id=first.id)
    store.trajectories.grow(grown.id, lambda _: grown, later(5))
    assert store.trajectories.get(first.id) == grown
    assert [item.id for item in store.trajectories.search(TrajectoryFilter()).items] == [second.id, first.id]
    # Its old content is another run now, which the first id does not belong to.
    (again,) = store.trajectories.add_many([begun], NOW)
    assert again.created
    assert again.id.startswith(first.id)
    assert again.id != first.id
    with pytest.raises(Conflict, match=again.id):
        store.trajectories.grow(first.id, lambda _: begun, NOW)
    with pytest.raises(NotFound, match="traj-none"):
        store.trajectories.grow("traj-none", lambda stored: stored, NOW)


def test_a_missing_id_is_answered_with_the_three_newest(store: Store) -> None:
    with pytest.raises(NotFound, match="no trajectory is stored"):
        store.trajectories.get("traj-x")
    added = store.trajectories.add_many([run(f"t{i}") for i in range(4)], NOW)
    with pytest.raises(NotFound) as caught:
        store.trajectories.get("traj-x")
    assert [a.id in caught.value.message for a in added] == [False, True, True, True]


def test_every_condition_of_a_filter_selects(store: Store) -> None:
    task = Task(id="a", environment="env/a", type="sort")
    a, b, c = (
        x.id
        for moment, one in enumerate([
            run(None, task=task, job_id="job-1", agent=AgentInfo(name="ann", version="2"), tags=("x", "y"), reward=0.5),
            run("b", status=OutcomeStatus.UNKNOWN, agent=AgentInfo(name="agent:ann@3"), tags=("x",)),
            run("c", user(), answer("100% _sure_ GRÜSSE"), agent=AgentInfo(name="bob"), reward=1.0),
        ])
        for x in store.trajectories.add_many([one], later(moment))
    )  # fmt: skip
    cases: list[tuple[dict[str, object], set[str]]] = [
        ({}, {a, b, c}),
        ({"job_id": "job-1"}, {a}),
        ({"agent": "ann"}, {a, b}),
        ({"agent": "agent:ann@2"}, {a}),
        ({"agent": "ann@3"}, {b}),
        ({"agent": "agent:bob"}, {c}),
        ({"environment": "env/a"}, {a}),
        ({"task_type": "sort"}, {a}),
        ({"outcome": "unknown"}, {b}),
        ({"tags": ("x",)}, {a, b}),
        ({"tags": ("x", "y")}, {a}),
        ({"min_reward": 0.5}, {a, c}),
        ({"max_reward": 0.5}, {a}),
        ({"since": later(1)}, {b, c}),
        ({"text": "100% _sure_"}, {c}),
        ({"text": "0%_s"}, set()),
        ({"text": "grüsse"}, {c}),
        ({"text": "GRÜßE"}, {c}),
        ({"text": "observations"}, set()),
        ({"agent": "ann", "tags": ("y",), "min_reward": 0.1}, {a}),
    ]
    for conditions, expected in cases:
        assert _ids(store, **conditions) == expected, conditions
        assert store.trajectories.count(TrajectoryFilter(**conditions)) == len(expected)
        assert {t.id for t in store.trajectories.iterate(TrajectoryFilter(**conditions))} == expected


def test_a_summary_holds_what_a_list_needs(store: Store) -> None:
    agent = AgentInfo(name="ann", version="2")
    store.trajectories.add_many([run("t1", reward=0.5, tags=("b", "a"), agent=agent, job_id="job-1")], NOW)
    (item,) = store.trajectories.search(TrajectoryFilter()).items
    assert (item.agent, item.task_id, item.environment, item.prompt) == (
        "ann@2", "t1", "quintain/inventory", "Find the red box.",
    )  # fmt: skip
    assert (item.outcome, item.reward, item.steps, item.tags) == (OutcomeStatus.SUCCESS, 0.5, 2, ("a", "b"))
    assert (item.job_id, item.created_at) == ("job-1", NOW)


def test_pages_are_complete_and_stable_while_rows_are_added(store: Store) -> None:
    old = [added.id for added in store.trajectories.add_many([run(f"t{i}") for i in range(20)], NOW)]
    seen, cursor, page_no = [], None, 0
    while True:
        page = store.trajectories.search(TrajectoryFilter(), limit=5, cursor=cursor)
        seen += [item.id for item in page.items]
        cursor, page_no = page.next_cursor, page_no + 1
        store.trajectories.add_many([run(f"new{page_no}")], NOW)
        if cursor is None:
            break
    assert seen == old[::-1]
    assert page_no == 4, "the last page is full and has no cursor"


def test_a_bad_cursor_or_limit_is_named(store: Store) -> None:
    store.agents.page()
    for cursor in ("", "x", "!!", "bnVsbA", "WyJhZ2VudHMiLCA1XQ", "é"):  # the last but one: ["agents", 5]
        with pytest.raises(InvalidInput, match="bad_cursor"):
            store.trajectories.search(TrajectoryFilter(), cursor=cursor)
    for limit in (0, 201, -1):
        with pytest.raises(InvalidInput, match=rf"expected limit in 1\.\.200, got {limit}; use"):
            store.trajectories.search(TrajectoryFilter(), limit=limit)


def test_streaming_ends_where_it_began_even_if_the_reader_adds_rows(store: Store) -> None:
    old = [added.id for added in store.trajectories.add_many([run(f"t{i}") for i in range(120)], NOW)]
    seen = []
    for i, trajectory in enumerate(store.trajectories.iterate()):
        seen.append(trajectory.id)
        if i % 40 == 0:
            store.trajectories.add_many([run(f"more{i}")], NOW)
    assert seen == old


def test_iterating_over_ids_keeps_the_order_of_arrival_and_names_unknown_ids_at_once(store: Store) -> None:
    ids = [added.id for added in store.trajectories.add_many([run(f"t{i}") for i in range(4)], NOW)]
    assert [t.id for t in store.trajectories.iterate(ids=[ids[2], ids[0], ids[2]])] == [ids[0], ids[2]]
    only = TrajectoryFilter(since=later(1))
    assert list(store.trajectories.iterate(only, ids=ids)) == []
    assert list(store.trajectories.iterate(ids=[])) == []
    with pytest.raises(NotFound, match=r"'traj-a', 'traj-b'"):
        store.trajectories.iterate(ids=[ids[0], "traj-a", "traj-b"])


def test_a_copy_of_an_unchanged_trajectory_read_back_adds_nothing(store: Store) -> None:
    (first,) = store.trajectories.add_many([run("t", session_id="s")], NOW)
    stored: Trajectory = store.trajectories.get(first.id)
    assert store.trajectories.add_many([stored], later(1)) == [(first.id, "known")]


def test_batches_larger_than_a_statement_are_stored_and_read_in_parts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """45 runs in parts of 20: rows, scores and a chain of 44 preferences, stored last pair first."""
    monkeypatch.setattr(documents, "CHUNK", 20)
    runs = [run("t", user(), answer(f"answer {i}")) for i in range(45)]
    ids = [added.id for added in store.trajectories.add_many(runs, NOW)]
    assert [t.id for t in store.trajectories.iterate(ids=ids)] == ids
    store.scores.add_many([Score(trajectory_id=i, scorer="s", status="scored", value=1.0) for i in ids], NOW)
    assert set(store.scores.latest("s", ids)) == set(ids)
    ids.sort()
    chain = [Preference(a=ids[i], b=ids[i + 1], better="a", source="person") for i in reversed(range(44))]
    stored = store.preferences.add_many(chain, NOW)
    assert store.preferences.among(ids) == stored
    assert [p.a for p in store.preferences.connected_to([ids[0]])] == ids[43::-1]
    assert store.preferences.comparable([*ids, "traj-none"]) == set(ids)
