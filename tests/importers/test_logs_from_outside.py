"""Logs as other programs write them that an earlier reader got wrong: items of the Responses API, tags of Hermes, events of Strands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_logs import outline, read, write
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.run_sink import DryRun

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather?"},
    {"type": "function_call", "call_id": "c", "name": "get", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "3C"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 3C."}]},
]
WEATHER = ["user: Weather?", "agent:  > get(c) < 3C(c)", "agent: It is 3C."]


def test_items_of_the_responses_api_keep_the_turn_of_the_user_and_are_no_codex_rollout(tmp_path: Path) -> None:
    for name, value in (("a.json", ITEMS), ("b.jsonl", ITEMS), ("c.jsonl", [{"messages": ITEMS}])):
        got = read(write(tmp_path / name, value), tmp_path)
        assert (got.format, outline(got.only)) == ("openai_chat", WEATHER)


def test_a_response_of_the_responses_api_brings_its_question_model_tokens_and_time(tmp_path: Path) -> None:
    told = {
        "object": "response",
        "created_at": 1_740_000_000,
        "model": "gpt-5-2025",
        "output": [ITEMS[3]],
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    asked = {"model": "gpt-5", "instructions": "Be brief.", "input": "Weather?"}
    rows = [{"request": asked, "response": told}, {"custom_id": "1", "response": {"status_code": 200, "body": told}}]
    both, batch = read(write(tmp_path / "log.jsonl", rows), tmp_path).all
    assert outline(both) == ["system: Be brief.", "user: Weather?", "agent: It is 3C."]
    for run in (both, batch):
        (step,) = run.agent_steps
        assert step.usage is not None
        assert step.timestamp is not None
        assert (step.model, step.usage.input_tokens, step.timestamp.isoformat()) == (
            "gpt-5-2025",
            3,
            "2025-02-19T21:20:00+00:00",
        )


def test_a_chat_completion_tells_when_it_was_made_and_columns_of_json_are_kept_once(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "q"}]
    response = {"created": 1_740_000_000, "choices": [{"message": {"role": "assistant", "content": "a"}}]}
    rows = [{"messages": json.dumps(chat), "response": response, "tools": "[]", "kept": 1}]
    run = read(write(tmp_path / "log.jsonl", rows), tmp_path).only
    assert run.agent_steps[0].timestamp is not None
    assert run.extra == {"row": {"kept": 1}}


def test_calls_between_tags_are_calls_where_their_results_are_turns_of_a_tool(tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "get", "arguments": {"id": {"n": 7}}}\n</tool_call>'
    answers = "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"
    hermes = [
        {"from": "human", "value": "q"},
        {"from": "gpt", "value": f"<think>\nplan\n</think>\nI look.\n{call}\n{call}"},
        {"from": "tool", "value": answers},
        {"from": "gpt", "value": "Done."},
    ]
    run = read(write(tmp_path / "a.jsonl", [{"conversations": hermes}]), tmp_path).only
    assert outline(run) == [
        "user: q",
        "agent: I look. > get(None) > get(None) < one(None) < two(None)",
        "agent: Done.",
    ]
    assert (run.steps[1].thought, run.steps[1].actions[0].args) == ("plan", {"id": {"n": 7}})


def test_calls_between_tags_stay_text_where_the_user_answers_or_one_is_no_call(tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "get"}\n</tool_call>'
    for n, (said, answers) in enumerate(((call, "user"), (call + "<tool_call>\nnot so\n</tool_call>", "tool"))):
        chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": said}]
        chat += [{"role": answers, "content": "r"}, {"role": "assistant", "content": "a"}]
        run = read(write(tmp_path / f"{n}.jsonl", [{"messages": chat}]), tmp_path).only
        assert (run.steps[1].message, run.steps[1].actions) == (said, ())


def event(name: str, **fields: str) -> dict[str, Any]:
    return {"name": name, "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in fields.items()]}


def test_strands_writes_content_as_json_and_a_tools_arguments_where_others_write_its_result(tmp_path: Path) -> None:
    asked, call = [{"text": "Weather?"}], {"toolUse": {"toolUseId": "c", "name": "get", "input": {"at": "Oslo"}}}
    result = {"toolResult": {"toolUseId": "c", "status": "success", "content": [{"text": "3C"}]}}
    user = event("gen_ai.user.message", content=json.dumps(asked))
    spans = [
        ("chat", [user, event("gen_ai.choice", message=json.dumps([call]), finish_reason="tool_use")]),
        (
            "execute_tool",
            [
                event("gen_ai.tool.message", id="c", content='{"at": "Oslo"}'),
                event("gen_ai.choice", id="c", message='[{"text": "3C"}]'),
            ],
        ),
        (
            "chat",
            [
                user,
                event("gen_ai.assistant.message", content=json.dumps([call])),
                event("gen_ai.tool.message", content=json.dumps([result])),
                event("gen_ai.choice", message='[{"text": "It is 3C."}]'),
            ],
        ),
    ]
    rows = [
        {
            "traceId": "t",
            "spanId": f"s{n}",
            "parentSpanId": "s",
            "name": "execute_tool get" if kind == "execute_tool" else kind,
            "startTimeUnixNano": str(1_760_000_000_000_000_000 + n),
            "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": kind}}],
            "events": events,
        }
        for n, (kind, events) in enumerate(spans)
    ]
    path = write(tmp_path / "otlp.json", {"resourceSpans": [{"scopeSpans": [{"spans": rows}]}]})
    run = read(path, tmp_path).only
    assert outline(run) == WEATHER
    assert run.agent_steps[0].actions[0].args == {"at": "Oslo"}


def test_a_span_whose_content_stands_in_events_alone_is_a_model_call_and_names_its_model(tmp_path: Path) -> None:
    events = [
        event("gen_ai.content.prompt", **{"gen_ai.prompt": json.dumps([{"role": "user", "content": "q"}])}),
        event(
            "gen_ai.content.completion", **{"gen_ai.completion": json.dumps([{"role": "assistant", "content": "a"}])}
        ),
    ]
    model = [{"key": "gen_ai.request.model", "value": {"stringValue": "m-1"}}]
    spans = [{"traceId": "t", "spanId": "s", "name": "chat m-1", "attributes": model, "events": events}]
    got = read(write(tmp_path / "otlp.json", {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}), tmp_path)
    assert outline(got.only) == ["user: q", "agent: a"]
    assert got.only.agent_steps[0].model == "m-1"


def test_pages_after_a_text_action_are_turns_of_the_user(tmp_path: Path) -> None:
    steps = [
        {"observation": "[1] shop", "action": "click [1]", "url": "http://x"},
        {"observation": "[2] cart", "action": "stop []"},
    ]
    got = read(write(tmp_path / "w.jsonl", [{"intent": "Buy it", "trajectory": steps}]), tmp_path)
    assert outline(got.only) == [
        "user: Buy it",
        "user: [1] shop",
        "agent: click [1]",
        "user: [2] cart",
        "agent: stop []",
    ]
    assert not got.report.notes


def test_a_value_too_large_to_be_known_by_its_beginning_says_so(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    with path.open("wb") as file:
        file.write(b'{"messages":[')
        file.writelines(b'{"role":"user","content":"%s"},' % (b"x" * 2**22) for _ in range(9))
        file.write(b'{"role":"assistant","content":"a"}]}')
    (rejected,) = import_logs(tmp_path, ImportOptions(), DryRun({})).rejected
    assert "too large to detect from its beginning (set its format)" in rejected.reason


def test_a_block_of_an_unknown_kind_is_no_word_of_the_agent(tmp_path: Path) -> None:
    strange = [{"type": "text", "text": "Done."}, {"type": "later_invention", "x": 1}]
    lines = [
        {"type": kind, "uuid": uuid, "parentUuid": above, "sessionId": "s", "message": {"role": kind, "content": said}}
        for kind, uuid, above, said in (("user", "u", None, "Go"), ("assistant", "a", "u", strange))
    ]
    items = [
        {"type": "message", "role": role, "content": said} for role, said in (("user", "Go"), ("assistant", strange))
    ]
    rollout = [{"type": "session_meta", "payload": {"id": "s"}}]
    rollout += [{"type": "response_item", "payload": item} for item in items]
    for name, rows in (("claude.jsonl", lines), ("codex.jsonl", rollout)):
        got = read(write(tmp_path / name, rows), tmp_path)
        assert outline(got.only) == ["user: Go", "agent: Done."]
        assert got.report.unknown["part:later_invention"] == 1
