"""A local model that acts: batched episodes whose KV cache is kept from turn to turn.

Episodes that begin together form a cohort with one cache. What their openings share is encoded once, and each opening is
encoded once however many attempts at its task there are; after that only new tokens are fed. Rows of different length
are padded on the left, masked, and placed by explicit position ids, so that an episode's tokens do not depend on its
neighbours. An episode may have a temperature of its own; a greedy one stays exactly greedy beside hotter ones. The ids that
were sampled are what is fed back and recorded: text is never decoded and tokenised again.

Recorded log-probs are those of the model itself, at temperature 1. Policy-gradient methods form the ratio
r = pi(a|s) / pi_old(a|s) from two such log-probs (PPO, Schulman et al. 2017, arXiv 1707.06347, eq. 6), so it is 1 before
the first update, whatever temperature T tokens were sampled at. At T = 1 the gradient is that of the expected reward. At
T != 1 the samples come from pi_T and the gradient with respect to the logits is

    E_{a ~ pi_T}[A (e_a - pi)] = E_{a ~ pi_T}[A (e_a - pi_T)] + E_{a ~ pi_T}[A] (pi_T - pi),

T times the gradient of the expected reward of pi_T, and a term that vanishes only where the mean advantage of a state
does: in states from which runs go well it pulls the model towards pi_T. So train at temperature 1, or near it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache

from quintain.errors import InvalidInput
from quintain.records.agent import Agent, Sampling
from quintain.records.seams import Message, Policy, Reply, Stop, Turn
from quintain.records.trajectory import SampledTokens
from quintain.trainers.acting.decoding import Decoder
from quintain.trainers.acting.few_rows import quick_few_rows
from quintain.trainers.acting.kv_cache import new_cache, part_of, take_back
from quintain.trainers.engine.machine import default_products
from quintain.trainers.models import LoadedModel, eval_mode, is_adapter, load_model
from quintain.trainers.rendering.renderer import Renderer, shared_prefix

_SHARED_PREFIX = 16
"""Tokens that openings must share before encoding them once is worth a pass of its own."""


def open_policy(agent: Agent, sampling: Sampling, *, seed: int = 0) -> Policy:
    """Load an agent's model as a policy.

    Args:
        agent: The agent; its own sampling settings are not read.
        sampling: How tokens are picked.
        seed: Mixed into every episode's sampling stream.
    """
    loaded = load_model(agent.model)
    return LocalPolicy(loaded, Renderer.of(loaded.tokenizer, agent.template), sampling, seed=seed)


def live_policy(loaded: LoadedModel, renderer: Renderer, sampling: Sampling, *, seed: int = 0) -> LocalPolicy:
    """A policy on the very model that is being trained: nothing is copied, adapters stay unmerged.

    The model is in eval mode while it acts, and back in its former mode after. A policy is good for one rollout: what its
    caches hold was computed with the weights of that time, so make a new one once weights have changed. Where the trainer
    computes under autocast, let it act under the same autocast, or its log-probs are not the trainer's.

    Args:
        loaded: The model under training, with or without adapters.
        renderer: Writes turns as the trainer reads them.
        sampling: How tokens are picked; see the module for what a temperature other than 1 means.
        seed: Mixed into every episode's sampling stream.
    """
    return LocalPolicy(loaded, renderer, sampling, seed=seed)


@dataclass(eq=False)
class _Cohort:
    """Episodes that share one cache; row i of every tensor belongs to `rows[i]`."""

    cache: DynamicCache
    rows: list[_Episode]
    mask: torch.Tensor
    """bool [B, columns]: True where a column of the cache holds a token of the row."""
    seen: torch.Tensor | None = None
    """int64 [1, columns]; the tokens themselves, where the model is decoded without a cache."""

    def drop_closed(self) -> None:
        """Free the rows of episodes that were closed or that moved to another cohort."""
        keep = [i for i, episode in enumerate(self.rows) if episode.cohort is self]
        if len(keep) < len(self.rows):
            self.select(keep)
            self.rows = [self.rows[i] for i in keep]

    def select(self, rows: Sequence[int]) -> None:
        """Keep these rows of cache and mask, which may repeat."""
        if list(rows) == list(range(len(self.mask))):
            return
        index = torch.tensor(rows, device=self.mask.device)
        self.cache.batch_select_indices(index)
        self.mask = self.mask[index]

    def take_back(self, part: _Cohort, rows: torch.Tensor) -> None:
        """Append what a part of these rows has written by itself."""
        written = part.mask[:, self.mask.shape[1] :]
        take_back(self.cache, part.cache, rows)
        grown = torch.zeros(len(self.mask), written.shape[1], dtype=torch.bool, device=self.mask.device)
        grown[rows] = written
        self.mask = torch.cat([self.mask, grown], 1)


@dataclass(eq=False)
class _Episode:
    """What the policy knows of one episode."""

    tools: tuple[dict[str, Any], ...]
    seed: int
    temperature: float
    messages: list[Message] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    """All tokens so far; the first `cached` of them stand in the cohort's cache."""
    cached: int = 0
    n_turns: int = 0
    closing: list[int] = field(default_factory=list)
    cohort: _Cohort | None = None


