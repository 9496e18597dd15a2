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


def test_a_value_too_large_to_be_known_by_its_beginning_says_so(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    with path.open("wb") as file:
        file.write(b'{"messages":[')
        file.writelines(b'{"role":"user","content":"%s"},' % (b"x" * 2**22) for _ in range(9))
        file.write(b'{"role":"assistant","content":"a"}]}')
    (rejected,) = import_logs(tmp_path, ImportOptions(), DryRun({})).rejected
    assert "too large to detect from its beginning (set its format)" in rejected.reason
