"""Credit of a judge: what a quote proves, and what the control takes off."""

from __future__ import annotations

import json
from typing import Any

import pytest
from benchmarks.judges import CLEAN, TEXTS, ignoring_marks, respecting_marks, value_after

from quintain.records.labels.judging import Criterion, JudgeControl, JudgingMode, Rubric
from quintain.records.score import Score
from quintain.scoring.judges.answer_parsing import read_verdict
from quintain.scoring.judges.datamarking import datamark, mark_of
from quintain.scoring.judges.empty_run_control import Control, control_of
from quintain.scoring.judges.judging_items import Rater, conclude, control_from, item_of
from quintain.scoring.judges.shown_run import show_run
from scripted_judges import scored, stepped
from trajectory_runs import answer, call, run, user

MARK = mark_of(77)
RUBRIC = Rubric(
    name="r",
    criteria=(Criterion(name="depth", description="?", weight=3), Criterion(name="tone", description="?", weight=1)),
)
NAMES = ("depth", "tone")
RUN = run(
    "t1",
    user("Please hurry."),
    call("write", "ok, 2 lines\n| a | b |", text='He said: "no"\nand left'),
    answer("I found it in 字字字字字字字字字字 42 seconds.\n42"),
).model_copy(update={"id": "traj-1"})


@pytest.mark.parametrize(
    ("quote", "step"),
    [
        ("ok, 2 lines", 0),
        ("ok,   2\nlines | a | b |", 0),
        ("| ok, 2 lines\n| | a | b |", 0),
        (datamark("| I found it in", MARK).removeprefix(f"|{MARK}"), 1),
        ("I found it in 字字字字字字字字字字", 1),
        ('He said: "no"\nand left', 0),
        ('He said: \\"no\\"\\nand left', 0),
        ("42", 1),
    ],
)
def test_a_quote_stands_with_its_mark_its_escapes_and_its_line_breaks_or_without(quote: str, step: int) -> None:
    passages = show_run(RUN).passages
    assert passages.has(quote)
    assert passages.has(quote, step)
    assert not passages.has(quote, 1 - step)


@pytest.mark.parametrize("quote", ["", "  ", "found", "4", "I found it at", "Please hurry.", "Find the red box."])
def test_no_quote_is_an_empty_a_short_or_a_changed_one_nor_the_words_of_task_and_user(quote: str) -> None:
    assert not show_run(RUN).passages.has(quote)


def judged(answer: str, mode: JudgingMode = "score", control: Control | None = None) -> Score:
    (score,) = conclude(item_of([RUN], mode, RUBRIC, MARK), [answer], Rater("endpoint:x", "endpoint"), control).scores
    return score


def test_a_value_above_0_needs_a_quote_of_its_run_or_step() -> None:
    assert judged(scored(NAMES, 0.8, "nowhere to be read", "I found it in")).value == 0.8
    assert judged(scored(NAMES, 0.0)).value == 0.0
    missing = judged(json.dumps({"scores": {"depth": {"value": 0.5, "quotes": ["I found it in"]}, "tone": 0.5}}))
    assert (missing.value, missing.reason) == (None, "no quote of the judge for 'tone' is in the run")
    assert [(part.name, part.value, part.feedback) for part in missing.components] == [
        ("depth", 0.5, '"I found it in"'),
        ("tone", None, ""),
    ]

    good = judged(stepped(NAMES, {0: 0.5, 1: 1.0}, {0: "ok, 2 lines", 1: "I found it in"}), "steps")
    assert (good.value, [step.feedback for step in good.steps]) == (0.75, ['"ok, 2 lines"', '"I found it in"'])
    bad = judged(stepped(NAMES, {0: 0.5, 1: 1.0}, {0: "I found it in", 1: "I found it in"}), "steps")
    assert (bad.value, bad.reason) == (None, "the judge quotes for some steps what is not in them")
    assert [step.value for step in bad.steps] == [None, 1.0]

    passages = show_run(RUN).passages
    assert read_verdict({"scores": {"depth": 1, "tone": 0.5}}, RUBRIC, 2, passages=passages).failed is None
    wrong: dict[str, Any] = {"scores": {"depth": {"quotes": ["I found nothing"], "value": 1}, "tone": 0}}
    failed = read_verdict(wrong, RUBRIC, 2, passages=passages).failed
    assert failed == "scores.depth quotes 'I found nothing', which is not in the run as shown"


