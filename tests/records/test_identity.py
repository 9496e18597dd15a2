"""The hash that tells runs apart: of what was asked and done, and the same for all time, since stored rows are found by it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.records.trajectory import (
    Action,
    Actor,
    AgentInfo,
    ImagePart,
    Observation,
    Outcome,
    OutcomeStatus,
    SampledTokens,
    Step,
    Task,
    TextPart,
    Trajectory,
    Usage,
)

_PLAIN = Trajectory(steps=(Step(actor=Actor.AGENT, message="hi"),))
_RICH = Trajectory(
    session_id="s-1",
    episode_key="job/task/3",
    agent=AgentInfo(name="helper", version="2", model="m"),
    task=Task(id="t", prompt='Größe "x"\n\\ \x7f\u2028 🙂', type="notes", difficulty="hard", environment="bench/notes"),
    tools=({"type": "function", "function": {"name": "b", "parameters": {"z": 1.0, "a": [True, None, 1e22]}}},),
    steps=(
        Step(actor=Actor.SYSTEM, message="be careful", extra={"k": 1}),
        Step(actor=Actor.USER, message=(TextPart(text="look"), ImagePart(uri="file:a.png", media_type="image/png"))),
        Step(
            actor=Actor.AGENT,
            thought="hm",
            model="m-2",
            copied_context=True,
            actions=(
                Action(tool="b", args={"z": -0.0, "a": {"10": 1, "9": (1, 2)}}, raw_args='{"z": -0.0}', call_id="c1"),
                Action(tool="c", raw_args="{broken"),
                Action(tool="d", args={}),
            ),
            observations=(
                Observation(content="out\0\t", call_id="c1"),
                Observation(content=(TextPart(text="é"), ImagePart(uri="u")), is_error=True),
            ),
            reward=0.5,
            train=False,
            timestamp="2026-03-04T11:12:13.5+01:00",
            usage=Usage(input_tokens=3),
            sampled=SampledTokens(token_ids=(1, 2), tokenizer="f"),
        ),
    ),
    outcome=Outcome(status=OutcomeStatus.SUCCESS, reward=1.0, scores={"a": 1.0}),
    extra={"free": [1]},
)
_ODD = Trajectory(
    session_id="only the session",
    steps=(
        Step(
            actor=Actor.AGENT,
            actions=(
                Action(tool="t", args={"n": float("nan"), "i": [float("-inf")], "k": {2: "two", 10: "ten"}, "b": True}),
            ),
        ),
    ),
)


@pytest.mark.parametrize(
    ("run", "identity"),
    [
        (_PLAIN, "5c26a67a7178cd114b6d03b03dc396089835506681a1d2bd2a0d9d7313ae2dfc"),
        (_RICH, "a4b9b3ef14351b4871999f9330e82dafeb585e0d103789a013b66e6cfc343b13"),
        (_ODD, "d048a0fa23dc100198d9e9bbf80ac2ca692e794812a7929305023b57412dfa2a"),
        (
            Trajectory.model_validate_json(_RICH.model_dump_json()),
            "a4b9b3ef14351b4871999f9330e82dafeb585e0d103789a013b66e6cfc343b13",
        ),
    ],
)
def test_the_identity_of_a_run_is_what_it_was_when_the_first_runs_were_stored(run: Trajectory, identity: str) -> None:
    """The hashes were computed by the first release, which dumped each step by pydantic."""
    assert run.identity == identity


def test_outcome_rewards_times_and_free_fields_are_no_part_of_the_identity() -> None:
    bare = _RICH.model_copy(
        update={
            "outcome": Outcome(),
            "extra": {},
            "agent": AgentInfo(),
            "steps": tuple(
                step.model_copy(
                    update={
                        "reward": None,
                        "train": None,
                        "timestamp": None,
                        "usage": None,
                        "sampled": None,
                        "extra": {},
                    }
                )
                for step in _RICH.steps
            ),
        }
    )
    assert bare.identity == _RICH.identity


@pytest.mark.parametrize(
    "change",
    [
        {"message": "else"},
        {"thought": "else"},
        {"model": "else"},
        {"copied_context": False},
        {"actions": ()},
        {"observations": ()},
        {"actor": Actor.USER},
    ],
)
def test_every_message_and_action_is_part_of_the_identity(change: dict[str, object]) -> None:
    agent = Step(actor=Actor.AGENT, message="done")
    steps = (*_RICH.steps, agent)
    other = (*_RICH.steps[:2], _RICH.steps[2].model_copy(update=change), agent)
    run = _RICH.model_copy(update={"steps": steps})
    assert run.model_copy(update={"steps": other}).identity != run.identity


_TEXT = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=6) | st.sampled_from(
    ['"\\\b\f\n\r\t', "\0\x1f\x7f\x85\u2028/é🙂"]
)
_VALUE: st.SearchStrategy[Any] = st.recursive(
    _TEXT | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)


@given(_TEXT, st.none() | _TEXT, st.none() | st.dictionaries(_TEXT, _VALUE, max_size=4), st.none() | _TEXT)
def test_the_identity_is_the_hash_of_compact_json_with_sorted_keys(
    text: str, thought: str | None, args: dict[str, Any] | None, raw: str | None
) -> None:
    """As the standard library writes it, floats and characters of every kind included."""
    call = Action(tool=text or "t", args=args, raw_args=raw, call_id=raw)
    seen = Observation(content=text, call_id=raw, is_error=bool(text))
    step = Step(actor=Actor.AGENT, message=text, thought=thought, actions=(call,), observations=(seen,))
    run = Trajectory(steps=(step,), episode_key=text)
    said = {
        "actions": [{"tool": call.tool, "args": args, "raw_args": raw, "call_id": raw}],
        "actor": "agent",
        "copied_context": False,
        "message": text,
        "model": None,
        "observations": [{"content": text, "call_id": raw, "is_error": bool(text)}],
        "thought": thought,
    }
    task = {"difficulty": None, "environment": None, "id": None, "prompt": "", "type": None}
    whole = {"episode": text, "steps": [said], "task": task, "tools": []}
    written = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert run.identity == hashlib.sha256(written.encode()).hexdigest()
