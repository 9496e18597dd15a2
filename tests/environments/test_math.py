"""`quintain/math`: the calculator and what it refuses, the problems and their splits, verdicts, files in the format of GSM8K."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playing import act, play, start, text_of
from quintain.environments.math import Math
from quintain.environments.math.calculator import calculate, format_number
from quintain.environments.math.problems import FAMILY, build_problem, stories
from quintain.environments.registry import task_source
from quintain.errors import InvalidInput

BEANS = "math/train/garden/medium/00000"
"""8 rows of 6 beans are 48; 25 percent of them are 12, and 48 - 12 = 36."""


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("3 + 4 * 2 - (3 + 4) * 2", "-3"),
        ("-2 ** 2", "-4"),
        ("2 ^ 10", "1024"),
        ("7 // 2 + 7 % 3", "4"),
        ("1,200 * 3", "3600"),
        ("12 × 3 ÷ 4", "9"),
        ("$5 * 2", "10"),
        ("0.1 + 0.2", "0.3"),
        ("2 / 3", "0.6666666667"),
        ("1e3", "1000"),
        ("2 ** -3", "0.125"),
        ("sqrt(16) + abs(-3) + round(2.5)", "10"),
        ("sqrt(2)", "1.4142135624"),
        ("-1\n / 8", "-0.125"),
    ],
)
def test_the_calculator_is_exact(expression: str, value: str) -> None:
    assert format_number(calculate(expression)) == value


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("9**9**9", "a power is too large"),
        ("9" * 301, "at most 300"),
        ("10**300 * 10**300", "a result is too large"),
        ("1e-999", "a result is too large"),
        ("1 / 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("5 % 0", "division by zero"),
        ("sqrt(-1)", "negative"),
        ("2 ** 0.3", "fraction as exponent"),
        ("__import__('os').system('id')", "is no arithmetic"),
        ("(lambda: 1)()", "is no arithmetic"),
        ("x + 1", "is no arithmetic"),
        ("5(3)", "is no arithmetic"),
        ("round(1)(2)", "is no arithmetic"),
        ("1 2", "cannot be read"),
        ("(" * 150 + "1" + ")" * 149, "cannot be read"),
        ("", "cannot be read"),
        ("٣ + ١", "is no arithmetic"),
    ],
)
def test_invalid_or_too_large_expressions_are_refused_at_once(expression: str, message: str) -> None:
    step = act(start(BEANS), "calculate", expression=expression)
    assert (step.observations[0].is_error, step.terminated, step.reward) == (True, False, None)
    assert message in text_of(step)


def test_the_deepest_expressions_that_fit_are_worked_out() -> None:
    assert calculate("-" * 299 + "1") == -1
    assert calculate("(" * 50 + "1" + ")" * 50) == 1


_NUMBERS = st.integers(0, 10**6).map(str) | st.decimals(0, 1000, places=3, allow_nan=False).map(str)
_EXPRESSIONS = st.recursive(
    _NUMBERS,
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
    max_leaves=8,
)


@given(_EXPRESSIONS)
def test_the_calculator_agrees_with_fractions(expression: str) -> None:
    as_fractions = re.sub(r"[\d.]+", lambda number: f"Fraction('{number[0]}')", expression)
    assert calculate(expression) == eval(as_fractions, {"Fraction": Fraction})


@given(st.text(max_size=300) | st.text("0123456789+-*/%().e sqrtabound,^", max_size=300))
def test_no_expression_does_anything_but_calculate(expression: str) -> None:
    step = act(start(BEANS), "calculate", expression=expression)
    assert len(step.observations) == 1
    assert len(text_of(step)) < 400


@given(st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=10**6))
def test_what_is_written_is_the_value_to_ten_places(value: Fraction) -> None:
    assert abs(Fraction(format_number(value)) - value) <= Fraction(1, 2 * 10**10)


def test_the_splits_share_no_name_no_thing_no_first_number_and_no_sentence() -> None:
    assert not set(stories().names["train"]) & set(stories().names["held_out"])
    for story in stories().stories.values():
        assert not set(story.things["train"]) & set(story.things["held_out"])
        for sentence in (story.start, *story.changes, story.question):
            assert sentence.train != sentence.held_out
    prompts = {split: [task.prompt for task in Math().tasks(split, 600, 5)] for split in ("train", "held_out")}
    assert not set(prompts["train"]) & set(prompts["held_out"])
    firsts = {split: {int(re.findall(r"\d+", prompt)[0]) for prompt in texts} for split, texts in prompts.items()}
    assert not firsts["train"] & firsts["held_out"]
    assert {n % 4 for n in firsts["held_out"]} == {3}


def test_a_problem_is_its_id_and_harder_ones_take_more_calculations() -> None:
    prompt = "Karl plants 8 rows of 6 beans. In summer 25 percent of them dry up. How many beans are left?"
    assert build_problem(FAMILY.parse(BEANS))[:2] == (prompt, 36)
    for difficulty, steps in (("easy", {1}), ("medium", {2}), ("hard", {3, 4})):
        source = Math(difficulty=difficulty)
        tasks = source.tasks("train", 24, 1)
        episodes = play(source, source.expert(tasks), tasks)
        assert {episode.result.turns - 1 for episode in episodes} == steps


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        (36.0, 1.0),
        ("The answer is 36 beans.", 1.0),
        ("36.4", 0.0),
        ("36 or 37", 0.0),
        ("\n" * 900, 0.0),
    ],
)
def test_answers_are_compared_as_numbers_and_hedging_is_wrong(answer: Any, reward: float) -> None:
    step = act(start(BEANS), "submit", answer=answer)
    assert (step.terminated, step.reward) == (True, reward)


def test_a_file_of_problems_without_numbers_as_answers_is_refused_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "words.jsonl"
    path.write_text(
        '{"question": "Two?", "answer": "#### 2"}\n{"question": "Who?", "answer": "Ada"}\n{"id": "x", "prompt": "Well?"}\n'
    )
    with pytest.raises(
        InvalidInput,
        match=r"2 bad rows: line 2: expected a number as its answer, got 'Ada'; line 3: it states no answer",
    ):
        Math(path)
    path.write_text('{"question": "Two?", "answer": "#### 2"}\n')
    assert task_source(f"quintain/math?file={path}").version != Math().version
    with pytest.raises(InvalidInput, match="leave them out if a file gives"):
        Math(path, difficulty="hard")
