"""State of an episode that a model plays by token ids, in this process or behind an endpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from quintain.records.agent import Sampling
from quintain.records.protocols import Message, Reply, Stop, Turn
from quintain.records.trajectory import SampledTokens
from quintain.trainers.acting.kv_cache import Row
from quintain.trainers.rendering.renderer import Renderer


@dataclass(eq=False)
class Episode:
    """State of one episode."""

    tools: tuple[dict[str, Any], ...]
    seed: int
    temperature: float
    messages: list[Message] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    """All tokens so far."""
    row: Row = field(default_factory=Row)
    """Cached keys and values of the first of these tokens."""
    n_turns: int = 0
    turn: list[int] = field(default_factory=list)
    """Tokens of the current or latest turn."""
    logprobs: list[float] = field(default_factory=list)
    """Log-probs of these tokens."""
    left: int = 0
    """Number of further tokens that the turn may have."""
    is_ended: bool = False
    """Whether the turn has an end token, or ends where it is complete."""
    closing: list[int] = field(default_factory=list)
    """End tokens that the latest turn still needs in the history, because its length limit cut it off."""

    @classmethod
    def of_turn(
        cls, turn: Turn, known: dict[str, Episode], renderer: Renderer, sampling: Sampling, context: int
    ) -> Episode:
        """Return the episode of a turn, ready to answer within `context` tokens; a new one is added to `known`."""
        episode = known.get(turn.episode_id)
        if episode is None:
            temperature = sampling.temperature if turn.temperature is None else turn.temperature
            episode = known[turn.episode_id] = cls(turn.tools, turn.seed, temperature)
        episode.begin_turn(turn.messages, renderer)
        episode.left = max(0, min(sampling.max_new_tokens, context - len(episode.ids)))
        return episode

    def begin_turn(self, new: Sequence[Message], renderer: Renderer) -> None:
        """Add new messages with their ids, and begin a turn. If the history has to be rendered anew, its cache is dropped."""
        following = renderer.continuation(self.messages, new, self.tools) if self.messages else None
        if following is None:
            self.ids, self.row = renderer.opening([*self.messages, *new], self.tools), Row()
        else:
            self.ids += self.closing + following
        self.closing = []
        self.messages += new
        self.turn, self.logprobs, self.is_ended = [], [], False

    def turn_seed(self, seed: int) -> int:
        """Return the seed of the turn's random numbers, 63 bits, from the policy's seed, the episode's and the turn."""
        name = f"{seed}/{self.seed}/{self.n_turns}"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1

    def text(self, renderer: Renderer, ends: Collection[int], further: Sequence[int] = ()) -> str:
        """Return the text of the turn with further tokens, without its end token."""
        turn = [*self.turn, *further]
        return renderer.decode(turn[:-1] if turn[-1] in ends else turn)

    def add_tokens(
        self, tokens: Sequence[int], logprobs: Sequence[float], renderer: Renderer, ends: Collection[int]
    ) -> None:
        """Add sampled tokens to the turn, and drop those after the end of a complete turn."""
        self.ids += tokens
        self.turn += tokens
        self.logprobs += logprobs
        self.left -= len(tokens)
        self.is_ended = self.turn[-1] in ends
        end = renderer.turn_end(self.text(renderer, ends), self.tools)
        if end is not None:
            kept = len(self.turn)
            while kept > 1 and len(renderer.decode(self.turn[: kept - 1])) >= end:
                kept -= 1
            lost = len(self.turn) - kept
            for of_episode in (self.ids, self.turn, self.logprobs):
                del of_episode[len(of_episode) - lost :]
            self.row = self.row.cut(len(self.ids))
            self.is_ended = True
        if self.is_ended:
            self.left = 0

    def reply(self, renderer: Renderer, ends: Collection[int], weight_version: int | None = None) -> Reply:
        """Parse the turn, and add it to the messages; `weight_version` is that of `SampledTokens`."""
        text = self.text(renderer, ends)
        parsed = renderer.parse(text, self.tools)
        answer = Message(role="assistant", thought=parsed.thought, actions=parsed.actions)
        self.messages.append(Message(role="assistant", content=text) if parsed.error else answer)
        self.closing = renderer.closing(self.turn, called=bool(parsed.actions))
        self.n_turns += 1
        return Reply(
            text=text,
            thought=parsed.thought,
            actions=parsed.actions,
            stop=Stop.END if self.is_ended else Stop.LENGTH,
            sampled=SampledTokens(
                token_ids=tuple(self.turn),
                logprobs=tuple(self.logprobs),
                tokenizer=renderer.fingerprint,
                weight_version=weight_version,
            ),
            error=parsed.error,
        )