class _Draws(NamedTuple):
    """What a turn's tokens are drawn with."""

    uniform: torch.Tensor
    """float [B, W], in 0..1."""
    temperature: torch.Tensor
    """float [B]; 0 is greedy."""


class LocalPolicy:
    """`records.seams.Policy` for a model in this process."""

    def __init__(self, loaded: LoadedModel, renderer: Renderer, sampling: Sampling, *, seed: int = 0) -> None:
        # Adapters stand inside the model's layers; peft's wrapper adds nothing to its forward pass but hides its signature.
        self._model = loaded.model.get_base_model() if is_adapter(loaded.model) else loaded.model
        self._context = loaded.context_tokens
        self._renderer = renderer
        self._sampling = sampling
        self._seed = seed
        self._device = loaded.model.device
        self._episodes: dict[str, _Episode] = {}
        generation = getattr(self._model, "generation_config", None)
        eos = getattr(generation, "eos_token_id", None)
        also = eos if isinstance(eos, list) else [eos]
        self._ends = renderer.end_ids | {i for i in also if i is not None}
        self._end_ids = torch.tensor(sorted(self._ends), device=self._device)
        self._decoder = Decoder.of(self._model, self._context)
        self._batches = self._decoder.caching == "batched"
        """False: each episode is a cohort of its own, without padding."""

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        """Answer each turn; batched, replies in the order of the turns.

        An episode that no longer fits the context gets `Stop.CONTEXT`, and nothing is written for it.
        """
        if len({turn.episode_id for turn in turns}) < len(turns):
            raise InvalidInput("one call may hold one turn of an episode; send its turns one after another")
        episodes = [self._take(turn) for turn in turns]
        ready = [e for e in episodes if len(e.ids) + 1 <= self._context]
        written: dict[int, Reply] = {}
        with eval_mode(self._model), torch.no_grad(), default_products(), quick_few_rows(self._model):
            for cohort in self._cohorts(ready):
                acting = [e for e in ready if e.cohort is cohort]
                written |= {id(e): reply for e, reply in zip(acting, self._decode(cohort, acting), strict=True)}
        full = Reply(text="", stop=Stop.CONTEXT)
        return [written.get(id(episode), full) for episode in episodes]

    def close(self, episode_id: str) -> None:
        """Forget an episode and free what it held; unknown ids are ignored."""
        if episode := self._episodes.pop(episode_id, None):
            episode.cohort = None

    def _take(self, turn: Turn) -> _Episode:
        """The turn's episode with the new messages in its ids."""
        episode = self._episodes.get(turn.episode_id)
        new = list(turn.messages)
        if episode is None:
            temperature = self._sampling.temperature if turn.temperature is None else turn.temperature
            episode = self._episodes[turn.episode_id] = _Episode(turn.tools, turn.seed, temperature)
            episode.ids = self._renderer.opening(new, turn.tools)
        else:
            following = self._renderer.continuation(episode.messages, new, episode.tools)
            if following is None:
                episode.ids = self._renderer.opening([*episode.messages, *new], episode.tools)
                episode.cohort, episode.cached = None, 0
            else:
                episode.ids += episode.closing + following
            episode.closing = []
        episode.messages += new
        return episode

    def _cohorts(self, ready: Sequence[_Episode]) -> list[_Cohort]:
        """The cohorts of these episodes; those that have none found a new one."""
        new = [episode for episode in ready if episode.cohort is None]
        for group in [new] if self._batches and new else [[episode] for episode in new]:
            self._found(group)
        return list({id(e.cohort): e.cohort for e in ready if e.cohort}.values())

    def _found(self, episodes: list[_Episode]) -> None:
        """Begin a cohort: first what all its episodes share is encoded, then each distinct opening, once."""
        openings = list(dict.fromkeys(tuple(e.ids) for e in episodes))
        nothing = torch.zeros(1, 0, dtype=torch.bool, device=self._device)
        cohort = _Cohort(new_cache(self._model.config), episodes, nothing)
        shared = min(shared_prefix(*openings), *(len(opening) - 1 for opening in openings))
        if len(openings) == 1 or shared < _SHARED_PREFIX:
            shared = 0
        else:
            self._feed_ids(cohort, [openings[0][:shared]])
        cohort.select([0] * len(openings))
        # The last token is left for the first turn: that it is fed there gives the logits to begin with.
        rest = [opening[shared:-1] for opening in openings]
        if len(openings) < len(episodes) and any(rest):
            self._feed_ids(cohort, rest)
        cohort.select([openings.index(tuple(e.ids)) for e in episodes])
        for episode, cached in zip(episodes, cohort.mask.sum(1).tolist(), strict=True):
            episode.cohort, episode.cached = cohort, cached

    def _decode(self, cohort: _Cohort, acting: Sequence[_Episode]) -> list[Reply]:
        """Feed what is new to the acting episodes and let each write its turn."""
        cohort.drop_closed()
        row_of = {id(episode): i for i, episode in enumerate(cohort.rows)}
        rows = [row_of[id(episode)] for episode in acting]
        chunks: list[list[int]] = [[] for _ in cohort.rows]
        limits = torch.zeros(len(cohort.rows), dtype=torch.long)
        for row, episode in zip(rows, acting, strict=True):
            chunks[row] = episode.ids[episode.cached :]
            limits[row] = min(self._sampling.max_new_tokens, self._context - len(episode.ids))
        draws = self._draws(cohort, dict(zip(rows, acting, strict=True)), int(limits.max()))
        tokens, logprobs = self._write(cohort, self._feed_ids(cohort, chunks), limits.to(self._device), draws)
        return [
            self._reply(e, tokens[row][: int(limits[row])], logprobs[row]) for row, e in zip(rows, acting, strict=True)
        ]

    def _write(
        self, cohort: _Cohort, logits: torch.Tensor, limits: torch.Tensor, draws: _Draws | None
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Pick and feed tokens until every row has reached its end token or its limit.

        Whenever half of the rows are done, the others go on in a cache of their own, and what they wrote is taken back
        at the end: a turn costs what its own tokens cost, however long another one gets.

        Args:
            cohort: Whose rows write.
            logits: float32 [B, V], for the first token.
            limits: int64 [B], tokens that a row may write; 0 for rows that do not act.
            draws: What tokens are drawn with; None: all rows are greedy.

        Returns:
            Tokens [B, W] and their log-probs [B, W]; of no meaning behind a row's end.
        """
        shape = len(limits), int(limits.max())
        tokens = torch.zeros(shape, dtype=torch.long, device=self._device)
        logprobs = torch.zeros(shape, device=self._device)
        rows = torch.arange(len(limits), device=self._device)
        done = limits == 0
        parts: list[tuple[_Cohort, torch.Tensor]] = [(cohort, rows)]
        for step in range(shape[1]):
            if draws is None:
                token, logprob = pick(logits, self._sampling, None)
            else:
                token, logprob = pick(logits, self._sampling, draws.uniform[rows, step], draws.temperature[rows])
            tokens[rows, step], logprobs[rows, step] = token, logprob
            done = done | torch.isin(token, self._end_ids) | (limits[rows] <= step + 1)
            n_writing = len(done) - int(done.sum())
            if n_writing == 0:
                break
            if n_writing <= len(done) // 2:
                writing = (~done).nonzero()[:, 0]
                whole = parts[-1][0]
                part = _Cohort(part_of(whole.cache, writing), [], whole.mask[writing])
                parts.append((part, writing))
                rows, token, done = rows[writing], token[writing], done[writing]
            logits = self._feed(parts[-1][0], token[:, None], ~done[:, None])
        for (whole, _), (part, writing) in reversed(list(pairwise(parts))):
            whole.take_back(part, writing)
        return tokens.tolist(), logprobs.tolist()

    def _feed_ids(self, cohort: _Cohort, chunks: Sequence[Sequence[int]]) -> torch.Tensor:
        """Feed a list of ids to each row, padded on the left; see `_feed`."""
        width = max(map(len, chunks))
        ids = torch.tensor([[0] * (width - len(c)) + [*c] for c in chunks], device=self._device)
        real = torch.tensor([[False] * (width - len(c)) + [True] * len(c) for c in chunks], device=self._device)
        return self._feed(cohort, ids, real)

    def _feed(self, cohort: _Cohort, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Run tokens through the model behind the cohort's cache.

        Args:
            cohort: Whose cache and mask grow by the width of `ids`.
            ids: int64 [B, T], padded on the left.
            real: bool [B, T]; True where `ids` holds a token.

        Returns:
            float32 [B, V], the logits after the last column; of no meaning in rows that end with padding.
        """
        cohort.mask = torch.cat([cohort.mask, real], 1)
        if self._decoder.caching == "none":
            cohort.seen = ids if cohort.seen is None else torch.cat([cohort.seen, ids], 1)
        return self._decoder.feed(cohort.cache, ids, cohort.mask, cohort.seen)

    def _draws(self, cohort: _Cohort, acting: dict[int, _Episode], width: int) -> _Draws | None:
        """Each row drawn from the stream of its own episode and turn, at its own temperature; None when all are greedy."""
        if not any(episode.temperature for episode in acting.values()):
            return None
        drawn = torch.zeros(len(cohort.rows), width, dtype=torch.float64)
        temperature = torch.zeros(len(cohort.rows), dtype=torch.float64)
        for row, episode in acting.items():
            name = f"{self._seed}/{episode.seed}/{episode.n_turns}"
            stream = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1)
            drawn[row] = torch.rand(width, generator=stream, dtype=torch.float64)
            temperature[row] = episode.temperature
        wide = _wide(self._device)
        return _Draws(drawn.to(self._device, wide), temperature.to(self._device, wide))

    def _reply(self, episode: _Episode, tokens: list[int], logprobs: list[float]) -> Reply:
        """Cut the sampled row at its end token, remember it and read it."""
        length = next((i + 1 for i, token in enumerate(tokens) if token in self._ends), len(tokens))
        turn = tokens[:length]
        ended = turn[-1] in self._ends
        text = self._renderer.decode(turn[:-1] if ended else turn)
        parsed = self._renderer.parse(text)
        said = Message(role="assistant", thought=parsed.thought, actions=parsed.actions)
        episode.messages.append(Message(role="assistant", content=text) if parsed.error else said)
        episode.cached = len(episode.ids) + length - 1  # the last sampled token was never fed
        episode.ids += turn
        episode.closing = self._renderer.closing(turn)
        episode.n_turns += 1
        return Reply(
            text=text,
            thought=parsed.thought,
            actions=parsed.actions,
            stop=Stop.END if ended else Stop.LENGTH,
            sampled=SampledTokens(
                token_ids=tuple(turn), logprobs=tuple(logprobs[:length]), tokenizer=self._renderer.fingerprint
            ),
            error=parsed.error,
        )


