"""Logs of evaluation harnesses with every field that their readers know."""

from __future__ import annotations

from typing import Any

from agent_logs import function_call, message

ASK = message("user", "What is 6 x 7?")


CALL = function_call("calc", '{"e": "6*7"}', "c1")


FLAT_CALL = {"id": "c1", "name": "calc", "arguments": '{"e": "6*7"}'}


RESULT = message("tool", "42", tool_call_id="c1")


SCHEMA = {"type": "object", "properties": {"e": {"type": "string"}}}


CALC = {"name": "calc", "description": "Calculate", "parameters": SCHEMA}


ROLLOUT: dict[str, Any] = {
    "example_id": 3,
    "prompt": [message("system", "Be exact."), ASK],
    "completion": [
        message("assistant", None, reasoning_content="use the tool", tool_calls=[CALL]),
        RESULT,
        message("assistant", "42"),
    ],
    "reward": 0.8,
    "metrics": {"correct_answer": 1.0, "format": 0.0},
    "is_completed": True,
    "is_truncated": False,
    "stop_condition": "no_tools_called",
    "answer": "42",
    "error": None,
    "tool_defs": [CALC],
    "trajectory": [
        {
            "response": {"model": "m-1", "usage": {"prompt_tokens": 9, "completion_tokens": 4}},
            "tokens": {"prompt_ids": [1, 2], "completion_ids": [3, 4, 5]},
            "reward": 0.0,
        },
        {"response": {"model": "m-1"}, "tokens": None, "reward": 0.8},
    ],
    "token_usage": {"input_tokens": 20.0, "output_tokens": 8.0},
    "seed": 7,
}


def node(parent: int | None, message: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"parent": parent, "message": message, **fields}


def trace_v1(**changes: Any) -> dict[str, Any]:
    """A graph with two branches: the second one shares the question and goes another way after it."""
    asked = message("assistant", None, reasoning_content="tool", tool_calls=[FLAT_CALL])
    called = {"usage": {"prompt_tokens": 9, "completion_tokens": 4}, "time": {"start": 1760000000.0}}
    return {
        "id": "t1",
        "version": 1,
        "task": {"type": "Maths", "key": "task-3", "data": {"idx": 3, "prompt": "What is 6 x 7?", "answer": "42"}},
        "agent": {"name": "solver", "trainable": True, "config": {"model": "m-0"}},
        "tools": [CALC],
        "nodes": [
            node(None, message("system", "Be exact.")),
            node(0, ASK),
            node(1, asked, sampled=True, token_ids=[1, 2, 3], mask=[False, True, True]),
            node(2, RESULT),
            node(3, message("assistant", "42"), sampled=True),
            node(3, message("assistant", "It is 42."), sampled=True),
        ],
        "calls": [
            {"node": 2, "model": "m-1", "finish_reason": "tool_calls", **called},
            {"node": 5, "model": "m-1", "finish_reason": "stop"},
        ],
        "rewards": {"correct": {"score": 1.0, "weight": 2.0}, "style": {"score": 0.5, "weight": 1.0}, "late": None},
        "metrics": {"turns": 2.0},
        "is_completed": True,
        "ok": True,
        "stop_condition": "agent_completed",
        "errors": [],
        **changes,
    }


EPISODE: dict[str, Any] = {
    "id": "e1",
    "env": {"id": "arith"},
    "task": {"type": "Maths", "data": {}},
    "group": {"id": "g7"},
    "ok": True,
    "traces": [trace_v1()],
}


BASH = {"name": "bash", "description": "Run", "parameters": {"type": "object", "properties": {"cmd": {}}}}


MODEL_EVENT = {
    "event": "model",
    "model": "openai/gpt-x",
    "timestamp": "2026-01-01T00:00:00+00:00",
    "tools": [BASH],
    "output": {
        "model": "gpt-x",
        "choices": [{"message": message("assistant", "I look.", id="m2")}],
        "usage": {"input_tokens": 50, "output_tokens": 5},
    },
}


GRADING = {
    "event": "model",
    "model": "openai/grader",
    "tools": [{"name": "grade"}],
    "output": {"choices": [{"message": message("assistant", "GRADE: C")}]},
}


