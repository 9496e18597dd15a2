"""Mining pairs and groups: which runs of a task each mode compares, what becomes of ties, and that everything else is counted."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.errors import InvalidInput
from quintain.scoring.preferences.mining import Candidate, Group, MinedPairs, Mode, form_groups, mine_pairs

MODES: tuple[Mode, ...] = get_args(Mode)


def _task(*values: float, task: str = "", contents: str | None = None, agents: str | None = None) -> list[Candidate]:
    """Runs `0`, `1`, ... of one task with these values, after the name of the task where it is given."""
    return [
        Candidate(task or "t", f"{task}{i}", value, contents[i] if contents else None, agents[i] if agents else "")
        for i, value in enumerate(values)
    ]


def _pairs(mined: MinedPairs) -> set[tuple[str, str]]:
    return {(pair.chosen, pair.rejected) for pair in mined.pairs}


def _ties(mined: MinedPairs) -> set[tuple[str, str]]:
    return {(tie.a, tie.b) for tie in mined.ties}


def test_every_better_run_is_preferred_where_the_margin_is_passed() -> None:
    """Worked examples.

    - Task a: 1 > 0.5 > 0 makes 3 pairs. Task b holds two equal runs: a tie is no preference.
    - 0.8 - 0.7 is 0.10000000000000009 in floats, but not more than 0.1; 0.8 - 0.6 is.
    """
    mined = mine_pairs(_task(0.5, 1.0, 0.0, task="a") + _task(1.0, 1.0, task="b"))
    assert _pairs(mined) == {("a1", "a0"), ("a1", "a2"), ("a0", "a2")}
    assert {pair.chosen + pair.rejected: pair.margin for pair in mined.pairs} == {"a1a0": 0.5, "a1a2": 1.0, "a0a2": 0.5}
    assert mined.tasks_left_out == {"no_contrast": 1}
    assert mined.runs_left_out == {"no_contrast": 2}

    mined = mine_pairs(_task(0.8, 0.7, 0.6), margin=0.1)
    assert _pairs(mined) == {("0", "2")}
    assert mined.runs_left_out == {"below_margin": 1}
    assert mine_pairs(_task(0.1 + 0.2, 0.3)).tasks_left_out == {"no_contrast": 1}


def test_why_a_task_has_no_pair() -> None:
    """Of 7 runs none is in a pair, each for the reason of its task."""
    candidates = [
        *_task(1.0, task="single"),
        *_task(0.5, 0.5, task="tied"),
        *_task(0.5, 0.6, task="near"),
        *_task(1.0, 0.0, task="same", contents="xx"),
    ]
    mined = mine_pairs(candidates, margin=0.2)
    assert mined.pairs == []
    assert mined.tasks_left_out == {"group_of_one": 1, "no_contrast": 1, "below_margin": 1, "equal_sides": 1}
    assert mined.runs_left_out == {"group_of_one": 1, "no_contrast": 2, "below_margin": 2, "equal_sides": 2}


def test_the_limit_takes_the_widest_margins_over_distinct_runs() -> None:
    """Widest of all is 1.0 > 0.0; of the runs not used yet then 0.9 > 0.1, though 1.0 > 0.1 would be wider."""
    mined = mine_pairs(_task(0.9, 0.0, 1.0, 0.1), max_pairs_per_task=2)
    assert [(pair.chosen, pair.rejected, pair.margin) for pair in mined.pairs] == [("2", "1", 1.0), ("0", "3", 0.8)]
    assert mine_pairs(_task(0.9, 0.0, 1.0, 0.1), max_pairs_per_task=1).runs_left_out == {"pair_limit": 2}


@pytest.mark.parametrize("seed", range(5))
def test_one_good_run_is_repeated_only_as_often_as_it_must_be(seed: int) -> None:
    """2 good runs, 4 bad ones, 4 pairs: each bad run once, each good one twice."""
    mined = mine_pairs(_task(1.0, 1.0, 0.0, 0.0, 0.0, 0.0), max_pairs_per_task=4, seed=seed)
    assert Counter(pair.rejected for pair in mined.pairs) == {"2": 1, "3": 1, "4": 1, "5": 1}
    assert Counter(pair.chosen for pair in mined.pairs) == {"0": 2, "1": 2}


def test_runs_of_equal_content_make_no_pair_and_take_no_place_in_the_limit() -> None:
    """The best and the worst run wrote the same; searching inwards from both ends finds the pairs that do teach."""
    mined = mine_pairs(_task(1.0, 0.9, 0.1, 0.0, contents="xyzx"), max_pairs_per_task=1)
    assert _pairs(mined) <= {("0", "2"), ("1", "3")}
    assert mined.pairs[0].margin == 0.9
    runs = _task(*[1.0] * 5, *[0.0] * 5, 0.5, contents="x" * 10 + "y")
    assert len(mine_pairs(runs, max_pairs_per_task=1).pairs) == 1
    assert mine_pairs(_task(1.0, 0.0, 0.0, contents="xxy")).runs_left_out == {"equal_sides": 1}


@pytest.mark.parametrize(("options", "said"), [({"margin": -0.1}, "got -0.1"), ({"margin": float("nan")}, "nan")])
def test_a_senseless_bound_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        mine_pairs([], **options)
    with pytest.raises(InvalidInput, match="`max_pairs_per_task` to be at least 1, got 0"):
        mine_pairs([], max_pairs_per_task=0)


def test_a_large_task_gives_the_same_margins_as_the_search_of_all_its_pairs() -> None:
    """400 runs worth i / 400: the k-th widest pair of unused runs is (399 - k) / 400 over k / 400."""
    mined = mine_pairs(_task(*[i / 400 for i in range(400)]), max_pairs_per_task=3)
    assert [(pair.chosen, pair.rejected) for pair in mined.pairs] == [("399", "0"), ("398", "1"), ("397", "2")]
    assert mined.runs_left_out == {"pair_limit": 394}


def test_groups_hold_all_runs_of_a_task_and_need_two_different_rewards() -> None:
    """Of 7 runs 3 make the one group; a single run and three equal ones teach nothing."""
    runs = _task(1.0, 0.0, task="a") + _task(0.5, task="b") + _task(0.3, 0.3, 0.3, task="c")
    formed = form_groups([*runs, Candidate("a", "a2", 0.0)])
    assert formed.groups == [Group("a", ("a0", "a1", "a2"), (1.0, 0.0, 0.0))]
    assert formed.tasks_left_out == {"group_of_one": 1, "no_variance": 1}
    assert formed.runs_left_out == {"group_of_one": 1, "no_variance": 3}


def test_each_mode_pairs_runs_by_rank() -> None:
    """Worked examples.

    - Values .1 .9 .5 .3 .7: 0.9 > 0.1 (run 1 > 0), 0.7 > 0.3 (run 4 > 3); the middle one, 0.5, is left over.
    - Sorted .1 .3 .7 .9 as runs 0 2 3 1: neighbours 2 > 0 by .2, 3 > 2 by .4, 1 > 3 by .2; by more than .2 only
      one.
    """
    mined = mine_pairs(_task(0.1, 0.9, 0.5, 0.3, 0.7), mode="outside_in")
    assert _pairs(mined) == {("1", "0"), ("4", "3")}
    assert [pair.margin for pair in mined.pairs] == [0.8, 0.4]
    assert mined.runs_left_out == {"unpaired": 1}
    near = mine_pairs(_task(0.1, 0.9, 0.5, 0.3, 0.7), mode="outside_in", margin=0.4)
    assert _pairs(near) == {("1", "0")}
    assert near.runs_left_out == {"unpaired": 1, "below_margin": 2}

    runs = _task(0.1, 0.9, 0.3, 0.7)
    assert _pairs(mine_pairs(runs, mode="adjacent")) == {("2", "0"), ("3", "2"), ("1", "3")}
    wide = mine_pairs(runs, mode="adjacent", margin=0.2)
    assert _pairs(wide) == {("3", "2")}
    assert wide.runs_left_out == {"below_margin": 2}


def test_best_of_n_is_set_against_worst_of_n_of_the_same_agent_with_another_text() -> None:
    """Worked examples.

    - Agent x: .9 .5 .2, agent y: 1 .4, agent z a single run: x gives 0 > 2, y gives 3 > 4, never 3 > 2.
    - Runs 0 (1.0) and 3 (0.0) wrote the same; the widest that differ are 0 > 2 and 1 > 3, of .9 each.
    """
    mined = mine_pairs(_task(0.9, 0.5, 0.2, 1.0, 0.4, 0.0, agents="xxxyyz"), mode="best_worst")
    assert _pairs(mined) == {("0", "2"), ("3", "4")}
    assert mined.runs_left_out == {"unpaired": 2}
    alone = mine_pairs(_task(1.0, 0.0, agents="xy"), mode="best_worst")
    assert (alone.pairs, alone.tasks_left_out) == ([], {"group_of_one": 1})

    mined = mine_pairs(_task(1.0, 0.9, 0.1, 0.0, contents="xyzx"), mode="best_worst")
    assert len(mined.pairs) == 1
    assert _pairs(mined) <= {("0", "2"), ("1", "3")}


def test_equal_values_are_a_tie_where_asked_and_come_after_pairs() -> None:
    """Worked examples.

    - Values 1 1 0 of different text: all_pairs ties 0-1; 0.1 + 0.2 and 0.3 are equal too; equal text makes no tie.
    - Values 1 1 0: 2 pairs and a tie; a limit of 2 is all pairs, of 3 all three.
    """
    runs = _task(1.0, 1.0, 0.0)
    assert mine_pairs(runs).ties == []
    mined = mine_pairs(runs, ties=True)
    assert (_pairs(mined), _ties(mined)) == ({("0", "2"), ("1", "2")}, {("0", "1")})
    noise = mine_pairs(_task(0.1 + 0.2, 0.3), ties=True)
    assert (noise.pairs, _ties(noise), noise.runs_left_out) == ([], {("0", "1")}, {})
    same = mine_pairs(_task(0.5, 0.5, contents="xx"), ties=True)
    assert (same.pairs, same.ties, same.tasks_left_out) == ([], [], {"no_contrast": 1})

    runs = _task(1.0, 1.0, 0.0)
    assert [len(mine_pairs(runs, ties=True, max_pairs_per_task=n).ties) for n in (1, 2, 3)] == [0, 0, 1]
    assert len(mine_pairs(_task(*[1.0] * 50), ties=True, max_pairs_per_task=7).ties) == 7


@pytest.mark.parametrize("mode", ["outside_in", "adjacent", "best_worst"])
def test_what_a_mode_compares_and_finds_equal_is_its_tie(mode: Mode) -> None:
    mined = mine_pairs(_task(0.5, 0.5), mode=mode, ties=True)
    assert (mined.pairs, _ties(mined)) == ([], {("0", "1")})
    assert mine_pairs(_task(0.5, 0.6), mode=mode, ties=True, margin=0.2).tasks_left_out == {"below_margin": 1}


def test_a_large_task_of_one_value_or_one_text_is_told_at_once() -> None:
    """5,000 runs would be 1.2e7 comparisons."""
    many = 5_000
    assert mine_pairs(_task(*[0.5] * many), max_pairs_per_task=4).tasks_left_out == {"no_contrast": 1}
    same = [Candidate("t", str(i), i / many, "x") for i in range(many)]
    assert mine_pairs(same, max_pairs_per_task=4).tasks_left_out == {"equal_sides": 1}


_VALUES = [0.0, 0.25, 0.5, 0.75, 1.0]
_RUNS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(_VALUES), st.sampled_from("uvw"), st.sampled_from("xy")),
    max_size=24,
).map(lambda found: [Candidate(task, str(i), value, text, who) for i, (task, value, text, who) in enumerate(found)])
_OPTIONS = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(MODES),
        "margin": st.sampled_from([0.0, 0.25, 0.5]),
        "max_pairs_per_task": st.sampled_from([None, 1, 2, 5]),
        "ties": st.booleans(),
        "seed": st.integers(0, 3),
    }
)


@given(_RUNS, _OPTIONS)
def test_every_pair_is_of_one_task_passes_the_margin_and_all_runs_are_counted(
    runs: list[Candidate], options: dict[str, Any]
) -> None:
    mined = mine_pairs(runs, **options)
    known = {run.trajectory_id: run for run in runs}
    per_task: Counter[str] = Counter()
    used: set[str] = set()
    for pair in mined.pairs:
        chosen, rejected = known[pair.chosen], known[pair.rejected]
        assert chosen.task == rejected.task == pair.task
        assert chosen.value - rejected.value == pair.margin > options["margin"]
        assert chosen.content != rejected.content
        assert options["mode"] != "best_worst" or chosen.agent == rejected.agent
    for tie in mined.ties:
        assert options["ties"]
        assert known[tie.a].value == known[tie.b].value
        assert known[tie.a].content != known[tie.b].content
    both = [(pair.task, pair.chosen, pair.rejected) for pair in mined.pairs] + [tuple(tie) for tie in mined.ties]
    for task, *sides in both:
        per_task[task] += 1
        used.update(sides)
    assert len({frozenset(sides) for _, *sides in both}) == len(both)
    assert options["max_pairs_per_task"] is None or max(per_task.values(), default=0) <= options["max_pairs_per_task"]
    assert len(used) + mined.runs_left_out.total() == len(runs)
    assert len(per_task) + mined.tasks_left_out.total() == len({run.task for run in runs})
    if options["mode"] == "all_pairs":
        beaten = Counter(
            one.task
            for one, other in permutations(runs, 2)
            if one.task == other.task and one.value - other.value > options["margin"] and one.content != other.content
        )
        most = options["max_pairs_per_task"] or len(runs) ** 2
        assert Counter(pair.task for pair in mined.pairs) == {task: min(most, n) for task, n in beaten.items()}


@given(_RUNS, _OPTIONS, st.randoms(use_true_random=False))
def test_the_order_of_the_runs_changes_nothing(runs: list[Candidate], options: dict[str, Any], random: Any) -> None:
    shuffled = list(runs)
    random.shuffle(shuffled)
    one, other = mine_pairs(runs, **options), mine_pairs(shuffled, **options)
    assert set(one.pairs) == set(other.pairs)
    assert set(one.ties) == set(other.ties)
    assert (one.runs_left_out, one.tasks_left_out) == (other.runs_left_out, other.tasks_left_out)


@pytest.mark.parametrize("mode", MODES)
def test_another_seed_breaks_ties_of_rank_in_another_way(mode: Mode) -> None:
    runs = _task(1.0, 1.0, 0.0, 0.0)
    found = {frozenset(_pairs(mine_pairs(runs, mode=mode, seed=seed, max_pairs_per_task=1))) for seed in range(20)}
    assert len(found) > 1
