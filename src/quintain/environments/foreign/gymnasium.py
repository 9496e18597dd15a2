"""Gymnasium: environments whose actions are discrete (one or several numbers) or texts; what `render_mode="ansi"` draws is the observation.

The agent reads the environment's own docstring, which documents the numbers of its actions, as the system prompt.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from quintain.environments.foreign.adapter import SEEDS, Turn, library, tool, unknown_id

_DOC_CHARS = 4000
_MAX_TURNS = 100
_COLOURED = re.compile(r"\x1b\[([0-9;]*)m(.*?)\x1b\[0m", re.DOTALL)
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
"""Of the codes 30 to 37 (letters) and 40 to 47 (background) in ECMA-48."""


def open_adapter(settings: dict[str, Any]) -> Gymnasium:
    """Return the adapter of a registered environment.

    Raises:
        ValueError: an unknown id, or spaces without a form in text.
    """
    gym = library("gymnasium")
    name = settings["name"]
    for module in settings["modules"]:
        library(module)  # it registers its environments
    if name not in gym.registry:
        raise ValueError(unknown_id("Gymnasium", name, gym.registry))
    entry_point = gym.spec(name).entry_point
    creator = entry_point if callable(entry_point) else gym.envs.registration.load_env_creator(entry_point)
    ansi = "ansi" in getattr(creator, "metadata", {}).get("render_modes", ())
    environment = gym.make(name, **({"render_mode": "ansi"} if ansi else {}) | settings["options"])
    return Gymnasium(gym, environment, settings)


class Gymnasium:
    """An environment of Gymnasium; a task is a seed."""

    n_tasks = SEEDS
    takes_text = False
    players = ()

    def __init__(self, gym: Any, environment: Any, settings: dict[str, Any]) -> None:
        self._environment, self._name = environment, settings["name"]
        self.version = f"1-gymnasium-{gym.__version__}"
        space = environment.action_space
        if isinstance(space, gym.spaces.Discrete):
            low = int(space.start)
            action: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": low + int(space.n) - 1}
        elif isinstance(space, gym.spaces.MultiDiscrete) and len(space.shape) == 1:
            one = {"type": "integer"}
            action = {"type": "array", "items": one, "description": f"{space.shape[0]} integers of {space}"}
        elif isinstance(space, gym.spaces.Text):
            action = {"type": "string"}
        else:
            raise ValueError(f"expected discrete or text actions in {self._name}, got {space}; it has no form in text")
        schema = {"type": "object", "properties": {"action": action}, "required": ["action"]}
        self.tools = [tool(schema, "Carry out an action.")]
        rules = inspect.cleandoc(environment.unwrapped.__doc__ or "")[:_DOC_CHARS]
        self.system_prompt = settings["system_prompt"] or f"{rules}\n\nAct with the tool act.".lstrip()
        self.max_turns = int(getattr(environment.spec, "max_episode_steps", None) or _MAX_TURNS)

    def prompt(self, number: int) -> str:
        """Name the environment and the seed."""
        return f"{self._name}, seed {number}"

    def reset(self, number: int) -> Turn:
        """Start an episode with the task's number as the seed."""
        observation, _ = self._environment.reset(seed=number)
        return Turn(self._text(observation))

    def act(self, tool: str, arguments: dict[str, Any]) -> Turn:
        """Carry out an action of the space."""
        sent, space = arguments.get("action"), self._environment.action_space
        action = sent if type(sent) in (int, str) else None
        if isinstance(sent, list) and all(type(part) is int for part in sent):
            action = library("numpy").asarray(sent)
        if not space.contains(action):
            return Turn(f"Error: expected an action of {space}, got {sent!r:.80}.", is_error=True)
        observation, reward, terminated, truncated, _ = self._environment.step(action)
        return Turn(self._text(observation), float(reward), bool(terminated), bool(truncated))

    def close(self) -> None:
        """Keep the environment: `reset` starts the next episode."""

    def _text(self, observation: Any) -> str:
        lines = [f"Observation: {_plain(observation)}"]
        if self._environment.render_mode == "ansi":
            lines.insert(0, _COLOURED.sub(_marked, str(self._environment.render()).strip("\n")))
        return "\n".join(lines)


def _plain(value: Any) -> Any:
    """Return an observation of any space as numbers and texts in lists and mappings."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _marked(found: re.Match[str]) -> str:
    """Return coloured text in brackets with the name of its colour, which carries meaning in these drawings."""
    codes = [int(code) for code in found[1].split(";") if code]
    names = [_COLOURS[code % 10] for code in codes if code // 10 in (3, 4) and code % 10 < 8]
    return f"[{' '.join([*names, found[2]])}]"