SAMPLE: dict[str, Any] = {
    "id": "s1",
    "epoch": 2,
    "input": "Look around.",
    "target": "a.txt",
    "messages": [
        message("system", "attachment://h1"),
        message("user", "Look around.", id="m1", source="input"),
        {
            "id": "m2",
            "role": "assistant",
            "source": "generate",
            "content": [{"type": "reasoning", "reasoning": "ls first"}, {"type": "text", "text": "I look."}],
            "tool_calls": [
                {"id": "b1", "function": "bash", "arguments": {"cmd": "ls"}},
                {"id": "b2", "function": "bash", "arguments": {"cmd": "cat"}},
            ],
        },
        message("tool", "a.txt", tool_call_id="b1", function="bash"),
        message("tool", "", tool_call_id="b2", function="bash", error={"type": "timeout", "message": "too slow"}),
        message("assistant", "a.txt", id="m5", source="generate", model="gpt-x"),
    ],
    "scores": {
        "match": {"value": "C", "answer": "a.txt"},
        "parts": {"value": {"a": 1, "b": 0.5}},
        "grade": {"value": "excellent"},
    },
    "metadata": {"level": 1},
    "events": [MODEL_EVENT, GRADING, {"event": "tool", "function": "bash"}],
    "attachments": {"h1": "You are an agent."},
}


HEADER: dict[str, Any] = {
    "version": 2,
    "status": "success",
    "eval": {"run_id": "run9", "task": "look", "model": "openai/gpt-x", "solver": "react"},
}


TAU: dict[str, Any] = {
    "task_id": 4,
    "trial": 1,
    "reward": 1.0,
    "info": {
        "task": {"user_id": "u1", "instruction": "You are u1. Ask to cancel.", "actions": [{"name": "cancel"}]},
        "user_cost": 0.01,
        "reward_info": {"reward": 1.0, "info": {"r_actions": 1.0, "gt_data_hash": "ab"}},
    },
    "traj": [
        message("system", "Policy."),
        message("user", "Cancel, please."),
        message("assistant", None, tool_calls=[function_call("cancel", '{"id": 7}', "c1")]),
        message("tool", "done", tool_call_id="c1", name="cancel"),
        message("assistant", "It is cancelled."),
        message("user", "###STOP###"),
    ],
}


SIMULATION: dict[str, Any] = {
    "id": "sim-1",
    "task_id": "t7",
    "trial": 0,
    "seed": 300,
    "start_time": "2026-01-01T00:00:00",
    "termination_reason": "user_stop",
    "reward_info": {"reward": 1.0, "reward_breakdown": {"DB": 1.0, "COMMUNICATE": 1.0}},
    "messages": [
        message("assistant", "Hi! How can I help you today?", turn_idx=0, timestamp="2026-01-01T00:00:00"),
        message("user", "My phone is offline.", usage={"prompt_tokens": 3, "completion_tokens": 1}),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a1", "name": "get_line", "arguments": {"n": 1}, "requestor": "assistant"}],
            "cost": 0.1,
            "usage": {"prompt_tokens": 30, "completion_tokens": 4},
            "raw_data": {"model": "gpt-y"},
        },
        message("tool", "line ok", id="a1", requestor="assistant", error=False),
        message("assistant", "Switch it off and on.", usage={"prompt_tokens": 40, "completion_tokens": 6}),
        message("user", None, tool_calls=[{"id": "u1", "name": "reboot", "arguments": {}, "requestor": "user"}]),
        {"role": "tool", "tool_messages": [message("tool", "rebooted", id="u1", requestor="user")]},
        message("user", "It works. ###STOP###"),
    ],
}


LINE = {"name": "get_line", "doc": "A line", "params": {"type": "object", "properties": {"n": {"type": "integer"}}}}


SCENARIO = {"instructions": {"reason_for_call": "phone offline"}}


TAU2: dict[str, Any] = {
    "timestamp": "2026-01-01",
    "info": {
        "agent_info": {"implementation": "llm_agent", "llm": "gpt-y"},
        "environment_info": {
            "domain_name": "telecom",
            "policy": "Be polite.",
            "tool_defs": {"get_line": LINE},
        },
    },
    "tasks": [{"id": "t7", "user_scenario": SCENARIO, "evaluation_criteria": {"actions": [{"name": "reboot"}]}}],
    "simulations": [SIMULATION],
}


CLICK = {"action_type": 6, "action_name": "click", "element_id": "1", "text": [], "url": ""}


WEB: dict[str, Any] = {
    "task_id": 8,
    "intent": "Buy the band",
    "source": "gpt-4o",
    "trajectory": [
        {"url": "http://shop/", "axtree": "[1] link 'Band'", "screenshot_path": "a.png"},
        {"metadata": {"cot": "It is there."}, "action": CLICK},
        {"url": "http://shop/band", "axtree": "[2] button 'Buy'"},
        {"action": "click [2]"},
        {"url": "http://shop/done", "axtree": "Thanks"},
    ],
}
