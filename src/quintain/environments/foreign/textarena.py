"""TextArena: text games of one or several players; a task is a seed.

With the option `players` above 1, each call acts for the player whose turn it is, and each player gets a reward at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

from quintain.environments.foreign.adapter import SEEDS, Turn, library, text_tool, unknown_id

_MAX_TURNS = 50
_SYSTEM_PROMPT = "Play the game. Call act with your move, written in the format that the game asks for."


def open_adapter(settings: dict[str, Any]) -> TextArena:
    """Return the adapter of a registered game; its option `players` sets the number of players.

    Raises:
        ValueError: an unknown id, or a number of players that the game does not have.
    """
    arena = library("textarena")
    name, options = settings["name"], dict(settings["options"])
    if name not in arena.envs.registration.ENV_REGISTRY:
        raise ValueError(unknown_id("TextArena", name, arena.envs.registration.ENV_REGISTRY))
    players = options.pop("players", 1)
    if type(players) is not int or players < 1:
        raise ValueError(f"expected a number of players from 1 on, got {players!r:.40}; set players=2, or leave it out")
    make = partial(arena.make, name, **options)
    try:
        make().reset(num_players=players, seed=0)
    except AssertionError as error:
        raise ValueError(
            f"{name} does not start with {players} players ({error}); set the option players=2, or more"
        ) from None
    return TextArena(make, settings, players)


class TextArena:
    """A game of TextArena."""

    n_tasks = SEEDS
    takes_text = True
    tools = (text_tool("Make a move."),)
    max_turns = _MAX_TURNS

    def __init__(self, make: Callable[[], Any], settings: dict[str, Any], players: int) -> None:
        self._make, self._name, self._seats = make, settings["name"], players
        self._game: Any = None
        self._shown: dict[int, str] = {}
        self.system_prompt = settings["system_prompt"] or _SYSTEM_PROMPT
        self.players = tuple(f"player {seat}" for seat in range(players)) if players > 1 else ()
        self.version = f"2-textarena-{version('textarena')}"

    def prompt(self, number: int) -> str:
        """Name the game and the seed."""
        return f"{self._name}, seed {number}"

    def reset(self, number: int) -> Turn:
        """Start a game with the task's number as the seed; a new one, because its wrappers keep what earlier games showed."""
        self._game, self._shown = self._make(), {}
        self._game.reset(num_players=self._seats, seed=number)
        limit = getattr(self._game.state, "max_turns", None)
        self.max_turns = int(limit) + 1 if isinstance(limit, int) else _MAX_TURNS
        return self._next()

    def act(self, tool: str, arguments: dict[str, Any]) -> Turn:
        """Make a move for the player whose turn it is."""
        move, mover = arguments.get("action"), int(self._game.state.current_player_id)
        if not isinstance(move, str) or not move.strip():
            fault = f"Error: expected a move as text in `action`, got {move!r:.80}."
            return Turn(fault, is_error=True, player=mover)
        done, _ = self._game.step(move)
        if not done:
            return self._next()
        rewards, notes = self._game.close()
        values = [float((rewards or {}).get(seat, 0.0)) for seat in range(self._seats)]
        reason = str((notes or {}).get(mover, {}).get("reason") or "The game is over.")
        if not self.players:
            return Turn(reason, values[0], terminated=True)
        shares = tuple(min(max((value + 1) / 2, 0.0), 1.0) for value in values)  # TextArena: 1 wins, 0 draws, -1 loses
        return Turn(reason, terminated=True, player=mover, rewards=shares)

    def close(self) -> None:
        """Forget the game."""
        self._game = None

    def _next(self) -> Turn:
        """Return what the next player has not seen yet: most games repeat the whole history with each observation."""
        player, observation = self._game.get_observation()
        text, shown = str(observation), self._shown.get(player, "")
        self._shown[player] = text
        return Turn(text.removeprefix(shown) or text, player=int(player))
