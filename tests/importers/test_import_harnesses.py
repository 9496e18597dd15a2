"""Readers of evaluation harnesses and benchmarks: verifiers, inspect, tau-bench, tau2, web agents."""

from __future__ import annotations

import copy
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agent_logs import function_call, message, moment, outline, read, read_as, read_log, read_one, tokens, write
from hostile import zip_of, zstd_zip_of
from quintain.records.trajectory import OutcomeStatus
from small_logs import log_path, small_log

(ROLLOUT,), (EPISODE,) = small_log("verifiers"), small_log("verifiers_v1")
CALC, RESULT = ROLLOUT["tool_defs"][0], ROLLOUT["completion"][1]
FLAT_CALL = {"id": "c1", "name": "calc", "arguments": '{"e": "6*7"}'}
HEADER = {key: value for key, value in small_log("inspect_ai").items() if key != "samples"}
(SAMPLE,) = small_log("inspect_ai")["samples"]
(TAU,), TAU2, (WEB,) = small_log("tau_bench"), small_log("tau2"), small_log("web_agent")


def trace_v1(**changes: Any) -> dict[str, Any]:
    """A graph with two branches: the second one shares the question and goes another way after it."""
    return copy.deepcopy(EPISODE["traces"][0]) | changes


def test_a_verifiers_rollout_keeps_turns_tools_rewards_and_what_each_turn_cost(tmp_path: Path) -> None:
    path = write(tmp_path / "results.jsonl", [ROLLOUT])
    write(tmp_path / "metadata.json", {"env_id": "arith", "model": "org/m"})
    got = read(path, tmp_path)
    assert got.format == "verifiers"
    run = got.only
    assert outline(run) == [
        "system: Be exact.",
        "user: What is 6 x 7?",
        "agent:  > calc(c1) < 42(c1)",
        "agent: 42",
    ]
    first, last = run.agent_steps
    assert (first.thought, first.model, first.reward, last.reward) == ("use the tool", "m-1", 0.0, 0.8)
    assert tokens(first) == (9, 4)
    assert first.sampled is None, "ids without the name of their tokenizer mean nothing"
    assert first.extra["tokens"] == {"prompt_ids": 2, "completion_ids": 3}
    assert first.actions[0].raw_args == '{"e": "6*7"}'
    assert run.tools[0]["function"]["parameters"] == CALC["parameters"]
    assert (run.task.id, run.task.environment, run.task.prompt) == ("3", "arith", "What is 6 x 7?")
    assert (run.agent.model, run.group_id, run.task.metadata["answer"]) == ("org/m", "arith/3", "42")
    assert (run.outcome.reward, run.outcome.scores) == (0.8, {"correct_answer": 1.0, "format": 0.0})
    assert (run.outcome.status, run.outcome.exit_status) == (OutcomeStatus.SUCCESS, "no_tools_called")
    assert run.extra["seed"] == 7


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"metrics": {"correct_answer": 0.0}}, "failure"),
        ({"metrics": {"correct_answer": 0.9}}, "unknown"),
        ({"metrics": {"correct": 1.0, "passed": 0.0}}, "unknown"),
        ({"metrics": {"format": 1.0}, "reward": 1.0}, "unknown"),
        ({"metrics": {}, "is_completed": True, "reward": 1.0}, "unknown"),
        ({"is_truncated": True}, "truncated"),
        ({"error": {"error": "ToolError", "error_chain_repr": "ToolError()"}}, "error"),
    ],
)
def test_a_verifiers_run_succeeds_only_where_a_metric_is_a_verdict(
    tmp_path: Path, changes: dict[str, Any], status: str
) -> None:
    run = read(write(tmp_path / "r.jsonl", [{**ROLLOUT, **changes}]), tmp_path).only
    assert run.outcome.status == status
    assert run.outcome.reward == changes.get("reward", 0.8)


