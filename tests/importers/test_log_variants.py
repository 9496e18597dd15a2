"""Variants of logs that programs write in the field: forks, downloads, dumps and rendered texts, on small ones made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_logs import outline, read_as, read_one, survives, write
from quintain.importers.probing import probe
from quintain.importers.registry import detect
from quintain.importers.training_data.rendered_prompts import rendered_messages
from quintain.records.trajectory import ImagePart, text_of


def test_pictures_in_a_column_come_where_they_are_marked(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "<image>What? <image>"}, {"from": "gpt", "value": "A cat"}]
    row = {"conversations": turns, "images": ["a.jpg", {"path": "b.jpg", "bytes": None}]}
    run, _ = read_one("sharegpt", write(tmp_path / "rows.jsonl", [row]), tmp_path)
    message = run.trajectory.steps[0].message
    assert not isinstance(message, str)
    assert [part.uri if isinstance(part, ImagePart) else part.text for part in message] == ["a.jpg", "What? ", "b.jpg"]
    parts = [{"type": "image"}, {"type": "text", "text": "Q"}]
    chat = {
        "messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": "A"}],
        "images": [{"bytes": "x"}],
    }
    _, report = read_one("openai_chat", write(tmp_path / "chat.jsonl", [chat]), tmp_path)
    assert any("as bytes" in note for note in report.notes)


LANGCHAIN = [
    ("HumanMessage", "human", {"content": "add"}),
    ("AIMessage", "ai", {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "ok"}]}),
    ("ToolMessage", "tool", {"content": "3", "tool_call_id": "c"}),
    ("AIMessage", "ai", {"content": "3"}),
]


@pytest.mark.parametrize("style", ["dumpd", "messages_to_dict", "model_dump"])
def test_dumped_messages_of_langchain_are_a_chat(tmp_path: Path, style: str) -> None:
    made = []
    for kind, role, fields in LANGCHAIN:
        about = {**fields, "type": role, "response_metadata": {"model_name": "m"} if role == "ai" else {}}
        about |= (
            {"tool_calls": [{"name": "add", "args": {"x": 1}, "id": "c", "type": "tool_call"}]}
            if "thinking" in str(fields)
            else {}
        )
        path = ["langchain", "schema", "messages", kind]
        styles = {"dumpd": {"lc": 1, "type": "constructor", "id": path, "kwargs": about}, "model_dump": about}
        made.append(styles.get(style, {"type": role, "data": about}))
    value: Any = made if style == "messages_to_dict" else {"messages": made}
    run, _ = read_one("openai_chat", write(tmp_path / "dump.json", value), tmp_path)
    assert outline(run) == ["user: add", "agent: ok > add(c) < 3(c)", "agent: 3"]
    assert [step.model for step in run.trajectory.agent_steps] == ["m", "m"]
    assert run.trajectory.agent_steps[0].thought == "hm"


def test_messages_in_a_column_named_trajectory_are_a_chat_with_its_verdict(tmp_path: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    turns = [{"role": "user", "content": "U"}, {"role": "assistant", "content": "ok", "tool_calls": [call]}]
    turns.append({"role": "tool", "content": "a", "tool_call_id": "c"})
    row = {"trajectory_id": "t", "instance_id": "x", "trajectory": turns, "resolved": 1, "exit_status": "submit"}
    run, _ = read_one("openai_chat", write(tmp_path / "rows.jsonl", [row]), tmp_path)
    assert outline(run) == ["user: U", "agent: ok > bash(c) < a(c)"]
    assert (run.trajectory.outcome.status.value, run.trajectory.task.id) == ("success", "x")


def test_results_with_names_and_without_ids_stand_in_the_order_of_their_calls(tmp_path: Path) -> None:
    calls = [{"type": "function", "function": {"name": name, "arguments": "{}"}} for name in "ab"]
    results = [{"role": "tool", "name": name, "content": f"of {name}"} for name in "ba"]
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": calls}, *results]
    run, _ = read_one("openai_chat", write(tmp_path / "chat.jsonl", [{"messages": chat}]), tmp_path)
    assert [text_of(seen.content) for seen in run.trajectory.steps[1].observations] == ["of a", "of b"]


def test_text_that_a_template_rendered_is_taken_apart_where_it_is_plainly_marked(tmp_path: Path) -> None:
    prompt = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    output = "call<|im_end|>\n<|im_start|>user\n<tool_response>1</tool_response><|im_end|>\n<|im_start|>assistant\nA<|im_end|>"
    rows = [
        {"input": prompt, "output": output, "score": 1.0},
        {"input": "user\nQ\nassistant\n", "output": "A", "score": 0.0},
    ]
    runs, report = read_as("verl", write(tmp_path / "1.jsonl", rows), tmp_path)
    told = ["system: S", "user: Q", "agent: call", "user: <tool_response>1</tool_response>", "agent: A"]
    assert (outline(runs[0]), len(runs[1].trajectory.steps)) == (told, 2)
    assert any("without its special tokens" in note for note in report.notes)
    llama = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    again = (
        llama
        + "old<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nR<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert rendered_messages(again, "new<|eot_id|>") == [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "old", "weight": 0},
        {"role": "user", "content": "R"},
        {"role": "assistant", "content": "new"},
    ]
    assert rendered_messages("What does <|im_start|>user\n mean?", "A mark") is None


def test_harbor_names_the_task_of_a_trial_beside_its_trajectory(tmp_path: Path) -> None:
    steps = [{"step_id": 1, "source": "user", "message": "Go"}, {"step_id": 2, "source": "agent", "message": "Done"}]
    document = {"schema_version": "ATIF-v1.5", "agent": {"name": "a", "version": "1"}, "steps": steps}
    path = write(tmp_path / "t1__abc" / "agent" / "trajectory.json", document)
    write(tmp_path / "t1__abc" / "result.json", {"task_name": "t1", "verifier_result": {"rewards": {"reward": 1.0}}})
    run, _ = read_one("atif", path, tmp_path)
    assert (run.trajectory.task.id, run.trajectory.outcome.status.value) == ("t1", "success")


@pytest.mark.parametrize(
    "value",
    [
        {"input": "Input", "output": "Output", "instruction": "Instruction"},
        {"question": "Question", "answer": "Answer"},
        {"simulations": [{"id": 1, "result": 0.2}], "tasks": [{"id": "t"}], "info": {}},
        {"type": "user", "uuid": "u", "sessionId": "s", "message": {"role": "user", "parts": [{"text": "Hi"}]}},
    ],
)
def test_files_that_only_use_the_words_of_a_format_are_no_logs_of_it(tmp_path: Path, value: Any) -> None:
    assert detect(probe(write(tmp_path / "file.json", value), tmp_path)).importer is None


def test_a_list_of_persons_with_a_role_each_is_hardly_a_chat(tmp_path: Path) -> None:
    persons = [{"role": "user", "content": "Ann", "email": "a@example.org"}, {"role": "assistant", "content": "Bob"}]
    assert detect(probe(write(tmp_path / "users.json", persons), tmp_path)).confidence <= 0.5


def test_a_page_that_an_adp_agent_saw_is_its_tree_and_its_address_stands_beside_it(tmp_path: Path) -> None:
    content = [
        {"class_": "text_observation", "content": "Go", "source": "user"},
        {"class_": "api_action", "function": "goto", "kwargs": {"url": "u"}},
        {"class_": "web_observation", "html": "<a>", "axtree": "[1] link", "url": "http://x", "source": "environment"},
    ]
    run, _ = read_one("adp", write(tmp_path / "rows.jsonl", [{"id": "a", "content": content}]), tmp_path)
    assert outline(run)[1] == "agent:  > goto(None) < [1] link(None)"
    assert run.trajectory.steps[1].extra == {"led_to": {"url": "http://x", "html": "<a>"}}


VARIANTS: dict[str, list[Any]] = {
    "sharegpt": [
        {
            "conversations": [{"from": "human", "value": "<image>?"}, {"from": "gpt", "value": "A"}],
            "images": ["a.jpg", {"path": "b"}],
        }
    ],
    "verl": [
        {"input": "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n", "output": "A<|im_end|>", "score": 1.0}
    ],
    "openai_chat": [
        {
            "messages": [
                {"type": "human", "data": {"content": "q", "response_metadata": {}}},
                {
                    "lc": 1,
                    "id": ["m", "AIMessage"],
                    "kwargs": {
                        "content": "a",
                        "response_metadata": {"model": "m"},
                        "tool_calls": [{"name": "f", "args": {}}],
                    },
                },
            ]
        }
    ],
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_with_odd_values_are_rejected_at_worst(tmp_path: Path, name: str) -> None:
    survives(name, VARIANTS[name], tmp_path)
