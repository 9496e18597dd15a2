"""Readers of the exports of chat applications, on small exports written by hand in the shape of the applications."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_logs import moment, outline, read_as, read_one, write
from hostile import survives

NOW = 1_760_000_000.5


def node(name: str, parent: str | None, role: str, content: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A message of ChatGPT; `tool` names the author of a result, `model` the model."""
    author = {"role": role, "name": more.pop("tool", None), "metadata": {}}
    about = more.pop("about", {}) | ({"model_slug": more.pop("model")} if "model" in more else {})
    message = {"id": name, "author": author, "content": content, "metadata": about, "recipient": "all", **more}
    return {"id": name, "parent": parent, "children": [], "message": message}


def spoken(*parts: Any) -> dict[str, Any]:
    return {"content_type": "multimodal_text" if len(parts) > 1 else "text", "parts": list(parts)}


def chatgpt_conversation() -> dict[str, Any]:
    """A tree with a hidden system message, a regenerated answer, two calls of which one fails, and a thought."""
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-1", "size_bytes": 3}
    context = {"content_type": "user_editable_context", "user_profile": "I am Ada.", "user_instructions": "Be brief."}
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Plan", "content": "Compute it."}]}
    code = {"content_type": "code", "language": "python", "text": "1/0"}
    failed = {"aggregate_result": {"status": "failed_with_in_kernel_exception", "in_kernel_exception": {"name": "E"}}}
    nodes = [
        {"id": "root", "parent": None, "children": ["sys"], "message": None},
        node("sys", "root", "system", spoken(""), about={"is_visually_hidden_from_conversation": True}),
        node("ctx", "sys", "user", context),
        node("ask", "ctx", "user", spoken(picture, "What is it?"), create_time=NOW),
        node("old", "ask", "assistant", spoken("A cat."), model="gpt-a"),
        node("th", "ask", "assistant", thoughts, model="gpt-b"),
        node("call", "th", "assistant", code, recipient="python", model="gpt-b", create_time=NOW + 1),
        node("out", "call", "tool", {"content_type": "execution_output", "text": "E"}, tool="python", about=failed),
        node("web", "out", "assistant", {"content_type": "code", "text": '{"q": "cat"}'}, recipient="web.run"),
        node("got", "web", "tool", spoken(""), tool="web.run"),
        node("rec", "got", "assistant", {"content_type": "reasoning_recap", "content": "Thought for 2 s"}),
        node("end", "rec", "assistant", spoken("A dog."), model="gpt-b"),
    ]
    mapping = {each["id"]: each for each in nodes}
    return {"conversation_id": "c-1", "title": "Animal", "current_node": "end", "mapping": mapping}


def test_a_chatgpt_conversation_is_the_branch_that_was_shown_with_its_calls_and_thoughts(tmp_path: Path) -> None:
    run, report = read_one("chatgpt", write(tmp_path / "conversations.json", [chatgpt_conversation()]), tmp_path)
    assert outline(run) == [
        "user: I am Ada.\n\nBe brief.",
        "user: What is it?",
        "agent:  > python(None) < !E(None)",
        "agent:  > web.run(None) < (None)",
        "agent: A dog.",
    ]
    made = run.trajectory
    assert made.steps[0].extra == {"context": True}
    assert (made.task.prompt, made.agent.model, made.session_id) == ("What is it?", "gpt-b", "c-1")
    first, second, _ = made.agent_steps
    assert (first.thought, first.actions[0].raw_args, first.actions[0].args) == ("Plan\nCompute it.", "1/0", None)
    assert second.actions[0].args == {"q": "cat"}
    assert moment(first) == NOW + 1
    assert report.unknown == {"message of another branch": 1, "reasoning_recap": 1}
    assert any("alternatives" in note for note in report.notes)
    assert any("they are empty" in note for note in report.notes)
    assert made.outcome.status == "unknown"


def test_thumbs_on_the_shown_branch_label_a_chatgpt_conversation(tmp_path: Path) -> None:
    log = write(tmp_path / "conversations.json", [chatgpt_conversation()])
    for thumbs, label in {
        (("end", "thumbsUp"), ("old", "thumbsDown")): True,  # `old` is an answer that was regenerated
        (("end", "thumbs_down"),): False,
        (("end", "thumbsUp"), ("web", "thumbsDown")): None,
    }.items():
        rows = [{"id": name, "conversation_id": "c-1", "rating": rating} for name, rating in thumbs]
        write(tmp_path / "message_feedback.json", rows)
        assert read_one("chatgpt", log, tmp_path)[0].trajectory.logged_label is label
    (tmp_path / "message_feedback.json").write_text("{torn")
    assert read_one("chatgpt", log, tmp_path)[0].trajectory.logged_label is None


