"""Forks: the same beginning, a different action, a different value; found in time linear in the steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quintain.records.trajectory import Action, Actor, Observation, Step, Trajectory
from quintain.scoring.preferences.forks import Fork, MinedForks, Path, fork_step, mine_forks, path_of
from trajectory_runs import answer, call, run, user


def _path(name: str, value: float, *steps: Step, task: str = "t") -> Path:
    return path_of(_run(name, *steps), task, value)


def _run(name: str, *steps: Step) -> Trajectory:
    return run("t", user(), *steps, id=f"traj-{name}")


def _said(forks: Sequence[Fork]) -> set[tuple[int, str, str, float]]:
    """Step, run of the better branch, run of the worse one (by name), difference."""
    return {(f.step, f.better.trajectory_id[5:], f.worse.trajectory_id[5:], f.margin) for f in forks}


def test_two_runs_fork_where_they_first_act_differently() -> None:
    """Both look at the box and see the same; then a takes the box and succeeds, b takes the key and fails: step 1."""
    mined = mine_forks(
        [
            _path("a", 1.0, call("look", "red"), call("take", item="box"), answer("done")),
            _path("b", 0.0, call("look", "red"), call("take", item="key"), answer("done")),
        ]
    )
    assert _said(mined.forks) == {(1, "a", "b", 1.0)}
    assert (mined.ties, mined.forks_left_out, mined.runs_left_out) == ([], {}, {})


def test_what_the_environment_answered_and_what_was_thought_is_part_of_the_beginning() -> None:
    """After another answer, thought, message or prompt of the user the next action is not comparable; times and ids do not matter."""
    bad = (call("look", "red"), call("take", item="key"))
    for other in (
        (call("look", "blue"), call("take", item="box")),
        (call("look", "red", is_error=True), call("take", item="box")),
        (call("look", "red").model_copy(update={"thought": "hm"}), call("take", item="box")),
        (call("look", "red").model_copy(update={"message": "I look."}), call("take", item="box")),
        (call("look", "red"), user("And now?"), call("take", item="box")),
    ):
        mined = mine_forks([_path("a", 1.0, *other), _path("b", 0.0, *bad)])
        assert mined.forks == []
        assert mined.runs_left_out == {"no_fork": 2}
    named = Step(
        actor=Actor.AGENT,
        actions=(Action(tool="look", args={}, call_id="c7"),),
        observations=(Observation(content="red", call_id="c7"),),
        reward=0.5,
        model="m",
    )
    assert _said(mine_forks([_path("a", 1.0, named, call("take", item="box")), _path("b", 0.0, *bad)]).forks) == {
        (1, "a", "b", 1.0)
    }


def test_the_value_of_a_branch_is_the_mean_of_all_runs_through_it() -> None:
    """look: 1, 1, 0 -> 2/3 by 3 runs; take: 0, 1, 0, 0 -> 1/4 by 4. The best run of the one, the worst of the other."""
    runs = [_path(f"l{i}", v, call("look"), answer(str(i))) for i, v in enumerate((1.0, 1.0, 0.0))]
    runs += [_path(f"t{i}", v, call("take"), answer(str(i))) for i, v in enumerate((0.0, 1.0, 0.0, 0.0))]
    mined = mine_forks(runs)
    (fork,) = (fork for fork in mined.forks if fork.step == 0)
    assert fork.margin == round(2 / 3 - 1 / 4, 9)
    assert (fork.better.value, fork.better.runs, fork.worse.value, fork.worse.runs) == (round(2 / 3, 9), 3, 0.25, 4)
    assert fork.better.trajectory_id in {"traj-l0", "traj-l1"}
    assert fork.worse.trajectory_id in {"traj-t0", "traj-t2", "traj-t3"}
    # After `look` three answers part (1, 1, 0): one is matched; after `take` four (0, 1, 0, 0): one, and a tie.
    assert [fork.step for fork in mined.forks].count(1) == 2
    assert mined.forks_left_out == {"no_contrast": 1}
    widest = mine_forks(runs, max_pairs_per_task=1)
    assert [fork.margin for fork in widest.forks] == [1.0]
    assert widest.forks_left_out == {"pair_limit": 2, "no_contrast": 1}


def test_branches_are_matched_from_best_and_worst_inwards_within_one_task() -> None:
    """Five ways worth 0, .25, .5, .75, 1: 1 over 0 and .75 over .25; the middle one is matched with none."""
    runs = [_path(str(i), i / 4, call("take", item=str(i))) for i in range(5)]
    assert _said(mine_forks(runs).forks) == {(0, "4", "0", 1.0), (0, "3", "1", 0.5)}
    narrow = mine_forks(runs, margin=0.5)
    assert _said(narrow.forks) == {(0, "4", "0", 1.0)}
    assert narrow.forks_left_out == {"below_margin": 1}

    runs = [_path("a", 1.0, call("look")), _path("b", 1.0, call("take"))]
    assert mine_forks(runs).forks_left_out == {"no_contrast": 1}
    (tie,) = mine_forks(runs, ties=True).ties
    assert (tie.step, tie.margin) == (0, 0.0)

    mined = mine_forks([_path("a", 1.0, call("look"), task="t"), _path("b", 0.0, call("take"), task="u")])
    assert (mined.forks, mined.runs_left_out) == ([], {"group_of_one": 2})


def test_a_step_that_may_not_be_trained_on_is_no_branch_but_part_of_the_beginning() -> None:
    copied = call("look").model_copy(update={"copied_context": True})
    masked = call("take").model_copy(update={"train": False})
    assert mine_forks([_path("a", 1.0, copied), _path("b", 0.0, masked)]).forks == []
    both = [
        _path("a", 1.0, copied, call("take", item="box")),
        _path("b", 0.0, call("look"), call("take", item="key")),
    ]
    assert _said(mine_forks(both).forks) == {(1, "a", "b", 1.0)}


def test_where_two_runs_part_is_found_as_the_tree_finds_it() -> None:
    base = (call("look", "red"), call("take", item="box"))
    assert fork_step(_run("a", *base), _run("b", call("look", "red"), call("take", item="key"))) == 1
    assert fork_step(_run("a", *base), _run("b", call("look", "blue"), call("take", item="key"))) is None
    assert fork_step(_run("a", *base), _run("b", *base)) is None
    assert fork_step(_run("a", *base), _run("b", *base, answer())) is None, "one goes on where the other ends"
    other = call("look", "red").model_copy(update={"thought": "hm"})
    assert fork_step(_run("a", *base), _run("b", other, *base[1:])) == 0, "a rater may prefer a thought"


_ACTS = st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("12")), min_size=1, max_size=4)
_PATHS = st.lists(st.tuples(st.sampled_from("tu"), _ACTS, st.sampled_from([0.0, 0.5, 1.0])), max_size=12).map(
    lambda found: [
        (task, str(i), [call(tool, seen) for tool, seen in acts], value) for i, (task, acts, value) in enumerate(found)
    ]
)


@given(_PATHS, st.sampled_from([0.0, 0.25, 0.5]), st.randoms(use_true_random=False))
def test_forks_are_of_one_task_truly_shared_and_independent_of_the_order(
    runs: list[tuple[str, str, list[Step], float]], margin: float, random: Any
) -> None:
    paths = [_path(name, value, *steps, task=task) for task, name, steps, value in runs]
    steps_of = {f"traj-{name}": (task, steps) for task, name, steps, _ in runs}
    mined = mine_forks(paths, margin=margin)
    for fork in mined.forks:
        (task, better), (other, worse) = steps_of[fork.better.trajectory_id], steps_of[fork.worse.trajectory_id]
        assert task == other == fork.task
        assert better[: fork.step] == worse[: fork.step]
        assert better[fork.step].actions != worse[fork.step].actions
        assert fork.margin > margin
        through = [
            value
            for of, _, steps, value in runs
            if of == task
            and steps[: fork.step] == better[: fork.step]
            and len(steps) > fork.step
            and steps[fork.step].actions == better[fork.step].actions
        ]
        assert fork.better.runs == len(through)
        assert abs(fork.better.value - sum(through) / len(through)) < 1e-9
    shuffled = list(paths)
    random.shuffle(shuffled)
    again = mine_forks(shuffled, margin=margin)
    assert set(again.forks) == set(mined.forks)
    assert (again.forks_left_out, again.runs_left_out) == (mined.forks_left_out, mined.runs_left_out)


def test_a_task_of_many_runs_is_walked_once() -> None:
    """10,000 runs part at their first step: compared with each other they would be 5e7 pairs."""
    n = 10_000
    paths = [Path("t", str(i), i / n, b"p" * 8 + i.to_bytes(8, "big")) for i in range(1, n + 1)]
    mined: MinedForks = mine_forks(paths, max_pairs_per_task=10)
    assert [fork.margin for fork in mined.forks[:2]] == [round((n - 1) / n, 9), round((n - 3) / n, 9)]
    assert mined.forks_left_out == {"pair_limit": n // 2 - 10}
