"""One small log of each format, hand-made from the format's definition: what hostile tests bend and break."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

from harness_logs import EPISODE, HEADER, ROLLOUT, SAMPLE, TAU, TAU2, WEB
from trace_logs import SCORES, genai, langchain, observations, otlp

ASK, ANSWER = "List the files.", "There is one file."

_CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
_CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": ASK},
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
    {"role": "assistant", "content": ANSWER},
]
_SMOL_CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}
_WEAVE = {"project_id": "me/p", "trace_id": "trace-1", "started_at": "2026-01-01T00:00:00Z", "attributes": {}}
_PLAIN = [{"role": "user", "content": ASK}, {"role": "assistant", "content": ANSWER}]
_TOOL = {
    "type": "function",
    "function": {"name": "bash", "description": "Run", "parameters": {"type": "object", "properties": {"command": {}}}},
}


def _claude(kind: str, uuid: str, parent: str | None, message: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s1",
        "isSidechain": False,
        "cwd": "/home/u/p",
        "version": "2.1.12",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "message": message,
    }


def _qwen(kind: str, uuid: str, parent: str | None, parts: list[dict[str, Any]]) -> dict[str, Any]:
    role = "model" if kind == "assistant" else "user"
    where = {"uuid": uuid, "parentUuid": parent, "sessionId": "q1", "timestamp": "2026-01-01T00:00:00.000Z"}
    return {**where, "type": kind, "cwd": "/home/u/p", "model": "m", "message": {"role": role, "parts": parts}}


def _codex(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload}


def _copilot(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data, "id": "e", "parentId": None, "timestamp": "2026-01-01T00:00:00.000Z"}


def _gpt(name: str, parent: str, role: str, content: dict[str, Any], recipient: str = "all") -> dict[str, Any]:
    author = {"role": role, "name": "python" if role == "tool" else None, "metadata": {}}
    message = {"id": name, "author": author, "content": content, "recipient": recipient, "metadata": {}}
    return {"id": name, "parent": parent, "children": [], "message": message}


# Format -> name of the file, and its content: a list with a row each, or one object.
SMALL_LOGS: dict[str, tuple[str, Any]] = {
    "amp": (
        "T-1.json",
        {
            "id": "T-1",
            "created": 1_760_000_000_000,
            "messages": [
                {"role": "user", "messageId": 0, "content": [{"type": "text", "text": ASK}]},
                {
                    "role": "assistant",
                    "messageId": 1,
                    "content": [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"cmd": "ls"}}],
                    "usage": {"model": "m", "inputTokens": 3, "outputTokens": 2},
                },
                {
                    "role": "user",
                    "messageId": 2,
                    "content": [
                        {
                            "type": "tool_result",
                            "toolUseID": "c1",
                            "run": {"status": "done", "result": {"output": "a.txt", "exitCode": 0}},
                        }
                    ],
                },
                {"role": "assistant", "messageId": 3, "content": [{"type": "text", "text": ANSWER}]},
            ],
        },
    ),
    "chatgpt": (
        "conversations.json",
        [
            {
                "conversation_id": "g1",
                "title": "Files",
                "current_node": "n4",
                "mapping": {
                    "n0": {"id": "n0", "parent": None, "children": ["n1"], "message": None},
                    "n1": _gpt("n1", "n0", "user", {"content_type": "text", "parts": [ASK]}),
                    "n2": _gpt("n2", "n1", "assistant", {"content_type": "code", "text": "ls"}, recipient="python"),
                    "n3": _gpt("n3", "n2", "tool", {"content_type": "execution_output", "text": "a.txt"}),
                    "n4": _gpt("n4", "n3", "assistant", {"content_type": "text", "parts": [ANSWER]}),
                },
            }
        ],
    ),
    "claude_web": (
        "conversations.json",
        [
            {
                "uuid": "w1",
                "name": "Files",
                "chat_messages": [
                    {"uuid": "m1", "sender": "human", "text": ASK, "content": [{"type": "text", "text": ASK}]},
                    {
                        "uuid": "m2",
                        "sender": "assistant",
                        "created_at": "2026-01-01T00:00:00Z",
                        "text": ANSWER,
                        "content": [
                            {"type": "tool_use", "id": "c1", "name": "ls", "input": {}},
                            {"type": "tool_result", "tool_use_id": "c1", "name": "ls", "content": "a.txt"},
                            {"type": "text", "text": ANSWER},
                        ],
                    },
                ],
            }
        ],
    ),
    "aider": (
        ".aider.chat.history.md",
        f"\n# aider chat started at 2026-01-01 00:00:00\n\n> Model: m with diff edit format  \n\n"
        f"#### {ASK}  \n\n{ANSWER}\n\n> Tokens: 5 sent, 2 received.  \n",
    ),
    "cursor": (
        "chat.md",
        f"# Files\n_Exported on 1/1/2026 at 00:00:00 UTC from Cursor (3.2.11)_\n\n---\n\n**User**\n\n{ASK}\n\n"
        f"---\n\n**Cursor**\n\n{ANSWER}\n\n---\n",
    ),
    "copilot_cli": (
        "events.jsonl",
        [
            _copilot("session.start", sessionId="s1", copilotVersion="1.0.102", selectedModel="m", context={}),
            _copilot("user.message", content=ASK, transformedContent=ASK),
            _copilot("system.message", role="system", content="You are an agent."),
            _copilot(
                "assistant.message",
                content="",
                model="m",
                toolRequests=[{"toolCallId": "c1", "name": "bash", "arguments": {"command": "ls"}}],
            ),
            _copilot("tool.execution_complete", toolCallId="c1", success=True, result={"content": "a.txt"}),
            _copilot("assistant.message", content=ANSWER, model="m", toolRequests=[]),
        ],
    ),
    "copilot_chat": (
        "chat.json",
        {
            "responderUsername": "GitHub Copilot",
            "initialLocation": "panel",
            "requests": [
                {
                    "requestId": "request_1",
                    "message": {"text": ASK, "parts": []},
                    "variableData": {"variables": []},
                    "response": [{"value": ANSWER}],
                    "modelId": "copilot/m",
                    "timestamp": 1_760_000_000_000,
                    "result": {
                        "metadata": {
                            "toolCallRounds": [
                                {
                                    "response": "",
                                    "toolCalls": [{"id": "c1", "name": "ls", "arguments": "{}"}],
                                    "id": "r1",
                                },
                                {"response": ANSWER, "toolCalls": [], "id": "r2"},
                            ],
                            "toolCallResults": {"c1": {"content": [{"value": "a.txt"}]}},
                        }
                    },
                }
            ],
        },
    ),
    "goose": (
        "20260101_1.jsonl",
        [
            {"working_dir": "/home/u/p", "description": "Files", "message_count": 4, "total_tokens": 5},
            {"role": "user", "created": 1_760_000_000, "content": [{"type": "text", "text": ASK}]},
            {
                "role": "assistant",
                "created": 1_760_000_001,
                "content": [
                    {
                        "type": "toolRequest",
                        "id": "c1",
                        "toolCall": {"status": "success", "value": {"name": "ls", "arguments": {}}},
                    }
                ],
            },
            {
                "role": "user",
                "created": 1_760_000_002,
                "content": [
                    {
                        "type": "toolResponse",
                        "id": "c1",
                        "toolResult": {"status": "success", "value": [{"type": "text", "text": "a.txt"}]},
                    }
                ],
            },
            {"role": "assistant", "created": 1_760_000_003, "content": [{"type": "text", "text": ANSWER}]},
        ],
    ),
    "kimi_cli": (
        "context.jsonl",
        [
            {"role": "_system_prompt", "content": "You are an agent."},
            {"role": "_checkpoint", "id": 0},
            {"role": "user", "content": ASK},
            {
                "role": "assistant",
                "content": [{"type": "think", "think": "Look."}],
                "tool_calls": [{"type": "function", "id": "c1", "function": {"name": "Shell", "arguments": "{}"}}],
            },
            {"role": "_usage", "token_count": 5},
            {"role": "tool", "content": "a.txt", "tool_call_id": "c1"},
            {"role": "assistant", "content": ANSWER},
        ],
    ),
    "cline": (
        "api_conversation_history.json",
        [
            {"role": "user", "content": [{"type": "text", "text": f"<task>\n{ASK}\n</task>"}], "ts": 1_760_000_000_000},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}],
                "modelInfo": {"modelId": "m", "providerId": "p", "mode": "act"},
                "metrics": {"tokens": {"prompt": 3, "completion": 2, "cached": 1}},
            },
            {"role": "user", "content": [{"type": "text", "text": "[bash for 'ls'] Result:\na.txt"}]},
            {"role": "assistant", "content": [{"type": "text", "text": ANSWER}], "modelInfo": {"modelId": "m"}},
        ],
    ),
    "qwen_code": (
        "qwen.jsonl",
        [
            _qwen("user", "u1", None, [{"text": ASK}]),
            _qwen("assistant", "u2", "u1", [{"functionCall": {"id": "c1", "name": "bash", "args": {"command": "ls"}}}]),
            _qwen(
                "tool_result",
                "u3",
                "u2",
                [{"functionResponse": {"id": "c1", "name": "bash", "response": {"output": "a.txt"}}}],
            ),
            _qwen("assistant", "u4", "u3", [{"text": ANSWER}]),
        ],
    ),
    "grok_cli": (
        "chat_history.jsonl",
        [
            {"type": "system", "content": "You are an agent."},
            {"type": "user", "content": [{"type": "text", "text": ASK}], "prompt_index": 0},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look."}]},
            {
                "type": "assistant",
                "content": "",
                "tool_calls": [{"id": "c1", "name": "bash", "arguments": '{"command": "ls"}'}],
                "model_id": "m",
            },
            {"type": "tool_result", "tool_call_id": "c1", "content": "a.txt"},
            {"type": "assistant", "content": ANSWER, "model_id": "m"},
        ],
    ),
    "openai_chat": ("chat.jsonl", [{"messages": _CHAT, "tools": [_TOOL]}]),
    "anthropic_messages": (
        "request.json",
        {
            "model": "m",
            "system": "You are an agent.",
            "messages": [
                {"role": "user", "content": ASK},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Look.", "signature": "x"},
                        {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"}]},
                {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
            ],
        },
    ),
    "claude_code": (
        "s1.jsonl",
        [
            _claude("user", "u1", None, {"role": "user", "content": ASK}),
            _claude(
                "assistant",
                "u2",
                "u1",
                {
                    "id": "m1",
                    "role": "assistant",
                    "model": "m",
                    "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}],
                    "usage": {"input_tokens": 3, "output_tokens": 2},
                },
            ),
            _claude(
                "user",
                "u3",
                "u2",
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"}]},
            ),
            _claude(
                "assistant",
                "u4",
                "u3",
                {"id": "m2", "role": "assistant", "model": "m", "content": [{"type": "text", "text": ANSWER}]},
            ),
        ],
    ),
    "codex": (
        "rollout-2026-01-01T00-00-00-s1.jsonl",
        [
            _codex("session_meta", {"id": "s1", "cwd": "/p", "cli_version": "0.125", "instructions": None}),
            _codex("turn_context", {"cwd": "/p", "model": "m"}),
            _codex(
                "response_item",
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": ASK}]},
            ),
            _codex("event_msg", {"type": "user_message", "message": ASK}),
            _codex(
                "response_item",
                {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "c1"},
            ),
            _codex("response_item", {"type": "function_call_output", "call_id": "c1", "output": "a.txt"}),
            _codex(
                "response_item",
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]},
            ),
        ],
    ),
    "gemini_cli": (
        "session-2026-01-01.json",
        {
            "sessionId": "s1",
            "projectHash": "p",
            "startTime": "2026-01-01T00:00:00.000Z",
            "lastUpdated": "2026-01-01T00:00:01.000Z",
            "messages": [
                {"id": "1", "timestamp": "2026-01-01T00:00:00.000Z", "type": "user", "content": ASK},
                {
                    "id": "2",
                    "timestamp": "2026-01-01T00:00:01.000Z",
                    "type": "gemini",
                    "content": ANSWER,
                    "thoughts": [{"subject": "s", "description": "d", "timestamp": "2026-01-01T00:00:01.000Z"}],
                    "tokens": {"input": 3, "output": 2},
                    "model": "m",
                    "toolCalls": [
                        {
                            "id": "c1",
                            "name": "list_directory",
                            "args": {"path": "."},
                            "result": [
                                {"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a.txt"}}}
                            ],
                            "status": "success",
                        }
                    ],
                },
            ],
        },
    ),
    "opencode": (
        "export.json",
        {
            "info": {"id": "ses_1", "projectID": "p", "directory": "/p", "time": {"created": 1767225600000}},
            "messages": [
                {
                    "info": {"id": "msg_1", "role": "user", "sessionID": "ses_1", "time": {"created": 1767225600000}},
                    "parts": [{"id": "prt_1", "type": "text", "text": ASK, "messageID": "msg_1", "sessionID": "ses_1"}],
                },
                {
                    "info": {
                        "id": "msg_2",
                        "role": "assistant",
                        "sessionID": "ses_1",
                        "modelID": "m",
                        "time": {"created": 1767225601000},
                    },
                    "parts": [
                        {"id": "prt_2", "type": "step-start", "messageID": "msg_2", "sessionID": "ses_1"},
                        {
                            "id": "prt_3",
                            "type": "tool",
                            "callID": "c1",
                            "tool": "bash",
                            "messageID": "msg_2",
                            "sessionID": "ses_1",
                            "state": {"status": "completed", "input": {"command": "ls"}, "output": "a.txt"},
                        },
                        {"id": "prt_4", "type": "text", "text": ANSWER, "messageID": "msg_2", "sessionID": "ses_1"},
                    ],
                },
            ],
        },
    ),
    "openhands_v0": (
        "trajectory.json",
        [
            {"id": 0, "source": "user", "action": "message", "args": {"content": ASK}, "message": ASK},
            {
                "id": 1,
                "source": "agent",
                "action": "run",
                "args": {"command": "ls", "thought": "Look."},
                "message": "Running command: ls",
            },
            {
                "id": 2,
                "source": "agent",
                "observation": "run",
                "content": "a.txt",
                "cause": 1,
                "extras": {"command": "ls", "metadata": {"exit_code": 0}},
                "message": "Command `ls` executed with exit code 0.",
            },
            {"id": 3, "source": "agent", "action": "message", "args": {"content": ANSWER}, "message": ANSWER},
        ],
    ),
    "openhands_v1": (
        "events.jsonl",
        [
            {
                "id": "e1",
                "timestamp": "2026-01-01T00:00:00",
                "source": "user",
                "kind": "MessageEvent",
                "llm_message": {"role": "user", "content": [{"type": "text", "text": ASK}]},
            },
            {
                "id": "e2",
                "timestamp": "2026-01-01T00:00:01",
                "source": "agent",
                "kind": "ActionEvent",
                "thought": [{"type": "text", "text": "Look."}],
                "tool_name": "terminal",
                "tool_call_id": "c1",
                "tool_call": {"id": "c1", "name": "terminal", "arguments": '{"command": "ls"}'},
                "llm_response_id": "r1",
                "action": {"kind": "TerminalAction", "command": "ls"},
            },
            {
                "id": "e3",
                "timestamp": "2026-01-01T00:00:02",
                "source": "environment",
                "kind": "ObservationEvent",
                "tool_name": "terminal",
                "tool_call_id": "c1",
                "action_id": "e2",
                "observation": {"kind": "TerminalObservation", "content": [{"type": "text", "text": "a.txt"}]},
            },
            {
                "id": "e4",
                "timestamp": "2026-01-01T00:00:03",
                "source": "agent",
                "kind": "MessageEvent",
                "llm_message": {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
            },
        ],
    ),
    "swe_agent": (
        "t.traj",
        {
            "trajectory": [
                {"action": "ls", "observation": "a.txt", "response": "Look.\n```\nls\n```", "thought": "Look."}
            ],
            "history": [
                {"role": "system", "content": "You are an agent.", "agent": "main"},
                {"role": "user", "content": ASK, "agent": "main"},
                {
                    "role": "assistant",
                    "content": "Look.\n```\nls\n```",
                    "thought": "Look.",
                    "action": "ls",
                    "agent": "main",
                },
                {"role": "user", "content": "a.txt", "agent": "main", "message_type": "observation"},
            ],
            "info": {"exit_status": "submitted", "model_stats": {"tokens_sent": 3, "tokens_received": 2}},
        },
    ),
    "swe_agent_flat": (
        "rows.json",
        [
            {
                "instance_id": "i1",
                "model_name": "m",
                "target": True,
                "exit_status": "submitted",
                "trajectory": [
                    {"role": "system", "text": None, "system_prompt": "You are an agent.", "mask": False},
                    {"role": "user", "text": ASK, "system_prompt": None, "mask": False},
                    {"role": "ai", "text": "Look.\n```\nls\n```", "system_prompt": None, "mask": True},
                ],
            }
        ],
    ),
    "mini_swe_agent": (
        "mini.traj.json",
        {
            "info": {"exit_status": "Submitted", "submission": "", "mini_version": "1.17.0", "model_stats": {}},
            "messages": [
                {"role": "system", "content": "You are an agent."},
                {"role": "user", "content": ASK},
                {"role": "assistant", "content": "THOUGHT: Look.\n```bash\nls\n```"},
                {"role": "user", "content": "<returncode>0</returncode>\n<output>\na.txt\n</output>"},
            ],
            "trajectory_format": "mini-swe-agent-1",
        },
    ),
    "atif": (
        "trajectory.json",
        {
            "schema_version": "ATIF-v1.5",
            "session_id": "s1",
            "agent": {"name": "a", "version": "1", "model_name": "m"},
            "steps": [
                {"step_id": 1, "source": "user", "message": ASK},
                {
                    "step_id": 2,
                    "source": "agent",
                    "message": ANSWER,
                    "reasoning_content": "Look.",
                    "tool_calls": [{"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "ls"}}],
                    "observation": {"results": [{"source_call_id": "c1", "content": "a.txt"}]},
                    "metrics": {"prompt_tokens": 3, "completion_tokens": 2},
                },
            ],
        },
    ),
    "harbor_traces": (
        "traces.json",
        [
            {
                "conversations": _PLAIN,
                "agent": "a",
                "model": "m",
                "task": "t",
                "episode": "episode-0",
                "run_id": "r",
                "trial_name": "t__1",
                "result": "1.0",
            }
        ],
    ),
    "adp": (
        "adp.json",
        [
            {
                "id": "1",
                "content": [
                    {"class_": "text_observation", "content": ASK, "source": "user", "name": None},
                    {"class_": "api_action", "function": "bash", "kwargs": {"command": "ls"}, "description": "Look."},
                    {"class_": "text_observation", "content": "a.txt", "source": "environment", "name": None},
                    {"class_": "message_action", "content": ANSWER, "description": None},
                ],
                "details": {},
            }
        ],
    ),
    "agentgym": (
        "agentgym.json",
        [
            {
                "item_id": "webshop_1",
                "conversations": [
                    {"from": "human", "loss": None, "value": "You are in a shop."},
                    {"from": "gpt", "loss": False, "value": "OK"},
                    {"from": "human", "loss": None, "value": ASK},
                    {"from": "gpt", "loss": True, "value": "Thought: Look.\nAction: search[files]"},
                ],
            }
        ],
    ),
    "agentinstruct": (
        "agentinstruct.json",
        [
            {
                "id": "os_0",
                "conversations": [
                    {"role": "user", "content": "You are an assistant that acts like a person."},
                    {"role": "assistant", "content": "Think: Look.\n\nAct: bash\n\n```bash\nls\n```"},
                    {"role": "user", "content": "The output of the OS:\na.txt"},
                    {"role": "assistant", "content": "Think: Done.\n\nAct: finish"},
                ],
            }
        ],
    ),
    "sharegpt": (
        "sharegpt.json",
        [
            {
                "conversations": [
                    {"from": "human", "value": ASK},
                    {"from": "function_call", "value": '{"name": "bash", "arguments": {"command": "ls"}}'},
                    {"from": "observation", "value": "a.txt"},
                    {"from": "gpt", "value": ANSWER},
                ],
                "tools": json.dumps([_TOOL["function"]]),
            }
        ],
    ),
    "alpaca": ("alpaca.json", [{"instruction": ASK, "input": "", "output": ANSWER}]),
    "verifiers": ("results.jsonl", [ROLLOUT]),
    "verifiers_v1": ("traces.jsonl", [EPISODE]),
    "inspect_ai": ("log.json", HEADER | {"samples": [SAMPLE]}),
    "tau_bench": ("airline.json", [TAU]),
    "tau2": ("tau2.json", TAU2),
    "otel": ("otlp.json", otlp(*genai(as_text=False)[1:3])),
    "langsmith": ("runs.jsonl", langchain()[:2]),
    "langfuse": (
        "observations.json",
        {"trace": {"id": "t1"}, "observations": observations(as_text=False), "scores": SCORES},
    ),
    "hf_sts": (
        "sts.jsonl",
        [
            {"type": "session", "harness": "a", "id": "s1", "name": "n"},
            {"type": "message", "message": {"role": "user", "content": ASK}},
            {"type": "message", "message": {"role": "assistant", "content": ANSWER}},
        ],
    ),
    "preference": (
        "dpo.jsonl",
        [
            {
                "prompt": [{"role": "user", "content": ASK}],
                "chosen": [{"role": "assistant", "content": ANSWER}],
                "rejected": [{"role": "assistant", "content": "No."}],
            }
        ],
    ),
    "prompt_completion": (
        "pc.jsonl",
        [{"prompt": [{"role": "user", "content": ASK}], "completion": [{"role": "assistant", "content": ANSWER}]}],
    ),
    "stepwise": ("steps.jsonl", [{"prompt": ASK, "completions": ["First.", "Second."], "labels": [True, False]}]),
    "question_answer": ("gsm8k.jsonl", [{"question": "What is 1 + 1?", "answer": "1 + 1 = 2\n#### 2"}]),
    "web_agent": ("web.json", [WEB]),
    "openhands_output": (
        "output.jsonl",
        [
            {
                "instance_id": "i1",
                "instruction": ASK,
                "history": [
                    {"id": 0, "source": "user", "action": "message", "args": {"content": ASK}, "message": ASK},
                    {"id": 1, "source": "agent", "action": "run", "args": {"command": "ls", "thought": "Look."}},
                    {"id": 2, "source": "agent", "observation": "run", "content": "a.txt", "cause": 1, "extras": {}},
                ],
                "metrics": {"accumulated_cost": 0.1},
                "error": None,
                "test_result": {"git_patch": ""},
            }
        ],
    ),
    "crew": (
        "crew.jsonl",
        [
            {
                "event": "start",
                "session_type": "employee",
                "subject": "reviewer",
                "metadata": {"args": {"target": "x"}},
            },
            {"event": "message", "role": "prompt", "content": ASK, "timestamp": "2026-01-01T00:00:00"},
            {
                "event": "message",
                "role": "assistant",
                "content": ANSWER,
                "metadata": {"model": "m", "output_tokens": 2},
            },
            {"event": "end", "status": "completed"},
        ],
    ),
    "sage": (
        "dialogs.jsonl",
        [
            {
                "dialog_id": "d1",
                "goal": ASK,
                "target_tools": ["ls"],
                "turns": [
                    {"role": "user", "content": ASK},
                    {"role": "assistant", "content": "I call ls."},
                    {"role": "tool", "name": "ls", "content": "a.txt", "tool_id": "ls", "result": "a.txt"},
                    {"role": "assistant", "content": ANSWER},
                ],
                "metadata": {"difficulty": "easy"},
                "split": "train",
            }
        ],
    ),
    "verl": ("rollouts.jsonl", [{"input": ASK, "output": ANSWER, "score": 1.0, "step": 1, "gts": "1"}]),
    "knowlyr": (
        "trajectories.jsonl",
        [
            {
                "task": {"task_id": "t1", "description": ASK, "type": "bug_fix"},
                "agent": "a",
                "model": "m",
                "steps": [
                    {
                        "step_id": 1,
                        "thought": "Look.",
                        "tool_call": {"name": "bash", "parameters": {"command": "ls"}},
                        "tool_result": {"output": "a.txt", "exit_code": 0, "error": None},
                        "timestamp": "2026-01-01T00:00:00",
                    }
                ],
                "outcome": {"success": True, "score": 1.0, "total_steps": 1},
                "metadata": {},
            }
        ],
    ),
    "pydantic_ai": (
        "history.json",
        [
            {
                "kind": "request",
                "instructions": None,
                "parts": [
                    {"part_kind": "system-prompt", "content": "You are an agent."},
                    {"part_kind": "user-prompt", "content": ASK, "timestamp": "2026-01-01T00:00:00Z"},
                ],
            },
            {
                "kind": "response",
                "model_name": "m",
                "timestamp": "2026-01-01T00:00:00Z",
                "usage": {"input_tokens": 9, "output_tokens": 2},
                "parts": [
                    {"part_kind": "thinking", "content": "Look."},
                    {"part_kind": "tool-call", "tool_name": "bash", "args": {"command": "ls"}, "tool_call_id": "c1"},
                ],
            },
            {
                "kind": "request",
                "parts": [
                    {"part_kind": "tool-return", "tool_name": "bash", "content": "a.txt", "tool_call_id": "c1"},
                ],
            },
            {"kind": "response", "model_name": "m", "parts": [{"part_kind": "text", "content": ANSWER}]},
        ],
    ),
    "smolagents": (
        "steps.json",
        [
            {"task": ASK, "task_images": None},
            {
                "step_number": 1,
                "timing": {"start_time": 1760000000.5, "end_time": 1760000001.5, "duration": 1.0},
                "model_input_messages": [
                    {"role": "system", "content": [{"type": "text", "text": "You are an agent."}]}
                ],
                "tool_calls": [_SMOL_CALL],
                "error": None,
                "model_output_message": {"role": "assistant", "content": "Look.", "tool_calls": [_SMOL_CALL]},
                "model_output": "Look.",
                "code_action": None,
                "observations": "a.txt",
                "action_output": None,
                "token_usage": {"input_tokens": 9, "output_tokens": 2},
                "is_final_answer": False,
            },
        ],
    ),
    "ai_sdk": (
        "chat.json",
        [
            {"id": "u1", "role": "user", "parts": [{"type": "text", "text": ASK}]},
            {
                "id": "a1",
                "role": "assistant",
                "metadata": {"model": "m"},
                "parts": [
                    {"type": "step-start"},
                    {"type": "reasoning", "text": "Look.", "state": "done"},
                    {
                        "type": "tool-bash",
                        "toolCallId": "c1",
                        "state": "output-available",
                        "input": {"command": "ls"},
                        "output": "a.txt",
                    },
                    {"type": "step-start"},
                    {"type": "text", "text": ANSWER, "state": "done"},
                ],
            },
        ],
    ),
    "openai_agents": (
        "traces.jsonl",
        [
            {"object": "trace", "id": "trace_1", "workflow_name": "w", "group_id": None, "metadata": None},
            {
                "object": "trace.span",
                "id": "span_1",
                "trace_id": "trace_1",
                "parent_id": None,
                "started_at": "2026-01-01T00:00:00+00:00",
                "ended_at": "2026-01-01T00:00:01+00:00",
                "span_data": {"type": "generation", "model": "m", "input": _CHAT[:2], "output": _CHAT[2:3]},
                "error": None,
            },
            {
                "object": "trace.span",
                "id": "span_2",
                "trace_id": "trace_1",
                "parent_id": None,
                "started_at": "2026-01-01T00:00:01+00:00",
                "ended_at": "2026-01-01T00:00:02+00:00",
                "span_data": {"type": "function", "name": "bash", "input": '{"command": "ls"}', "output": "a.txt"},
                "error": None,
            },
        ],
    ),
    "mlflow": (
        "trace.json",
        {
            "info": {"trace_id": "tr-1", "state": "OK", "tags": {}, "trace_metadata": {}, "assessments": []},
            "data": {
                "spans": [
                    {
                        "trace_id": "dDE=",
                        "span_id": "czE=",
                        "parent_span_id": None,
                        "name": "Completions",
                        "start_time_unix_nano": 1760000000000000000,
                        "status": {"code": "STATUS_CODE_OK", "message": ""},
                        "events": [],
                        "attributes": {
                            "mlflow.traceRequestId": '"tr-1"',
                            "mlflow.spanType": '"CHAT_MODEL"',
                            "mlflow.spanInputs": json.dumps({"model": "m", "messages": _CHAT[:4]}),
                            "mlflow.spanOutputs": json.dumps({"choices": [{"message": _CHAT[4]}]}),
                        },
                    }
                ]
            },
        },
    ),
    "weave": (
        "calls.jsonl",
        [
            {
                "id": "call-0",
                **_WEAVE,
                "op_name": "weave:///me/p/op/agent:abc",
                "parent_id": None,
                "inputs": {"q": ASK},
            },
            {
                "id": "call-1",
                **_WEAVE,
                "op_name": "weave:///me/p/op/openai.chat.completions.create:abc",
                "parent_id": "call-0",
                "inputs": {"model": "m", "messages": _CHAT[:4]},
                "output": {"model": "m", "choices": [{"index": 0, "message": _CHAT[4]}]},
                "summary": {"usage": {"m": {"prompt_tokens": 9, "completion_tokens": 2}}},
            },
        ],
    ),
    "autogen": (
        "result.json",
        {
            "messages": [
                {"type": "TextMessage", "source": "user", "models_usage": None, "metadata": {}, "content": ASK},
                {
                    "type": "ToolCallRequestEvent",
                    "source": "clerk",
                    "models_usage": {"prompt_tokens": 9, "completion_tokens": 2},
                    "created_at": "2026-01-01T00:00:00Z",
                    "content": [{"id": "c1", "name": "bash", "arguments": '{"command": "ls"}'}],
                },
                {
                    "type": "ToolCallExecutionEvent",
                    "source": "clerk",
                    "content": [{"call_id": "c1", "name": "bash", "content": "a.txt", "is_error": False}],
                },
                {"type": "TextMessage", "source": "clerk", "models_usage": {"prompt_tokens": 9}, "content": ANSWER},
            ],
            "stop_reason": None,
        },
    ),
    "autogen_v0": (
        "chat.json",
        {
            "chat_id": 1,
            "chat_history": [
                {"content": ASK, "role": "assistant", "name": "user_proxy"},
                {"content": "", "role": "assistant", "tool_calls": [_CALL]},
                {
                    "content": "a.txt",
                    "role": "tool",
                    "name": "user_proxy",
                    "tool_responses": [{"tool_call_id": "c1", "role": "tool", "content": "a.txt"}],
                },
                {"content": ANSWER, "role": "user", "name": "assistant"},
            ],
            "summary": ANSWER,
            "cost": {},
            "human_input": [],
        },
    ),
    "crewai": (
        "output.json",
        {
            "raw": ANSWER,
            "tasks_output": [
                {
                    "description": ASK,
                    "expected_output": "a list",
                    "raw": ANSWER,
                    "agent": "Clerk",
                    "output_format": "raw",
                    "messages": _CHAT,
                }
            ],
            "token_usage": {"total_tokens": 11},
        },
    ),
    "quintain": (
        "runs.jsonl",
        [
            {
                "session_id": "s1",
                "agent": {"name": "a"},
                "task": {"prompt": ASK},
                "steps": [
                    {"actor": "user", "message": ASK},
                    {
                        "actor": "agent",
                        "message": ANSWER,
                        "actions": [{"tool": "bash", "args": {"command": "ls"}, "call_id": "c1"}],
                        "observations": [{"content": "a.txt", "call_id": "c1"}],
                    },
                ],
                "outcome": {"status": "unknown"},
            }
        ],
    ),
}


def content(name: str, value: Any) -> bytes:
    """As a file of this name holds it: text, a row a line, or JSON."""
    if isinstance(value, str):
        return value.encode()
    if name.endswith(".jsonl"):
        return b"".join(json.dumps(row).encode() + b"\n" for row in value)
    return json.dumps(value).encode()


def write_small_logs(folder: Path) -> dict[str, Path]:
    """A file of each format, each in a folder of its own."""
    written = {}
    for format, (name, value) in SMALL_LOGS.items():
        written[format] = folder / format / name
        written[format].parent.mkdir(parents=True)
        written[format].write_bytes(content(name, value))
    return written


def eval_archive(header: dict[str, Any], samples: dict[str, Any], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive as inspect writes it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("header.json", json.dumps(header))
        for name, sample in samples.items():
            archive.writestr(name, json.dumps(sample))
    return buffer.getvalue()
