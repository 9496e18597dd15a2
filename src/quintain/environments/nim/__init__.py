"""`quintain/nim`: a game of two players who take stones from heaps, with legal moves checked."""

from quintain.environments.nim.environment import Nim

__all__ = ["Nim"]
