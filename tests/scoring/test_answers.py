"""The scorer `answer`: what counts as the same, where the answer stands, and what does not win."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from quintain.checkers.answers import expected_answer, expected_answers
from quintain.checkers.math_equality import ComparisonProcess
from quintain.checkers.values import compare, same
from quintain.records.trajectory import Action, Step, Task, Trajectory
from quintain.scoring.outcomes.answer_scorers import TextScorer
from trajectory_runs import answer, call, user


def said(*texts: str, expected: Any = "42", prompt: str = "How many?", **metadata: Any) -> Trajectory:
    task = Task(prompt=prompt, metadata={"answer": expected, **metadata})
    return Trajectory(task=task, steps=(user(prompt), *(answer(text) for text in texts)))


def value(expected: Any, text: str, prompt: str = "How many?") -> float | None:
    return TextScorer("answer").score(said(text, expected=expected, prompt=prompt)).value


RIGHT = [
    ("72", "48/2=24 and 48+24=72.\n#### 72"),
    ("1234567", "#### 1,234,567"),
    ("42", "**Answer:** 42"),
    ("42", "**Final Answer:** The final answer is $\\boxed{42}$. I hope it is correct."),
    ("42", "## Final Answer\n\n42"),
    ("42", "<answer>42</answer>"),
    ("42", "The answer is 42 because 6*7=42."),
    ("42", "Answer: 42. premise evidence derivation"),
    ("42", "#### 42\n\nLet me know if you need 3 more examples!"),
    ("42", "答案是42。"),
    ("42", "答案：４２"),
    ("42", "الجواب ٤٢"),
    ("5", "10-5 = 5"),
    ("5", "So 10-5 = 5."),
    ("9", "x^2 = 9"),
    ("10", "Total = 3 + 7 = 10 apples"),
    ("1/2", "\\boxed{\\frac12}"),
    ("0.5", "\\boxed{ \\dfrac { 1 } { 2 } }"),
    ("1/2", "The answer is 0.5"),
    ("0.5", "So we get ½."),
    ("-1/2", "\\boxed{-\\frac{1}{2}}"),
    ("1.5", "1\\frac{1}{2}"),
    ("1 1/2", "1.5"),
    ("1/3", "0.333"),
    ("0.33", "1/3"),
    ("3.14", "3.14159"),
    ("50%", "The answer is 0.5"),
    ("0.5", "The answer is 50%"),
    ("25", "Therefore 25% of them."),
    ("18", "She makes $18 every day."),
    ("$5", "5 dollars"),
    ("70000", "He made a profit of $70,000."),
    ("1,234.56", "1.234,56"),
    ("18.0", "18"),
    (18.0, "It is 18"),
    ("20", "20 cm"),
    ("5 km", "The answer is 5000 m"),
    ("90", "90^\\circ"),
    ("3000000", "3 million"),
    ("-3", "answer: −3"),
    ("-3", "The answer is negative 3"),
    ("1.5e3", "\\boxed{1.5 \\times 10^{3}}"),
    ("1500", "1.5×10³"),
    ("1024", "2^10"),
    ("(1,2)", "\\boxed{(1, 2)}"),
    ("{1,2}", "\\boxed{\\{2, 1\\}}"),
    ("1, 2", "The solutions are \\boxed{1} and \\boxed{2}"),
    ("[0,1)", "\\boxed{[0, 1)}"),
    ("x=5", "\\boxed{5}"),
    ("5", "x = 5"),
    ("\\frac{\\sqrt{2}}{2}", "\\boxed{\\frac{\\sqrt{2}}{2}}"),
    ("B", "The answer is (B)."),
    ("B", "Answer: B) London"),
    ("B", "\\boxed{\\text{B}}"),
    ("A, C", "Answer: A and C"),
    ("Paris", "The capital is **Paris**."),
    ("yes", "Yes, because it is."),
    (True, "yes"),
    ("-5", "5 - 10 = -5"),
    ("1000000", "1 000 000"),
    ("2,4", "x = 2 and x = 4"),
    ("43", "The answer is 42? No, 43."),
    ("42", "Answer: 42. Wait, let me double check: 6*7 = 42."),
    ("2\\pi", "The answer is 2π."),
    ("Dr. Smith", "Answer: Dr. Smith"),
    ("C", "The correct answer is C."),
]
WRONG = [
    ("42", "The answer is 41."),
    ("42", "Final answer: 42. Wait.\nFinal answer: 7"),
    ("42", "Answer: 41, 42, 43"),
    ("42", "Possible answers: 40, 41, 42"),
    ("42", "41 or 42"),
    ("42", "\\boxed{41} or \\boxed{42}"),
    ("42", "\\boxed{42"),
    ("42", "<think>It is 42.</think> I cannot tell."),
    ("42", "> The answer is 42?\nI cannot tell."),
    ("42", "I do not know."),
    ("42", "-42"),
    ("42", "142"),
    ("42", "42.5"),
    ("12", "12:30"),
    ("3", "x = 2 or x = 3"),
    ("2", "x = 2, x = 3"),
    ("5", "10-5"),
    ("1/2", "1"),
    ("1", "1/2"),
    ("0.5", "0.5%"),
    ("3.14159", "3.14"),
    ("1000000", "1000001"),
    ("5 km", "5 m"),
    ("5 km", "5 kg"),
    ("$5", "€5"),
    ("(1,2)", "(2,1)"),
    ("(0,1)", "[0,1]"),
    ("1, 2", "1, 2, 3"),
    ("B", "Answer: A, B, C, D"),
    ("yes", "yes or no"),
    ("1e400000", "1e400001"),
    ("42", "The answer is 42? No, 43."),
    ("42", "I considered 42 but the answer is 41"),
    ("4", "The answer is 3/4"),
    ("2", "The answer is 2x + 1"),
]


OTHER_UNIT_OR_SYMBOL = [
    *(("2\\pi", "\\boxed{2}"), ("2", "\\boxed{2\\pi}"), ("2\\sqrt{3}", "\\boxed{2}"), ("3", "\\boxed{3i}")),
    *(("3x", "\\boxed{3}"), ("3", "3n"), ("10\\log 2", "\\boxed{10}"), ("5 m/s", "5 km/h"), ("60 mph", "60 km/h")),
    *(("100 MB", "100 GB"), ("25 °C", "25 °F"), ("25 °C", "25 K"), ("5 Pa", "5 kPa"), ("5 J", "5 N"), ("5 MW", "5 mW")),
    *(("5 years", "5 months"), ("5 m^2", "5 m^3"), ("1 kWh", "1 kW"), ("30 degrees", "30 radians")),
]
NAMED_PARTS = [
    *(("x=3, y=4", "x=4, y=3", 0.0), ("x=3, y=4", "y=4, x=3", 1.0), ("x=3, y=4", "(3, 4)", 1.0)),
    *(("x=3, y=4", "(4, 3)", 0.0), ("x=1, x=2", "x=2 or x=1", 1.0), ("x = 3", "y = 3", None)),
]
FORMULAS_IN_SENTENCES = [
    *(("120", "The answer is 5!", 1.0), ("42", "The answer is 42!", 1.0), ("5!", "\\boxed{5}", 0.0)),
    ("\\frac{\\sqrt{2}}{2}", "I do not know.", 0.0),
    ("(-\\infty, \\infty)", "Answer: all real numbers", None),
]
BOUNDS_AND_QUESTIONS = [
    *(("42", "x ≠ 42"), ("42", "$x \\neq 42$"), ("42", "x >= 42"), ("42", "\\boxed{x > 42}"), ("42", "42 ± 1")),
    *(("42", "Is the answer 42? No."), ("Yes", "Yes and no"), ("B", "(A) or (B)"), ("5", "So it is 10-5.")),
]
RIGHT_IN_OTHER_WORDS = [
    *(("D", "Answer: D - none of these"), ("A", "Answer: A) since the others do not fit"), ("42", "_42_")),
    *(("\\sqrt{2}", "\\boxed{\\sqrt2}"), ("$2 million", "$2,000,000"), ("$2,000,000", "2M"), ("3 dozen", "36")),
    *(("2^{100}", str(2**100)), ("5 m/s", "18 km/h"), ("25 °C", "77 °F"), ("25 °C", "25"), ("9", "9 a.m.")),
    *(("5 years", "60 months"), ("1+x^2", "x^2 + 1"), ("\\frac{1}{\\sqrt{2}}", "\\boxed{\\frac{\\sqrt2}{2}}")),
    *(("2\\pi", "So the area is 2\\pi."), ("16\\pi", "16π cm²"), ("x \\in [-2, 7]", "[-2,7]"), ("33.33%", "1/3")),
    *(("42", "The result is 42 since 42 > 41."), ("42", "\\boxed{42}. No further solutions exist.")),
    *(("42", "At first I got 41, but that is wrong. The answer is 42."), ("0.375", "The answer is 3/8 or 0.375.")),
    *(("3", "There are at least 2 ways; the answer is 3."), ("6", "There are 6 in the box")),
    ("12 apples", "She has 12 apples left."),
]
ONLY_A_READER_CAN_TELL = [
    *(("5 men", "5 women"), ("5 km", "5 apples"), ("\\pi", "3.14159")),
    *(("42", "The answer is that in 3 years Bob has 42 apples."), ("42", "The answer is either 41 or 42.")),
    *(("42", "The answer is not 41, it is 42."), ("42", "Answer: 42 (or 43)"), ("7", "Final answer: 7 (not 42)")),
    *(("Paris", "Answer: Paris, the capital of France."), ("Paris", "Paris or London"), ("東京", "答えは東京です。")),
    *(("Paris", "The answer is not Paris."), ("B", "It's not A, so B"), ("A", "A dog"), ("Yes", "Yes? No.")),
]
TAKEN_BY_ITS_VALUE = [
    *(("42", "The answer is not 42."), ("42", "more than 42"), ("42", "I don't think the answer is 42.")),
    ("42", "\\boxed{42} Actually, I made a mistake, it should be 43."),
]
"""Doubt, negation and what follows a marked answer are not read."""


@pytest.mark.parametrize(("expected", "text"), RIGHT + RIGHT_IN_OTHER_WORDS + TAKEN_BY_ITS_VALUE)
def test_the_same_answer_is_right_however_it_is_written(expected: Any, text: str) -> None:
    assert value(expected, text) == 1.0


@pytest.mark.parametrize(("expected", "text"), WRONG + OTHER_UNIT_OR_SYMBOL + BOUNDS_AND_QUESTIONS)
def test_another_answer_several_answers_or_none_is_wrong(expected: Any, text: str) -> None:
    assert value(expected, text) == 0.0


@pytest.mark.parametrize(("expected", "text", "score"), NAMED_PARTS + FORMULAS_IN_SENTENCES)
def test_named_parts_keep_their_values_and_a_formula_in_a_sentence_is_read(
    expected: str, text: str, score: float | None
) -> None:
    assert value(expected, text) == score


@pytest.mark.parametrize(("expected", "text"), ONLY_A_READER_CAN_TELL)
def test_what_only_a_reader_can_tell_is_unscored(expected: str, text: str) -> None:
    score = TextScorer("answer").score(said(text, expected=expected))
    assert (score.status, score.value) == ("unscored", None)
    assert "only a reader can decide" in (score.reason or "")


PAIRS = [
    (kind, *pair)
    for kind, pairs in yaml.safe_load(Path(__file__).with_name("answer_pairs.yaml").read_text("utf-8")).items()
    for pair in pairs
]
UNDECIDED = {
    (r"(\sqrt{2}, \sqrt{3})", r"(\sqrt3, \sqrt2)"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "(1, 2)"),
    (r"0.\overline{3}", r"\frac{1}{3}"),
    (r"x \equiv 3 \pmod 7", r"x \equiv 10 \pmod 7"),
}
MISSED = {("1:3", "1/3"), ("i", r"\sqrt{-1}")}
"""Pairs that are compared by their words alone, and so count as wrong."""


@pytest.mark.parametrize("kind", dict.fromkeys(kind for kind, *_ in PAIRS))
def test_mathematics_is_compared_by_its_value(kind: str) -> None:
    for of, expected, stated, right in PAIRS:
        if of == kind:
            pair = (expected, stated)
            assert compare(*pair) is (None if pair in UNDECIDED else False if pair in MISSED else right), pair


def test_a_formula_whose_value_is_beyond_reach_is_undecided_and_the_next_one_is_compared() -> None:
    process = ComparisonProcess(cpu_s=0.3)
    hostile = ["9999999!", "(" * 400 + "1" + ")" * 400]
    with ThreadPoolExecutor(2) as threads:  # as scorers in a server: in no main thread
        assert list(threads.map(lambda formula: process.ask("7", formula), hostile)) == [None] * 2
        assert list(threads.map(lambda formula: process.ask("120", formula), ["5!", "6!"])) == [True, False]
    process.close()
    score = TextScorer("answer").score(said(r"\boxed{" + "x+" * 600 + "1}", expected="x^2"))
    assert (score.status, "only a reader can decide" in (score.reason or "")) == ("unscored", True)


def test_what_a_message_repeats_of_the_question_is_no_answer() -> None:
    prompt = "Worked example: 6 times 7. The answer is 42. Now: what is 5 times 5? Is the answer 42?"
    for text in (
        prompt,
        'You asked "Is the answer 42?" I cannot say.',
        "The question says: Worked example: 6 times 7. The answer is 42.",
    ):
        assert value("42", text, prompt) == 0.0
    assert value("42", "The answer is 42.", "What is 6 times 7?") == 1.0


def test_an_answer_counts_from_an_earlier_turn_only_where_it_was_stated_and_none_came_after() -> None:
    assert TextScorer("answer").score(said("Final answer: 42", "Done.")).value == 1.0
    assert TextScorer("answer").score(said("Final answer: 42", "No: final answer: 41")).value == 0.0
    assert TextScorer("answer").score(said("I see 42 boxes.", "Done.")).value == 0.0


def test_a_call_that_hands_the_answer_in_counts_as_said() -> None:
    handed = Step(
        actor="agent", message="Let me submit 41.", actions=(Action(tool="submit_answer", args={"answer": 42}),)
    )
    run = Trajectory(task=Task(metadata={"answer": "42"}), steps=(user(), handed))
    assert TextScorer("answer").score(run).value == 1.0


def test_without_an_expected_answer_or_a_word_of_the_agent_there_is_no_score() -> None:
    silent = Trajectory(task=Task(metadata={"answer": "42"}), steps=(user(), call()))
    nothing = Trajectory(task=Task(), steps=(user(), answer("42")))
    prose = said("The cell makes ATP.", expected="the mitochondria is the powerhouse of the cell indeed")
    for run, words in ((silent, "got none"), (nothing, "no expected answer"), (prose, "prose")):
        score = TextScorer("answer").score(run)
        assert (score.status, score.value) == ("unscored", None)
        assert words in (score.reason or "")


def test_the_tolerance_of_the_checker_is_absolute_and_a_senseless_one_decides_nothing() -> None:
    def scored(tolerance: Any) -> float | None:
        checker = {"type": "answer", "answer": 10, "tolerance": tolerance}
        return TextScorer("answer").score(said("It is 10.4", expected=None, checker=checker)).value

    assert [scored(0.5), scored(0.3), scored(0)] == [1.0, 0.0, 0.0]
    assert [scored(-1), scored("a lot"), scored(float("nan"))] == [None, None, None]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"answer": "6*7=42\n#### 42"}, ("42",)),
        ({"answer": 42}, ("42",)),
        ({"ground_truth": "42"}, ("42",)),
        ({"target": ["yes", "true"]}, ("yes", "true")),
        ({"solution": "Long working. So \\boxed{\\frac{1}{2}}."}, ("\\frac{1}{2}",)),
        ({"solution": "A long text of a solution that never says what its answer is."}, ()),
        ({"info": {"answer": "42"}}, ("42",)),
        ({"answer": "1", "checker": {"type": "answer", "answers": ["2", "3"]}}, ("2", "3")),
        ({"answer": None, "checker": "answer"}, ()),
        ({"answer": {"a": 1}}, ()),
        ({"answer": float("inf")}, ()),
        ({"answer": 10**5000}, ()),
    ],
)
def test_the_expected_answer_is_found_where_importers_and_people_put_it(
    metadata: dict[str, Any], expected: tuple[str, ...]
) -> None:
    task = Task.model_construct(metadata=metadata)
    assert expected_answers(task) == expected
    assert expected_answer(task) == (expected[0] if expected else None)


def test_equality_is_symmetric_where_neither_side_leaves_something_out() -> None:
    for left, right in (("1/2", "0.5"), ("5 km", "5000 m"), ("(1,2)", "(1, 2)"), ("1e3", "1000"), ("{1,2}", "{2,1}")):
        assert same(left, right)
        assert same(right, left)


@pytest.mark.parametrize(
    "text",
    [
        *("9" * 200_000, "1," * 100_000, "answer: " * 20_000, "\\frac{" * 20_000, "\\boxed{" * 20_000),
        *("or 1 " * 40_000, "(" * 200_000, "1/" * 50_000, "1.000" * 40_000, "^(" * 50_000, "$" * 100_000),
        "> answer: 1\n" * 15_000,
    ],
    ids=lambda text: text[:9],
)
def test_no_text_makes_matching_slow(text: str) -> None:
    start = time.process_time()
    assert value("42", text) == 0.0
    assert time.process_time() - start < 15
