"""The agent's turn, separated from the text before it in templates with unusual conventions."""

from __future__ import annotations

from typing import Any

import pytest

from quintain.datasets.messages import messages_of
from quintain.records.trajectory import Action, Actor, Observation, Step, Trajectory
from quintain.trainers.data.streams import TokenRow
from quintain.trainers.rendering.chat_template import turn_of
from quintain.trainers.rendering.renderer import Renderer
from tiny_models import CHATML_TOOLS, tiny_tokenizer
from trainers.episodes import TOOLS, episode
from trainers.templates import GEMMA, GEMMA_SPECIAL, QWEN3

_HEADER = "<|im_start|>assistant\n"
_OPENED = CHATML_TOOLS.replace(
    "{%- if add_generation_prompt %}" + _HEADER, "{%- if add_generation_prompt %}" + _HEADER + "<think>\n"
)
"""Opens thinking in the generation prompt only, as QwQ does."""
_CLOSED = _OPENED.replace(_HEADER + "{{ message.content }}", _HEADER + "<think>\n\n</think>\n\n{{ message.content }}")
"""Shows each turn with the thinking closed that the prompt has opened, as Qwen 3.5 does."""
_FILLED = _OPENED.replace(
    _HEADER + "{{ message.content }}",
    _HEADER + "{% if '</think>' not in message.content %}<think>\n\n</think>\n\n{% endif %}{{ message.content }}",
)
"""The same, with the thinking of the content where it has one."""
_AGAIN = _OPENED.replace(
    _HEADER + "{{ message.content }}",
    _HEADER
    + "{% if loop.last %}<think>\n{{ message.content }}{% else %}{{ message.content.split('</think>')[-1] }}{% endif %}",
)
"""Opens thinking before the last turn, too, even where its content does it, as Nemotron Nano 2 does."""
_BY_KEY = CHATML_TOOLS.replace(
    _HEADER + "{{", _HEADER + "{% set t = message.reasoning_content %}{{ '{%s}' % t if t }}{{"
)
"""Takes thinking by a key of the message, as Seed-OSS does."""
_BY_PART = CHATML_TOOLS.replace(
    _HEADER + "{{ message.content }}",
    _HEADER + "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{{ '[THINK]%s[/THINK]' % part.thinking if part.type == 'thinking' else part.text }}{% endfor %}{% endif %}",
)
"""Takes thinking as a part of the content, as Ministral 3 Reasoning and Magistral do."""
_KEY_OR_TEXT = _BY_KEY.replace(
    "{{ '{%s}", "{% if t and message.content and message.tool_calls %}{{ raise_exception('both') }}{% endif %}{{ '{%s}"
)
"""The same, but refuses it with text beside a call, as gpt-oss does."""
_CONTENT = "{% if '</think>' in m.content %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}"
_PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
_ASKED = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
_R1 = (
    _PLAIN.replace("{{ m.content }}", _CONTENT)
    + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
"""Leaves thinking out of every turn and opens it in the prompt, as DeepSeek-R1 does."""
_LATEST = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    + _PLAIN.replace(
        "{{ m.content }}", "{% if loop.index0 == ns.last %}{{ m.content }}{% else %}" + _CONTENT + "{% endif %}"
    )
    + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Keeps the thinking of the newest assistant turn only, as LFM2.5 does: a turn changes what stands before it."""
_ONE_SYSTEM = (
    "{% if messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}{% if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Omits all system messages but the first, as SmolLM3 does; Qwen 3.5 refuses them."""
_MERGING = (
    "{% for m in messages %}{% set before = loop.previtem.role if loop.previtem is defined else '' %}"
    "{% set after = loop.nextitem.role if loop.nextitem is defined else '' %}"
    "{% if m.role != before %}<|im_start|>{{ m.role }}\n{% endif %}{{ m.content }}{% if m.role != after %}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Writes messages of one role as one, as Gemma 4 does with turns."""
_PHI3 = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)
"""Closes the conversation with the eos token behind the last turn's own end token."""


def renderer_of(template: Any, *special: str, eos: str = "<|im_end|>") -> Renderer:
    return Renderer.of(tiny_tokenizer(template, special=("<|pad|>", "<|im_start|>", "<|im_end|>", *special), eos=eos))


def turns(renderer: Renderer, rows: list[TokenRow]) -> list[str]:
    """What is supervised in each step."""
    written: dict[int, list[int]] = {}
    for row in rows:
        for place in row.places:
            written.setdefault(int(row.step_index[place]), []).append(int(row.token_ids[place]))
    return [renderer.decode(ids) for ids in written.values()]


def thinking_episode() -> Trajectory:
    def said(text: str, **rest: Any) -> Step:
        return Step(actor=Actor.AGENT, thought=f"<think>\nI doubt\n</think>\n\n{text}", **rest)

    call = Action(tool="search", args={"query": "mango"})
    asked = Step(actor=Actor.USER, message="price?")
    seen = (Observation(content="SECRET"),)
    return Trajectory(
        tools=TOOLS, steps=(asked, said("look", actions=(call,), observations=seen), said("40"), asked, said("41"))
    )


def test_a_call_without_words_keeps_its_whole_tag_where_the_prompt_opens_thinking() -> None:
    """`<think>` and `<tool_call>` both begin with `<t`; the thinking is closed before the call."""
    renderer = renderer_of(_OPENED)
    mute = episode().steps[2].model_copy(update={"thought": None})
    rows = renderer.render(episode().model_copy(update={"steps": (*episode().steps[:2], mute)}), 4096).rows
    assert turns(renderer, rows) == [
        '\n</think>\n\n<tool_call>\n{"name": "search", "arguments": {"query": "mango 0"}}\n</tool_call><|im_end|>'
    ]


def test_a_turn_closes_the_thinking_that_its_prompt_opens_and_parses_back() -> None:
    renderer = renderer_of(_CLOSED)
    assert renderer.style == "tools"
    rows = renderer.render(episode(2), 4096).rows
    assert turns(renderer, rows)[1] == "\n</think>\n\nIt costs 40.<|im_end|>"
    assert renderer.parse("\n</think>\n\nIt costs 40.").thought == "It costs 40."


def test_other_thinking_than_that_of_tags_is_closed_too_where_the_prompt_opens_it() -> None:
    """As Cohere's reasoning models open theirs; a turn with thinking closes it itself."""
    thinking = "{{ '<|hm|>%s<|so|>' % message.reasoning_content if message.reasoning_content }}"
    template = CHATML_TOOLS.replace(_HEADER + "{{ message.content }}", _HEADER + thinking + "{{ message.content }}")
    asked = "{%- if add_generation_prompt %}" + _HEADER
    renderer = renderer_of(template.replace(asked, asked + "<|hm|>"), "<|hm|>", "<|so|>")
    thought = episode(2).steps[2].model_copy(update={"message": "I look."})
    mute = thought.model_copy(update={"thought": None})
    for step, opening in ((thought, "look it up 0<|so|>I look.\n"), (mute, "<|so|>I look.\n")):
        run = episode(2).model_copy(update={"steps": (*episode(2).steps[:2], step, episode(2).steps[3])})
        call, answer = turns(renderer, renderer.render(run, 4096).rows)
        assert call.startswith(opening + "<tool_call>")
        assert answer == "<|so|>It costs 40.<|im_end|>"
    read = renderer.parse(call.removesuffix("<|im_end|>"), TOOLS)
    assert (read.thought, read.actions) == ("I look.", mute.actions)


def test_observations_are_never_supervised_where_a_turn_strips_thinking_before_it() -> None:
    renderer = renderer_of(_LATEST)
    rows = renderer.render(thinking_episode(), 4096).rows
    assert turns(renderer, rows) == [
        '<think>\nI doubt\n</think>\n\nlook\nAction: search {"query": "mango"}<|im_end|>',
        "<think>\nI doubt\n</think>\n\n40<|im_end|>",
        "<think>\nI doubt\n</think>\n\n41<|im_end|>",
    ]


def test_rows_and_caches_end_where_a_turn_rewrites_earlier_text() -> None:
    renderer = renderer_of(_LATEST)
    messages = [message for message, _ in messages_of(thinking_episode())]
    first, second = renderer.render(thinking_episode(), 4096).rows
    assert sorted({*first.step_index} - {-1}) == [1, 2]
    assert renderer.continuation(messages[:2], messages[2:3], TOOLS) is not None
    assert renderer.continuation(messages[:4], messages[4:5], TOOLS) is None
    assert second.token_ids[: second.places[0]].tolist() == renderer.opening(messages[:5], TOOLS)


@pytest.mark.parametrize(
    ("template", "call", "answer"),
    [
        (
            QWEN3,
            "<think>\nso I look\n</think>\n\nI look.\n<tool_call>",
            "<think>\nso 40\n</think>\n\nIt costs 40.<|im_end|>",
        ),
        (_FILLED, "so I look\n</think>\n\nI look.\n<tool_call>", "so 40\n</think>\n\nIt costs 40.<|im_end|>"),
        (_AGAIN, "so I look\n</think>\n\nI look.\n<tool_call>", "so 40\n</think>\n\nIt costs 40.<|im_end|>"),
        (_BY_KEY, "{so I look}I look.\n<tool_call>", "{so 40}It costs 40.<|im_end|>"),
        (_BY_PART, "[THINK]so I look[/THINK]I look.\n<tool_call>", "[THINK]so 40[/THINK]It costs 40.<|im_end|>"),
        (_KEY_OR_TEXT, "so I look\n\nI look.\n<tool_call>", "{so 40}It costs 40.<|im_end|>"),
        (CHATML_TOOLS, "so I look\n\nI look.\n<tool_call>", "so 40\n\nIt costs 40.<|im_end|>"),
    ],
    ids=[
        "Qwen 3",
        "Qwen 3.5",
        "Nemotron Nano 2",
        "by a key",
        "by a part",
        "by a key, but not beside a call",
        "does not think",
    ],
)
def test_what_an_agent_thought_is_learnt_as_the_thinking_of_the_model(template: str, call: str, answer: str) -> None:
    """A log's `reasoning_content` is its thought; in a rollout a thought is the text that the model wrote before its calls."""
    renderer = renderer_of(template)
    run = episode(2)
    called = run.steps[2].model_copy(update={"thought": "so I look", "message": "I look."})
    run = run.model_copy(
        update={"steps": (*run.steps[:2], called, run.steps[3].model_copy(update={"thought": "so 40"}))}
    )
    first, last = turns(renderer, renderer.render(run, 4096).rows)
    assert first.startswith(call)
    assert last == answer
    assert renderer.parse(first.removesuffix("<|im_end|>")).actions == called.actions
    played = renderer.render(run.model_copy(update={"episode_key": "job-1/0"}), 4096).rows
    assert "so 40\n\nIt costs 40.<|im_end|>" in turns(renderer, played)[1]


def test_thinking_that_the_template_leaves_out_is_learnt_all_the_same() -> None:
    renderer = renderer_of(_R1)
    rows = renderer.render(thinking_episode(), 4096).rows
    assert turns(renderer, rows)[1] == "I doubt\n</think>\n\n40<|im_end|>"
    assert "assistant\n<think>\nI doubt\n</think>\n\n40<|im_end|>" in renderer.decode(rows[1].token_ids)
    assert "I doubt" not in renderer.decode(rows[1].token_ids[: rows[1].places[0]])


def test_a_chat_without_tools_has_the_template_that_the_tokenizer_keeps_for_it() -> None:
    """As Hermes 3, whose template with tools refuses to be without."""
    with_tools = "{{ tools | length }} tools\n" + CHATML_TOOLS
    renderer = renderer_of({"default": _PLAIN + _ASKED, "tool_use": with_tools})
    assert renderer.style == "tools"
    shown = [renderer.render(episode(2).model_copy(update={"tools": tools}), 4096).rows[0] for tools in ((), TOOLS)]
    assert [renderer.decode(row.token_ids)[:12] for row in shown] == ["<|im_start|>", "1 tools<|im_"]


def test_a_later_system_message_is_the_users_where_the_template_omits_it() -> None:
    first, asked, called, answered = episode(2).steps
    more = Step(actor=Actor.SYSTEM, message="Answer in euros.")
    run = episode(2).model_copy(update={"steps": (first, more, asked, called, more, answered)})
    (row,) = (renderer := renderer_of(_ONE_SYSTEM)).render(run, 4096).rows
    system, user, _, result, _ = (
        part.partition("\n")[::2] for part in renderer.decode(row.token_ids).split("<|im_start|>")[1:]
    )
    assert [system[0], user[0], result[0]] == ["system", "user", "user"]
    assert system[1].startswith("You are an agent.\n\nYou can use")
    assert system[1].endswith("\n\nAnswer in euros.<|im_end|>\n")
    assert result[1].startswith("Observation: result 0: id 12\n\nAnswer in euros.")
    kept = renderer_of(CHATML_TOOLS).render(run, 4096).rows[0]
    assert "<|im_start|>system\nAnswer in euros." in renderer.decode(kept.token_ids)


@pytest.mark.parametrize("template", [_MERGING, GEMMA], ids=["merges them", "refuses them"])
def test_adjacent_turns_are_one_where_the_template_does_not_keep_them_apart(template: str) -> None:
    """With an empty line between, as mistral-common joins them; each step keeps its tokens and its mask."""
    first, asked, called, _ = episode(2).steps
    said = [Step(actor=Actor.AGENT, message=text, train=train) for text, train in (("Yes.", None), ("Wait.", False))]
    run = episode(2).model_copy(update={"steps": (first, asked, *said, called)})
    renderer = renderer_of(template, *GEMMA_SPECIAL)
    (row,) = renderer.render(run, 4096).rows
    texts = [renderer.decode(row.token_ids[row.step_index == step]) for step in (2, 3, 4)]
    assert texts[:2] == ["Yes.", "\n\nWait."]
    assert texts[2].startswith("\n\nThought: ")
    assert [row.supervised[row.step_index == step].any() for step in (2, 3, 4)] == [True, False, True]
    refused = run.model_copy(update={"steps": (first, asked, called.model_copy(update={"observations": ()}), *said)})
    assert renderer.render(refused, 4096).dropped == "template_refused"
    assert len(turns(renderer_of(CHATML_TOOLS), renderer_of(CHATML_TOOLS).render(run, 4096).rows)) == 2


def test_a_user_who_speaks_behind_a_result_is_heard_where_the_template_awaits_the_agent() -> None:
    """As Mistral's, which refuses two user turns without an answer between, results aside."""
    refusal = "{{ raise_exception('roles must alternate') }}"
    strict = CHATML_TOOLS.replace(
        "{% elif message.role == 'tool' %}",
        f"{{% elif message.role == 'tool' %}}{{% if loop.nextitem is defined and loop.nextitem.role == 'user' %}}{refusal}{{% endif %}}",
    )
    first, asked, called, answered = episode(2).steps
    hurry = Step(actor=Actor.USER, message="Hurry.")
    run = episode(2).model_copy(update={"steps": (first, asked, called, hurry, answered)})
    (row,) = (renderer := renderer_of(strict)).render(run, 4096).rows
    assert "<tool_response>\nresult 0: id 12\n\nHurry.\n</tool_response>" in renderer.decode(row.token_ids)


def test_a_turn_ends_with_its_own_end_token_and_not_with_that_of_the_conversation() -> None:
    renderer = renderer_of(_PHI3, "<|end|>", "<|assistant|>", "<|user|>", "<|endoftext|>", eos="<|endoftext|>")
    rows = renderer.render(episode(2), 4096).rows
    assert len(rows) == 1
    assert turns(renderer, rows)[1] == "It costs 40.<|end|>"
    assert "<|endoftext|>" not in renderer.decode(rows[0].token_ids)


@pytest.mark.parametrize(
    ("template", "end"),
    [
        (
            "{% set ns = namespace(asked=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.asked = loop.index0 %}"
            "{% endif %}{% endfor %}{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}"
            "{{ '<think>' if loop.index0 > ns.asked }}</think>{% endif %}{{ m.content }}{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|><think>{% endif %}",
            "<|user|>",
        ),
        (
            "{% for m in messages %}<|start|><|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|start|><|assistant|>"
            "{% if add_generation_prompt %}<|answer|>{% endif %}",
            "<|end|>",
        ),
        (
            "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}\n{% endfor %}<|start|>assistant\n",
            "<|start|>",
        ),
    ],
    ids=[
        "GLM 5.1 rewrites the thinking of turns that something follows",
        "Command A opens the next turn in any case",
        "Nemotron Mini does so without an end token",
    ],
)
def test_the_end_of_a_turn_is_found_where_the_text_around_it_changes(template: str, end: str) -> None:
    renderer = renderer_of(
        template, "<|user|>", "<|assistant|>", "<|system|>", "<|start|>", "<|end|>", "<|answer|>", eos="<|pad|>"
    )
    assert renderer.decode(renderer.end_turn) == end
    assert all(
        turn.endswith(end) and turn.count("<|") == 1 for turn in turns(renderer, renderer.render(episode(), 4096).rows)
    )


@pytest.mark.parametrize(
    ("prompt", "finished", "said", "turn"),
    [
        ("Q [/INST]", "Q [/INST] yes</s>", "yes", " yes</s>"),
        ("Q A:<think>\n", "Q A:</think>yes", "yes", "</think>yes"),
        ("Q A:<think>\n\n</think>\n\n", "Q A:<think>\nhm\n</think>\n\nyes", "<think>\nhm\n</think>\n\nyes", None),
        ("Q A:<a>", "Q A:<ab>yes", "yes", "<ab>yes"),
        ("Q # A:\n", "Q \n\n# A:\nyes", "yes", "yes"),
    ],
)
def test_a_turn_begins_where_prompt_and_finished_text_part(
    prompt: str, finished: str, said: str, turn: str | None
) -> None:
    assert turn_of(prompt, finished, before="Q ", content=said) == (turn or said)


def test_a_turn_of_several_messages_begins_at_the_first_where_the_template_rewrites_what_stands_before() -> None:
    """As of gpt-oss, which writes thinking as a message of its own and omits that of earlier turns behind an answer."""
    before, prompt = "Q A:(why)look R:40 ", "Q A:(why)look R:40 A:"
    turn, rewritten = "(so 40) A:It costs 40.", "Q A:look R:40 A:"
    plain = f"{rewritten}It costs 40."
    assert turn_of(prompt, rewritten + turn, before=before, content="It costs 40.", plain=plain) == turn


def test_a_turn_of_white_space_does_not_stop_the_others() -> None:
    renderer = renderer_of(CHATML_TOOLS.replace("{{ message.content }}{% for", "{{ message.content | trim }}{% for"))
    blank = Step(actor=Actor.AGENT, message=" \n")
    whole = episode(2)
    rows = renderer.render(whole.model_copy(update={"steps": (*whole.steps[:2], blank, *whole.steps[2:])}), 4096).rows
    assert turns(renderer, rows)[-1] == "It costs 40.<|im_end|>"