def test_the_control_of_a_task_is_the_same_for_its_runs_and_that_of_a_run_keeps_its_observations() -> None:
    other = run("t1", user("Please hurry."), answer("Nothing."))
    assert control_of(RUN, "task").steps == control_of(other, "task").steps
    own = show_run(control_of(RUN, "run"))
    assert own.steps == (0, 1)
    assert "| ok, 2 lines" in own.text
    assert not any(word in own.text for word in ("write", "He said", "I found it"))


def controlled(scope: JudgeControl, mode: JudgingMode, *answers: str) -> Control | None:
    return control_from(item_of([RUN], mode, RUBRIC, MARK, control=scope), answers)


def test_a_run_loses_what_the_control_got_both_times_and_noise_alone_takes_nothing() -> None:
    """Depth 0.4 and 0.3: credit 0.3, noise 0.1. Tone 0.9 and 0: credit 0, noise 0.9. (3 * (0.8 - 0.3) + 0.8) / 4 = 0.575."""
    answers = [json.dumps({"scores": {"depth": depth, "tone": tone}}) for depth, tone in ((0.4, 0.9), (0.3, 0.0))]
    score = judged(scored(NAMES, 0.8, "I found it in"), control=controlled("task", "score", *answers))
    assert score.value == pytest.approx(0.575)
    assert [(part.value, part.control, part.noise) for part in score.components] == [(0.5, 0.3, 0.1), (0.8, 0.0, 0.9)]
    note = "[control] Subtracted, because the judge gives it without the agent's words too: depth 0.30."
    assert note in score.feedback
    assert judged(scored(NAMES, 0.2, "I found it in"), control=controlled("task", "score", *answers)).value == 0.05


def test_steps_lose_the_credit_of_the_empty_step_of_the_task_or_of_their_own_control() -> None:
    given = stepped(NAMES, {0: 0.5, 1: 1.0}, {0: "ok, 2 lines", 1: "I found it in"})
    of_task = controlled("task", "steps", *[stepped(NAMES, {0: 0.25}, {})] * 2)
    assert [step.value for step in judged(given, "steps", of_task).steps] == [0.25, 0.75]
    of_run = controlled("run", "steps", *[stepped(NAMES, {0: 0.5, 1: None}, {})] * 2)
    assert [step.value for step in judged(given, "steps", of_run).steps] == [0.0, 1.0]
    nothing = controlled("task", "steps", *[stepped(NAMES, {0: None}, {})] * 2)
    assert judged(given, "steps", nothing).value == 0.75


def test_a_control_that_cannot_be_read_or_leaves_a_criterion_out_is_unknown_and_not_0() -> None:
    failed = controlled("task", "score", scored(NAMES, 0.0), "prose")
    score = judged(scored(NAMES, 0.8, "I found it in"), control=failed)
    assert (score.value, score.components[0].control) == (0.8, None)
    assert "[control] Unknown, nothing was subtracted: the answer is prose" in score.feedback
    partial = controlled("task", "score", *['{"scores": {"depth": 0.1}}'] * 2)
    parts = judged(scored(NAMES, 0.8, "I found it in"), control=partial).components
    assert [part.control for part in parts] == [0.1, None]


@pytest.mark.parametrize("half", ["tuning", "held_out"])
def test_no_attack_gets_out_of_its_marks_and_the_control_takes_off_what_a_task_demands(half: str) -> None:
    for text in TEXTS["attacks"][half][::8]:
        for place in ("task", "tool_result", "agent_words"):
            assert value_after(text, place, respecting_marks, "task") == CLEAN
        assert value_after(text, "task", ignoring_marks, "task") == 0.0
        assert value_after(text, "tool_result", ignoring_marks, "run") == 0.0
