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
        action = _form(gym.spaces, environment.action_space)
        if action is None:
            raise ValueError(
                f"expected discrete or text actions in {self._name}, got {environment.action_space}; it has no form in text"
            )
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
        action = _read(space, sent)
        if not space.contains(action):
            return Turn(f"Error: expected an action of {space}, got {sent!r:.80}.", is_error=True)
        observation, reward, terminated, truncated, _ = self._environment.step(action)
        return Turn(self._text(observation), float(reward), bool(terminated), bool(truncated))

    def close(self) -> None:
        """Keep the environment: `reset` starts the next episode."""

    def _text(self, observation: Any) -> str:
        lines = [f"Observation: {_plain(observation)}"]
        if self._environment.render_mode == "ansi":
            lines.insert(0, _COLOURED.sub(_marked, str(self._environment.render() or "").strip("\n")))
        return "\n".join(filter(None, lines))


def _form(spaces: Any, space: Any) -> dict[str, Any] | None:
    """Return the JSON schema of the actions of a space, or None if it has numbers that are not discrete."""
    if isinstance(space, spaces.Discrete):
        low = int(space.start)
        return {"type": "integer", "minimum": low, "maximum": low + int(space.n) - 1}
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary) and len(space.shape) == 1:
        return {"type": "array", "items": {"type": "integer"}, "description": f"{space.shape[0]} integers of {space}"}
    if isinstance(space, spaces.Text):
        return {"type": "string"}
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return None
    named = dict(space.spaces if isinstance(space, spaces.Dict) else enumerate(space.spaces))
    forms = {name: form for name, part in named.items() if (form := _form(spaces, part)) is not None}
    if len(forms) < len(named):
        return None
    if isinstance(space, spaces.Tuple):
        return {"type": "array", "prefixItems": list(forms.values())}
    return {"type": "object", "properties": forms, "required": list(forms)}


def _read(space: Any, sent: Any) -> Any:
    """Return an action of a space as Gymnasium takes it, from JSON; None if it has another form."""
    parts = getattr(space, "spaces", None)
    if isinstance(parts, tuple) and isinstance(sent, list) and len(sent) == len(parts):
        return tuple(map(_read, parts, sent))
    if isinstance(parts, dict) and isinstance(sent, dict) and sent.keys() == parts.keys():
        return {name: _read(part, sent[name]) for name, part in parts.items()}
    if isinstance(sent, list) and all(type(part) is int for part in sent):
        return library("numpy").asarray(sent)
    return sent if type(sent) in (int, str) else None


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
