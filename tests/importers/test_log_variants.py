"""Variants of logs that programs write in the field: forks, downloads, dumps and rendered texts, on small ones made by hand."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agent_logs import outline, read_as, read_one, survives, write
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import outcome_from
from quintain.importers.probing import probe
from quintain.importers.registry import detect
from quintain.importers.training_data.rendered_prompts import rendered_messages
from quintain.records.trajectory import ImagePart, text_of

# --- gemini


def test_a_result_that_gemini_also_wrote_as_a_turn_of_the_user_comes_in_once(tmp_path: Path) -> None:
    def answer(name: str, said: str) -> dict[str, Any]:
        return {"functionResponse": {"id": name, "name": "ls", "response": {"output": said}}}

    calls = [
        {"id": "c1", "name": "ls", "args": {}, "result": [answer("c1", "one")]},
        {"id": "c2", "name": "ls", "args": {}},
    ]
    lines = [
        {"sessionId": "s", "projectHash": "h"},
        {"id": "1", "type": "user", "content": [{"text": "Look"}]},
        {"id": "2", "type": "gemini", "content": "I look.", "toolCalls": calls},
        {"id": "3", "type": "user", "content": [answer("c1", "one"), answer("c2", "two")]},
        {"id": "4", "type": "user", "content": [answer("c1", "one"), {"text": "and now?"}]},
        {"id": "5", "type": "gemini", "content": "Done."},
    ]
    run, _ = read_one("gemini_cli", write(tmp_path / "session-1.jsonl", lines), tmp_path)
    assert outline(run) == [
        "user: Look",
        "agent: I look. > ls(c1) > ls(c2) < one(c1) < two(c2)",
        "user: and now?",
        "agent: Done.",
    ]


# --- OpenHands


def event(kind: str, source: str, **more: Any) -> dict[str, Any]:
    return {"id": "e", "kind": kind, "source": source, "timestamp": "2026-01-01T00:00:00", **more}


def test_a_download_from_the_openhands_cloud_is_read_as_a_folder_and_as_a_zip(tmp_path: Path) -> None:
    call = {"id": "c", "name": "terminal", "arguments": "{}"}
    acted = event(
        "ActionEvent", "agent", tool_name="terminal", tool_call_id="c", tool_call=call, action={}, llm_response_id="r"
    )
    seen = event(
        "ObservationEvent", "environment", tool_call_id="c", observation={"content": [{"type": "text", "text": "ok"}]}
    )
    asked = event("MessageEvent", "user", llm_message={"role": "user", "content": [{"type": "text", "text": "Fix"}]})
    files = {f"event_{n:06d}_ab-cd.json": row for n, row in enumerate([asked, acted, seen])}
    files["meta.json"] = {"id": "conv", "llm_model": "m-1", "title": "T"}
    for name, value in files.items():
        write(tmp_path / "download" / name, value)
    with zipfile.ZipFile(tmp_path / "download.zip", "w") as packed:
        for name, value in files.items():
            packed.writestr(name, json.dumps(value))
    first = tmp_path / "download" / "event_000000_ab-cd.json"
    for path in (first, tmp_path / "download.zip"):
        run, report = read_one("openhands_v1", path, tmp_path)
        assert outline(run) == ["user: Fix", "agent:  > terminal(c) < ok(c)"]
        assert (run.trajectory.session_id, run.trajectory.agent.model, report.rejected) == ("conv", "m-1", [])


# --- SWE-agent and SWE-bench


def history(words: str = "Fix") -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    asked = {"role": "user", "content": words, "message_type": "observation"}
    acted = {"role": "assistant", "content": "ls", "message_type": "action", "action": "ls", "tool_calls": [call]}
    return [asked, acted, {"role": "tool", "content": "a.py", "tool_call_ids": ["c"], "message_type": "observation"}]


def swe_run(folder: Path, instance: str) -> Path:
    info = {"exit_status": "submitted", "submission": "diff --git a b"}
    return write(folder / instance / f"{instance}.traj", {"history": history(), "trajectory": [], "info": info})


HARNESS = {"resolved_ids": ["a-1"], "unresolved_ids": ["a-2"], "error_ids": []}


@pytest.mark.parametrize("place", ["beside", "inside", "instances", "leaderboard"])
def test_verdicts_of_the_swe_bench_harness_are_joined(tmp_path: Path, place: str) -> None:
    folder = tmp_path / ("trajs" if place == "leaderboard" else "run")
    for instance in ("a-1", "a-2"):
        path = swe_run(folder, instance)
        write(path.with_suffix(".pred"), {"instance_id": instance, "model_name_or_path": "org/m"})
        alone = {instance: {"resolved": instance == "a-1"}}
        if place == "instances":
            write(tmp_path / "logs/run_evaluation/e/org__m" / instance / "report.json", alone)
            write(
                tmp_path / "logs/run_evaluation/e/other" / instance / "report.json",
                {instance: {"resolved": instance != "a-1"}},
            )
        elif place == "leaderboard":
            write(tmp_path / "logs" / instance / "report.json", alone)
    if place in ("beside", "inside"):
        write((tmp_path if place == "beside" else folder) / "org__m.first.json", HARNESS)
        write(tmp_path / "another.first.json", {"resolved_ids": ["a-2"], "unresolved_ids": ["a-1"]})
    for instance, status in (("a-1", "success"), ("a-2", "failure")):
        run, _ = read_one("swe_agent", folder / instance / f"{instance}.traj", tmp_path)
        assert (run.trajectory.outcome.status.value, run.trajectory.extra["submission"]) == (status, "diff --git a b")


def test_a_harness_report_on_another_model_is_no_verdict_on_a_run(tmp_path: Path) -> None:
    path = swe_run(tmp_path / "run", "a-1")
    write(tmp_path / "run" / "preds.json", {"a-1": {"model_name_or_path": "mine"}})
    write(tmp_path / "theirs.e.json", HARNESS)
    run, _ = read_one("swe_agent", path, tmp_path)
    assert run.trajectory.outcome.status.value == "unknown"


def test_without_a_history_calls_and_whole_outputs_come_from_the_queries_of_later_steps(tmp_path: Path) -> None:
    first, second = history()[:1], history()
    elided = [*second[:2], {**second[2], "content": "Old environment output: (1 lines omitted)"}]
    last = [*elided, {**second[1], "content": "again"}, {**second[2], "content": "b.py"}]
    steps = [
        {"query": first, "response": "ls", "action": "ls", "observation": "a.py"},
        {"query": second, "response": "again", "action": "ls", "observation": "b.py"},
        {"query": last, "response": "Done", "action": "submit", "observation": "diff"},
    ]
    run, _ = read_one("swe_agent", write(tmp_path / "x.traj", {"trajectory": steps, "info": {}}), tmp_path)
    assert outline(run) == [
        "user: Fix",
        "agent: ls > bash(c) < a.py(c)",
        "agent: again > bash(c) < b.py(c)",
        "agent: Done > submit(None) < diff(None)",
    ]


@pytest.mark.parametrize(
    ("ended", "status"),
    [
        ("LimitsExceeded", "truncated"),
        ("exit_cost", "truncated"),
        ("submitted (exit_context)", "truncated"),
        ("max_steps", "truncated"),
        ("RuntimeError: Agent reached maximum iteration in headless mode", "truncated"),
        ("IndexError", "error"),
        ("exit_error", "error"),
        ("submitted", "unknown"),
        ("Submitted", "unknown"),
        ("exit_format", "unknown"),
        (None, "unknown"),
    ],
)
def test_without_a_verdict_a_limit_truncates_and_an_exception_is_an_error(ended: str | None, status: str) -> None:
    assert outcome_from(None, ended).status.value == status
    assert outcome_from(True, ended).status.value == "success"


# --- rows of data sets


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


def test_the_folder_of_a_log_is_not_left_when_reports_are_looked_for(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "a-1" / "report.json", {"a-1": {"resolved": True}})
    path = swe_run(tmp_path / "inner", "a-1")
    run, _ = read_one("swe_agent", path, tmp_path / "inner")
    assert run.trajectory.outcome.status.value == "unknown"
    assert LogFile(path, tmp_path / "inner").folders("../..") == []


VARIANTS: dict[str, list[Any]] = {
    "gemini_cli": [
        {"sessionId": "s", "projectHash": "h"},
        {"id": "2", "type": "gemini", "content": "x", "toolCalls": [{"id": "c", "name": "ls", "args": {}}]},
        {
            "id": "3",
            "type": "user",
            "content": [{"functionResponse": {"id": "c", "name": "ls", "response": {"output": "a"}}}],
        },
    ],
    "swe_agent": [
        {
            "trajectory": [
                {"query": history()[:1], "response": "ls", "action": "ls"},
                {"query": history(), "action": "submit"},
            ]
        }
    ],
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
