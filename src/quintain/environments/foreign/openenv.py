"""OpenEnv by its wire format: `/ws` keeps the session of an episode (each HTTP `/step` starts a new environment), `/schema` the tool.

Where the action is the call of a tool (an environment with an MCP server inside), the agent gets the tools that the session lists.

Messages are `{"type": "reset" | "step" | "close", "data": ...}`, answers `{"type": "observation", "data": {"observation", "reward",
"done"}}` or `{"type": "error", "data": {"message", "code"}}`, as in openenv 0.10 (`core/env_server/http_server.py`).
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from quintain.environments.foreign.adapter import MAX_BYTES, SEEDS, Turn, ask, library, tool

_INVALID = ("VALIDATION_ERROR", "EXECUTION_ERROR")
"""Codes of errors that the agent's action causes."""


def open_adapter(settings: dict[str, Any]) -> OpenEnv:
    """Return the adapter of a server."""
    return OpenEnv(settings, library("websockets.sync.client", "openenv").connect)


class OpenEnv:
    """A server of OpenEnv; a task is a seed."""

    takes_text = False
    players = ()

    def __init__(self, settings: dict[str, Any], connect: Any) -> None:
        self._settings, self._connect = settings, connect
        self._session: Any = None
        parts = urlsplit(settings["url"].rstrip("/").removesuffix("/ws"))
        secure = "s" if parts.scheme in ("wss", "https") else ""
        self._ws = urlunsplit(parts._replace(scheme=f"ws{secure}", path=f"{parts.path}/ws"))
        http = urlunsplit(parts._replace(scheme=f"http{secure}"))
        action = ask(f"{http}/schema", None, settings["timeout_s"])["action"]
        properties = action.get("properties", {})
        properties.pop("metadata", None)
        self._calls_tools = properties.get("type", {}).get("const") == "call_tool"
        self.tools = [tool(action, "Carry out an action.")]
        about = ask(f"{http}/metadata", None, settings["timeout_s"])
        self.version = f"1-openenv-{about.get('name')}-{about.get('version')}"
        self.system_prompt = settings["system_prompt"] or (
            f"{about.get('description') or ''}\n\nAct with {'your tools' if self._calls_tools else 'the tool act'}."
        )
        self.max_turns = settings["max_turns"]
        self.n_tasks = settings["n_tasks"] or SEEDS

    def prompt(self, number: int) -> str:
        """Name the server and the seed."""
        return f"{self._settings['id']}, seed {number}"

    def reset(self, number: int) -> Turn:
        """Open a session and start an episode with the task's number as the seed."""
        self.close()
        seconds = self._settings["timeout_s"]
        self._session = self._connect(self._ws, open_timeout=seconds, close_timeout=1, max_size=MAX_BYTES, proxy=None)
        first = self._exchange("reset", {**self._settings["reset"], "seed": number})
        if self._calls_tools:
            listed = self._send("mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})["data"]["result"]["tools"]
            self.tools = [tool(one["inputSchema"], one.get("description") or "", one["name"]) for one in listed]
        return first

    def act(self, tool: str, arguments: dict[str, Any]) -> Turn:
        """Carry out an action as the server's schema describes it."""
        call = {"type": "call_tool", "tool_name": tool, "arguments": arguments}
        return self._exchange("step", call if self._calls_tools else arguments)

    def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            session.send(json.dumps({"type": "close"}))
            session.close()

    def _send(self, kind: str, data: dict[str, Any]) -> Any:
        self._session.send(json.dumps({"type": kind, "data": data}))
        return json.loads(self._session.recv(timeout=self._settings["timeout_s"]))

    def _exchange(self, kind: str, data: dict[str, Any]) -> Turn:
        answer = self._send(kind, data)
        content = answer["data"]
        if answer["type"] == "error":
            text = f"{content.get('message')} {content.get('errors') or ''}".strip()
            if kind == "step" and content.get("code") in _INVALID:
                return Turn(f"Error: {text}", is_error=True)
            raise ValueError(f"the server refused {kind}: {text}")
        shown, is_error = _read(content["observation"])
        text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
        reward = content.get("reward")
        reward = None if reward is None else float(reward)
        return Turn(text, reward, terminated=bool(content.get("done")), is_error=is_error)


def _read(observation: dict[str, Any]) -> tuple[Any, bool]:
    """Return what an observation shows, and whether it is the error of a call; metadata only where it is all there is."""
    fields = {name: value for name, value in observation.items() if name != "metadata"}
    if "tool_name" not in fields:
        values = list(fields.values())
        if len(values) == 1 and isinstance(values[0], str):
            return values[0], False
        return fields or observation.get("metadata", {}), False
    result, error = fields.get("result"), fields.get("error")
    if error:
        return error.get("message", error), True
    if not isinstance(result, dict) or "content" not in result:
        return result, False
    texts = [part["text"] for part in result["content"] if part.get("type") == "text"]
    return "\n".join(texts), bool(result.get("is_error"))