def pick(
    logits: torch.Tensor, sampling: Sampling, uniform: torch.Tensor | None, temperature: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick one token a row by inverting the cumulative distribution at a uniform number.

    Args:
        logits: float32 [B, V].
        sampling: Temperature and top_p (nucleus sampling, Holtzman et al. 2020, arXiv 1904.09751, section 3.1).
        uniform: float [B] in 0..1; None picks the most likely token.
        temperature: float [B], of each row in place of `sampling`'s; a row at 0 picks the most likely token.

    Returns:
        The tokens, int64 [B], and their log-probabilities under the model itself, float32 [B]: at temperature 1
        and without top_p, as a trainer computes them.
    """
    token = logits.argmax(-1)
    if uniform is not None:
        wide = _wide(logits.device)
        if temperature is None:
            temperature = torch.full(logits.shape[:1], sampling.temperature, dtype=wide, device=logits.device)
        is_warm = temperature > 0
        chances = (logits.to(wide) / temperature.where(is_warm, 1.0)[:, None]).softmax(-1)
        if sampling.top_p < 1:
            ranked, order = chances.sort(dim=-1, descending=True, stable=True)
            tail = ranked.cumsum(-1) - ranked >= sampling.top_p  # the first token always stays
            chances = chances.masked_fill(torch.zeros_like(tail).scatter(1, order, tail), 0.0)
        reached = chances.cumsum(-1)
        whole = reached[:, -1:].contiguous()
        place = torch.searchsorted(reached, uniform[:, None] * whole, right=True)
        last = torch.searchsorted(reached, whole)  # rounding must not lead past the last possible token
        token = torch.minimum(place, last)[:, 0].where(is_warm, token)
    return token, logits.log_softmax(-1).gather(1, token[:, None])[:, 0]


def _wide(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # MPS has no float64
