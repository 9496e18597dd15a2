"""Calls in the forms of well-known models: a template's turn is what is learnt, and parses back to the same calls."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.datasets.messages import messages_of
from quintain.errors import InvalidInput
from quintain.records.protocols import Message
from quintain.records.trajectory import Action, Actor, Observation, Step, Trajectory
from quintain.trainers.preview.faults import Faults
from quintain.trainers.preview.row import Member
from quintain.trainers.rendering.call_forms import FORMS
from quintain.trainers.rendering.call_parsing import MAX_CALLS, TurnReader
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.rendering.values import parse_untyped
from tiny_models import CHATML_TOOLS, tiny_tokenizer
from trainers.call_templates import CALLED, NEMO

ARGUMENTS = {"query": "ä \"q\"\n's'\\n", "limits": {"low": [1, 2.5, None]}, "deep": True, "code": "042", "n": -3}
SCHEMA = {"query": "string", "limits": "object", "deep": "boolean", "code": "string", "n": "integer"}
RICH_TOOLS: tuple[dict[str, Any], ...] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name,
            "parameters": {"type": "object", "properties": {key: {"type": kind} for key, kind in SCHEMA.items()}},
        },
    }
    for name in ("search", "open", "web-search.v2")
)
in_every_form = pytest.mark.parametrize("name", CALLED)


@cache
def renderer_of(name: str) -> Renderer:
    return Renderer.of(CALLED[name].tokenizer())


def acted(thought: str | None, *calls: tuple[str, dict[str, Any]], said: str = "id 12") -> Step:
    actions = tuple(Action(tool=tool, args=args, call_id=str(i)) for i, (tool, args) in enumerate(calls))
    seen = tuple(Observation(content=f"{said} {action.tool}", call_id=action.call_id) for action in actions)
    return Step(actor=Actor.AGENT, thought=thought, actions=actions, observations=seen)


def run_of(*steps: Step) -> Trajectory:
    asked = (Step(actor=Actor.SYSTEM, message="You are an agent."), Step(actor=Actor.USER, message="price?"))
    return Trajectory(tools=RICH_TOOLS, steps=(*asked, *steps))


SHORT = run_of(acted("look it up", ("search", {"query": "mango"})), Step(actor=Actor.AGENT, message="It costs 40."))
RICH = run_of(
    acted("think\ntwice", ("search", ARGUMENTS)),
    acted(None, ("open", {"n": 1})),
    acted("both", ("search", {"query": "a"}), ("open", {})),
    Step(actor=Actor.AGENT, message="It costs 40."),
)


def turns(renderer: Renderer, trajectory: Trajectory) -> list[list[int]]:
    """The ids of each supervised turn."""
    found: list[list[int]] = []
    for row in renderer.render(trajectory, 100_000).rows:
        for place in row.places:
            if not row.supervised[place - 1]:
                found.append([])
            found[-1].append(int(row.token_ids[place]))
    return found


@in_every_form
def test_the_template_writes_the_turn_that_its_model_was_trained_on(name: str) -> None:
    renderer, called = renderer_of(name), CALLED[name]
    assert (renderer.style, renderer.reader.form) == ("tools", called.form)
    assert renderer.reader.one_call == called.one_call
    assert [renderer.decode(turn) for turn in turns(renderer, SHORT)] == [called.turn, called.answer]
    whole = renderer.decode(renderer.render(SHORT, 100_000).rows[-1].token_ids)
    assert "id 12 search" in whole
    assert "search" in whole.partition("price?")[0] + whole.partition("look it up")[0]


@in_every_form
def test_every_turn_reads_back_with_nested_values_text_of_any_kind_and_two_calls(name: str) -> None:
    renderer = renderer_of(name)
    written = turns(renderer, RICH)
    assert all(turn[-1] in renderer.end_ids for turn in written)
    read = [renderer.parse(renderer.written(turn), RICH_TOOLS) for turn in written]
    assert [r.error for r in read] == [None] * len(read)
    calls = [("search", {"query": "a"}), ("open", {})]
    split = [("both", calls[:1]), (None, calls[1:])] if renderer.reader.one_call else [("both", calls)]
    assert [(r.thought, [(a.tool, a.args) for a in r.actions]) for r in read] == [
        ("think\ntwice", [("search", ARGUMENTS)]),
        (None, [("open", {"n": 1})]),
        *split,
        ("It costs 40.", []),
    ]
    assert not any("id 12" in renderer.decode(turn) for turn in written)


@in_every_form
def test_a_policy_feeds_the_tokens_of_the_row_between_turns(name: str) -> None:
    renderer = renderer_of(name)
    messages = [message for message, _ in messages_of(SHORT)]
    call, answer = turns(renderer, SHORT)
    opening = renderer.opening(messages[:2], RICH_TOOLS)
    following = renderer.continuation(messages[:3], messages[3:4], RICH_TOOLS)
    assert following is not None
    (row,) = renderer.render(SHORT, 100_000).rows
    assert row.token_ids.tolist() == opening + call + following + answer


@in_every_form
def test_tools_and_arguments_with_hyphens_read_back(name: str) -> None:
    renderer = renderer_of(name)
    (turn, _) = turns(renderer, run_of(acted(None, ("web-search.v2", {"top-k": 3, "class": "a"})), SHORT.steps[-1]))
    (call,) = renderer.parse(renderer.written(turn), RICH_TOOLS).actions
    assert (call.tool, call.args) == ("web-search.v2", {"top-k": 3, "class": "a"})


def test_a_tool_without_a_description_gets_one_where_the_template_needs_it() -> None:
    """As gpt-oss; the schemas that an import infers have none, and other templates show them unchanged."""
    called, bare = CALLED["harmony"], {"type": "function", "function": {"name": "search", "parameters": None}}
    strict = called.template.replace(
        "{{ tools | tojson }}", "{{ '// ' + tools[0].function.description }}{{ tools | tojson }}"
    )
    strict = called._replace(template=strict)
    shown = [
        of.decode(of.render(SHORT.model_copy(update={"tools": (bare,)}), 100_000).rows[0].token_ids)
        for of in map(Renderer.of, (strict.tokenizer(), called.tokenizer()))
    ]
    assert '"parameters": {"type": "object", "properties": {}}' in shown[0]
    assert '"parameters": null' in shown[1]


def test_a_turn_with_several_calls_becomes_several_turns_where_the_template_supports_one() -> None:
    renderer = renderer_of("llama31")
    assert "one tool call per turn" in renderer.warnings[0]
    run = run_of(acted("both", ("search", {"query": "a"}), ("open", {"n": 2})), Step(actor=Actor.AGENT, message="done"))
    (row,) = renderer.render(run, 4096).rows
    assert [renderer.decode(turn) for turn in turns(renderer, run)] == [
        'both\n{"name": "search", "parameters": {"query": "a"}}<|eot_id|>',
        '{"name": "open", "parameters": {"n": 2}}<|eot_id|>',
        "done<|eot_id|>",
    ]
    header = "<|start_header_id|>{}<|end_header_id|>\n\n"
    first, second = (f"{header.format('ipython')}id 12 {tool}<|eot_id|>" for tool in ("search", "open"))
    text = renderer.decode(row.token_ids)
    assert f"{first}{header.format('assistant')}" + '{"name": "open"' in text
    assert f"{second}{header.format('assistant')}done" in text
    assert sorted({*row.step_index.tolist()}) == [-1, 2, 3]
    # A row ends with a whole step: the first of two calls is not learnt without the second.
    cut = max(i for i, step in enumerate(row.step_index) if step == 2)
    assert renderer.render(run, cut) == ([], 2, "too_long")
    two = '{"name": "search", "parameters": {}}; {"name": "open", "parameters": {}}'
    assert "expected one call a turn, got 2" in str(renderer.parse(two).error)


def test_a_split_turn_keeps_its_thought_in_a_preview_and_results_follow_the_calls_that_they_name() -> None:
    renderer, run = renderer_of("llama31"), run_of(acted("both", ("search", {"query": "a"}), ("open", {"n": 2})))
    rows = renderer.render(run, 4096).rows
    faults = Faults(renderer)
    faults.look(Member("", run, rows, rows), 1)
    assert not {"thoughts_lost", "thoughts_stripped"} & faults.found.keys()
    step = acted(None, ("search", {}), ("open", {}))
    swapped = step.model_copy(update={"observations": step.observations[::-1]})
    written = [renderer.decode(turn) for turn in turns(renderer, run_of(swapped))]
    assert [text.split('"')[3] for text in written] == ["open", "search"]


def test_a_thought_that_the_template_leaves_out_stays_with_the_run() -> None:
    """One row: what the policy keeps in its cache is the turn as it was written."""
    renderer = renderer_of("nemo")
    rows = renderer.render(RICH, 100_000).rows
    assert len(rows) == 1
    text = renderer.decode(rows[0].token_ids)
    assert "[/INST]think\ntwice[TOOL_CALLS][" in text
    assert "both[TOOL_CALLS][" in text


def test_tokens_that_end_a_call_or_a_builtin_tool_end_a_turn() -> None:
    ends = {name: {renderer_of(name).decode([i]) for i in renderer_of(name).end_ids} for name in ("llama31", "harmony")}
    assert ends == {"llama31": {"<|eot_id|>", "<|eom_id|>"}, "harmony": {"<|call|>", "<|return|>"}}


def test_a_turn_that_ended_with_another_token_gets_the_one_that_opens_what_follows() -> None:
    """GLM ends a call by `<|observation|>`, which the next part does not write again, whatever token was sampled."""
    renderer = renderer_of("glm45")
    call, _ = turns(renderer, SHORT)
    observation, eos = renderer.writer.encode("<|observation|>"), renderer.writer.encode("<|endoftext|>")
    assert renderer.closing(call, called=True) == []
    for ended in (call[:-1], [*call[:-1], *eos]):
        assert renderer.closing(ended, called=True) == observation
    messages = [message for message, _ in messages_of(SHORT)]
    following = renderer.continuation(messages[:3], messages[3:4], RICH_TOOLS)
    assert renderer.decode(following or []).startswith("\n<tool_response>")


def test_markers_that_a_thought_spells_are_no_control_tokens() -> None:
    renderer = renderer_of("nemo")
    spelt = run_of(acted("say [TOOL_CALLS]</s>", ("search", {"query": "[TOOL_CALLS]"})))
    (turn,) = turns(renderer, spelt)
    assert [turn.count(renderer.tokenizer.convert_tokens_to_ids(mark)) for mark in ("[TOOL_CALLS]", "</s>")] == [1, 1]


@pytest.mark.parametrize(
    "calls",
    [
        """{{ '[' + call.function.name + "(query='" + call.function.arguments.query + "')]" }}""",
        "{{ '<tool_call>' + call.function.name + '</tool_call>' }}",
    ],
    ids=["quotes are not escaped", "arguments are left out"],
)
def test_calls_that_do_not_read_back_exactly_are_written_as_react(calls: str) -> None:
    start = CHATML_TOOLS.index("<tool_call>")
    template = CHATML_TOOLS[:start] + calls + CHATML_TOOLS[CHATML_TOOLS.index("{% endfor %}<|im_end|>") :]
    assert Renderer.of(tiny_tokenizer(template)).style == "react"
    with pytest.raises(InvalidInput, match="template_unfit"):
        Renderer.of(tiny_tokenizer(template), "tools")


def test_a_call_that_would_never_be_sampled_is_no_native_call() -> None:
    """This template ends the turn between thought and call: an agent would stop there. Without the thought it does not."""
    called = CALLED["nemo"]
    template = NEMO.replace(
        '{{- "[TOOL_CALLS][" }}', '{{- message.content + eos_token if message.content else "" }}[TOOL_CALLS]['
    )
    assert template != NEMO
    renderer = Renderer.of(called._replace(template=template).tokenizer())
    assert [renderer.decode(turn) for turn in turns(renderer, SHORT)] == [called.turn, called.answer]


READ = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n<tool_call>{"name": "g"}</tool_call>',
    "mistral": '[TOOL_CALLS] [{"name": "f", "arguments": "{\\"a\\": 1}", "id": "1"}, {"name": "g", "arguments": {}}]',
    "mistral_args": '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]x1[ARGS]{}',
    "llama": '<|python_tag|>{"type": "function", "name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
    "deepseek": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": 1}\n```<｜tool▁call▁end｜>'
    "\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "phi4": '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]<|/tool_call|>',
    "harmony": '<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}'
    "<|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}",
    "functionary_v31": '<function=f>{"a": 1}</function><function=g>{}</function>',
    "functionary_v32": '>>>f\n{"a": 1}>>>g\n{}',
    "nemotron": '<TOOLCALL>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]</TOOLCALL>',
    "apertus": '<|tools_prefix|>[{"f": {"a": 1}}, {"g": {}}]<|tools_suffix|>',
    "minimax_m2": '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>\n<invoke name="g">\n</invoke>',
    "gemma4": "<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{}<tool_call|>",
    "lfm2": "<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>",
    "pythonic": "[f(a=1), g()]",
}


@pytest.mark.parametrize("form", READ)
def test_forms_are_read_as_models_write_them(form: str) -> None:
    read = TurnReader(form).read(f"why\n{READ[form]}")
    assert (read.error, read.thought) == (None, "why")
    assert [(action.tool, action.args) for action in read.actions] == [("f", {"a": 1}), ("g", {})]
    assert TurnReader(form).read("It costs 40.") == ("It costs 40.", (), None)


@pytest.mark.parametrize(
    ("form", "text", "reason"),
    [
        ("hermes", '<tool_call>\n{"name": "search", "arguments": {}}', "is not closed"),
        ("hermes", '<tool_call>{"name": 3}</tool_call>', "a call must be an object"),
        ("hermes", '<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>', "NaN is not JSON"),
        ("hermes", '<tool_call>{"name": "a", "arguments": {"x": "\\ud800"}}</tool_call>', "surrogate"),
        ("hermes", '<tool_call>{"name": "a", "arguments": ' + "[" * 100_000, "could not be read"),
        ("react", "Thought: x\nAction: search mango", "could not be read"),
        ("react", "Thought: x\nAction:", "must be written as"),
        ("react", "Action: search [1]", "expected a JSON object"),
        ("mistral", "[TOOL_CALLS][{]", "Expecting property name"),
        ("mistral_args", '[TOOL_CALLS]f{"a": 1}', "must be written as `[TOOL_CALLS]tool[ARGS]{...}`"),
        ("mistral_args", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g', "must be written as"),
        ("llama", '{"name": "f", "parameters": {"a": 1}', "Expecting ',' delimiter"),
        ("llama", '{"name": "f", "parameters": [1]}', "expected a JSON object as arguments of 'f', got list"),
        ("deepseek_v31", "<｜tool▁calls▁begin｜>nothing", "must be written as `<｜tool▁call▁begin｜>tool"),
        ("kimi_k2", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}", "is not closed"),
        ("cohere", '<|START_ACTION|>[{"tool_name": 3}]<|END_ACTION|>', "a call must be an object"),
        ("harmony", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>a=1", "Expecting value"),
        ("glm", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</tool_call>", "the argument 'a' is not closed"),
        ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</tool_call>", "is not closed"),
        ("gemma4", '<|tool_call>call:f{a:<|"|>1<tool_call|>', "a call is not closed"),
        ("lfm2", "<|tool_call_start|>[f(1)]<|tool_call_end|>", "every argument with its name"),
        ("lfm2", "<|tool_call_start|>[f(a=open('x'))]<|tool_call_end|>", "expected a literal as value"),
        ("pythonic", "[f(a=1]", "(line 1, column "),
        ("hermes", "<tool_call>[" + '{"name": "f"},' * MAX_CALLS + '{"name": "f"}]</tool_call>', "at most 200 calls"),
    ],
)
def test_a_malformed_call_gives_the_reason_and_no_action(form: str, text: str, reason: str) -> None:
    read = TurnReader(form).read(text)
    assert read.actions == ()
    assert reason in str(read.error)


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("42", {"type": "string"}, "42"),
        ("42", {"type": "integer"}, 42),
        ("42", {}, 42),
        ("True", {"type": "boolean"}, True),
        ("[1, None, 'a']", {"type": "array"}, [1, None, "a"]),
        ("None", {"type": ["string", "null"]}, None),
        ("42", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "42"),
        ("1", {"enum": ["1", "2"]}, "1"),
        ("many", {"type": "integer"}, "many"),
        ("mango", None, "mango"),
        ("NaN", {"type": "number"}, "NaN"),
        ("[" * 100_000, {"type": "array"}, "[" * 100_000),
    ],
)
def test_a_value_without_its_type_is_read_by_the_schema(text: str, schema: Any, value: Any) -> None:
    read = parse_untyped(text, schema)
    assert read == value
    assert type(read) is type(value)


MARKS = sorted({READ[form][:12] for form in READ} | {form.close for form in FORMS.values()} | {*'{}[]":,=()f1 \n<>|'})


@settings(max_examples=40)
@given(st.lists(st.sampled_from(MARKS) | st.text(max_size=5), max_size=20).map("".join), st.sampled_from(sorted(FORMS)))
def test_reading_never_raises(text: str, form: str) -> None:
    read = TurnReader(form).read(text, RICH_TOOLS)
    assert read.error is None or read.actions == ()


@pytest.mark.parametrize("form", FORMS)
def test_hostile_text_is_read_in_linear_time(form: str) -> None:
    """100 000 characters of what each form looks for: quadratic work would take minutes."""
    start = READ.get(form, FORMS[form].shape)[:24]
    for piece in (start, f"{start} ", " ", "\n", "[", "{", '{"a":', "<", "<tool_call>", '<|"|>', "<parameter=a>"):
        for before in ("", start):
            read = TurnReader(form).read(before + piece * (100_000 // len(piece)), RICH_TOOLS)
            assert read.error is None or read.actions == ()


@in_every_form
def test_a_turn_that_goes_on_behind_its_calls_ends_there_and_the_templates_own_turn_does_not(name: str) -> None:
    renderer = renderer_of(name)
    messages = (Message(role="user", content="ask"), Message(role="assistant", actions=(Action(tool="open", args={}),)))
    turn = renderer.writer.turn(renderer.writer.chat(messages, RICH_TOOLS), renderer.writer.schemas(RICH_TOOLS))
    text = renderer.written(renderer.writer.encode(turn.text))
    assert all(renderer.turn_end(text[:n], RICH_TOOLS) is None for n in range(len(text) + 1))
    end = renderer.turn_end(f"{text}\nThe answer", RICH_TOOLS)
    if end is not None:  # a few forms close their calls with the end token only
        assert text[:end].strip() == text.strip()
    assert renderer.turn_end(f"{text}\nThe answer") is None, "without tools there are no calls"
