"""A local model that acts: batched episodes whose KV cache is kept from turn to turn.

Episodes that begin together form a cohort with one cache. The common prefix of their openings is encoded once; after
that only new tokens are fed. Rows of different length are padded on the left, masked, and placed by explicit position
ids, so that an episode's tokens do not depend on its neighbours. The ids that were sampled are what is fed back and
recorded: text is never decoded and tokenised again.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache

from quintain.errors import InvalidInput
from quintain.records.agent import Agent, Sampling
from quintain.records.seams import Message, Policy, Reply, Stop, Turn
from quintain.records.trajectory import SampledTokens
from quintain.trainers.kv_cache import can_batch, new_cache
from quintain.trainers.models import LoadedModel, load_model
from quintain.trainers.rendering import Renderer, shared_prefix

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


@dataclass(eq=False)
class _Cohort:
    """Episodes that share one cache; row i of every tensor belongs to `rows[i]`."""

    cache: DynamicCache
    rows: list[_Episode]
    mask: torch.Tensor
    """bool [B, columns]: True where a column of the cache holds a token of the row."""

    def drop_closed(self) -> None:
        """Free the rows of episodes that were closed or that moved to another cohort."""
        keep = [i for i, episode in enumerate(self.rows) if episode.cohort is self]
        if len(keep) < len(self.rows):
            index = torch.tensor(keep, device=self.mask.device)
            self.cache.batch_select_indices(index)
            self.mask = self.mask[index]
            self.rows = [self.rows[i] for i in keep]


@dataclass(eq=False)
class _Episode:
    """What the policy knows of one episode."""

    tools: tuple[dict[str, Any], ...]
    seed: int
    messages: list[Message] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    """All tokens so far; the first `cached` of them stand in the cohort's cache."""
    cached: int = 0
    n_turns: int = 0
    closing: list[int] = field(default_factory=list)
    cohort: _Cohort | None = None


