from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.errors import InvalidInput, NotFound, QuintainError, Refused, UnknownField
from quintain.records.protocols import tool_function
from quintain.records.score import Score
from quintain.records.text import require_clean
from quintain.records.trajectory import Action, Observation, Step, Trajectory, read_trajectory

RUN = {
    "task": {"id": "t1", "prompt": "What is the price of the lamp?"},
    "steps": [
        {"actor": "user", "message": "What is the price of the lamp?"},
        {
            "actor": "agent",
            "thought": "Look it up.",
            "actions": [{"tool": "search", "args": {"query": "lamp"}, "call_id": "c1"}],
            "observations": [{"content": "lamp: 12", "call_id": "c1"}],
        },
        {"actor": "agent", "message": "12"},
    ],
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": []}, ["steps"]),
        ({"steps": [{"actor": "user", "message": "hi"}]}, ["actor 'agent'"]),
        ({"steps": [{"actor": "robot"}]}, ["steps[0].actor", "robot"]),
        ({"stepz": 1}, ["trajectory.stepz", "not a known field"]),
        ({"outcome": {"reward": math.nan}}, ["trajectory.outcome.reward", "nan", "finite"]),
        ({"outcome": {"reward": math.inf}}, ["inf", "finite"]),
    ],
)
def test_a_bad_run_is_refused_with_the_field_the_value_and_the_remedy(
    change: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read_trajectory({**RUN, **change})
    assert all(word in refusal.value.message for word in words), refusal.value.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_any_arguments_of_unicode_text_are_clean_and_survive_json(args: dict[str, object]) -> None:
    require_clean(args, "arguments")
    steps = [{"actor": "agent", "actions": [{"tool": "t", "args": args}]}]
    run = read_trajectory({**RUN, "steps": steps})
    assert Trajectory.model_validate_json(run.model_dump_json()) == run


def test_a_score_is_a_value_or_a_reason_never_both() -> None:
    with pytest.raises(ValueError, match="expected a value"):
        Score(trajectory_id="t", scorer="s", status="unscored", value=0.0, reason="unknown outcome")
    with pytest.raises(ValueError, match="expected a value"):
        Score(trajectory_id="t", scorer="s", status="scored")


@pytest.mark.parametrize("kind", [QuintainError, InvalidInput, UnknownField, NotFound, Refused])
def test_errors_pickle_and_keep_code_and_text(kind: type[QuintainError]) -> None:
    import pickle

    error = pickle.loads(pickle.dumps(kind("x is 3; valid: 1..2", code="special")))
    assert (type(error), error.code, str(error)) == (kind, "special", "[special] x is 3; valid: 1..2")


@pytest.mark.parametrize(
    ("calls", "results", "expected"),
    [
        (["a", "b"], ["b", "a"], [1, 0]),
        (["a", "b"], [None, None], [0, 1]),
        (["a", "b"], [None], [0, None]),
        (["a", None], ["a", None], [0, 1]),
        (["a", "b"], ["b"], [None, 0]),
        ([None], [None, None], [0]),
    ],
)
def test_a_call_has_the_result_of_its_id_else_of_its_place(
    calls: list[str | None], results: list[str | None], expected: list[int | None]
) -> None:
    seen = [Observation(content=str(place), call_id=name) for place, name in enumerate(results)]
    step = Step(actor="agent", actions=[Action(tool="t", call_id=name) for name in calls], observations=seen)
    assert [result and int(str(result.content)) for _, result in step.calls_with_results] == expected


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
        {"type": "function", "name": "f", "parameters": {"type": "object"}},
        {"name": "f", "input_schema": {"type": "object"}},
        {"name": "f", "inputSchema": {"type": "object"}},
        {"function": {"name": "f", "input_schema": {"type": "object"}}},
    ],
)
def test_a_tool_of_any_vendor_is_a_function_with_parameters(tool: dict[str, object]) -> None:
    assert tool_function(tool) == {"name": "f", "parameters": {"type": "object"}}
