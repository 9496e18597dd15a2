"""A server that speaks the wire format of OpenEnv 0.10 (`openenv/core/env_server/http_server.py`), as a process of its own.

Its environment: guess a number from 0 to 3, which follows from the seed; each wrong guess is answered with higher or lower. The guess
98 ends the process, 99 never answers. Below `/tools` the same game is an environment with an MCP server inside: the task is metadata, an
action calls a tool.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http import HTTPStatus
from typing import Any

from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

ACTION = {
    "additionalProperties": False,
    "properties": {
        "metadata": {"additionalProperties": True, "title": "Metadata", "type": "object"},
        "guess": {"description": "A number from 0 to 3", "title": "Guess", "type": "integer"},
    },
    "required": ["guess"],
    "title": "GuessAction",
    "type": "object",
}
CALL = {
    "properties": {
        "type": {"const": "call_tool", "default": "call_tool", "type": "string"},
        "tool_name": {"type": "string"},
        "arguments": {"additionalProperties": True, "type": "object"},
    },
    "required": ["tool_name"],
    "type": "object",
}
GUESS_TOOL = {"name": "guess", "description": "Guess it.", "inputSchema": {**ACTION, "title": "guess"}}
PAGES: dict[str, Any] = {
    "/tools/schema": {"action": CALL, "observation": {}, "state": {}},
    "/tools/metadata": {"name": "tools", "description": "Find it.", "version": "1.0.0"},
    "/schema": {"action": ACTION, "observation": {}, "state": {}},
    "/metadata": {"name": "guess", "description": "Find a number from 0 to 3.", "version": "1.0.0"},
    "/health": {"status": "healthy"},
}


def page(connection: ServerConnection, request: Request) -> Response | None:
    if request.path in ("/ws", "/tools/ws"):
        return None
    status = HTTPStatus.OK if request.path in PAGES else HTTPStatus.NOT_FOUND
    body = json.dumps(PAGES.get(request.path, {"detail": "Not Found"})).encode()
    headers = Headers(
        [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Connection", "close")]
    )
    return Response(status.value, status.phrase, headers, body)


def observation(message: str, reward: float | None = None, done: bool = False) -> dict[str, Any]:
    return {
        "type": "observation",
        "data": {"observation": {"message": message, "metadata": {}}, "reward": reward, "done": done},
    }


def result(value: Any, failure: Any = None) -> dict[str, Any]:
    shown = {"metadata": {}, "tool_name": "guess", "result": value, "error": failure}
    return {"type": "observation", "data": {"observation": shown, "reward": None, "done": False}}


def error(message: str, code: str, **more: Any) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code, **more}}


def session(connection: ServerConnection) -> None:
    secret = None
    for raw in connection:
        message = json.loads(raw)
        match message:
            case {"type": "reset", "data": data}:
                secret = data.get("seed", 0) % 4
                answer = observation("Guess my number.")
                if connection.request and connection.request.path == "/tools/ws":
                    answer["data"]["observation"] = {"metadata": {"question": "Which number?"}}
            case {"type": "mcp", "data": {"method": "tools/list", "id": number}}:
                answer = {"type": "mcp", "data": {"jsonrpc": "2.0", "id": number, "result": {"tools": [GUESS_TOOL]}}}
            case {"type": "step", "data": {"type": "call_tool", "arguments": {"guess": int() as guess}}}:
                right = guess == secret
                answer = result({"content": [{"type": "text", "text": "yes" if right else "no"}], "is_error": False})
                answer["data"] |= {"reward": float(right), "done": right}
            case {"type": "step", "data": {"type": "call_tool"}}:
                answer = result(None, {"error_type": "invalid_args", "message": "Missing guess"})
            case {"type": "step", "data": {"guess": int() as guess, **others}} if not others.keys() - {"metadata"}:
                if guess == 98:
                    os._exit(1)
                if guess == 99:
                    time.sleep(3600)
                if secret is None:
                    answer = error("call reset first", "EXECUTION_ERROR")
                elif guess == secret:
                    answer = observation("Right.", 1.0, done=True)
                else:
                    answer = observation("higher" if guess < secret else "lower", 0.0)
            case {"type": "step"}:
                fault = {"type": "missing", "loc": ["guess"], "msg": "Field required"}
                answer = error("Invalid message", "VALIDATION_ERROR", errors=[fault])
            case {"type": "close"}:
                return
            case _:
                answer = error(f"Unknown message type: {message.get('type')}", "UNKNOWN_TYPE")
        connection.send(json.dumps(answer))


def main() -> None:
    with serve(session, "127.0.0.1", 0, process_request=page) as server:
        sys.stdout.write(f"{server.socket.getsockname()[1]}\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main()
