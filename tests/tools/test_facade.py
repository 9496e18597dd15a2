"""The tools as dict calls, and the recorder around a stranger's loop."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import QuintainError
from quintain.importers.run_splitting import PART_CHARS
from quintain.records.trajectory import MAX_TRAJECTORY_CHARS, OutcomeStatus, Trajectory
from quintain.scoring import registry
from quintain.settings import Settings
from quintain.store.store import open_store
from quintain.tools import Recorder
from quintain.tools.dict_calls.recorder import Recording
from tools.dict_calls import Caller

MESSAGES = [
    {"role": "user", "content": "Price of the lamp?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "function": {"name": "find", "arguments": '{"q": "lamp"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "12"},
    {"role": "assistant", "content": "It costs 12."},
]


def test_a_run_is_recorded_once_found_read_scored_and_frozen(tool: Caller) -> None:
    first = tool(action="record", messages=MESSAGES, task="Price of the lamp?", outcome="success", tags=["demo"])
    again = tool(action="record", messages=MESSAGES, task="Price of the lamp?", outcome="success", tags=["demo"])
    assert (first["created"], again["created"], first["steps"]) == (True, False, 2)
    assert first["trajectory_id"] == again["trajectory_id"]
    found = tool(action="search", filter={"tags": ["demo"], "outcome": "success"})
    assert [item["id"] for item in found["items"]] == [first["trajectory_id"]]
    read = tool(action="get", trajectory_id=first["trajectory_id"])
    assert read["trajectory"]["steps"][1]["observations"][0]["content"] == "12"
    beyond = tool(action="get", trajectory_id=first["trajectory_id"], first_step=9)
    assert "valid: 0..2" in beyond["message"]
    score = tool(action="score", scorer="outcome", filter={"tags": ["demo"]})
    assert (score["scored"], score["summary"]["mean"]) == (1, 1.0)
    dataset = tool(action="export", kind="sft", name="good", filter={"tags": ["demo"]})
    assert (dataset["rows"], dataset["splits"]["train"]) == (1, 1)
    assert tool(action="load_dataset", dataset="good")["dataset_size"] == 1


def test_an_unknown_outcome_is_not_a_failure_and_not_trained_on(tool: Caller) -> None:
    recorded = tool(action="record", messages=MESSAGES, task="Price of the lamp?")
    assert recorded["outcome"] == "unknown"
    ids = [recorded["trajectory_id"]]
    score = tool(action="score", scorer="outcome", trajectory_ids=ids)
    assert (score["scored"], score["unscored_count"], score["summary"]["mean"]) == (0, 1, None)
    refused = tool(action="export", kind="sft", name="none", trajectory_ids=ids)
    assert refused["status"] == "error"
    assert "outcome_unknown 1" in refused["message"]
    assert list(Path(tool._settings.datasets_dir).iterdir()) == [], "a refused export leaves nothing behind"


def test_a_live_recording_grows_and_closes_with_its_outcome(tool: Caller) -> None:
    opened = tool(action="record", messages=MESSAGES[:2], task="Price of the lamp?", live="open")
    assert opened["live"]
    name = opened["trajectory_id"]
    tool(action="record", live="append", trajectory_id=name, messages=MESSAGES[2:3])
    closed = tool(
        action="record",
        live="close",
        trajectory_id=name,
        messages=MESSAGES[3:],
        outcome={"status": "success", "reward": 1.0},
    )
    assert (closed["trajectory_id"], closed["steps"], closed["outcome"], closed["live"]) == (name, 2, "success", False)
    steps = tool(action="get", trajectory_id=name)["trajectory"]["steps"]
    assert steps[1]["observations"][0]["content"] == "12"
    late = tool(action="record", live="append", trajectory_id=name, messages=MESSAGES[3:])
    assert (late["code"], "never change" in late["message"]) == ("conflict", True)


BAD_INPUT: list[tuple[Any, dict[Any, Any], str, list[str]]] = [
    ("dance", {}, "unknown_action", ["'dance'", "valid", "train"]),
    ("search", {"limitt": 3}, "unknown_argument", ["'limitt'", "did you mean 'limit'"]),
    ("search", {"limit": 0}, "invalid_input", ["limit", "1", "got 0"]),
    ("search", {"filter": {"outcome": "great"}}, "invalid_input", ["filter.outcome", "great", "success"]),
    ("search", {"cursor": "nonsense"}, "bad_cursor", ["cursor"]),
    ("get", {"trajectory_id": "traj-none"}, "not_found", ["traj-none"]),
    ("status", {"job_id": "job-none"}, "not_found", ["job-none"]),
    ("score", {"scorer": "outcome", "filter": {}}, "empty_filter", ["no condition", "job_id"]),
    ("score", {"scorer": "outcome"}, "invalid_input", ["exactly one"]),
    ("score", {"scorer": "magic", "filter": {"tags": ["x"]}}, "not_found", ["magic", "outcome"]),
    (
        "export",
        {"kind": "sft", "name": "d", "filter": {"job_id": "job-none"}},
        "nothing_matches",
        ["no run is stored", "collect_rollouts"],
    ),
    ("export", {"kind": "sft", "name": "../d", "filter": {"tags": ["x"]}}, "invalid_input", ["name", "../d"]),
    ("record", {}, "invalid_input", ["exactly one"]),
    ("record", {"trajectory": {"steps": []}}, "invalid_input", ["steps"]),
    (
        "record",
        {"messages": [{"role": "user", "content": "cut \ud83d"}]},
        "lone_surrogate",
        ["U+D83D", "character 4", "arguments.messages[0].content"],
    ),
    ("record", {"trajectory": {"extra": {"\udc00": 1}}}, "lone_surrogate", ["a key of", "trajectory.extra"]),
    ("train", {"dataset": "none"}, "not_found", ["none"]),
    ("train", {"dataset": "none", "model_name": "/no/such/folder"}, "model_not_found", ["no/such/folder"]),
    ("train", {"dataset": "none", "model_name": "org/name"}, "hub_not_allowed", ["QUINTAIN_ALLOW_HUB"]),
    ("train", {"dataset": "d", "num_epoch": 3}, "unknown_argument", ["'num_epoch'", "did you mean 'num_epochs'"]),
    ("train", {"dataset": "d", "use_vllm": True}, "invalid_input", ["`use_vllm`", "sampler"]),
    (
        "train",
        {"dataset": "d", "hyperparameters": {"learn_rate": 1}},
        "invalid_input",
        ["hyperparameters.learn_rate", "learning_rate"],
    ),
    ("train", {"dataset": "d", "num_epochs": -1}, "invalid_input", ["epochs", "-1"]),
    ("evaluate", {"agent": "starter", "environment": "moon"}, "environment_not_found", ["moon", "quintain/inventory"]),
    ("evaluate", {}, "invalid_input", ["model_path"]),
    ("compare", {"agents": ["starter"]}, "invalid_input", ["agents"]),
    ("compare", {"agents": ["a", "a"]}, "invalid_input", ["twice"]),
    ("compare", {"agents": ["eval-1", "eval-2"]}, "not_found", ["eval-1"]),
    ("register", {"name": "a b", "model": "starter"}, "invalid_input", ["name", "a b"]),
    ("wait", {"job_id": "job-x"}, "not_found", ["job-x"]),
    ("wait", {}, "invalid_input", ["needs `job_id`"]),
    ("register", {"name": "starter", "model": "starter"}, "invalid_input", ["embedded model"]),
    ("register", {"name": "long", "model": "x" * 5000}, "invalid_input", ["is not an agent"]),
    ("score", {"scorer": {"outcome": 1e308}, "filter": {"tags": ["x"]}}, "invalid_input", ["only ratios"]),
    (
        "score",
        {"scorer": {"type": "words", "words": []}},
        "invalid_input",
        ["expected a list with at least 1 item, got 0"],
    ),
    ("score", {"scorer": {"type": "steps", "full_at": 15}}, "invalid_input", ["steps: expected full_at and zero_at"]),
    ("score", {"scorer": {"type": "regex", "pattern": "("}}, "invalid_input", ["expected a pattern", "missing )"]),
    ("search", {"filter": {"text": "\x00"}}, "invalid_input", ["NUL"]),
    ("train", {"dataset": "d", "max_samples": -1}, "invalid_input", ["max_samples", "-1"]),
    ("train", {"config": "~no_such_user/a.yaml"}, "invalid_input", ["without a home folder"]),
    ("train", {"dataset": "d", "model_name": "~no_such_user/a"}, "model_not_found", ["cannot read folder"]),
    ("train", {"dataset": "d", "model_name": "x" * 900}, "model_not_found", ["cannot read folder"]),
    (["train"], {}, "unknown_action", ["['train']"]),
    ("train", {"dataset": 5}, "invalid_input", ["dataset_id", "string", "got 5"]),
    ("train", {"dataset": "d", "x" * 5000: 1}, "unknown_argument", ["'xxx", "...", "valid: "]),
    (
        "train",
        {"dataset": "d", "hyperparameters": {"lora": {"rnak": 1}}},
        "invalid_input",
        ["hyperparameters.lora.rnak", "did you mean 'lora.rank'"],
    ),
    (
        "train",
        {"dataset": "d", "hyperparameters": {"lr": float("nan")}},
        "not_finite",
        ["hyperparameters.lr", "is nan", "must be finite"],
    ),
    ("train", {"dataset": "d", "hyperparameters": {1: 2}}, "invalid_input", ["a string, got 1"]),
    (
        "record",
        {"messages": MESSAGES, "task": 3},
        "invalid_input",
        ["arguments.task: expected a string or an object, got 3"],
    ),
    ("evaluate", {"agent": "starter", "max_samples": 0}, "invalid_input", ["n_tasks", "got 0"]),
    ("train", {"algorithm": "gpro", "environment": "quintain/inventory"}, "invalid_input", ["did you mean 'grpo'"]),
]
"""Action, its parameters, the code of the error, and words of its message."""


def test_bad_input_is_told_plainly_and_nothing_is_half_written(tool: Caller) -> None:
    for action, parameters, code, words in BAD_INPUT:
        answer = json.loads(tool.run({"action": action, **parameters}))
        assert (answer["status"], answer["code"]) == ("error", code), answer
        assert all(word in answer["message"] for word in words), answer["message"]
    assert tool(action="search")["items"] == []
    assert tool(action="jobs")["items"] == []
    assert tool(action="library", kind="datasets")["items"] == []


def test_a_registered_dataset_can_be_loaded_by_name_and_a_run_of_ten_megabytes_is_refused(tool: Caller) -> None:
    dataset = tool.register_dataset("mine", [{"messages": MESSAGES, "task": "Price of the lamp?"}])
    answer = tool(action="load_dataset", dataset="mine", max_samples=5)
    assert (answer["dataset_id"], answer["dataset_size"]) == (dataset, 1)
    large = tool(action="record", messages=[{"role": "assistant", "content": "x" * 10_000_000}], task="t")
    assert (large["code"], "8,000,000" in large["message"]) == ("too_large", True)


WORDS_FOR_ENVIRONMENTS = {
    "advisory": "shopping assistant, recommendation, consulting, sales",
    "benchmark": "test set, regression test, evaluation set",
    "conversation": "customer service, helpdesk, dialogue, chatbot",
    "discussion": "sycophancy, fact checking, honesty, debate",
    "engineering": "devops, troubleshooting, incident, planning",
    "inventory": "Warehouse, stock, logistics, storage",
    "math": "mathematics, maths, sums, GSM8K, school",
    "nim": "board game, strategy, self-play, two players",
    "sandbox": "coding, bug, unit test, SWE-bench, debugging",
    "tasks": "quiz, question answering, spreadsheet, my own data",
    "tools-1k": "tool use, function calling, API, tool retrieval",
}


def test_the_library_lists_what_there_is_to_work_with(tool: Caller) -> None:
    assert {"quintain/inventory"} <= {item["id"] for item in tool(action="library", kind="environments")["items"]}
    for name, wishes in WORDS_FOR_ENVIRONMENTS.items():
        for words in wishes.split(", "):
            found = tool(action="library", kind="environments", text=words)["items"]
            assert f"quintain/{name}" in [item["id"] for item in found], f"{words!r} does not find {name}"
    phrase = tool(action="library", kind="environments", text="customer support tickets")["items"]
    assert "quintain/conversation" in [item["id"] for item in phrase], (
        "no entry has all words: those with most are found"
    )
    asking = tool(action="library", kind="environments", text="ask clarifying questions")["items"]
    assert [one["id"] for one in asking] == ["quintain/advisory", "quintain/engineering"]
    nothing = tool(action="library", kind="environments", text="unicorns")
    assert nothing["items"] == []
    assert all(f"quintain/{name}" in nothing["next_step"] for name in WORDS_FOR_ENVIRONMENTS)
    assert tool(action="library", kind="calibrations", text="starter")["code"] == "invalid_input"
    assert {"outcome", "rules"} <= {item["name"] for item in tool(action="library", kind="scorers")["items"]}
    shared, sft, *others = tool(action="library", kind="methods")["items"]
    assert shared["hyperparameters"]["epochs"].startswith("default 3.0, 0.001 to 1000")
    assert (sft["method"], sft["dataset_kind"], len(others)) == ("sft", "sft", 14)
    agent = tool(action="register", name="mine", model="starter", system_prompt="Be brief.")["agent"]
    assert (agent["id"], agent["parent"]) == ("agent:mine@1", "agent:starter@1")
    again = tool(action="register", name="mine", model="starter", system_prompt="Be brief.")["agent"]
    assert again["id"] == "agent:mine@1", "the same content is the same version"
    assert tool(action="register", name="mine", model="starter")["agent"]["id"] == "agent:mine@2"


def test_a_reward_function_of_the_program_scores_and_its_faults_are_reasons(
    tool: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})

    def length(trajectory: Trajectory) -> float | None:
        said = str(trajectory.steps[-1].message)
        if "2" in said:
            raise RuntimeError("no twos")
        return {"a": 0.25, "b": None, "c": 7.0}[said[0]]

    for name in ("built in?", "outcome"):
        with pytest.raises(QuintainError, match=name):
            tool.register_reward_function(name, length)
    tool.register_reward_function("length", length)
    for said in ("a", "b", "c", "2"):
        tool(action="record", messages=[{"role": "assistant", "content": said}], task=said, tags=["own"])
    score = tool(action="score", scorer={"length": 1.0}, filter={"tags": ["own"]})
    assert (score["scored"], score["summary"]["mean"], score["unscored_count"]) == (1, 0.25, 3)
    reasons = " ".join(item["reason"] for item in score["unscored"])
    assert all(word in reasons for word in ("gave no score", "7.0", "RuntimeError: no twos"))


def test_a_created_reward_is_a_scorer_with_its_parameters(tool: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """42 is right with 30 characters: 1 - 0.5 (30 - 20) / 20 = 0.75; two steps of 0.1: (1 + 0.2) / 1.5 = 0.8."""
    monkeypatch.setattr(registry, "_REGISTERED", {})
    said = "1. 6*7\n2. Now the answer is 42"
    assert len(said) == 30
    task = {"id": "t", "prompt": "6*7?", "metadata": {"answer": 42}}
    steps = [{"actor": "user", "message": "6*7?"}, {"actor": "agent", "message": said}]
    run_id = tool(action="record", trajectory={"task": task, "steps": steps})["trajectory_id"]
    for parameters, value in (
        ({}, 1.0),
        ({"reward_type": "accuracy"}, 1.0),
        ({"reward_type": "length_penalty", "penalty_weight": 0.5, "max_length": 20}, 0.75),
        ({"reward_type": "step", "step_bonus": 0.1}, 0.8),
        ({"reward_type": "helloagents"}, 0.8),
    ):
        made = tool(action="create_reward", **parameters)
        assert made["status"] == "success"
        assert tool(action="score", scorer=made["scorer"], trajectory_ids=[run_id])["summary"]["mean"] == value
    for wrong in ({"reward_type": "step", "max_length": 3}, {"reward_type": "length_penalty", "max_length": 0}):
        assert tool(action="create_reward", **wrong)["status"] == "error"
    unknown = tool(action="create_reward", reward_type="acuracy")
    assert unknown["code"] == "not_found"
    assert unknown["message"].startswith(
        "expected a reward_type, got 'acuracy' (did you mean 'accuracy'?); valid: accuracy, step,"
    )


def test_waiting_for_what_needed_no_job_is_answered_with_the_result(tool: Caller, tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_text(json.dumps({"messages": MESSAGES}))
    for wait, imported in ((True, 1), (False, 0)):
        answer = tool(action="import", path=str(tmp_path / "chat.jsonl"), wait=wait)
        assert (answer["status"], answer["imported"]) == ("success", imported), answer
    assert tool(action="library", kind="scorers")["status"] == "success"


def stored(home: Path, recording: Recording) -> Trajectory:
    store = open_store(Settings(home=home).url)
    try:
        return store.trajectories.get(recording.trajectory_id)
    finally:
        store.close()


def test_a_loop_is_recorded_turn_by_turn(home: Path) -> None:
    recorder = Recorder(agent="mine", model="tiny", tags=["prod"], home=home)
    with recorder.run({"id": "t1", "prompt": "Fix it"}, session_id="s1", tags=["nightly"]) as run:
        run.system("Be brief.")
        run.user("Fix it")
        run.agent("Looking.", thought="hm", calls=[("read", {"path": "a"}, "c1"), ("read", '{"path": "b"}', "c2")])
        run.result({"lines": 3}, call_id="c2")
        run.result("no such file", call_id="c1", is_error=True)
        run.reward(0.25)
        run.messages([{"role": "assistant", "content": "Done.", "model": "large"}])
        run.outcome("success", reward=1.0, tests=0.5)
    kept = stored(home, run)
    assert run.failures == []
    assert [step.actor for step in kept.steps] == ["system", "user", "agent", "agent"]
    first, last = kept.agent_steps
    assert [(o.call_id, o.content, o.is_error) for o in first.observations] == [
        ("c2", '{"lines": 3}', False),
        ("c1", "no such file", True),
    ]
    assert (first.reward, first.model, last.model) == (0.25, "tiny", "large")
    assert first.actions[1].raw_args == '{"path": "b"}'
    assert (kept.task.id, kept.session_id, kept.tags, kept.agent.name) == ("t1", "s1", ("prod", "nightly"), "mine")
    outcome = kept.outcome
    assert (outcome.status, outcome.reward, outcome.scores) == (OutcomeStatus.SUCCESS, 1.0, {"tests": 0.5})


def test_an_exception_of_the_loop_passes_through_and_is_the_outcome(home: Path) -> None:
    recording = Recorder(home=home).run("Try")

    def loop() -> None:
        with recording as run:
            run.agent("I try.")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    kept = stored(home, recording)
    assert (kept.outcome.status, kept.outcome.exit_status) == (OutcomeStatus.ERROR, "ZeroDivisionError")


def test_two_equal_runs_stay_two(home: Path) -> None:
    ids = set()
    for _ in range(2):
        with Recorder(home=home).run("Say hi") as run:
            run.agent("hi")
        ids.add(run.trajectory_id)
    assert len(ids) == 2


def test_nonsense_costs_the_loop_nothing_and_the_rest_is_kept(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Recorder(home=home).run("Say hi") as run:
        run.reward(1.0)  # before any turn
        run.agent("hi", calls=[("broken",)])
        run.result(object())
        run.outcome("splendid")
        run.agent("hi again")
    assert len(run.failures) == 3
    assert "splendid" in caplog.text
    kept = stored(home, run)
    assert (kept.outcome.status, kept.agent_steps[-1].message) == (OutcomeStatus.UNKNOWN, "hi again")


def test_a_secret_is_redacted_before_it_is_stored(home: Path) -> None:
    key = "ghp_" + "a1B2" * 9
    with Recorder(home=home).run("Push") as run:
        run.agent(f"git push https://{key}@example.org")
    assert sum(stored(home, run).redactions.values()) >= 1
    assert key.encode() not in b"".join(path.read_bytes() for path in home.glob("quintain.db*"))


def test_each_part_of_a_long_run_counts_the_secrets_in_it(home: Path) -> None:
    secret = "export SERVICE_API_KEY=q1w2e3r4t5y6u7i8\n"
    with Recorder(home=home).run("Go") as run:
        for n in (0, 2, 1):
            run.agent(secret * n + "x" * (PART_CHARS * 2 // 3))
    with closing(open_store(Settings(home=home).url)) as store:
        parts = list(store.trajectories.iterate())
    assert [part.redactions for part in parts] == [{}, {"api_key": 2}, {"api_key": 1}]


def test_a_run_that_the_store_does_not_take_is_kept_in_the_inbox(home: Path) -> None:
    (home / "quintain.db").write_bytes(b"this is no database" * 100)
    with Recorder(home=home).run("Say hi") as run:
        run.agent("hi")
    assert run.trajectory_id is None
    assert len(run.failures) == 1
    (kept,) = (home / "inbox").glob("recorded-*.json")
    assert json.loads(kept.read_text())["task"]["prompt"] == "Say hi"


def test_a_message_that_cannot_be_read_costs_no_other(home: Path) -> None:
    with Recorder(home=home).run("Try") as run:
        run.messages([{"role": "critic", "content": "Bad."}, {"role": "assistant", "content": "Done."}])
    assert run.failures == ["role:critic"]
    assert [step.message for step in stored(home, run).agent_steps] == ["Done."]


KEY = "ghp_" + "a1B2c3D4e5" * 4


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Broken:
    def __iter__(self) -> Any:
        raise Unprintable


def test_bad_numbers_are_unknown_and_the_run_is_kept(home: Path) -> None:
    with Recorder(home=home).run("Say hi") as run:
        run.agent("hi", usage={"input_tokens": -1})
        run.reward(float("nan"))
        run.outcome("success", reward=float("inf"), speed=float("nan"), tests=0.5)
    kept = stored(home, run)
    outcome = kept.outcome
    assert (outcome.status, outcome.reward, outcome.scores) == (OutcomeStatus.SUCCESS, None, {"tests": 0.5})
    assert (kept.agent_steps[0].reward, kept.agent_steps[0].usage) == (None, None)
    assert len(run.failures) == 4


def test_half_characters_deep_and_endless_values_are_mended(home: Path) -> None:
    deep: Any = "bottom"
    for _ in range(500):
        deep = {"in": deep}
    endless: list[Any] = []
    endless += [endless, endless]
    with Recorder(home=home).run("Say hi") as run:
        run.agent(
            "half \ud800", calls=[("look", {"deep": deep, "to": {1, 2}}, "c1"), ("broken",), ("raw", '{"a": "\ud800"}')]
        )
        run.result("seen \udfff", call_id="c1")
        run.result(endless)
        run.messages([{"role": "assistant", "content": "done \ud800"}])
    kept = stored(home, run)
    first, last = kept.agent_steps
    assert (first.message, last.message) == ("half \ufffd", "done \ufffd")
    assert [call.tool for call in first.actions] == ["look", "raw"]
    assert first.observations[0].content == "seen \ufffd"
    assert any("deeper than" in failure for failure in run.failures)


def test_a_task_with_other_fields_and_ids_that_are_no_text_are_kept(home: Path) -> None:
    task = {"id": 7, "prompt": "Say hi", "owner": "me", "metadata": {"a": 1}}
    with Recorder(home=home, tags=["good", 5, "live"]).run(task, session_id=5, tags=None) as run:
        run.agent("hi")
    kept = stored(home, run)
    assert (kept.task.id, kept.task.metadata) == ("7", {"a": 1, "owner": "me"})
    assert (kept.session_id, kept.tags) == ("5", ("good",))


class Stubborn:
    """Has no text, no truth and no members."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    def __bool__(self) -> bool:
        raise RuntimeError("no")


