from __future__ import annotations

import json
import re
from typing import Any

import pytest

from quintain.records.labels.judging import Criterion, Rubric
from quintain.scoring.judges.answer_parsing import read_preference, read_ranking, read_verdict
from quintain.scoring.judges.crediting import score_of
from quintain.scoring.judges.shown_run import show_run
from trajectory_runs import call, run, user

RUBRIC = Rubric(
    name="r",
    criteria=(Criterion(name="depth", description="?", weight=3), Criterion(name="tone", description="?", weight=1)),
)
GOOD = '{"scores": {"depth": 0.5, "tone": 1}, "rationale": "fine"}'


@pytest.mark.parametrize(
    "answer", [GOOD, f"  {GOOD}\n", f"```json\n{GOOD}\n```", f"```\n{GOOD}```", f"<think>\nhm {{}}\n</think>\n{GOOD}"]
)
def test_one_json_object_is_read_fenced_or_not(answer: str) -> None:
    """(3 * 0.5 + 1 * 1) / 4 = 0.625."""
    score = score_of(read_verdict(answer, RUBRIC, 2), RUBRIC, "traj-1", rater="endpoint:x")
    assert (score.status, score.value, score.feedback) == ("scored", 0.625, "fine")
    assert (score.scorer, score.rater) == ("judge", "endpoint:x")
    assert [(c.name, c.weight, c.value) for c in score.components] == [("depth", 3, 0.5), ("tone", 1, 1)]


BAD = [
    ("", "empty"),
    ("I would say 0.9.", "prose"),
    (f"Here it is: {GOOD}", "prose"),
    (f"{GOOD} I hope this helps", "more than one"),
    (f"```json\n{GOOD}\n```\nand\n```json\n{GOOD}\n```", "more than one"),
    (GOOD[:-20], "middle"),
    ('{"scores": {"depth": 0.5, "tone": 1},}', "not valid JSON"),
    ("[0.5, 1]", "prose"),
    ('{"scores": {"depth": 1.2, "tone": 1}}', "out of the range"),
    ('{"scores": {"depth": -0.1, "tone": 1}}', "out of the range"),
    ('{"scores": {"depth": NaN, "tone": 1}}', "NaN"),
    ('{"scores": {"depth": 1e999, "tone": 1}}', "out of the range"),
    ('{"scores": {"depth": true, "tone": 1}}', "True"),
    ('{"scores": {"depth": "0.5", "tone": 1}}', "number from 0 to 1"),
    ('{"scores": {"depth": null, "tone": 1}}', "number from 0 to 1"),
    ('{"scores": {"depth": 0.5, "depth": 1, "tone": 1}}', "duplicate"),
    ('{"scores": {"depht": 0.5, "tone": 1}}', "unknown criterion 'depht' .did you mean 'depth'"),
    ('{"scores": [0.5, 1]}', "expected an object"),
    ('{"scores": {"depth": {"value": 0.5, "why": ""}, "tone": 1}}', "scores.depth has the unknown key 'why'"),
    ('{"scores": {"depth": {"quotes": []}, "tone": 1}}', "scores.depth.value: expected a number"),
    ('{"scores": {"depth": {"quotes": [1], "value": 1}, "tone": 1}}', "scores.depth.quotes: expected a list of texts"),
    ('{"scores": {"depth": 0.5, "tone": 1}, "overall": 1}', "unknown key 'overall'"),
    ('{"rationale": "good"}', "no 'scores'"),
    ('{"scores": {"depth": 0.5, "tone": 1}, "rationale": 3}', "rationale"),
    ('{"a":' * 5000, "middle|nested"),
    ('{"scores": {"depth": ' + "1" * 5000 + "}}", "digits|range"),
]


@pytest.mark.parametrize(("answer", "says"), BAD)
def test_an_answer_of_another_form_is_a_failure_with_its_reason_and_never_a_number(answer: str, says: str) -> None:
    verdict = read_verdict(answer, RUBRIC, 2)
    assert verdict.failed is not None
    assert re.search(says, verdict.failed), verdict.failed
    assert (verdict.scores, verdict.steps) == ({}, {})
    score = score_of(verdict, RUBRIC, "traj-1")
    assert (score.status, score.value) == ("unscored", None)
    assert score.reason is not None
    assert verdict.failed in score.reason


def test_a_missing_criterion_leaves_the_run_unscored_and_is_named_for_steps_too() -> None:
    verdict = read_verdict('{"scores": {"depth": 1}}', RUBRIC, 2)
    assert (verdict.failed, verdict.scores) == (None, {"depth": 1})
    score = score_of(verdict, RUBRIC, "traj-1")
    assert (score.status, score.reason) == ("unscored", "the judge gave no value for 'tone'")
    assert [(c.name, c.value) for c in score.components] == [("depth", 1), ("tone", None)]

    verdict = read_verdict(steps(s0={"depth": 1, "tone": 1}, s1={"depth": 1}), RUBRIC, 2, mode="steps")
    score = score_of(verdict, RUBRIC, "traj-1")
    assert (score.status, score.reason) == ("unscored", "the judge gave no value for 'tone'")
    assert [step.value for step in score.steps] == [1.0, None]


