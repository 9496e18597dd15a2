"""Scorers with numbers derived by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.errors import InvalidInput, NotFound
from quintain.records.trajectory import Action, Actor, OutcomeStatus, Step, Trajectory
from quintain.rewards.registry import scorer, scorer_names
from trajectory_runs import answer, call, run, user


def _parts(trajectory: Trajectory) -> dict[str, float | None]:
    return {part.name: part.value for part in scorer("rules").score(trajectory).components}


@pytest.mark.parametrize(
    ("status", "value"),
    [
        (OutcomeStatus.SUCCESS, 1.0),
        (OutcomeStatus.FAILURE, 0.0),
        (OutcomeStatus.TRUNCATED, 0.0),
        (OutcomeStatus.UNKNOWN, None),
        (OutcomeStatus.ERROR, None),
    ],
)
def test_an_outcome_without_a_verdict_is_unscored_and_never_zero(status: OutcomeStatus, value: float | None) -> None:
    trajectory = run(status=status)
    score = scorer("outcome").score(trajectory)
    assert score.value == value
    assert score.status == ("unscored" if value is None else "scored")
    assert score.trajectory_id == trajectory.identified().id
    assert value is not None or status.value in (score.reason or "")


def test_rules_on_a_run_with_every_fault() -> None:
    """Six agent steps, the last an answer in text.

    format: 5 steps had to call; unknown tool, unreadable args and the step without call are 3 faults: 2/5.
    repetition: 4 calls look{}, look{}, fly{}, take(raw): one repeats: 1 - 1/3 = 2/3.
    errors: 3 observations, one error: 2/3. Value: (2/5 + 2/3 + 2/3) / 3 = 26/45.
    """
    broken = Step(actor=Actor.AGENT, actions=(Action(tool="take", args=None, raw_args="{oops"),))
    babble = Step(actor=Actor.AGENT, message="I will now look.")
    steps = (user(), call(), call(), call("fly", "no such tool", is_error=True), broken, babble, user("?"), answer())
    score = scorer("rules").score(run("t", *steps))
    assert {part.name: part.value for part in score.components} == pytest.approx(
        {"format": 2 / 5, "repetition": 2 / 3, "errors": 2 / 3}
    )
    assert score.value == pytest.approx(26 / 45)
    assert score.feedback.startswith(
        "Weakest: format. 2 of 5 steps wrote readable calls; the first: unknown tool 'fly'"
    )


def test_a_clean_run_scores_one() -> None:
    score = scorer("rules").score(run("t", user(), call(item="a"), call("take", item="a"), answer()))
    assert score.value == 1.0


def test_repetition_needs_the_same_call_with_nothing_between() -> None:
    """a b a b repeats nothing; a a a repeats all: 1 - 2/2 = 0; argument order does not make a call another one."""
    a, b = call("look", x=1), call("look", x=2)
    assert _parts(run("t", a, b, a, b))["repetition"] == 1.0
    assert _parts(run("t", a, a, a))["repetition"] == 0.0
    assert _parts(run("t", call(x=1, y=2), call(y=2, x=1)))["repetition"] == 0.0
    assert _parts(run("t", a))["repetition"] == 1.0


def test_an_unreadable_last_turn_that_the_environment_complained_about_is_no_answer() -> None:
    """The same words end one run (an answer: 1/1) and fail in the other (a call was due: 1/2)."""
    assert _parts(run("t", user(), call(), answer("hm")))["format"] == 1.0
    assert _parts(run("t", user(), call(), answer("hm"), user("Your turn could not be read.")))["format"] == 0.5


def test_tool_names_are_unchecked_where_the_run_lists_no_tools() -> None:
    assert _parts(run("t", user(), call("fly"), answer(), tools=()))["format"] == 1.0


def test_a_plain_conversation_is_unscored_by_the_rules() -> None:
    score = scorer("rules").score(run("t", user(), answer("Hi."), tools=()))
    assert (score.status, score.value) == ("unscored", None)
    assert [part.value for part in score.components] == [None, None, None]


def test_a_mix_is_the_weighted_mean_with_normalised_weights() -> None:
    """outcome 1, rules 1/2 by format 1/2, repetition 0, errors 1; (3 x 1 + 1 x 1/2) / 4 = 7/8."""
    steps = (user(), call(), call(), answer("hm"), user("?"), answer("hm"), user("?"))
    score = scorer({"rules": 1, "outcome": 3}).score(run("t", *steps))
    assert score.value == pytest.approx(7 / 8)
    assert [(p.name, p.weight, p.value) for p in score.components] == [("outcome", 0.75, 1.0), ("rules", 0.25, 0.5)]
    assert score.scorer == "mix(outcome=3, rules=1)"


def test_an_unscored_part_with_weight_makes_the_mix_unscored() -> None:
    unknown = run(status=OutcomeStatus.UNKNOWN)
    score = scorer({"outcome": 0.4, "rules": 0.6}).score(unknown)
    assert (score.status, score.value) == ("unscored", None)
    assert score.reason == "outcome: the outcome is unknown, which is no verdict"
    assert scorer({"outcome": 0, "rules": 0.6}).score(unknown).value == 1.0


@given(st.floats(0, 1e6), st.floats(1e-6, 1e6), st.sampled_from(OutcomeStatus))
def test_a_mix_stays_in_bounds(first: float, second: float, status: OutcomeStatus) -> None:
    score = scorer({"outcome": first, "rules": second}).score(run(status=status))
    assert score.value is None or 0 <= score.value <= 1
    assert math.fsum(part.weight for part in score.components) == pytest.approx(1)


def test_scorers_are_known_by_name() -> None:
    assert scorer_names() == ["outcome", "rules"]
    assert [scorer(name).name for name in scorer_names()] == scorer_names()
    for unknown in ("judge", {"outcome": 1, "judge": 1}):
        with pytest.raises(NotFound, match=r"'judge'; known scorers: outcome, rules"):
            scorer(unknown)


@pytest.mark.parametrize(
    "mix", [{}, {"outcome": 0}, {"outcome": -1}, {"outcome": float("nan")}, {"outcome": True}, {"outcome": "1"}]
)
def test_a_mix_with_senseless_weights_is_refused(mix: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        scorer(mix)
