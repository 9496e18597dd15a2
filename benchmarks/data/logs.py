"""Made-up logs in the shape of real ones: English and code, tool calls, some hundred bytes to some kilobytes a line.

One text in fifty holds a secret, and as many places look like the beginning of one as in real logs.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

_VOCABULARY = """the of to and a in is it you that for on with as this file test function value error return when which result
module import class path line table index query value column server client request response handler async await config
build install version release branch commit merge change fix check run start stop read write open close update delete
create select from where join order group limit offset parse encode decode string number list dict object array match case
login account session user admin page key keys author email"""
_WORDS = _VOCABULARY.split()
_SUSPECTS = ("token", "tokens", "password", "secret", "bypass", "a@b.T", "api_key", "http://localhost:8080/")
"""Words that redaction has to look at and leave: about one in a thousand characters, as in real logs."""
_CODE = (
    "def handle(request: Request, *, retries: int = 3) -> Response:\n    return await client.get(request.url)\n",
    "for i, row in enumerate(rows):\n    if row['status'] != 'ok':\n        raise ValueError(f'row {i}: {row!r}')\n",
    "$ pytest -q tests/test_api.py::test_login\n..F...  [100%]\nE   AssertionError: assert 401 == 200\n",
    '{"id": "5f2b", "sha": "3f786850e387550fdab836ed7e6dc881de23001b", "usage": {"prompt_tokens": 812}}\n',
    "commit 8f14e45fceea167a5a36dedd4bea2543b1c2d3e4\nDate:   2026-03-04 11:12:13 +0100\n",
)
_SECRETS = (
    "export SERVICE_API_KEY=q1w2e3r4t5y6u7i8",
    "postgres://app:s3cr3tpw@db.internal/app",
    "Authorization: Bearer mF_9.B5f-4.1JqMmF_9.B5f",
    "contact jane.doe@corp.example",
)
MODEL = "starter-2026"


def prose(draw: Random, chars: int) -> str:
    """Text of about this length."""
    parts, n = [], 0
    while n < chars:
        part = draw.choice(_CODE) if draw.random() < 0.15 else " ".join(draw.choices(_WORDS, k=14)) + ".\n"
        if draw.random() < 0.07:
            part += draw.choice(_SUSPECTS) + " "
        parts.append(part)
        n += len(part)
    if draw.random() < 0.02:
        parts.insert(len(parts) // 2, draw.choice(_SECRETS) + "\n")
    return "".join(parts)


def openai_chat(path: Path, size: int, seed: int = 0) -> int:
    """Write rows `{"messages": [...], "tools": [...]}`, a run each, until the file has this size; returns its bytes."""
    draw = Random(seed)
    with path.open("w", encoding="utf-8") as file:
        n = 0
        while file.tell() < size:
            file.write(json.dumps({"messages": list(_messages(draw, n)), "tools": [_TOOL]}) + "\n")
            n += 1
    return path.stat().st_size


_TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def _messages(draw: Random, n: int) -> Iterator[dict[str, Any]]:
    yield {"role": "system", "content": "You are a careful engineer. " + prose(draw, 400)}
    yield {"role": "user", "content": f"Task {n}: " + prose(draw, 300)}
    for turn in range(draw.randint(2, 6)):
        arguments = json.dumps({"command": f"cat src/module_{n}_{turn}.py | head -n {draw.randint(10, 99)}"})
        call = {"id": f"call_{n}_{turn}", "type": "function", "function": {"name": "bash", "arguments": arguments}}
        yield {"role": "assistant", "content": prose(draw, 150), "tool_calls": [call]}
        yield {
            "role": "tool",
            "tool_call_id": f"call_{n}_{turn}",
            "content": prose(draw, draw.choice((200, 800, 2500))),
        }
    yield {"role": "assistant", "content": prose(draw, 300)}


def claude_code(folder: Path, size: int, seed: int = 0) -> int:
    """Write sessions, a file each, until the folder holds this many bytes; returns how many it holds."""
    draw = Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    total = n = 0
    while total < size:
        path = folder / f"{uuid.UUID(int=draw.getrandbits(128))}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in _session(draw, path.stem, n)), encoding="utf-8")
        total, n = total + path.stat().st_size, n + 1
    return total


def claude_session(path: Path, size: int, *, repeats: bool, seed: int = 0) -> None:
    """Write one session until its file has this size.

    Args:
        path: The file.
        size: Its bytes.
        repeats: Whether each result stands twice in its line, as Claude Code writes it; else all of the file is text.
        seed: Of the texts.
    """
    draw = Random(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for line in _session(draw, path.stem, 0, count(), lambda: file.tell() >= size, repeats=repeats):
            file.write(json.dumps(line) + "\n")


def codex_session(path: Path, size: int, seed: int = 0) -> None:
    """Write one Codex session until its file has this size."""
    draw = Random(seed)

    def line(kind: str, payload: dict[str, Any]) -> str:
        return json.dumps({"timestamp": "2026-03-04T11:11:13.000Z", "type": kind, "payload": payload}) + "\n"

    with path.open("w", encoding="utf-8") as file:
        file.write(line("session_meta", {"id": "session"}))
        asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Mend the login."}]}
        file.write(line("response_item", asked))
        for n in count():
            spoken = [{"type": "output_text", "text": prose(draw, 150)}]
            arguments = json.dumps({"command": ["cat", f"src/module_{n}.py"]})
            call = {"type": "function_call", "name": "shell", "arguments": arguments, "call_id": f"call_{n}"}
            output = prose(draw, draw.choice((300, 1200, 4000)))
            for item in (
                {"type": "message", "role": "assistant", "content": spoken},
                call,
                {"type": "function_call_output", "call_id": f"call_{n}", "output": output},
            ):
                file.write(line("response_item", item))
            if file.tell() >= size:
                break


def chat_session(path: Path, size: int, *, by_line: bool, seed: int = 0) -> None:
    """Write one run as chat messages until its file has this size, a message a line or all in one line."""
    draw = Random(seed)
    with path.open("w", encoding="utf-8") as file:
        between = "\n" if by_line else ", "
        file.write(("" if by_line else '{"messages": [') + json.dumps({"role": "user", "content": "Mend the login."}))
        for n in count():
            call = {"name": "bash", "arguments": json.dumps({"command": f"cat src/module_{n}.py"})}
            calls = [{"id": f"call_{n}", "type": "function", "function": call}]
            output = prose(draw, draw.choice((300, 1200, 4000)))
            for message in (
                {"role": "assistant", "content": prose(draw, 150), "tool_calls": calls},
                {"role": "tool", "tool_call_id": f"call_{n}", "content": output},
            ):
                file.write(between + json.dumps(message))
            if file.tell() >= size:
                break
        file.write("\n" if by_line else "]}\n")


def _session(
    draw: Random,
    session: str,
    n: int,
    turns: Iterable[int] | None = None,
    is_over: Callable[[], bool] = lambda: False,
    *,
    repeats: bool = False,
) -> Iterator[dict[str, Any]]:
    parent: str | None = None

    def line(kind: str, message: dict[str, Any]) -> dict[str, Any]:
        nonlocal parent
        before, parent = parent, str(uuid.UUID(int=draw.getrandbits(128)))
        return {
            "parentUuid": before,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/dev/project",
            "sessionId": session,
            "version": "2.1.0",
            "gitBranch": "main",
            "type": kind,
            "message": message,
            "uuid": parent,
            "timestamp": f"2026-03-04T11:{n % 60:02d}:13.000Z",
        }

    yield line("user", {"role": "user", "content": f"Task {n}: " + prose(draw, 300)})
    for turn in turns or range(draw.randint(8, 24)):
        if is_over():
            break
        call = f"toolu_{n}_{turn}"
        content: list[dict[str, Any]] = [
            {"type": "text", "text": prose(draw, 150)},
            {
                "type": "tool_use",
                "id": call,
                "name": "Read",
                "input": {"file_path": f"/home/dev/project/src/m_{n}_{turn}.py"},
            },
        ]
        yield line("assistant", _reply(f"msg_{n}_{turn}", content, "tool_use"))
        result = {"type": "tool_result", "tool_use_id": call, "content": prose(draw, draw.choice((300, 1200, 4000)))}
        noted = {"toolUseResult": {"stdout": result["content"]}} if repeats else {}
        yield {**line("user", {"role": "user", "content": [result]}), **noted}
    yield line("assistant", _reply(f"msg_{n}_end", [{"type": "text", "text": prose(draw, 300)}], "end_turn"))


def _reply(message_id: str, content: list[dict[str, Any]], stop: str) -> dict[str, Any]:
    usage = {"input_tokens": 812, "cache_read_input_tokens": 4096, "output_tokens": 77}
    head = {"id": message_id, "type": "message", "role": "assistant", "model": MODEL}
    return {**head, "content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage}