def test_a_value_that_cannot_be_asked_costs_its_turn_nothing_else(home: Path) -> None:
    odd: Any = Stubborn()
    recorder = Recorder(agent=odd, tools=odd, tags=odd, home=home)
    with recorder.run(odd, session_id=odd, tags=odd) as run:
        run.agent("said", thought=odd, calls=odd)
        run.agent("asked", model=odd, calls=[("get", {"n": Fraction(1, 2), "odd": odd}, "c")])
        run.result("got", call_id="c", is_error=odd)
        run.outcome("success", reward=1.0, score=odd)
    kept = stored(home, run)
    assert [step.message for step in kept.steps] == ["said", "asked"]
    assert kept.steps[1].actions[0].args == {"n": 0.5, "odd": ""}
    assert [observation.content for observation in kept.steps[1].observations] == ["got"]
    assert (kept.outcome.status, kept.outcome.reward, kept.outcome.scores) == (OutcomeStatus.SUCCESS, 1.0, {})
    assert "is_error is of type Stubborn, whose truth value is ambiguous (RuntimeError)" in run.failures


def test_what_cannot_be_built_is_written_to_the_inbox_redacted(home: Path) -> None:
    with Recorder(home=home).run("Read it") as run:
        run.agent("reading", calls=[("read", {"token": KEY})])
        run.result("x" * (MAX_TRAJECTORY_CHARS + 1))
    assert run.trajectory_id is None
    (kept,) = (home / "inbox").glob("recorded-*.json")
    text = kept.read_text()
    assert KEY not in text
    assert json.loads(text)["steps"][0]["message"] == "reading"


