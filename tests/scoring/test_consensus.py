"""What several raters say together."""

from __future__ import annotations

from typing import Any

import pytest

from quintain.records.labels.preference import Preference
from quintain.scoring.preferences.consensus import circles, consensus, disagreements
from quintain.scoring.preferences.mining import Pair


def _said(a: str, b: str, rater: str = "person", better: str = "a", **more: Any) -> Preference:
    return Preference(**({"a": a, "b": b, "better": better, "source": "person", "rater": rater} | more))


def test_the_majority_decides_and_weighs_as_its_share() -> None:
    """Two of three prefer x to y, by .4 and .2 (mean .3): weight 2/3; the third said the opposite, under the other order."""
    said = [_said("x", "y", "1", margin=0.4), _said("y", "x", "2", "b", margin=0.2), _said("y", "x", "3", margin=0.9)]
    found = consensus(said, {"x": "task", "y": "task"})
    assert found.pairs == [Pair("task", "x", "y", pytest.approx(0.3), None, pytest.approx(2 / 3))]
    assert (found.ties, found.undecided, found.disagreements) == ([], [], 1)


@pytest.mark.parametrize(
    ("words", "pairs", "ties", "undecided"),
    [
        ("a", 1, 0, 0),
        ("t", 0, 1, 0),
        ("ab", 0, 0, 1),
        ("at", 0, 0, 1),
        ("aat", 1, 0, 0),
        ("att", 0, 1, 0),
        ("aabb", 0, 0, 1),
    ],
)
def test_a_tie_is_a_vote_and_an_even_split_is_no_verdict(words: str, pairs: int, ties: int, undecided: int) -> None:
    better = {"a": "a", "b": "b", "t": "tie"}
    said = [_said("x", "y", str(i), better[word]) for i, word in enumerate(words)]
    found = consensus(said, {})
    assert (len(found.pairs), len(found.ties), len(found.undecided)) == (pairs, ties, undecided)
    assert found.disagreements == disagreements(said) == (len(set(words)) > 1)


def test_single_steps_and_whole_runs_are_questions_of_their_own() -> None:
    found = consensus([_said("x", "y"), _said("x", "y", better="b", step=2)], {})
    assert {(pair.chosen, pair.step) for pair in found.pairs} == {("x", None), ("y", 2)}
    assert found.disagreements == 0


def test_circles_are_found_in_the_order_of_preference() -> None:
    """a > b > c > a; d > a hangs on it and is no part; x > y > x by two raters is an even split and no circle."""
    circle_of_three = [_said("a", "b"), _said("b", "c"), _said("c", "a")]
    said = [*circle_of_three, _said("d", "a"), _said("x", "y", "1"), _said("y", "x", "2")]
    (circle,) = circles(said)
    start = circle.index("a")
    assert circle[start:] + circle[:start] == ("a", "b", "c")
    assert circles(said[:2]) == []
    assert circles([*said[:2], _said("c", "a", step=0)]) == [], "single steps make no circle of runs"
    assert circles([*said[:2], _said("c", "a", better="tie")]) == []
    several = [_said(f"{n}{pair.a}", f"{n}{pair.b}") for n in range(5) for pair in circle_of_three]
    assert (len(circles(several)), len(circles(several, limit=2))) == (5, 2)
