"""AgentGym servers by their HTTP protocol: `/create`, `/reset`, `/step`, `/close`; a task is an index of the server's data.

The servers differ in a few names, which the operator's profile gives: the field of the environment's id (`id` or `env_idx`), and that
of the task's index in `/reset` (`data_idx`, `item_id`, `session_id`, `game`). A server's `reward` is the score so far; `score` takes
precedence, as in AgentGym's own clients (`agentenv/agentenv/envs`).
"""

from __future__ import annotations

from typing import Any

from quintain.environments.foreign.adapter import Turn, ask, text_tool

_CREATED = ("id", "env_idx")


def open_adapter(settings: dict[str, Any]) -> AgentGym:
    """Return the adapter of a server."""
    return AgentGym(settings)


class AgentGym:
    """A server of AgentGym."""

    takes_text = True
    players = ()
    tools = (text_tool("Carry out an action."),)
    version = "1-agentgym"

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._environment: Any = None
        self._score = 0.0
        self.n_tasks = settings["n_tasks"]
        self.max_turns = settings["max_turns"]
        self.system_prompt = (
            settings["system_prompt"] or "Solve the task step by step. Call act with one action at a time."
        )

    def prompt(self, number: int) -> str:
        """Name the server and the index."""
        return f"{self._settings['id']}, task {number}"

    def reset(self, number: int) -> Turn:
        """Create an environment for the episode and start a task."""
        self.close()
        created = self._post("create", self._settings["create"])
        self._environment = (
            created
            if not isinstance(created, dict)
            else next((created[name] for name in _CREATED if name in created), None)
        )
        self._score = 0.0
        answer = self._post("reset", {self._settings["index_field"]: number, **self._own_id()})
        return Turn(self._text(answer))

    def act(self, tool: str, arguments: dict[str, Any]) -> Turn:
        """Carry out an action."""
        action = arguments.get("action")
        if not isinstance(action, str) or not action.strip():
            return Turn(f"Error: expected an action as text in `action`, got {action!r:.80}.", is_error=True)
        answer = self._post("step", {"action": action, **self._own_id()})
        score = answer.get("score", answer.get("reward"))
        gained = None if score is None else float(score) - self._score
        self._score = self._score if score is None else float(score)
        return Turn(self._text(answer), gained, terminated=bool(answer.get("done")))

    def close(self) -> None:
        """Let the server free the environment."""
        if self._environment is not None:
            own_id, self._environment = self._own_id(), None
            self._post("close", own_id)

    def _own_id(self) -> dict[str, Any]:
        return {self._settings["id_field"]: self._environment}

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = ask(f"{self._settings['url'].rstrip('/')}/{path}", body, self._settings["timeout_s"])
        if isinstance(answer, dict) and "error" in answer:
            raise ValueError(f"the server refused {path}: {str(answer['error'])[:300]}")
        return answer

    def _text(self, answer: Any) -> str:
        """Return the observation of an answer; some servers give it only at `/observation`."""
        found = answer.get("observation", answer.get("state")) if isinstance(answer, dict) else None
        if found is None:
            query = f"{self._settings['id_field']}={self._environment}"
            found = ask(f"{self._settings['url'].rstrip('/')}/observation?{query}", None, self._settings["timeout_s"])
        return str(found)
