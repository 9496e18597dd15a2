from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.errors import InvalidInput, NotFound, QuintainError, Refused, UnknownField
from quintain.records.score import Score
from quintain.records.text import MAX_DEPTH, require_clean
from quintain.records.trajectory import Trajectory, read_trajectory

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


def altered(**changes: object) -> Trajectory:
    return read_trajectory({**RUN, **changes})


def test_a_run_is_read_and_only_its_agent_turns_count() -> None:
    run = read_trajectory(RUN)
    assert len(run.steps) == 3
    assert len(run.agent_steps) == 2
    assert run.outcome.status == "unknown"


def test_identity_ignores_outcome_tags_and_rewards_but_not_content() -> None:
    base = altered().identity
    assert altered(outcome={"status": "success", "reward": 1.0}).identity == base
    assert altered(tags=["x"]).identity == base
    assert altered(task={"id": "t2", "prompt": RUN["task"]["prompt"]}).identity != base
    steps = [*RUN["steps"][:1], {**RUN["steps"][1], "thought": "Guess."}, RUN["steps"][2]]
    assert altered(steps=steps).identity != base, "two runs that differ in a thought only are two runs"


def test_equal_samples_of_two_attempts_stay_two_runs() -> None:
    assert altered(episode_key="job-1/t1/0").identity != altered(episode_key="job-1/t1/1").identity


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


def test_nesting_without_end_is_refused_without_recursion() -> None:
    value: object = "x"
    for _ in range(10_000):
        value = [value]
    with pytest.raises(InvalidInput, match=f"deeper than {MAX_DEPTH}"):
        require_clean(value, "arguments")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_every_json_value_of_unicode_text_is_clean(value: object) -> None:
    require_clean(value, "value")


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_a_run_with_any_arguments_survives_json(args: dict[str, object]) -> None:
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