class LocalPolicy:
    """`records.seams.Policy` for a model in this process."""

    def __init__(self, loaded: LoadedModel, renderer: Renderer, sampling: Sampling, *, seed: int = 0) -> None:
        self._model = loaded.model.eval()
        self._context = loaded.context_tokens
        self._renderer = renderer
        self._sampling = sampling
        self._seed = seed
        self._device = loaded.model.device
        self._episodes: dict[str, _Episode] = {}
        generation = getattr(loaded.model, "generation_config", None)
        eos = getattr(generation, "eos_token_id", None)
        also = eos if isinstance(eos, list) else [eos]
        self._ends = renderer.end_ids | {i for i in also if i is not None}
        self._end_ids = torch.tensor(sorted(self._ends), device=self._device)
        takes = inspect.signature(loaded.model.forward).parameters
        self._last_logits = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self._places = "position_ids" in takes
        self._batches = self._places and can_batch(loaded.model.config)
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
            episode = self._episodes[turn.episode_id] = _Episode(turn.tools, turn.seed)
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
        """Begin a cohort; what all its episodes share from the start is encoded once."""
        cohort = _Cohort(
            new_cache(self._model.config),
            episodes,
            torch.zeros(len(episodes), 0, dtype=torch.bool, device=self._device),
        )
        shared = min(shared_prefix(*(e.ids for e in episodes)), min(len(e.ids) for e in episodes) - 1)
        if len(episodes) > 1 and shared >= _SHARED_PREFIX:
            prefix = torch.tensor([episodes[0].ids[:shared]], device=self._device)
            cohort.mask = torch.ones(1, 0, dtype=torch.bool, device=self._device)
            self._feed(cohort, prefix, torch.ones_like(prefix, dtype=torch.bool))
            cohort.cache.batch_repeat_interleave(len(episodes))
            cohort.mask = cohort.mask.expand(len(episodes), -1)
        for episode in episodes:
            episode.cohort, episode.cached = cohort, cohort.mask.shape[1]

    @torch.inference_mode()
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
        limits = limits.to(self._device)
        uniform = self._uniform(cohort, dict(zip(rows, acting, strict=True)), int(limits.max()))

        width = max(map(len, chunks))
        ids = torch.tensor([[0] * (width - len(c)) + c for c in chunks], device=self._device)
        real = torch.tensor([[False] * (width - len(c)) + [True] * len(c) for c in chunks], device=self._device)
        logits = self._feed(cohort, ids, real)
        done = limits == 0
        tokens, logprobs = [], []
        for step in range(int(limits.max())):
            token, logprob = pick(logits, self._sampling, None if uniform is None else uniform[:, step])
            tokens.append(token)
            logprobs.append(logprob)
            done = done | torch.isin(token, self._end_ids) | (limits <= step + 1)
            if bool(done.all()):
                break
            logits = self._feed(cohort, token[:, None], ~done[:, None])
        token_table = torch.stack(tokens, 1).tolist()
        logprob_table = torch.stack(logprobs, 1).tolist()
        limit_list = limits.tolist()
        return [
            self._reply(e, token_table[row][: limit_list[row]], logprob_table[row])
            for row, e in zip(rows, acting, strict=True)
        ]

    def _feed(self, cohort: _Cohort, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Run tokens through the model behind the cohort's cache.

        Args:
            cohort: Whose cache and mask grow by the width of `ids`.
            ids: int64 [B, T], padded on the left.
            real: bool [B, T]; True where `ids` holds a token.

        Returns:
            float32 [B, V], the logits after the last column; of no meaning in rows that end with padding.
        """
        positions = (cohort.mask.sum(1, keepdim=True) + real.cumsum(1) - 1).clamp(min=0)
        cohort.mask = torch.cat([cohort.mask.expand(len(ids), -1), real], 1)
        with torch.inference_mode():
            out = self._model(
                input_ids=ids,
                attention_mask=cohort.mask.long(),
                past_key_values=cohort.cache,
                use_cache=True,
                **({"position_ids": positions} if self._places else {}),
                **self._last_logits,
            )
        return out.logits[:, -1].float()

    def _uniform(self, cohort: _Cohort, acting: dict[int, _Episode], width: int) -> torch.Tensor | None:
        """Float [B, width]: each row drawn from the stream of its own episode and turn; None when greedy."""
        if self._sampling.temperature == 0:
            return None
        drawn = torch.zeros(len(cohort.rows), width, dtype=torch.float64)
        for row, episode in acting.items():
            name = f"{self._seed}/{episode.seed}/{episode.n_turns}"
            stream = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1)
            drawn[row] = torch.rand(width, generator=stream, dtype=torch.float64)
        return drawn.to(self._device, _wide(self._device))

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


def pick(logits: torch.Tensor, sampling: Sampling, uniform: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick one token a row by inverting the cumulative distribution at a uniform number.

    Args:
        logits: float32 [B, V].
        sampling: Temperature and top_p (nucleus sampling, Holtzman et al. 2020, arXiv 1904.09751, section 3.1).
        uniform: float [B] in 0..1; None picks the most likely token.

    Returns:
        The tokens, int64 [B], and their log-probabilities under the model itself, float32 [B]: at temperature 1
        and without top_p, as a trainer computes them.
    """
    if uniform is None or sampling.temperature == 0:
        token = logits.argmax(-1)
    else:
        chances = (logits.to(_wide(logits.device)) / sampling.temperature).softmax(-1)
        if sampling.top_p < 1:
            ranked, order = chances.sort(dim=-1, descending=True, stable=True)
            tail = ranked.cumsum(-1) - ranked >= sampling.top_p  # the first token always stays
            chances = chances.masked_fill(torch.zeros_like(tail).scatter(1, order, tail), 0.0)
        reached = chances.cumsum(-1)
        whole = reached[:, -1:].contiguous()
        place = torch.searchsorted(reached, uniform[:, None] * whole, right=True)
        last = torch.searchsorted(reached, whole)  # rounding must not lead past the last possible token
        token = torch.minimum(place, last)[:, 0]
    return token, logits.log_softmax(-1).gather(1, token[:, None])[:, 0]


def _wide(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # MPS has no float64
