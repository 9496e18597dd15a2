"""Readers of the exports of chat applications, on small exports written by hand in the shape of the applications."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_logs import moment, outline, read_as, read_log, read_one, tokens, write
from quintain.records.trajectory import text_of
from small_logs import log_path, small_log

NOW = 1_760_000_000.5


def node(name: str, parent: str | None, role: str, content: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A message of ChatGPT; `tool` names the author of a result, `model` the model."""
    author = {"role": role, "name": more.pop("tool", None), "metadata": {}}
    about = more.pop("about", {}) | ({"model_slug": more.pop("model")} if "model" in more else {})
    message = {"id": name, "author": author, "content": content, "metadata": about, "recipient": "all", **more}
    return {"id": name, "parent": parent, "children": [], "message": message}


def test_a_chatgpt_conversation_is_the_branch_that_was_shown_with_its_calls_and_thoughts() -> None:
    """A tree with a hidden system message, a regenerated answer, two calls of which one fails, and a thought."""
    run, report = read_log("chatgpt")
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
    log = write(tmp_path / "conversations.json", small_log("chatgpt"))
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
    (whole,) = small_log("chatgpt")
    whole["mapping"]["root"]["parent"] = "end"
    whole["mapping"]["late"] = node("late", "end", "assistant", {"content_type": "thoughts", "parts": ["Unsaid."]})
    del whole["current_node"]
    run, report = read_one("chatgpt", write(tmp_path / "one.json", whole), tmp_path)
    assert outline(run)[-2:] == ["agent: A dog.", "agent: "]
    assert run.trajectory.agent_steps[-1].thought == "Unsaid."
    assert any("last message" in note for note in report.notes)


def claude_message(name: str, sender: str, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    text = "".join(block.get("text", "") for block in content)
    times = {"created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:09Z"}
    return {"uuid": name, "sender": sender, "text": text, "content": list(content), **times, **more}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, "citations": [], **more}


def test_a_claude_answer_becomes_the_turns_between_its_results(tmp_path: Path) -> None:
    """Two calls at once, one of them failed, between thoughts and texts; calls have no ids in 2025."""
    path = write(tmp_path / "conversations.json", {"conversations": small_log("claude_web") * 2})
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


def test_an_open_webui_chat_is_the_branch_that_was_shown_and_each_rated_answer_elsewhere(tmp_path: Path) -> None:
    """An answer as text with thoughts, calls and code in it, one as items, a failed one, and one that was rated down."""
    runs, report = read_as("open_webui", log_path("open_webui"), log_path("open_webui").parent)
    shown, rejected = (run.trajectory for run in runs)
    assert outline(runs[0]) == [
        "system: Be kind.",
        "user: What is it?",
        "agent: I look. > search(c1) < one\n<two>(c1)",
        "agent:  > fetch(c2) < ok(c2)",
        'agent:  > code_interpreter(None) < {"stdout": "4"}(None)',
        "agent: It is 4.",
        "user: Thanks",
        "agent: Welcome.",
    ]
    acted = shown.agent_steps
    assert [step.thought for step in acted] == ["Search.\n\n2 > 1.", None, "Found <it>.", None, "Be polite."]
    assert acted[0].actions[0].args == {"q": "a <b>"}
    assert acted[2].actions[0].args == {"lang": "python", "code": "print(2 + 2)"}
    assert [step.model for step in acted] == ["qwen3:4b"] * 4 + ["llama3"]
    assert [tokens(step) for step in acted] == [None] * 4 + [(5, 7)]
    assert (shown.logged_label, shown.session_id, shown.extra["title"]) == (True, "w-1", "Sums")
    assert (shown.agent.name, shown.agent.model) == ("unknown", "qwen3:4b")  # called by its model: the program has many
    assert text_of(rejected.agent_steps[0].message) == "No idea."
    assert (rejected.logged_label, rejected.session_id, rejected.extra["chat"]) == (False, None, "w-1")
    assert report.unknown == {"message of another branch": 1}


