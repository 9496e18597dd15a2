"""A server of bare JSON-RPC lines that does what no server should; the first argument says how it begins."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ["echo", "slow", "hang", "die", "flood", "chatter", "ask", "change", "refuse", "break_schema", "nul"]
NAMES += ["get_square", "get_missing", "keep", "recall", "pester", "slow_pattern"]
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

PATTERN = {"type": "object", "properties": {"n": {"type": "string", "pattern": "^(a+)+$"}}}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any], result: Any) -> None:
    say({"id": request["id"], "result": result})


def text(request: dict[str, Any], said: str) -> None:
    answer(request, {"content": [{"type": "text", "text": said}]})


def tool(name: str) -> dict[str, Any]:
    schema = NUMBER if name.startswith("get_") else {"type": "object", "properties": {}}
    about: dict[str, Any] = {"name": name, "inputSchema": schema}
    declared = {"break_schema": NUMBER, "slow_pattern": PATTERN}
    return about | ({"outputSchema": declared[name]} if name in declared else {})


def pages(request: dict[str, Any]) -> None:
    """Four tools a page; with `endless` there is always another."""
    start = int((request.get("params") or {}).get("cursor") or 0)
    more = {"nextCursor": str(start + 4)} if start + 4 < len(NAMES) or "endless" in sys.argv else {}
    answer(request, {"tools": [tool(name) for name in NAMES[start : start + 4]], **more})


def call(request: dict[str, Any]) -> None:
    match request["params"]["name"]:
        case "echo":
            text(request, json.dumps(request["params"].get("arguments")))
        case "slow":
            late.append(request)
        case "hang":
            time.sleep(1000)
        case "die":
            sys.stderr.write("out of cheese\n")
            sys.stderr.flush()
            os._exit(3)
        case "flood":
            while True:
                sys.stdout.write("x" * 1_000_000)
        case "pester":
            while True:
                say({"id": "pester", "method": "sampling/createMessage", "params": QUESTIONS["sampling/createMessage"]})
        case "chatter":
            sys.stdout.write("starting up\n{not json}\n\n[1, 2]\n")
            text(request, "done")
        case "ask":
            for number, method in enumerate(("sampling/createMessage", "elicitation/create", "roots/list")):
                say({"id": f"ask-{number}", "method": method, "params": QUESTIONS[method]})
            asked.append(request)
        case "change":
            NAMES.append("another")
            say({"method": "notifications/tools/list_changed"})
            text(request, "changed")
        case "refuse":
            say({"id": request["id"], "error": {"code": -32602, "message": "no such thing"}})
        case "break_schema":
            answer(request, {"content": [], "structuredContent": {"n": "many"}})
        case "slow_pattern":
            answer(request, {"content": [], "structuredContent": {"n": "a" * 40 + "!"}})
        case "get_square":
            text(request, str(request["params"]["arguments"]["n"] ** 2))
        case "get_missing":
            answer(request, {"content": [{"type": "text", "text": "7"}], "isError": True})
        case "keep":
            Path(request["params"]["arguments"]["name"]).write_text(request["params"]["arguments"]["text"])
            text(request, "kept")
        case "recall":
            note = Path(request["params"]["arguments"]["name"])
            kept = note.read_text() if note.exists() else "no such note"
            answer(request, {"content": [{"type": "text", "text": kept}], "isError": not note.exists()})
        case "nul":
            text(request, "a\0b" + "y" * 50_000)


QUESTIONS: dict[str, Any] = {
    "sampling/createMessage": {"messages": [], "maxTokens": 5},
    "elicitation/create": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
    "roots/list": {},
}
late: list[dict[str, Any]] = []
asked: list[dict[str, Any]] = []
refusals: list[int] = []


def main() -> None:
    if "silent" in sys.argv:
        time.sleep(1000)
    if "deaf" in sys.argv:  # does not leave when its stdin closes
        os.system("sleep 1000 &")
    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "initialize":
                about = {"name": "rough", "version": "1"}
                answer(request, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about})
            case "tools/list":
                pages(request)
            case "tools/call":
                call(request)
            case None if str(request.get("id")).startswith("ask"):
                refusals.append(request["error"]["code"])
                if len(refusals) == 3:
                    text(asked.pop(), f"refused: {refusals}")
            case _ if "id" in request:
                say({"id": request["id"], "error": {"code": -32601, "message": "not here"}})


if __name__ == "__main__":
    main()
