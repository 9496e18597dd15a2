"""Quality filters, the best share, samples by class, step labels and benchmark rows, each without a store."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from quintain.datasets.benchmark import benchmark_row, rank_references, reference_of
from quintain.datasets.sampling import RunValue, SampleMember, best_runs, draw_sample, run_value, task_class, top_share
from quintain.datasets.selection import Criteria, ExportCounts, ValuedRun, drop_remedy, filter_runs
from quintain.datasets.step_labels import outcome_labels, recorded_labels
from quintain.errors import InvalidInput
from quintain.records.dataset import Curation
from quintain.records.trajectory import Actor, AgentInfo, OutcomeStatus, Step, Task, Trajectory
from trajectory_runs import answer, call, run, user


def _dropped(runs: list[Trajectory], **curation: Any) -> dict[str, int]:
    tally = ExportCounts()
    kept = list(
        filter_runs((ValuedRun(r, r.outcome.reward) for r in runs), Criteria(curation=Curation(**curation)), tally)
    )
    assert len(kept) + tally.dropped.total() == tally.seen == len(runs)
    assert all("change the outcomes" not in drop_remedy(reason) for reason in tally.dropped), (
        "every reason has its remedy"
    )
    return dict(tally.dropped)


def _long(n: int, **fields: Any) -> Trajectory:
    return run(f"t{n}", user(), *(answer(str(i)) for i in range(n)), **fields)


def test_bounds_of_reward_include_their_ends_and_an_unknown_reward_meets_none() -> None:
    runs = [run(f"t{i}", reward=reward) for i, reward in enumerate([0.2, 0.5, 0.8, 1.0, None])]
    assert _dropped(runs) == {}
    assert _dropped(runs, min_reward=0.5) == {"below_min_reward": 1, "reward_unknown": 1}
    assert _dropped(runs, max_reward=0.8) == {"above_max_reward": 1, "reward_unknown": 1}
    assert _dropped(runs, min_reward=0.5, max_reward=0.8) == {
        "below_min_reward": 1,
        "above_max_reward": 1,
        "reward_unknown": 1,
    }


def test_bounds_of_length_count_agent_turns_and_include_their_ends() -> None:
    runs = [_long(n) for n in (1, 2, 3, 4)]
    assert _dropped(runs, min_steps=2, max_steps=3) == {"too_few_steps": 1, "too_many_steps": 1}


def test_bounds_of_time_are_of_the_first_step_that_states_one_and_a_run_without_meets_none() -> None:
    def at(*days: int | None) -> Trajectory:
        times = [None if day is None else datetime(2026, 11, day, 12, tzinfo=UTC) for day in days]
        return run(f"t{days}", user(), *(answer("a").model_copy(update={"timestamp": time}) for time in times))

    runs = [at(1), at(None, 2, 9), at(3), at(None)]
    assert _dropped(runs, began_since="2026-11-02", began_until="2026-11-03T12:00:00Z") == {
        "began_earlier": 1,
        "began_later": 1,
        "no_time": 1,
    }
    assert _dropped(runs, began_since="2026-11-03T14:00:00+02:00") == {"began_earlier": 2, "no_time": 1}


def test_runs_stay_by_the_models_that_wrote_them() -> None:
    """One all by m-1, one half by m-2, one by nobody knows."""
    by_step = Step(actor=Actor.AGENT, message="x", model="m-2")
    runs = [
        run("a", agent=AgentInfo(model="m-1")),
        run("b", user(), answer(), by_step, agent=AgentInfo(model="m-1")),
        run("c"),
    ]
    assert _dropped(runs, source_models=["m-*"]) == {"source_model": 1}
    assert _dropped(runs, source_models=["!m-2"]) == {"source_model": 1}
    assert _dropped(runs, source_models=["m-1"]) == {"source_model": 2}


def test_a_run_that_meets_no_bound_is_counted_once() -> None:
    bad = _long(1, reward=0.0, status=OutcomeStatus.FAILURE)
    assert _dropped([bad, bad], min_reward=0.5, min_steps=3, source_models=["x"]) == {"below_min_reward": 2}


@pytest.mark.parametrize(
    ("curation", "said"),
    [
        ({"min_reward": 1, "max_reward": 0.5}, "expected min_reward <= max_reward, got 1.0 and 0.5"),
        ({"min_steps": 3, "max_steps": 2}, "expected min_steps <= max_steps, got 3 and 2"),
        (
            {"began_since": "2026-11-02", "began_until": "2026-11-02"},
            "expected began_since < began_until, got 2026-11-02",
        ),
        ({"task_weights": {"tool_selection": 0}}, "with one above 0"),
        ({"task_weights": {"tool_selection": -1}}, "at least 0"),
        ({"task_weights": {"cooking": 1}}, "task_weights"),
        ({"task_weights": {}}, "task_weights"),
        ({"best_per": {"customer": 0}}, "best_per"),
        ({"max_rows": True}, "expected a number, got a boolean"),
        ({"min_steps": True}, "expected a number, got a boolean"),
        ({"top_share": True}, "expected a number, got a boolean"),
        ({"top_share": 0}, "top_share"),
        ({"near_duplicates": 0.4}, "near_duplicates"),
        ({"min_reward": True}, "expected a number, got a boolean"),
        ({"min_reward": float("nan")}, "min_reward"),
    ],
)
def test_bounds_that_cannot_be_met_are_refused(curation: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Curation(**curation)


def test_the_best_runs_of_each_task_stay_in_their_order_and_equal_ones_by_the_seed() -> None:
    values = [("a", 0.2), ("b", 0.1), ("a", 0.9), ("a", 0.9), ("c", None)]
    picks = [RunValue(f"r{i}", value, task=task) for i, (task, value) in enumerate(values)]
    tally = ExportCounts()
    kept = best_runs(picks, Curation(best_per_task=1), 0, tally)
    assert [(pick.task, pick.value) for pick in kept] == [("b", 0.1), ("a", 0.9), ("c", None)]
    assert tally.dropped == {"not_best_of_task": 2}
    assert best_runs(picks[:4], Curation(best_per_task=2, top_share=0.5), 0, ExportCounts()) == picks[2:4]


def test_runs_stay_by_the_number_of_each_value_of_a_field_of_their_log() -> None:
    """The field stands in the row that was imported, inside `extra`, or in the metadata of the task."""
    acme = {"customer": "acme"}
    places = [{"row": {"metadata.customer": "acme"}}, {"metadata": acme}, {"row": {"metadata.customer": "bolt"}}, {}]
    runs = [run(f"t{i}", extra=extra, session_id=f"s{i % 2}") for i, extra in enumerate(places)]
    runs.append(runs[3].model_copy(update={"task": Task(id="t4", metadata=acme)}))

    def kept(tally: ExportCounts, **fields: int) -> list[float | None]:
        curation = Curation(best_per=fields)
        picks = [run_value(one, float(i), None, curation) for i, one in enumerate(runs)]
        return [pick.value for pick in best_runs(picks, curation, 0, tally)]

    tally = ExportCounts()
    assert kept(tally, **{"metadata.customer": 1}) == [2.0, 3.0, 4.0], "the best of acme's, bolt's, and one of nobody"
    assert tally.dropped == {"not_best_per_value": 2}
    assert tally.notes == ["`curation.best_per`: 1 of 5 runs state no 'metadata.customer', and all of them stay"]
    assert kept(ExportCounts(), session_id=1, **{"metadata.customer": 2}) == [2.0, 4.0]
    with pytest.raises(InvalidInput, match="which none of 5 does"):
        kept(ExportCounts(), **{"metadata.custmer": 1})


def test_the_best_share_is_rounded_up_and_ties_are_broken_by_the_seed_not_by_the_order() -> None:
    """The best 0.3 of 10 are 3: 0.9 and two of four with 0.8."""
    picks = [RunValue(f"r{i}", value) for i, value in enumerate([0.1, 0.8, 0.8, 0.9, 0.8, 0.2, 0.3, 0.8, 0.0, 0.5])]
    tally = ExportCounts()
    kept = top_share(picks, 0.3, 0, tally)
    assert Counter(pick.value for pick in kept) == {0.9: 1, 0.8: 2}
    assert tally.dropped == {"below_top_share": 7}
    assert tally.notes == [
        "`curation.top_share=0.3` takes 3 of 10 runs, 2 of them by the seed among 4 of equal value (0.8); "
        "`curation.top_share=0.5` takes all of those"
    ]
    assert kept == [pick for pick in picks if pick in kept], "in their order"
    assert set(top_share(picks[::-1], 0.3, 0, ExportCounts())) == set(kept)
    assert len({frozenset(top_share(picks, 0.3, seed, ExportCounts())) for seed in range(20)}) > 1
    assert top_share(picks[:1], 0.01, 0, ExportCounts()) == picks[:1]
    assert top_share(picks, 0.5, 0, whole := ExportCounts())
    assert not whole.notes, "no equal run is left out"
    assert top_share(picks, 1, 0, ExportCounts()) == picks


def _members(**sizes: int) -> list[SampleMember]:
    return [SampleMember(f"{name}{i}", name) for name, n in sizes.items() for i in range(n)]


def _counts(
    members: list[SampleMember], weights: dict[str, float] | None, most: int | None, seed: int = 0
) -> dict[str, int]:
    drawn = draw_sample(members, weights, most, seed)
    assert drawn == sorted(set(drawn)), "in order, without replacement"
    return dict(Counter(members[i].group for i in drawn))


@pytest.mark.parametrize(
    ("weights", "most", "expected"),
    [
        # b, the scarcest, is used up: 10 / 0.5 = 20 rows in all.
        ({"a": 0.5, "b": 0.5}, None, {"a": 10, "b": 10}),
        # Weights are relative, and 10 / 1 = 10 units.
        ({"a": 3, "b": 1}, None, {"a": 30, "b": 10}),
        ({"a": 9, "b": 1}, 20, {"a": 18, "b": 2}),
        # b has 10 of its 20; a gives the rest.
        ({"a": 1, "b": 1}, 36, {"a": 26, "b": 10}),
        ({"a": 1, "b": 1}, 100, {"a": 30, "b": 10}),
        # A class that is not named has no weight, and one without rows takes nothing from the others.
        ({"a": 1}, None, {"a": 30}),
        ({"a": 1, "z": 5}, 8, {"a": 8}),
        ({"a": 1, "b": 0}, None, {"a": 30}),
        # 7 x 30/40 = 5.25 and 1.75 by largest remainder would be 5 and 2, but without weights all rows are one class.
        ({"a": 0.3, "b": 0.1}, 7, {"a": 5, "b": 2}),
    ],
)
def test_samples_meet_the_weights_until_a_class_is_used_up(
    weights: dict[str, float], most: int | None, expected: dict[str, int]
) -> None:
    assert _counts(_members(a=30, b=10), weights, most) == expected


def test_the_seed_of_a_sample_and_not_the_order_of_the_rows_decides() -> None:
    members = _members(a=30, b=10)
    drawn = {members[i] for i in draw_sample(members, None, 7, seed=1)}
    assert len(drawn) == 7
    assert {members[::-1][i] for i in draw_sample(members[::-1], None, 7, seed=1)} == drawn
    assert {members[i] for i in draw_sample(members, None, 7, seed=2)} != drawn
    larger = {members[i] for i in draw_sample(members, None, 9, seed=1)}
    assert drawn < larger, "a larger sample holds the smaller one"


@example({"a": 3}, {"a": 1.1125369292536007e-308}, 2)
@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 40), min_size=1),
    st.dictionaries(st.sampled_from("abcd"), st.floats(0, 10), min_size=1),
    st.integers(1, 120),
)
def test_a_sample_is_as_large_as_it_can_be(sizes: dict[str, int], weights: dict[str, float], most: int) -> None:
    members = _members(**sizes)
    counts = _counts(members, weights, most)
    there = sum(n for name, n in sizes.items() if weights.get(name, 0) > 0)
    assert sum(counts.values()) == min(most, there)
    assert all(n <= sizes[name] for name, n in counts.items())


def test_steps_that_may_not_be_trained_on_have_no_label() -> None:
    labelled = run("t", user(), Step(actor=Actor.AGENT, reward=0.25), Step(actor=Actor.AGENT, reward=0.5, train=False))
    assert recorded_labels(labelled) == (0.25, None)
    assert outcome_labels(labelled, 0.0) == (0.0, None)


def test_the_best_run_gives_the_plan_of_a_benchmark_row() -> None:
    """Two successes: the one of higher reward wins; an unknown outcome comes before a failure."""
    runs = [
        run("t", user(), call("look"), answer(), reward=0.5),
        run("t", user(), call("look"), call("take"), call("look"), reward=1.0),
        run("t", user(), answer(), reward=0.0, status=OutcomeStatus.FAILURE),
        run("t", user(), call("take"), status=OutcomeStatus.UNKNOWN),
    ]
    runs = [one.identified() for one in runs]
    references = rank_references([reference_of(one) for one in runs])
    assert [reference.trajectory_id for reference in references] == [runs[i].id for i in (1, 0, 3, 2)]
    assert [reference.success for reference in references] == [True, True, None, False]
    row = benchmark_row(runs[1], references)
    assert (row.target_tools, row.plan) == (("look", "take"), ("look", "take", "look"))
    unsolved = benchmark_row(runs[3], [reference_of(runs[3])])
    assert (unsolved.plan, unsolved.target_tools, unsolved.reward_range) == ((), (), None)


def _asked(prompt: str, *steps: Step, **fields: object) -> Trajectory:
    return run(None, user(prompt), *(steps or (call(), answer())), task=Task(prompt=prompt, **fields))  # type: ignore[arg-type]


def test_three_tools_or_eight_turns_are_planning_and_words_decide_nothing() -> None:
    """Two tools and seven turns are not: user, four calls of two tools, two answers."""
    calls = [call("look"), call("take"), call("look"), call("take")]
    assert task_class(_asked("Find it if you can", *calls, answer(), answer())) == "tool_selection"
    assert task_class(_asked("Find it", *calls, answer(), answer(), answer())) == "multi_step_planning"
    assert task_class(_asked("Find it", call("a"), call("b"), call("c"))) == "multi_step_planning"
    assert task_class(_asked("")) == "tool_selection"


def test_a_stated_class_goes_before_the_rules_and_a_mapping_before_that() -> None:
    assert task_class(_asked("Find it", type="timing_decision")) == "timing_decision"
    assert task_class(_asked("Find it", type="code", metadata={"task_type": "tool_retrieval"})) == "tool_retrieval"
    assert task_class(_asked("Find it", metadata={"task_type": ["tool_retrieval"]})) == "tool_selection"
    known = {"code": "multi_step_planning", "t1": "timing_decision"}
    assert task_class(_asked("Find it", type="code"), known) == "multi_step_planning"  # type: ignore[arg-type]
    assert task_class(_asked("Find it", id="t1", type="code"), known) == "timing_decision"  # type: ignore[arg-type]
    assert task_class(_asked("Find it", type="other"), known) == "tool_selection"  # type: ignore[arg-type]