def test_a_rating_of_open_webui_labels_the_answer_that_it_names(tmp_path: Path) -> None:
    (row,) = small_log("open_webui")
    rating = {"type": "rating", "data": {"rating": 1}, "meta": {"chat_id": "w-1", "message_id": "a2"}}
    log = write(tmp_path / "feedback.json", [{"id": "f", **rating, "snapshot": {"chat": row}}])
    run = read_one("open_webui", log, tmp_path)[0].trajectory
    assert text_of(run.steps[-1].message) == "It is 4."
    assert (run.logged_label, run.episode_key, run.extra["chat"]) == (True, "a2", "w-1")


def test_a_sillytavern_chat_is_what_was_shown_and_its_greeting_is_not_trained_on() -> None:
    """A greeting, a call with its result, an answer of two, and a message that the model did not see."""
    run, report = read_log("sillytavern")
    assert outline(run) == [
        "agent: Hello, stranger.",
        "user: How many ducks?",
        "agent:  > look(c1) < seven ducks(c1)",
        "agent: Seven.",
    ]
    greeting, call, answer = run.trajectory.agent_steps
    assert [step.train for step in (greeting, call, answer)] == [False, None, None]
    assert (answer.thought, answer.model, call.actions[0].args) == ("I saw them.", "m-1", {"at": "lake"})
    assert run.trajectory.extra["character"] == "Ada"
    assert report.unknown == {"message hidden from the model": 1}
    assert any("swipes" in note for note in report.notes)


def test_a_librechat_conversation_is_the_branch_of_its_last_message_with_its_calls_and_thumbs(tmp_path: Path) -> None:
    run, report = read_log("librechat")
    turns = [
        "user: How many ducks?",
        "agent: I look. > look(c1) < seven ducks(c1)",
        "agent: Seven.",
        "user: Thanks",
        "agent: Welcome.",
    ]
    assert outline(run) == ["system: Be kind.", *turns]
    made = run.trajectory
    assert (made.agent_steps[0].thought, made.agent.model, made.logged_label) == ("Look first.", "m-1", True)
    assert (made.session_id, made.extra["title"], report.unknown) == ("l-1", "Ducks", {"message of another branch": 1})
    whole = small_log("librechat")
    (asked,) = whole.pop("messagesTree")
    _, answer = asked["children"]
    (thanks,) = answer["children"]
    failed = {**asked["children"][0], "messageId": "m6", "parentMessageId": "m4", "error": True}
    listed = [{**message, "children": []} for message in (asked, answer, thanks, failed)]
    run, report = read_one("librechat", write(tmp_path / "l.json", {**whole, "messages": listed}), tmp_path)
    assert outline(run)[1:] == turns[:-1]
    assert report.unknown == {"answer that failed": 1}


def test_a_deepseek_conversation_is_the_branch_of_its_last_message_with_its_thoughts() -> None:
    run, report = read_log("deepseek")
    assert outline(run) == ["user: How many ducks are there?", "agent: Seven, I am sure."]
    (answer,) = run.trajectory.agent_steps
    assert (answer.thought, answer.model, run.trajectory.session_id) == ("Count again.", "deepseek-chat", "c1")
    assert report.unknown == {"message of another branch": 1, "fragment:SEARCH": 1}


def test_an_lm_studio_chat_has_the_selected_versions_with_their_steps() -> None:
    """An answer in two versions, of which the selected one thinks, calls a tool and answers."""
    run, report = read_log("lm_studio")
    assert outline(run) == [
        "system: Be kind.",
        "user: How many ducks are there?",
        'agent: Let me look. > look(1) < [{"type":"text","text":"seven"}](1)',
        "agent: There are seven ducks.",
    ]
    call, answer = run.trajectory.agent_steps
    assert (call.thought, call.actions[0].args, answer.model) == ("I should look first.", {"at": "lake"}, "gpt-oss-20b")
    assert run.trajectory.extra["title"] == "Ducks"
    assert any("versions" in note for note in report.notes)
