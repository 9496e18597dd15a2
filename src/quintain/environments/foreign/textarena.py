"""TextArena: text games of one or several players; a task is a seed.

In a game of several players each call acts for the player whose turn it is: `info` of every step names the seats and whose turn
follows, and of the last step the reward of each seat.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from quintain.environments.foreign.adapter import SEEDS, Turn, library, text_tool, unknown_id

_MAX_TURNS = 50
_SYSTEM_PROMPT = "Play the game. Call act with your move, written in the format that the game asks for."


def open_adapter(settings: dict[str, Any]) -> TextArena:
    """Return the adapter of a registered game; its option `players` sets the number of seats.

    Raises:
        ValueError: an unknown id.
    """
    arena = library("textarena")
    if settings["name"] not in arena.envs.registration.ENV_REGISTRY:
        raise ValueError(unknown_id("TextArena", settings["name"], arena.envs.registration.ENV_REGISTRY))
    options = dict(settings["options"])
    players = options.pop("players", 1)
    return TextArena(arena.make(settings["name"], **options), settings, int(players))


class TextArena:
    """A game of TextArena."""

    n_tasks = SEEDS
    takes_text = True
    tools = (text_tool("Make a move."),)
    max_turns = _MAX_TURNS

    def __init__(self, game: Any, settings: dict[str, Any], players: int) -> None:
        self._game, self._name, self._players = game, settings["name"], players
        self.system_prompt = settings["system_prompt"] or _SYSTEM_PROMPT
        self.version = f"1-textarena-{version('textarena')}"

    def prompt(self, number: int) -> str:
        """Name the game and the seed."""
        return f"{self._name}, seed {number}"

    def reset(self, number: int) -> Turn:
        """Start a game with the task's number as the seed."""
        self._game.reset(num_players=self._players, seed=number)
        limit = getattr(self._game.state, "max_turns", None)
        self.max_turns = int(limit) + 1 if isinstance(limit, int) else _MAX_TURNS
        return self._next()

    def act(self, arguments: dict[str, Any]) -> Turn:
        """Make a move for the player whose turn it is."""
        move = arguments.get("action")
        if not isinstance(move, str) or not move.strip():
            return Turn(f"Error: expected a move as text in `action`, got {move!r:.80}.", is_error=True)
        done, _ = self._game.step(move)
        if not done:
            return self._next()
        rewards, notes = self._game.close()
        seats = [float((rewards or {}).get(seat, 0.0)) for seat in range(self._players)]
        reason = str((notes or {}).get(0, {}).get("reason") or "The game is over.")
        return Turn(reason, seats[0], terminated=True, info={"seats": self._players, "rewards": seats})

    def close(self) -> None:
        """Keep the game: `reset` starts the next one."""

    def _next(self) -> Turn:
        player, text = self._game.get_observation()
        return Turn(str(text), info={"seats": self._players, "turn": int(player)})