def test_equal_rollouts_of_one_example_stay_apart_and_are_the_same_at_the_next_import(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", [ROLLOUT, ROLLOUT, {**ROLLOUT, "rollout_id": "r-9"}])
    one, two, three = read(path, tmp_path).all
    assert len({one.identity, two.identity, three.identity}) == 3
    assert one.group_id == two.group_id == three.group_id
    assert three.episode_key == "r-9"
    assert [run.identity for run in read(path, tmp_path).all] == [one.identity, two.identity, three.identity]


def test_older_verifiers_rows_are_read_too(tmp_path: Path) -> None:
    completion = [message("assistant", "", tool_calls=[json.dumps(FLAT_CALL)]), RESULT]
    tools = json.dumps([{"type": "function", "function": CALC}])
    row = {"prompt": "2+2?", "completion": completion, "answer": "4", "task": "maths", "info": {"oai_tools": tools}}
    row |= {"reward": 1, "correct": 1.0, "total_ms": 5.0}
    run = read(write(tmp_path / "r.json", [row]), tmp_path).only
    assert [(a.tool, a.args, a.call_id) for a in run.agent_steps[0].actions] == [("calc", {"e": "6*7"}, "c1")]
    assert run.outcome.scores == {"correct": 1.0}
    assert (run.task.environment, run.task.prompt, run.outcome.status) == ("maths", "2+2?", "success")
    assert run.tools[0]["function"]["name"] == "calc"
    text = [{"example_id": 0, "prompt": "2+2?", "completion": "4", "reward": 1.0}]
    assert outline(read(write(tmp_path / "t.jsonl", text), tmp_path).only) == ["user: 2+2?", "agent: 4"]


def test_a_row_without_an_answer_is_rejected_and_the_others_come_in(tmp_path: Path) -> None:
    got = read(
        write(tmp_path / "r.jsonl", [ROLLOUT, {**ROLLOUT, "completion": None, "trajectory": []}, ROLLOUT]), tmp_path
    )
    assert len(got.runs) == 2
    assert [line for line, _ in got.report.rejected] == [2]


def test_each_branch_of_a_verifiers_trace_is_a_run_and_shared_turns_are_copied_context(tmp_path: Path) -> None:
    path = write(tmp_path / "traces.jsonl", [EPISODE])
    got = read(path, tmp_path)
    assert got.format == "verifiers_v1"
    one, two = got.all
    assert outline(one)[2:] == ["agent:  > calc(c1) < 42(c1)", "agent: 42"]
    assert [s.message for s in two.agent_steps] == ["", "It is 42."]
    assert [s.copied_context for s in one.agent_steps] == [False, False]
    assert [s.copied_context for s in two.agent_steps] == [True, False]
    first = one.agent_steps[0]
    assert (first.model, first.thought, first.extra["tokens"]) == ("m-1", "tool", {"ids": 3, "sampled": 2})
    assert moment(first) == 1760000000
    assert (one.outcome.reward, one.outcome.scores) == (2.5, {"turns": 2.0, "correct": 1.0, "style": 0.5})
    assert (one.outcome.status, one.task.id, one.group_id, one.episode_key) == ("success", "task-3", "g7", "t1")
    assert (one.agent.name, one.agent.model) == ("solver", "m-0")
    assert (one.task.environment, two.episode_key) == ("arith", "t1/1")
    assert "prompt" not in one.task.metadata


def test_what_a_verifiers_trace_marks_as_not_for_training_stays_out(tmp_path: Path) -> None:
    judge = trace_v1(id="t2", agent={"name": "judge", "trainable": False})
    given = trace_v1(id="t3")
    given["nodes"][2]["sampled"] = False
    attempt = trace_v1(id="t4")
    attempt["nodes"][4]["semantic_parents"] = [{"node": 2, "type": "compaction_attempt"}]
    got = read(write(tmp_path / "t.jsonl", [judge, given, attempt]), tmp_path).all
    assert [s.train for s in got[0].agent_steps] == [False, False]
    assert got[2].agent_steps[0].copied_context, "a turn that no model call made was put there"
    assert [s.train for s in got[4].agent_steps] == [False, False]
    assert [s.train for s in got[5].agent_steps] == [None, None]


@pytest.mark.parametrize(
    ("changes", "status", "reward"),
    [
        ({"rewards": {}, "metrics": {}}, "unknown", None),
        ({"rewards": {"correct": None}}, "unknown", None),
        ({"ok": False, "errors": [{"type": "ProviderError"}], "stop_condition": "error"}, "error", 2.5),
        ({"stop_condition": "max_turns"}, "truncated", 2.5),
    ],
)
def test_ok_is_no_verdict_of_a_verifiers_trace(
    tmp_path: Path, changes: dict[str, Any], status: str, reward: float | None
) -> None:
    run = read(write(tmp_path / "t.jsonl", [trace_v1(**changes)]), tmp_path).all[0]
    assert (run.outcome.status, run.outcome.reward) == (status, reward)


def test_a_torn_last_trace_and_an_empty_episode_are_told(tmp_path: Path) -> None:
    whole = json.dumps(EPISODE)
    empty = json.dumps({**EPISODE, "traces": []})
    silent = json.dumps({**EPISODE, "traces": [trace_v1(nodes=[])]})
    path = write(tmp_path / "traces.jsonl", f"{whole}\n{empty}\n{silent}\n{whole[:200]}".encode())
    got = read(path, tmp_path)
    assert len(got.runs) == 2
    assert [line for line, _ in got.report.rejected] == [2, 3, 4]
    assert got.report.rejected[1][1] == "expected messages, got a trace without any"


def encoded(members: dict[str, Any]) -> dict[str, bytes]:
    """The members of an archive as its bytes; a value is one of JSON."""
    return {name: value if isinstance(value, bytes) else json.dumps(value).encode() for name, value in members.items()}


def packings() -> dict[str, Any]:
    chunked = {
        key: value for key, value in SAMPLE.items() if key not in {"messages", "events", "attachments", "metadata"}
    }
    messages = json.loads(json.dumps(SAMPLE["messages"]).replace("attachment://h1", "attachment://1"))
    folder = "samples/s1_epoch_2"
    members = {"header.json": HEADER, "summaries.json": [], "samples/s1_epoch_2.json": SAMPLE}
    pieces = {
        "header.json": {**HEADER, "version": 3},
        f"{folder}/sample.json": {**chunked, "message_refs": [[1, 4], [4, 7]]},
        f"{folder}/messages/0.json": [{"role": "user", "content": "of an earlier context"}, *messages[:2]],
        f"{folder}/messages/3.json": messages[2:],
        f"{folder}/events/0.json": SAMPLE["events"],
        f"{folder}/events/stats.json": {},
        f"{folder}/attachments/0.json": ["other"],
        f"{folder}/attachments/1.json": ["You are an agent."],
    }
    old = {key: value for key, value in SAMPLE.items() if key not in {"events", "attachments"}}
    old["messages"] = json.loads(json.dumps(SAMPLE["messages"]).replace("attachment://h1", "tc://h1"))
    old["transcript"] = {"events": SAMPLE["events"], "content": SAMPLE["attachments"]}
    return {
        "log.json": {**HEADER, "samples": [SAMPLE]},
        "old.json": {**HEADER, "samples": [old]},
        "stored.eval": zip_of(encoded(members), zipfile.ZIP_STORED),
        "deflated.eval": zip_of(encoded(members)),
        "zstd.eval": zstd_zip_of(encoded(members)),
        "running.eval": zip_of(encoded({"_journal/start.json": HEADER, "samples/s1_epoch_2.json": SAMPLE})),
        "chunked.eval": zip_of(encoded(pieces)),
    }


@pytest.mark.parametrize("name", packings())
def test_an_inspect_sample_reads_the_same_however_it_is_packed(tmp_path: Path, name: str) -> None:
    got = read(write(tmp_path / name, packings()[name]), tmp_path)
    assert got.format == "inspect_ai"
    run = got.only
    assert outline(run) == [
        "system: You are an agent.",
        "user: Look around.",
        "agent: I look. > bash(b1) > bash(b2) < a.txt(b1) < !too slow(b2)",
        "agent: a.txt",
    ]
    first, last = run.agent_steps
    assert [observation.is_error for observation in first.observations] == [False, True]
    assert (first.thought, first.model, last.model) == ("ls first", "openai/gpt-x", "gpt-x")
    assert first.usage is not None
    assert first.usage.output_tokens == 5
    assert [tool["function"]["name"] for tool in run.tools] == ["bash"], "the grader's tools are not the agent's"
    assert run.outcome.scores == {"match": 1.0, "parts.a": 1.0, "parts.b": 0.5}
    assert (run.outcome.status, run.outcome.reward) == ("success", 1.0)
    assert (run.task.id, run.task.environment, run.task.prompt) == ("s1", "look", "Look around.")
    assert (run.episode_key, run.group_id, run.agent.name) == ("run9/s1/2", "run9/s1", "react")


@pytest.mark.parametrize(
    ("value", "status", "reward"),
    [
        ("C", "success", 1.0),
        ("I", "failure", 0.0),
        ("P", "unknown", 0.5),
        ("N", "unknown", 0.0),
        (1, "success", 1.0),
        (0.0, "failure", 0.0),
        (True, "success", 1.0),
        (0.7, "unknown", 0.7),
        ({"a": 1}, "unknown", None),
        ("A+", "unknown", None),
    ],
)
def test_an_inspect_score_is_a_verdict_only_where_it_is_clear(
    tmp_path: Path, value: Any, status: str, reward: float | None
) -> None:
    sample = {**SAMPLE, "scores": {"s": {"value": value}}}
    run = read(write(tmp_path / "l.json", {**HEADER, "samples": [sample]}), tmp_path).only
    assert (run.outcome.status, run.outcome.reward) == (status, reward)


def test_inspect_limits_errors_and_invalidations_are_told(tmp_path: Path) -> None:
    changes = [
        {"limit": {"type": "token", "limit": 9}},
        {"error": {"message": "Boom"}},
        {"invalidation": {"author": "me"}},
        {"scores": None},
    ]
    samples = [{**SAMPLE, "epoch": n, **change} for n, change in enumerate(changes)]
    outcomes = [run.outcome for run in read(write(tmp_path / "l.json", {**HEADER, "samples": samples}), tmp_path).all]
    assert [o.status for o in outcomes] == ["truncated", "error", "unknown", "unknown"]
    assert [o.exit_status for o in outcomes] == ["limit: token", "Boom", None, None]
    assert [o.reward for o in outcomes] == [1.0, 1.0, 1.0, None]
    header = read(write(tmp_path / "header.json", {**HEADER, "samples": []}), tmp_path)
    assert (header.runs, list(header.report.notes)) == ([], ["the log has no samples, only its header"])


def test_a_sample_that_broke_is_what_its_last_model_call_saw_and_said(tmp_path: Path) -> None:
    pool = [message("user", "old"), message("user", "Look around.")]
    event = {**SAMPLE["events"][0], "input": [], "input_refs": [[1, 2]]}
    broken = {
        "id": 1,
        "epoch": 1,
        "input": "Look around.",
        "messages": [],
        "events": [event],
        "error": {"message": "x"},
    }
    for where in ({"events_data": {"messages": pool, "calls": []}}, {"message_pool": pool}):
        log = {**HEADER, "samples": [{**broken, **where}]}
        run = read(write(tmp_path / "l.json", log), tmp_path).only
        assert outline(run) == ["user: Look around.", "agent: I look."]


def test_answers_that_an_inspect_dataset_wrote_are_not_the_models(tmp_path: Path) -> None:
    shots = [message("user", "1+1"), message("assistant", "2", source="input")]
    sample = {**SAMPLE, "messages": [*shots, *SAMPLE["messages"][1:]]}
    run = read(write(tmp_path / "l.json", {**HEADER, "samples": [sample]}), tmp_path).only
    assert [step.copied_context for step in run.agent_steps] == [True, False, False]


def test_a_damaged_member_costs_only_its_sample_and_ids_may_have_slashes(tmp_path: Path) -> None:
    other = {**SAMPLE, "id": "s one/two", "epoch": 1}
    members = {
        "header.json": HEADER,
        "samples/bad.json": b'{"id": 1',
        "samples/list.json": [1],
        "samples/s one/two_epoch_1.json": other,
    }
    got = read(write(tmp_path / "l.eval", zip_of(encoded(members))), tmp_path)
    assert [run.episode_key for run in got.all] == ["run9/s one/two/1"]
    assert {line for line, _ in got.report.rejected} == {1, 2}
    odd = encoded({"header.json": HEADER, "samples/x/y.bin": SAMPLE})
    nothing = read(write(tmp_path / "odd.eval", zip_of(odd)), tmp_path)
    assert (nothing.runs, nothing.report.n_rejected) == ([], 1)


def test_tau_bench_hides_the_users_instruction_and_its_reward_is_the_verdict(tmp_path: Path) -> None:
    lost = {**TAU, "trial": 2, "reward": 0.0}
    broken = {**TAU, "trial": 3, "reward": 0.0, "info": {"error": "APIError: 500", "traceback": "..."}}
    empty = {"task_id": 5, "reward": 0.0, "info": {"error": "x"}, "traj": [], "trial": 0}
    got = read(write(tmp_path / "gpt.json", [TAU, lost, broken, empty]), tmp_path)
    assert got.format == "tau_bench"
    run = got.all[0]
    assert outline(run) == [
        "system: Policy.",
        "user: Cancel, please.",
        "agent:  > cancel(c1) < done(c1)",
        "agent: It is cancelled.",
        "user: ###STOP###",
    ]
    assert run.task.metadata["instruction"] == "You are u1. Ask to cancel."
    assert "You are u1" not in "".join(str(step.message) for step in run.steps)
    assert run.steps[1].extra == {"simulated": True}
    assert [r.outcome.status for r in got.all] == ["success", "failure", "error"]
    assert [r.outcome.reward for r in got.all] == [1.0, 0.0, 0.0]
    assert run.outcome.scores == {"r_actions": 1.0}
    assert (run.group_id, run.episode_key, run.task.id, run.agent.model) == ("4", "4.1", "4", None)
    assert run.extra["tools"] == "inferred"
    assert [line for line, _ in got.report.rejected] == [4]


@pytest.mark.parametrize("layout", ["one file", "a file each"])
def test_what_the_user_did_with_tools_of_its_own_is_no_action_of_the_agent(tmp_path: Path, layout: str) -> None:
    if layout == "one file":
        path = write(tmp_path / "results.json", TAU2)
    else:
        index = [{"id": "sim-1", "task_id": "t7", "trial": 0}]
        rest = {k: v for k, v in TAU2.items() if k != "simulations"}
        about = write(tmp_path / "results.json", rest | {"simulation_index": index})
        path = write(tmp_path / "simulations/sim-1.json", TAU2["simulations"][0])
        assert read(about, tmp_path).runs == []
    got = read(path, tmp_path)
    assert got.format == "tau2"
    run = got.only
    assert outline(run) == [
        "system: Be polite.",
        "agent: Hi! How can I help you today?",
        "user: My phone is offline.",
        "agent:  > get_line(a1) < line ok(a1)",
        "agent: Switch it off and on.",
        "user: It works. ###STOP###",
    ]
    assert run.steps[5].extra["user_tools"] == [{"id": "u1", "name": "reboot", "arguments": {}, "result": "rebooted"}]
    assert [step.train for step in run.agent_steps] == [False, None, None], "the benchmark wrote the greeting"
    assert run.agent_steps[1].model == "gpt-y"
    assert run.agent_steps[1].usage is not None
    assert run.agent_steps[1].usage.input_tokens == 30
    assert run.tools[0]["function"]["description"] == "A line"
    assert run.task.metadata["user_scenario"] == {"instructions": {"reason_for_call": "phone offline"}}
    assert (run.task.environment, run.group_id, run.episode_key) == ("telecom", "telecom/t7", "sim-1")
    assert (run.agent.name, run.agent.model, run.task.prompt) == ("llm_agent", "gpt-y", "My phone is offline.")
    assert (run.outcome.status, run.outcome.scores) == ("success", {"DB": 1.0, "COMMUNICATE": 1.0})


@pytest.mark.parametrize(
    ("reason", "reward", "status"),
    [
        ("user_stop", 0.0, "failure"),
        ("user_stop", 0.5, "failure"),
        ("user_stop", None, "unknown"),
        ("max_steps", 0.0, "truncated"),
        ("too_many_errors", 0.0, "failure"),
        ("infrastructure_error", None, "error"),
    ],
)
def test_how_a_tau2_simulation_ended_decides_its_status(
    tmp_path: Path, reason: str, reward: float | None, status: str
) -> None:
    info = None if reward is None else {"reward": reward}
    simulation = {**TAU2["simulations"][0], "termination_reason": reason, "reward_info": info}
    run = read(write(tmp_path / "r.json", {**TAU2, "simulations": [simulation, 5]}), tmp_path).only
    assert (run.outcome.status, run.outcome.reward, run.outcome.exit_status) == (status, reward, reason)


def test_pages_are_what_calls_gave_back_and_after_text_actions_turns_of_the_user(tmp_path: Path) -> None:
    judged = {**WEB, "success": False}
    got = read(write(tmp_path / "web.json", [WEB, judged]), tmp_path)
    assert got.format == "web_agent"
    run = got.all[0]
    assert outline(run) == [
        "user: Buy the band",
        "user: [1] link 'Band'",
        "agent:  > click(None) < [2] button 'Buy'(None)",
        "agent: click [2]",
        "user: Thanks",
    ]
    click, text = run.agent_steps
    assert (click.thought, click.actions[0].args) == ("It is there.", {"element_id": "1"})
    assert text.actions == ()
    assert run.steps[1].extra == {"url": "http://shop/", "screenshot": "a.png"}
    assert (run.task.id, run.task.prompt) == ("8", "Buy the band")
    assert (run.agent.model, run.outcome.status) == ("gpt-4o", "unknown")
    assert got.all[1].outcome.status == "failure"


def test_mind2web_demonstrations_keep_element_and_value(tmp_path: Path) -> None:
    action = {
        "operation": {"op": "TYPE", "value": "band"},
        "cleaned_html": "<html/>",
        "pos_candidates": [{"backend_node_id": "55"}],
    }
    row = {
        "annotation_id": "a-1",
        "website": "shop",
        "confirmed_task": "Buy a band",
        "action_reprs": ["[textbox] Search -> TYPE: band"],
        "actions": [action],
    }
    run = read(write(tmp_path / "m.json", [row]), tmp_path).only
    assert outline(run) == [
        "user: Buy a band",
        "user: <html/>",
        "agent: [textbox] Search -> TYPE: band > type(None)",
    ]
    assert run.agent_steps[0].actions[0].args == {"value": "band", "element": "55"}
    assert (run.task.id, run.task.environment, run.agent.model) == ("a-1", "shop", None)


def test_a_verifiers_completion_that_repeats_its_prompt_is_no_second_question(tmp_path: Path) -> None:
    asked = [message("user", "2+2?")]
    call = json.dumps(function_call("py", "{}", "c"))
    made = [message("assistant", "", tool_calls=[call]), message("tool", "4"), message("assistant", "4")]
    row = {"example_id": 0, "prompt": asked, "completion": [*asked, *made], "reward": 1.0, "answer": "4"}
    counts = {"turns": 2.0, "prompt_tokens": 9.0, "sub_call_count": 1.0}
    run, report = read_one("verifiers", write(tmp_path / "results.jsonl", [{**row, **counts, "fmt": 0.5}]), tmp_path)
    assert outline(run) == ["user: 2+2?", "agent:  > py(c) < 4(c)", "agent: 4"]
    assert run.trajectory.outcome.scores == {"fmt": 0.5}
    assert run.trajectory.extra["turns"] == 2.0
    assert not any("without a call in the log" in note for note in report.notes)


def test_a_verifiers_task_is_asked_by_its_data_and_not_by_a_summary_of_its_past(tmp_path: Path) -> None:
    nodes = [
        {"message": message("user", "SUMMARY of what was done")},
        {"parent": 0, "sampled": True, "message": message("assistant", "Done")},
    ]
    row = {"id": "t", "nodes": nodes, "rewards": {}, "task": {"data": {"idx": 1, "prompt": "The task"}}}
    run, _ = read_one("verifiers_v1", write(tmp_path / "traces.jsonl", [row]), tmp_path)
    assert run.trajectory.task.prompt == "The task"


def test_a_conversation_that_opens_with_instructions_and_an_ok_is_one_of_an_environment(tmp_path: Path) -> None:
    words = [
        "Interact with a household.",
        "OK. I'll follow your instructions.",
        "Put a mug.",
        "go to shelf",
        "Observation: there",
        "take",
    ]
    turns = [{"from": "gpt" if n % 2 else "human", "value": said} for n, said in enumerate(words)]
    run, _ = read_one(
        "agentgym", write(tmp_path / "sft.json", [{"id": 3, "conversations": turns, "reward": 1.0}]), tmp_path
    )
    assert [step.train for step in run.trajectory.agent_steps] == [False, None, None]
    assert run.trajectory.task.prompt == "Put a mug."
    words = ["Hi", "OK then, ask.", "2+2?", "4"]
    plain = [{"from": "gpt" if n % 2 else "human", "value": said} for n, said in enumerate(words)]
    read_one("sharegpt", write(tmp_path / "plain.json", [{"conversations": plain}]), tmp_path)


def test_an_eto_row_with_a_reward_is_no_agentinstruct_row(tmp_path: Path) -> None:
    talk = [{"from": f, "value": v} for f, v in (("human", "Rules"), ("gpt", "OK"), ("human", "Task"), ("gpt", "A"))]
    got = read(write(tmp_path / "eto.json", [{"id": "webshop_1", "reward": 0.5, "conversations": talk}]), tmp_path)
    assert (got.format, got.only.outcome.reward, got.only.task.prompt) == ("agentgym", 0.5, "Task")


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


def test_a_converted_toolbench_answer_is_the_last_branch_of_its_tree(tmp_path: Path) -> None:
    def node(role: str, message: Any, *following: Any) -> dict[str, Any]:
        return {"role": role, "message": message, "next": list(following)}

    def ran(name: str, response: str) -> dict[str, str]:
        return {"name": name, "arguments": '{"id": 7}', "response": response}

    text = node("assistant", "It shipped.", node("tool", ran("Finish", "")))
    given_up = node("tool", ran("search", "nothing"))
    chain = node("system", "", node("user", "", given_up, node("tool", ran("get_order", "shipped"), text)))
    answer = {"method": "DFS", "final_answer": "It shipped.", "answer_details": [chain]}
    converted = {"588": {"query": "Where is order 7?", "available_tools": [{"name": "get_order"}], "answer": answer}}
    run, report = read_one("toolbench", write(tmp_path / "G1.json", converted), tmp_path)
    assert outline(run) == [
        "user: Where is order 7?",
        "agent:  > get_order(None) < shipped(None)",
        "agent: It shipped. > Finish(None) < (None)",
    ]
    assert (run.trajectory.task.id, run.trajectory.tools[0]["function"]["name"]) == ("588", "get_order")
    assert any("last branch" in note for note in report.notes)


def test_a_toolbench_answer_is_its_longest_chain_and_a_search_without_one_is_rejected(tmp_path: Path) -> None:
    run, _ = read_log("toolbench")
    assert outline(run) == [
        "system: You can use tools.",
        "user: \nWhere is order 7?\nBegin!\n",
        'agent: I look. > get_order_for_shop(None) < {"error": "", "response": "shipped"}(None)',
        "agent:  > Finish(None)",
    ]
    trajectory = run.trajectory
    assert (trajectory.task.prompt, trajectory.outcome.status) == ("Where is order 7?", "unknown")
    assert trajectory.tools[0]["function"]["name"] == "get_order_for_shop"
    lost = small_log("toolbench")
    del lost["answer_generation"]["train_messages"]
    got = read(write(tmp_path / "8.json", lost), tmp_path)
    assert (got.runs, got.report.rejected[0][1]) == ([], "expected `train_messages`, got a search that found no chain")


def test_a_bfcl_result_has_the_calls_and_results_of_each_step_and_its_verdict_in_the_scores(tmp_path: Path) -> None:
    row = small_log("bfcl")
    solved = {**row, "id": "multi_turn_base_1"}
    failed = {"id": "multi_turn_base_2", "result": "Error during inference: 500", "traceback": "..."}
    single = {"id": "simple_0", "result": [], "input_token_count": 9, "output_token_count": 1, "latency": 0.1}
    folder = tmp_path / "result" / "org_model" / "multi_turn"
    path = write(folder / "BFCL_v4_multi_turn_base_result.json", b"")
    path.write_text("\n".join(map(json.dumps, [row, solved, solved, failed, single])))
    runs, report = read_as("bfcl", path, tmp_path)
    assert {run.trajectory.outcome.status for run in runs} == {"unknown"}
    error = {"id": row["id"], "valid": False, "error": {"error_type": "multi_turn:state_mismatch"}}
    scores = write(tmp_path / "score" / "org_model" / "multi_turn" / "BFCL_v4_multi_turn_base_score.json", b"")
    scores.write_text("\n".join(map(json.dumps, [{"accuracy": 0.5, "correct_count": 1, "total_count": 2}, error])))
    (wrong, right, _), report = read_as("bfcl", path, tmp_path)
    assert outline(wrong) == [
        "user: Where is order 7?",
        "agent:  > get_order(None) < shipped(None)",
        "agent: It has shipped.",
    ]
    assert [tokens(step) for step in wrong.trajectory.agent_steps] == [(90, 10), (110, 5)]
    assert (wrong.trajectory.task.id, wrong.trajectory.agent.model) == ("multi_turn_base_0", "org_model")
    assert (wrong.trajectory.outcome.status, wrong.trajectory.outcome.exit_status) == (
        "failure",
        "multi_turn:state_mismatch",
    )
    assert right.trajectory.outcome.status == "success"
    assert report.consumed == {scores.resolve()}
    assert [reason.rpartition("got ")[2] for _, reason in report.rejected] == [
        "an inference that failed",
        "a result alone, whose question is not in the file",
    ]


def test_samples_of_the_evaluation_harness_are_a_run_a_document_with_the_metrics_of_all_filters(tmp_path: Path) -> None:
    """Two documents under two filters, which disagree on one of them, and choices that the model did not write."""
    rows = small_log("lm_eval")
    choices = {**rows[0], "doc_id": 2, "resps": [[-1.5, False], [-2.5, False]]}
    log = write(tmp_path / log_path("lm_eval").name, [*rows, choices])
    write(tmp_path / "results_2026-01-01T00-00-00.json", {"model_name": "org/m-1", "results": {}})
    runs, report = read_as("lm_eval", log, tmp_path)
    assert [outline(run) for run in runs] == [
        ["user: Question: 2+2?\nAnswer:", "agent: 4"],
        ["system: Be brief.", "user: 2+2?", "agent: It is 4."],
    ]
    right, unclear = (run.trajectory for run in runs)
    assert (right.task.id, right.task.metadata, right.agent.model) == ("sums-0", {"answer": "4"}, "org/m-1")
    assert [run.outcome.status for run in (right, unclear)] == ["success", "unknown"]
    assert unclear.outcome.scores == {"exact_match,strict-match": 0, "exact_match,flexible-extract": 1}
    ((line, reason),) = report.rejected
    assert (line, "the model wrote nothing" in reason) == (5, True)


def test_promptfoo_results_are_a_run_each_with_the_verdict_of_their_assertions(tmp_path: Path) -> None:
    """An answer that passes, a call that fails, an answer that nothing checks, and a test that got none."""
    whole = small_log("promptfoo")
    results = whole["results"]["results"]
    failed = {**results[0], "response": {"error": "429 Too Many Requests"}, "failureReason": 2}
    for path, value in (
        ("r.json", {**whole, "results": {"results": [*results, failed]}}),
        ("r.jsonl", [*results, failed]),
    ):
        runs, report = read_as("promptfoo", write(tmp_path / path, value), tmp_path)
        asked = ["system: Be brief.", "user: 2+2?"]
        assert [outline(run) for run in runs] == [
            [*asked, said] for said in ("agent: 4", "agent:  > add(c1)", "agent: 4")
        ]
        assert [run.trajectory.outcome.status for run in runs] == ["success", "failure", "unknown"]
        made = runs[0].trajectory
        assert (made.agent.model, made.task.id, tokens(made.steps[-1])) == ("m-1", "test-0", (5, 1))
        assert [reason for _, reason in report.rejected] == [
            "expected an output in response, got none (429 Too Many Requests)"
        ]
