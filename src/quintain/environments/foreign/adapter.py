"""An adapter's process: draws tasks, plays episodes and keeps their return, for whatever library or server the adapter wraps.

The modules of adapters import the standard library and their own library only: an interpreter without Quintain's dependencies runs them.
Texts of the library are data: they are cut to a bound and reach the agent as an observation.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple, Protocol
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from quintain.environments.isolation.json_lines import serve

TEXT_CHARS = 20_000
"""Maximum characters of an observation or prompt; the rest is cut."""
SEEDS = 1_000_000
"""Number of tasks where every seed is one."""
_MOVED = "It is the other player's turn."
HELD_OUT = 5
"""One task in so many is held out, by its number alone."""


class Turn(NamedTuple):
    """Result of an action, or of the start of a task."""

    text: str
    reward: float | None = None
    """Reward of this step; the return is their sum. None: no reward yet."""
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = {}  # noqa: RUF012 - a field of a tuple, never changed
    is_error: bool = False
    """Whether the action was invalid and changed nothing."""
    player: int = 0
    """In a game of several: for whom `text` is, and who acts next."""
    rewards: tuple[float, ...] = ()
    """In a game of several: one per player at the end, 1 for a win, 0.5 for a draw, 0 for a loss."""


class Adapter(Protocol):
    """One environment of a library or server; its methods raise for whatever costs the episode."""

    version: str
    n_tasks: int
    tools: Sequence[dict[str, Any]]
    system_prompt: str
    max_turns: int
    takes_text: bool
    """Whether the text of a turn without a call is an action: `{"action": text}`."""
    players: tuple[str, ...]
    """Roles of a game of several players; empty: the agent acts alone."""

    def prompt(self, number: int) -> str:
        """Return the text of a task as lists show it."""

    def reset(self, number: int) -> Turn:
        """Start a task."""

    def act(self, tool: str, arguments: dict[str, Any]) -> Turn:
        """Carry out the call of one of `tools`."""

    def close(self) -> None:
        """End the episode."""


def tool(parameters: dict[str, Any], description: str, name: str = "act") -> dict[str, Any]:
    """Return the definition of a tool in the OpenAI function style."""
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def text_tool(description: str) -> dict[str, Any]:
    """Return the definition of a tool `act` whose only argument is a text."""
    properties = {"action": {"type": "string"}}
    return tool({"type": "object", "properties": properties, "required": ["action"]}, description)


class Session:
    """The tasks and the running episode of an adapter, as the host asks for them."""

    def __init__(self, adapter: Adapter, settings: dict[str, Any]) -> None:
        self._adapter, self._name, self._rules = adapter, settings["id"], settings["rules"]
        self._success_at, self._max_turns = settings["success_at"], settings["max_turns"]
        self._return: float | None = None
        self._length = self._player = 0

    def answer(self, request: dict[str, Any]) -> Any:
        """Return the answer to a request of `isolated.IsolatedSource`."""
        match request:
            case {"op": "describe"}:
                version = f"{self._adapter.version}-{self._rules}"
                return {"id": self._name, "version": version, "players": self._adapter.players}
            case {"op": "tasks", "split": split, "n": n, "seed": seed}:
                return [self._task(number, split) for number in self._draw(split, n, seed)]
            case {"op": "reset", "task": task}:
                return self._reset(task.get("metadata", {}).get("number"))
            case {"op": "step", "actions": actions}:
                return {"player": self._player} | self._step(actions)
            case {"op": "take_answer", "text": text}:
                return self._time_step(self._adapter.act("act", {"action": text}), as_message=True)
            case {"op": "close"}:
                with suppress(Exception):  # the episode is over, and its server may be gone
                    self._adapter.close()
                return None
        raise ValueError(f"unknown request {request!r:.100}")

    def _draw(self, split: str, n: int, seed: int) -> list[int]:
        if split not in ("train", "held_out"):
            raise ValueError(f"expected split to be train or held_out, got {split!r}")
        rng = random.Random(f"{self._name}/{split}/{seed}")
        count = self._adapter.n_tasks
        if count > n * 100:  # draw without listing them all
            numbers: dict[int, None] = {}
            while len(numbers) < n:
                number = rng.randrange(count)
                if self._split(number) == split:
                    numbers[number] = None
            return list(numbers)
        listed = [number for number in range(count) if self._split(number) == split]
        if n > len(listed):
            raise ValueError(f"expected `n_tasks` of at most {len(listed)} in {split} of {self._name}, got {n}")
        rng.shuffle(listed)
        return listed[:n]

    def _split(self, number: int) -> str:
        digest = hashlib.sha256(f"{self._name}/{number}".encode()).digest()
        return "held_out" if digest[0] % HELD_OUT == 0 else "train"

    def _task(self, number: int, split: str) -> dict[str, Any]:
        prompt = _cut(self._adapter.prompt(number))
        task = {"id": f"{self._name}/{number}", "prompt": prompt, "environment": self._name}
        return task | {"metadata": {"number": number, "split": split}}

    def _reset(self, number: Any) -> dict[str, Any]:
        if not isinstance(number, int) or not 0 <= number < self._adapter.n_tasks:
            raise ValueError(
                f"expected a task whose metadata has a `number` below {self._adapter.n_tasks:,}, got {number!r:.40}"
            )
        self._return, self._length = None, 0
        turn = self._adapter.reset(number)
        self._player, adapter = turn.player, self._adapter
        return {
            "first": {"message": _cut(turn.text) or "Begin.", "info": turn.info, "player": turn.player},
            "system_prompt": _cut(adapter.system_prompt),
            "tools": list(adapter.tools),
            "max_turns": self._max_turns or adapter.max_turns,
            "takes_answers": adapter.takes_text,
        }

    def _step(self, actions: list[dict[str, Any]]) -> dict[str, Any]:
        names = [tool["function"]["name"] for tool in self._adapter.tools]
        if len(actions) != 1:
            if not actions:
                return {"message": f"You called no tool. Call {' or '.join(names)}." if names else "Answer in text."}
            return _refused(
                f"{len(actions)} calls in one turn and none was carried out; make one call a turn", len(actions)
            )
        action = actions[0]
        if action["tool"] not in names:
            return _refused(f"no tool is called {action['tool'][:40]!r}; call {' or '.join(names)}")
        if not isinstance(action.get("args"), dict):
            return _refused(f"the arguments of {action['tool']} are not valid JSON")
        return self._time_step(self._adapter.act(action["tool"], action["args"]))

    def _time_step(self, turn: Turn, *, as_message: bool = False) -> dict[str, Any]:
        """Return a turn as a `TimeStep`. The reward at the end is `1 + return - success_at`, so that 1 is the bound of success."""
        if turn.reward is not None:
            self._return = (self._return or 0.0) + turn.reward
        self._length += not turn.is_error
        text, is_over = _cut(turn.text), turn.terminated or turn.truncated
        metrics = {**turn.info.get("metrics", {}), "length": self._length}
        metrics |= {} if self._return is None else {"return": self._return}
        step: dict[str, Any] = {"terminated": turn.terminated, "truncated": turn.truncated and not turn.terminated}
        step |= {"info": {**turn.info, "metrics": metrics}, "player": turn.player, "rewards": turn.rewards}
        if is_over and self._return is not None:
            step["reward"] = 1 + self._return - self._success_at
        passes_on = turn.player != self._player and not is_over
        if as_message or passes_on:
            step["message"] = text
        if not as_message:
            step["observations"] = [{"content": _MOVED if passes_on else text, "is_error": turn.is_error}]
        self._player = turn.player
        return step


def _refused(text: str, times: int = 1) -> dict[str, Any]:
    return {"observations": [{"content": f"Error: {text}.", "is_error": True}] * times}


def _cut(text: str) -> str:
    text = text.replace("\0", "\ufffd")
    return (
        text
        if len(text) <= TEXT_CHARS
        else f"{text[:TEXT_CHARS]}\n[{len(text) - TEXT_CHARS:,} more characters were cut]"
    )


def library(name: str, kind: str = "") -> Any:
    """Import a library, or raise with the remedy.

    Args:
        name: Name of the module.
        kind: Entry under `[python]` that names its interpreter; default: the package.
    """
    package = name.partition(".")[0]
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"cannot import {package} in {sys.executable} ({error}); install it there, or name the interpreter of an "
            f"environment that has it in environments.toml: [python] {kind or package} = 'PATH'"
        ) from None


def unknown_id(what: str, name: str, known: Iterable[str]) -> str:
    """Return the message on an id that a library does not have, with those most like it."""
    near = get_close_matches(name, list(known), 5, 0.5)
    return (
        f"expected the id of a registered environment of {what}, got {name[:80]!r}; near: {', '.join(near) or 'none'}"
    )


def main() -> None:
    """Serve one environment: arguments are its settings as JSON (see `source`) and the file descriptor of the lifeline."""
    settings = json.loads(sys.argv[1])
    session: list[Session] = []

    def answer(request: dict[str, Any]) -> Any:
        if not session:  # with the first request, so that a failure is its answer
            module = import_module(f"quintain.environments.foreign.{settings['kind']}")
            session.append(Session(module.open_adapter(settings), settings))
        return session[0].answer(request)

    serve(answer, int(sys.argv[2]))


MAX_BYTES = 16_000_000


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_opener = build_opener(ProxyHandler({}), _NoRedirects)


def ask(url: str, body: dict[str, Any] | None, timeout_s: float) -> Any:
    """Return the JSON answer to a POST of `body`, or to a GET without one.

    Raises:
        OSError: no answer in time, or a status other than 2xx.
        ValueError: an answer that is not JSON, or longer than `MAX_BYTES`.
    """
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json", "User-Agent": "quintain"})
    try:
        with _opener.open(request, timeout=timeout_s) as answer:
            content = answer.read(MAX_BYTES + 1)
    except HTTPError as error:
        detail = error.read(300).decode("utf-8", "replace")
        raise OSError(f"{url} answered with status {error.code}: {detail}") from None
    if len(content) > MAX_BYTES:
        raise ValueError(f"expected at most {MAX_BYTES:,} bytes from {url}, got more")
    return json.loads(content)
