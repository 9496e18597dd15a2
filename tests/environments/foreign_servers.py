"""Servers of other libraries' protocols, as processes, in the operator's file of a test."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quintain.records.protocols import Reply, Turn
from quintain.records.trajectory import Action

LAKE = 'gymnasium/FrozenLake-v1?desc=["SFFG"]&is_slippery=false&max_turns=5&system_prompt=Walk to G.'
_FOLDER = Path(__file__).parent
PROFILES = """
[openenv.guess]
url = "http://127.0.0.1:{openenv}"
tasks = 40
timeout_s = 60

[openenv.tools]
url = "http://127.0.0.1:{openenv}/tools"

[agentgym.count]
url = "http://127.0.0.1:{agentgym}"
tasks = 40
timeout_s = 60
"""


@contextmanager
def foreign_servers(path: Path) -> Iterator[None]:
    """Start one server of OpenEnv and one of AgentGym, and write `openenv:guess` and `agentgym:count` into an environments.toml."""
    servers = {
        kind: subprocess.Popen([sys.executable, str(_FOLDER / f"{kind}_server.py")], stdout=subprocess.PIPE, text=True)
        for kind in ("openenv", "agentgym")
    }
    try:
        ports = {kind: (server.stdout.readline() if server.stdout else "").strip() for kind, server in servers.items()}
        path.write_text(PROFILES.format(**ports), encoding="utf-8")
        yield
    finally:
        for server in servers.values():
            server.kill()
            server.communicate()


class Solver:
    """Answers the turns of `openenv:guess`, `agentgym:count` and `LAKE` with the calls that solve them."""

    def __init__(self) -> None:
        self._turns = Counter[str]()
        self._counts = set[str]()

    def __call__(self, turn: Turn) -> Reply:
        text, place = str(turn.messages[-1].content), self._turns[turn.episode_id]
        self._turns[turn.episode_id] += 1
        if "Observation" in text:
            return _call(action=2)
        if text.startswith("Count"):
            self._counts.add(turn.episode_id)
        return _call(action=str(place + 1)) if turn.episode_id in self._counts else _call(guess=place)


def _call(**args: Any) -> Reply:
    return Reply(text="", actions=(Action(tool="act", args=args),))
