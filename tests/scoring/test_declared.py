"""Scorers declared as data: their values by hand, what they cannot know, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from quintain.checkers.json_schemas import MAX_REFERENCES, require_schema
from quintain.errors import InvalidInput
from quintain.records.score import Score
from quintain.records.trajectory import SampledTokens, Trajectory
from quintain.scoring.declared import DeclaredScorer, read_declared
from quintain.scoring.registry import describe_scorers, scorer
from trajectory_runs import answer, call, run, user

TWO_ANSWERS = run("t", user(), answer("one two three four"), call(item="box"), answer("It is RED, don't you see?"))
SILENT = run("t", user(), call(item="box"))


def score(declared: dict[str, Any], of: Trajectory = TWO_ANSWERS) -> Score:
    return DeclaredScorer(read_declared(declared, "reward")).score(of)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        # 6 words in the last message, 10 in all; 25 characters and 18 + 1 + 25 in all.
        ({"type": "length", "full_at": 2, "zero_at": 10}, 0.5),
        ({"type": "length", "of": "all", "full_at": 2, "zero_at": 10}, 0.0),
        ({"type": "length", "full_at": 10, "zero_at": 2}, 0.5),
        ({"type": "length"}, 1.0),
        ({"type": "length", "unit": "characters", "of": "all", "full_at": 0, "zero_at": 88}, 0.5),
        ({"type": "calls", "full_at": 0, "zero_at": 4}, 0.75),
        ({"type": "calls", "tool": "take", "full_at": 0, "zero_at": 4}, 1.0),
        ({"type": "steps", "full_at": 1, "zero_at": 5}, 0.5),
        ({"type": "words", "words": ["red", "you see", "re", "you", "blue"], "absent": True}, 0.4),
        ({"type": "words", "words": ["three"], "of": "all"}, 1.0),
        ({"type": "contains", "text": "RED"}, 1.0),
        ({"type": "contains", "text": "red"}, 0.0),
        ({"type": "contains", "text": "red", "ignore_case": True, "absent": True}, 0.0),
        ({"type": "regex", "pattern": "^It is [A-Z]+"}, 1.0),
        ({"type": "regex", "pattern": "It is", "full": True}, 0.0),
        ({"type": "regex", "pattern": "IT IS", "flags": "i", "absent": True}, 0.0),
        ({"type": "json_schema", "schema": {"type": "object"}}, 0.0),
    ],
)
def test_a_declared_scorer_has_the_value_of_its_bounds(declared: dict[str, Any], value: float) -> None:
    assert score(declared).value == pytest.approx(value)


def test_a_run_without_the_text_or_the_count_is_unscored_with_the_reason() -> None:
    for declared in ({"type": "length"}, {"type": "contains", "text": "x"}, {"type": "json_schema", "schema": {}}):
        assert "no text" in (score(declared, SILENT).reason or "")
    tokens = {"type": "length", "unit": "tokens", "full_at": 0, "zero_at": 10}
    assert "not recorded" in (score(tokens).reason or "")
    sampled = answer("Done.").model_copy(update={"sampled": SampledTokens(token_ids=(1, 2, 3, 4), tokenizer="t")})
    assert score(tokens, run("t", user(), sampled)).value == pytest.approx(0.6)


def test_a_json_answer_is_checked_by_its_schema_within_bounds_on_work() -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 3}}}
    said = [run("t", user(), answer(text)) for text in ('Here: {"n": 3}', '{"n": 2}', "no JSON")]
    assert [score({"type": "json_schema", "schema": schema}, one).value for one in said] == [1.0, 0.0, 0.0]
    doubling = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)} | {"d40": {}}
    costly = {
        "more than 1000 references": {"$defs": doubling, "properties": {"n": {"$ref": "#/$defs/d0"}}},
        "recursion": {"properties": {"n": {"allOf": [{"$ref": "#/properties/n"}]}}},
        "Unresolvable": {"properties": {"n": {"$ref": "http://127.0.0.1:9/schema.json"}}},
        "patternProperties is not supported": {
            "properties": {"n": {"patternProperties": {"(a+)+$": {}}, "additionalProperties": False}}
        },
    }
    for words, hostile in costly.items():
        found = score({"type": "json_schema", "schema": hostile}, run("t", user(), answer('{"n": {"aaa!": 1}}')))
        assert found.value is None, found
        assert words in (found.reason or "")


def test_a_schema_can_be_declared_any_number_of_times() -> None:
    schema = {"$ref": "#/$defs/row", "$defs": {"row": {"type": "object"}}}
    for _ in range(MAX_REFERENCES + 1):
        require_schema(schema)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"type": "lenght"}, "did you mean 'length'"),
        ({"type": {"type": []}}, "expected reward.type of length"),
        ({"type": "length", "fullat": 3}, "did you mean 'full_at'"),
        ({"type": "length", "full_at": 5, "zero_at": 5}, "to differ"),
        ({"type": "length", "full_at": True}, "boolean"),
        ({"type": "regex", "pattern": "("}, "missing )"),
        ({"type": "words", "words": []}, "at least 1 item"),
        ({"type": "json_schema", "schema": {"type": "thing"}}, "expected a JSON schema"),
        ({"type": "json_schema", "schema": {"patternProperties": {"a": {}}}}, "not supported"),
        (
            {"type": "json_schema", "schema": {"allOf": [{"$schema": "http://json-schema.org/draft-07/schema#"}]}},
            "$schema",
        ),
    ],
)
def test_a_wrong_declaration_is_refused_with_what_is_valid(declared: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read_declared(declared, "reward")
    assert words in raised.value.message


def test_declared_scorers_have_names_and_defaults_in_the_library() -> None:
    listed = {one.name: one for one in describe_scorers()}
    assert {"length", "calls", "steps", "words", "contains", "json_schema"} <= listed.keys()
    assert scorer("length").score(TWO_ANSWERS).value == 1.0
    with pytest.raises(InvalidInput, match="needs settings"):
        scorer("words")
    assert DeclaredScorer(read_declared({"type": "length", "full_at": 5}, "r")).name == "length(full_at=5)"