def test_an_object_is_read_as_strictly_as_a_text() -> None:
    assert read_verdict({"scores": {"depth": 1, "tone": 0}}, RUBRIC, 2).scores == {"depth": 1, "tone": 0}
    bad: list[dict[str, Any]] = [
        {"scores": {"depth": float("nan"), "tone": 0}},
        {"scores": {"depth": True, "tone": 0}},
        {"scores": {"depth": 2, "tone": 0}},
    ]
    assert all(read_verdict(answer, RUBRIC, 2).failed for answer in bad)


def steps(**given: Any) -> str:
    return json.dumps({"steps": {key.removeprefix("s"): value for key, value in given.items()}})


def test_steps_are_valued_one_by_one_and_the_run_is_their_mean() -> None:
    """Step 0: (3 * 1 + 0) / 4 = 0.75; step 1: nothing to judge; step 2: 0.25; their mean is 0.5."""
    answer = steps(s0={"depth": 1, "tone": 0}, s1=None, s2={"depth": 0, "tone": 1})
    verdict = read_verdict(answer, RUBRIC, 3, mode="steps")
    score = score_of(verdict, RUBRIC, "traj-1")
    assert (score.value, [step.value for step in score.steps]) == (0.5, [0.75, None, 0.25])
    assert score.steps[1].feedback == "nothing to judge"
    assert score.steps[0].parts == {"depth": 1, "tone": 0}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (steps(s0={"depth": 1, "tone": 1}), "lacks step 1"),
        (steps(s0=None, s1=None), "no step has a value"),
        (steps(s0={"depth": 1, "tone": 1}, s1=None, s2=None), "step 2, which does not exist"),
        (steps(s0={"depth": 1, "tone": 1}, **{"s-1": None}), "number of a step"),
        (steps(s0={"depth": 1, "tone": 1}, s01=None), "number of a step"),
        (steps(s0={"depth": 1, "tone": 1}, s1=0.5), "expected an object"),
        (GOOD, "no 'steps'"),
    ],
)
def test_a_step_that_is_missing_or_does_not_exist_fails_the_answer(answer: str, says: str) -> None:
    assert says in (read_verdict(answer, RUBRIC, 2, mode="steps").failed or "")


def test_steps_that_were_not_shown_have_no_value_and_may_get_none() -> None:
    view = show_run(run("t1", user(), *(call("look", "x " * 400) for _ in range(60))), budget_chars=6000)
    given = {str(step): {"depth": 1, "tone": 1} for step in view.steps}
    verdict = read_verdict({"steps": given}, RUBRIC, view.n_steps, mode="steps", steps=view.steps)
    score = score_of(verdict, RUBRIC, "traj-1", view=view)
    assert len(score.steps) == 60
    assert {step.step for step in score.steps if step.value is not None} == set(view.steps)
    assert "[shortened] The judge saw" in score.feedback
    hidden = next(step for step in range(60) if step not in view.steps)
    more = {**given, str(hidden): {"depth": 1, "tone": 1}}
    failed = read_verdict({"steps": more}, RUBRIC, 60, mode="steps", steps=view.steps).failed
    assert failed == f"'steps' has step {hidden}, which was not shown"


@pytest.mark.parametrize(("given", "wanted"), [("A", "a"), ("b", "b"), ("tie", "tie"), (" Tie ", "tie")])
def test_a_preference_is_one_of_three_words(given: str, wanted: str) -> None:
    assert read_preference(json.dumps({"better": given, "rationale": "r"})).better == wanted


@pytest.mark.parametrize(
    "answer", ['{"better": "C"}', '{"better": 1}', "{}", '{"better": "A", "why": ""}', "A is better"]
)
def test_any_other_preference_is_a_failure(answer: str) -> None:
    found = read_preference(answer)
    assert found.places == ()
    assert found.failed


def test_a_ranking_has_each_run_once_and_shared_places() -> None:
    assert read_ranking('{"ranking": [[2], [1, 3]]}', 3).places == ((1,), (0, 2))
    assert read_ranking('{"ranking": [2, "1", 3]}', 3).places == ((1,), (0,), (2,))


@pytest.mark.parametrize(
    "ranking",
    ["[[1], [2]]", "[[1], [2], [2]]", "[[1], [2], [4]]", "[[0], [1], [2]]", '"1>2>3"', "[[1], [2], [true]]", "[]"],
)
def test_any_other_ranking_is_a_failure(ranking: str) -> None:
    found = read_ranking(f'{{"ranking": {ranking}}}', 3)
    assert (found.places, bool(found.failed)) == ((), True)
