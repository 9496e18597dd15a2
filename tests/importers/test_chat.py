"""Chat messages of both styles become one trajectory; what is malformed is named by its index."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.errors import InvalidInput
from quintain.importers.transcripts.chat_messages import from_messages
from quintain.importers.transcripts.transcript import make_call
from quintain.importers.values import parse_usage, total_usage
from quintain.records.trajectory import Actor, AgentInfo, ImagePart, Outcome, OutcomeStatus, Task, TextPart


def _call(call_id: str | None, arguments: Any, name: str = "add") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


OPENAI = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+1 and 2+2?"},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Two sums.",
        "tool_calls": [_call("c1", '{"a": 1, "b": 1}'), _call("c2", {"a": 2, "b": 2})],
        "refusal": None,
    },
    {"role": "tool", "tool_call_id": "c2", "content": "4"},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "2"}]},
    {"role": "assistant", "content": "2 and 4.", "name": "calc", "model": "m-1"},
]

ANTHROPIC = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "1+1 and 2+2?"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Two sums.", "signature": "x"},
            {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1, "b": 1}},
            {"type": "tool_use", "id": "c2", "name": "add", "input": {"a": 2, "b": 2}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c2", "content": "4"},
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "2"}]},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "2 and 4."}], "model": "m-1"},
]


@pytest.mark.parametrize("messages", [OPENAI, ANTHROPIC])
def test_both_styles_give_the_same_steps(messages: list[dict[str, Any]]) -> None:
    trajectory = from_messages(messages)
    assert [step.actor for step in trajectory.steps] == ["system", "user", "agent", "agent"]
    acted, said = trajectory.agent_steps
    assert (acted.thought, acted.message) == ("Two sums.", "")
    assert [(a.call_id, a.tool, a.args) for a in acted.actions] == [
        ("c1", "add", {"a": 1, "b": 1}),
        ("c2", "add", {"a": 2, "b": 2}),
    ]
    assert [a.raw_args for a in acted.actions] == ['{"a": 1, "b": 1}' if messages is OPENAI else None, None]
    assert [(o.call_id, o.content) for o in acted.observations] == [("c2", "4"), ("c1", "2")]
    assert (said.message, said.model) == ("2 and 4.", "m-1")
    assert trajectory.task.prompt == "1+1 and 2+2?"


def test_arguments_that_are_no_json_object_are_kept_raw() -> None:
    for raw in ("{", "[]", '"text"', '{"a": NaN}', "[" * 9000, '{"a": 1} and more', "1" * 5000):
        (step,) = from_messages([{"role": "assistant", "tool_calls": [_call("c", raw)]}]).agent_steps
        assert (step.actions[0].args, step.actions[0].raw_args) == (None, raw)
    for raw in ('{"a": "\\ud800"}', '{"a": 1e999}'):  # refused in a recording, kept in the import of a log
        assert make_call("t", raw) == {"tool": "t", "args": None, "raw_args": raw, "call_id": None}


def test_nothing_is_invented_and_what_the_caller_knows_is_kept() -> None:
    trajectory = from_messages(OPENAI)
    assert trajectory.outcome == Outcome()
    assert (trajectory.agent, trajectory.task.id, trajectory.session_id) == (AgentInfo(), None, None)
    assert [(step.reward, step.train) for step in trajectory.steps] == [(None, None)] * 4
    assert trajectory.agent_steps[1].extra == {"name": "calc"}
    assert not any(o.is_error for step in trajectory.steps for o in step.observations)
    known: dict[str, Any] = {"task": Task(id="t", prompt="p"), "agent": AgentInfo(name="a")}
    known["outcome"] = Outcome(status=OutcomeStatus.FAILURE, reward=0.5)
    trajectory = from_messages(OPENAI, **known)
    assert {name: getattr(trajectory, name) for name in known} == known


def test_a_result_with_text_beside_it_answers_the_call_and_then_speaks() -> None:
    mixed = [
        *ANTHROPIC[:3],
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "boom", "is_error": True},
                {"type": "text", "text": "Go on."},
            ],
        },
    ]
    trajectory = from_messages(mixed)
    (observation,) = trajectory.agent_steps[0].observations
    assert (observation.content, observation.is_error) == ("boom", True)
    assert (trajectory.steps[-1].actor, trajectory.steps[-1].message) == (Actor.USER, "Go on.")


def test_a_call_id_that_is_used_again_answers_the_newest_call() -> None:
    turn = [{"role": "assistant", "tool_calls": [_call("c0", "{}")]}, {"role": "tool", "tool_call_id": "c0"}]
    turns = [[turn[0], turn[1] | {"content": text}] for text in ("first", "second")]
    steps = from_messages([*turns[0], *turns[1]]).agent_steps
    assert [[o.content for o in step.observations] for step in steps] == [["first"], ["second"]]


def test_pictures_are_kept_by_reference_and_their_pixels_by_hash() -> None:
    """`aGk=` is base64 of the bytes `hi`."""
    pixels = "urn:sha256:" + hashlib.sha256(b"hi").hexdigest()
    parts = [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "aGk="}},
    ]
    trajectory = from_messages([{"role": "user", "content": parts}, {"role": "assistant", "content": "ok"}])
    assert trajectory.steps[0].message == (
        TextPart(text="See"),
        ImagePart(uri="https://example.org/a.png"),
        ImagePart(uri=pixels, media_type="image/png"),
        ImagePart(uri=pixels, media_type="image/jpeg"),
    )
    assert trajectory.task.prompt == "See"


def test_tools_of_either_style_become_openai_functions() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "number"}}}
    openai = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": schema}}
    anthropic = {"name": "add", "description": "Adds.", "input_schema": schema}
    assert from_messages(OPENAI, tools=[openai, anthropic]).tools == (openai, openai)
    with pytest.raises(InvalidInput, match=r"tools\[1\]"):
        from_messages(OPENAI, tools=[openai, {"parameters": {}}])


_ASSISTANT = {"role": "assistant", "content": "hi"}


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("hi", r"messages\[1\] is str"),
        ({"content": "x"}, r"messages\[1\]\.role is None; valid: system"),
        ({"role": "bot", "content": "x"}, r"messages\[1\]\.role is 'bot'"),
        ({"role": ["user"]}, r"messages\[1\]\.role is \['user'\]"),
        ({"role": "user", "content": 5}, r"messages\[1\]\.content to be text, null or a list of parts, got int"),
        (
            {"role": "user", "content": [{"type": "video"}]},
            r"messages\[1\]\.content\[0\]\.type is 'video'; valid: text",
        ),
        ({"role": "user", "content": [{"type": []}]}, r"messages\[1\]\.content\[0\] is \{'type'"),
        ({"role": "user", "content": [{"type": "text"}]}, r"messages\[1\]\.content\[0\]\.text to be text, got None"),
        ({"role": "user", "content": [{"type": "image_url"}]}, r"messages\[1\]\.content\[0\] is a picture without"),
        ({"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}, "only an assistant"),
        ({"role": "assistant", "tool_calls": {"a": 1}}, r"messages\[1\]\.tool_calls to be a list, got dict"),
        ({"role": "assistant", "tool_calls": ["x"]}, r"messages\[1\]\.tool_calls\[0\] must be an object"),
        ({"role": "assistant", "tool_calls": [_call("c", 5)]}, r"tool_calls\[0\]: arguments are int"),
        (
            {"role": "assistant", "tool_calls": [_call("c", "{}", "")]},
            r"tool_calls\[0\]: expected the tool's name to be non-empty text, got ''",
        ),
        (
            {"role": "assistant", "tool_calls": [_call(5, "{}")]},
            r"tool_calls\[0\]: expected the call's id to be text or absent, got 5",
        ),
        (
            {"role": "assistant", "tool_calls": [_call("c", '{"a": "\\ud800"}')]},
            r"tool_calls\[0\]: arguments.*surrogate",
        ),
        ({"role": "assistant", "function_call": "x"}, r"messages\[1\]\.function_call must be an object"),
        ({"role": "assistant", "content": [{"type": "tool_result"}]}, r"messages\[1\] is an assistant message"),
        ({"role": "tool", "tool_call_id": "zz", "content": "x"}, r"messages\[1\] answers the call 'zz'"),
        ({"role": "tool", "content": "x"}, r"messages\[1\] answers the call None.*result: none"),
    ],
)
def test_a_malformed_message_is_named_by_its_index(bad: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        from_messages([_ASSISTANT, bad])


def test_a_second_result_for_one_call_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"messages\[5\] answers the call 'c1'.*answered already"):
        from_messages([*OPENAI[:5], OPENAI[4]])


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": "hi"}], "text", {"role": "user"}, None])
def test_a_list_without_an_assistant_is_refused(messages: Any) -> None:
    with pytest.raises(InvalidInput, match="messages"):
        from_messages(messages)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "thinking", "type", "function", "is_error"])
_VALUES = _JSON | st.sampled_from(["user", "assistant", "tool", "text", "tool_use", "tool_result"])
_MESSAGE = _JSON | st.dictionaries(_KEYS, _VALUES | st.lists(st.dictionaries(_KEYS, _VALUES, max_size=3), max_size=2))


@given(st.lists(_MESSAGE, max_size=4))
def test_any_value_is_read_or_refused_with_an_error_of_ours(messages: list[Any]) -> None:
    try:
        trajectory = from_messages(messages)
    except InvalidInput as error:
        assert "messages" in error.message or "trajectory" in error.message  # noqa: PT017
    else:
        assert trajectory.agent_steps


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        # Anthropic and inspect count fresh input only: 10 + 200 + 30 = 240.
        ({"input_tokens": 10, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 30, "output_tokens": 5}, (240, 5)),
        ({"input_tokens": 10, "input_tokens_cache_read": 200, "input_tokens_cache_write": 30, "output_tokens": 5}, (240, 5)),
        # LiteLLM's prompt holds the cache already, and repeats Anthropic's counts beside it.
        ({"prompt_tokens": 240, "cache_read_input_tokens": 200, "completion_tokens": 5}, (240, 5)),
        # OpenAI's and Codex's input holds it too.
        ({"input_tokens": 240, "cached_input_tokens": 200, "output_tokens": 5}, (240, 5)),
        ({"promptTokenCount": 7, "candidatesTokenCount": 2, "thoughtsTokenCount": 3}, (7, 5)),
        ({"input": 7, "cached": 6, "output": 2, "thoughts": 3}, (7, 5)),
        ({"input": 7, "cache": {"read": 3, "write": 2}, "output": 2, "reasoning": 3}, (12, 5)),
        ({"input": 7, "cacheRead": 3, "cacheWrite": 2, "output": 5}, (12, 5)),
        ({"completion_tokens": 5}, (None, 5)),
    ],
)  # fmt: skip
def test_tokens_by_the_names_of_every_vendor(counts: dict[str, Any], expected: tuple[int | None, int]) -> None:
    assert parse_usage({}, None, counts) == {"input_tokens": expected[0], "output_tokens": expected[1]}


@pytest.mark.parametrize(
    "given", [None, [], "x", {}, {"input_tokens": -1}, {"input_tokens": True}, {"input_tokens": 0.5}]
)
def test_what_is_no_count_is_unknown_and_not_zero(given: Any) -> None:
    assert parse_usage(given) is None


def test_tokens_of_several_turns_are_added() -> None:
    """3 + 4 in; only one of them says what came out."""
    spent = [{"input_tokens": 3}, {"nothing": 1}, {"input_tokens": 4, "output_tokens": 2}]
    assert total_usage(spent) == {"input_tokens": 7, "output_tokens": 2}