def test_a_recording_without_the_agent_is_kept_in_the_inbox_and_an_empty_one_nowhere(home: Path) -> None:
    with Recorder(home=home).run("Ask") as run:
        run.user("Anybody there?")
    with Recorder(home=home).run("Ask") as empty:
        pass
    assert (run.trajectory_id, empty.trajectory_id) == (None, None)
    assert "at least one recorded turn" in empty.failures[0]
    (kept,) = (home / "inbox").glob("recorded-*.json")
    assert json.loads(kept.read_text())["steps"][0]["message"] == "Anybody there?"


def test_an_exception_without_words_stays_inside(home: Path) -> None:
    with Recorder(home=home).run("Say hi") as run:
        run.agent("hi")
        run.agent("there", calls=Broken())
    assert any("Unprintable" in failure for failure in run.failures)
    assert stored(home, run).agent_steps[0].message == "hi"


def test_failures_and_the_log_hold_no_secret(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Recorder(home=home).run("Say hi") as run:
        run.agent("hi")
        run.outcome("succes" + KEY)
        run.messages([{"role": KEY, "content": "x"}])
    assert KEY not in "".join(run.failures) + caplog.text
    assert "outcome" in run.failures[0]


def test_a_locked_database_holds_the_loop_for_seconds_and_the_run_goes_to_the_inbox(home: Path) -> None:
    open_store(Settings(home=home).url).close()
    holder = sqlite3.connect(home / "quintain.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        began = time.monotonic()
        with Recorder(home=home).run("Say hi") as run:
            run.agent("hi")
        held = time.monotonic() - began
    finally:
        holder.close()
    assert run.trajectory_id is None
    assert held < 15, "the store itself waits 30 s"
    assert list((home / "inbox").glob("recorded-*.json"))


def test_a_bad_setting_costs_the_loop_nothing_and_the_run_is_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUINTAIN_MODEL_TERMS", "zzz")
    with Recorder(home=home).run("Say hi") as run:
        run.agent("hi")
    assert "QUINTAIN_MODEL_TERMS" in run.failures[0]
    assert list((home / "inbox").glob("recorded-*.json"))