def test_a_chatgpt_tree_without_a_current_message_or_with_a_ring_still_ends(tmp_path: Path) -> None:
    whole = chatgpt_conversation()
    whole["mapping"]["root"]["parent"] = "end"
    whole["mapping"]["late"] = node("late", "end", "assistant", {"content_type": "thoughts", "parts": ["Unsaid."]})
    del whole["current_node"]
    run, report = read_one("chatgpt", write(tmp_path / "one.json", whole), tmp_path)
    assert outline(run)[-2:] == ["agent: A dog.", "agent: "]
    assert run.trajectory.agent_steps[-1].thought == "Unsaid."
    assert any("last message" in note for note in report.notes)
    survives("chatgpt", [chatgpt_conversation()], tmp_path)


def claude_message(name: str, sender: str, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    text = "".join(block.get("text", "") for block in content)
    times = {"created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:09Z"}
    return {"uuid": name, "sender": sender, "text": text, "content": list(content), **times, **more}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, "citations": [], **more}


def claude_conversation() -> dict[str, Any]:
    """An answer with two calls at once, one of them failed, between thoughts and texts; calls have no ids in 2025."""
    found = [{"type": "text", "text": "one", "uuid": "x"}, {"type": "text", "text": " two", "uuid": "y"}]
    answer = [
        {"type": "thinking", "thinking": "Search first."},
        text("I look."),
        {"type": "tool_use", "name": "search", "input": {"query": "a"}, "message": "Searching"},
        {"type": "tool_use", "name": "fetch", "input": {"url": "u"}},
        {"type": "tool_result", "name": "search", "content": found, "is_error": False},
        {"type": "tool_result", "name": "fetch", "content": "no such page", "is_error": True},
        {"type": "token_budget"},
        text("Found it.", start_timestamp="2026-01-01T00:00:05Z"),
    ]
    attached = {"file_name": "a.txt", "file_size": 3, "file_type": "txt", "extracted_content": " The text."}
    messages = [
        claude_message("m1", "human", text("Find it."), attachments=[attached], files=[{"file_name": "p.png"}]),
        claude_message("m2", "assistant", *answer),
    ]
    return {"uuid": "w-1", "name": "Search", "account": {"uuid": "u"}, "chat_messages": messages}


def test_a_claude_answer_becomes_the_turns_between_its_results(tmp_path: Path) -> None:
    path = write(tmp_path / "conversations.json", {"conversations": [claude_conversation(), claude_conversation()]})
    runs, report = read_as("claude_web", path, tmp_path)
    assert len(runs) == 2
    assert outline(runs[0]) == [
        "user: Find it. The text.",
        "agent: I look. > search(None) > fetch(None) < one two(None) < !no such page(None)",
        "agent: Found it.",
    ]
    made = runs[0].trajectory
    assert made.agent_steps[0].thought == "Search first."
    assert made.agent_steps[1].timestamp is not None
    assert made.agent_steps[1].timestamp.second == 5
    assert made.steps[0].extra == {"files": ["a.txt", "p.png"]}
    assert (made.agent.name, made.agent.model, runs[0].key) == ("claude.ai", None, "claude_web:w-1")
    assert report.unknown == {"part:token_budget": 2}
    assert any("only their names" in note for note in report.notes)
    survives("claude_web", [claude_conversation()], tmp_path)


def test_of_a_claude_conversation_with_retries_the_current_branch_is_read(tmp_path: Path) -> None:
    start = "00000000-0000-4000-8000-000000000000"
    messages = [
        claude_message("m1", "human", text("Go"), parent_message_uuid=start),
        claude_message("m2", "assistant", text("left"), parent_message_uuid="m1"),
        claude_message("m3", "assistant", text("right"), parent_message_uuid="m1"),
        {**claude_message("m4", "human", parent_message_uuid="m2"), "text": "and then?"},
    ]
    whole = {"uuid": "w", "model": "claude-x", "current_leaf_message_uuid": "m3", "chat_messages": messages}
    run, report = read_one("claude_web", write(tmp_path / "c.json", whole), tmp_path)
    assert outline(run) == ["user: Go", "agent: right"]
    assert run.trajectory.agent.model == "claude-x"
    assert report.unknown == {"message of another branch": 2}
    del whole["current_leaf_message_uuid"]
    run, _ = read_one("claude_web", write(tmp_path / "c.json", whole), tmp_path)
    assert outline(run) == ["user: Go", "agent: left", "user: and then?"]
