"""Policy of a local model: batched episodes with a KV cache that is kept between turns.

Episodes that start together form a cohort with one cache. The shared prefix of their openings is encoded once, and so is each
opening, however many attempts its task has; afterwards only new tokens are fed. Rows of different lengths are padded on the left,
masked, and placed by explicit position ids, so that an episode's tokens do not depend on its neighbours. An episode may have its own
temperature; a greedy one stays exactly greedy. Sampled ids are fed back and recorded: text is never decoded and tokenised again.
If a model's rotary factors depend on the length of a row (`engine/rotary.py`), an episode that passes a border is read again from its
start, as in transformers.

Recorded log-probs are those of the model itself, at temperature 1, so that the ratio pi(a|s) / pi_old(a|s) of policy-gradient
methods (PPO, Schulman et al. 2017, arXiv 1707.06347, eq. 6) is 1 before the first update. At a sampling temperature T != 1 the
gradient at the logits is T times that of the expected reward of pi_T, plus E[A] (pi_T - pi), which vanishes only where the mean
advantage of a state does. So train at temperature 1, or near it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch

from quintain.errors import InvalidInput
from quintain.records.agent import Agent, Sampling
from quintain.records.protocols import Message, Reply, Stop, Turn
from quintain.records.trajectory import SampledTokens
from quintain.trainers.acting.cohort import Cohort, Episode
from quintain.trainers.acting.decoding import Decoder
from quintain.trainers.acting.kv_cache import new_cache
from quintain.trainers.acting.sampling import Draws, pick, widest_float
from quintain.trainers.acting.small_batch_linear import small_batch_linear
from quintain.trainers.engine.machine import default_products
from quintain.trainers.models import LoadedModel, eval_mode, is_adapter, load_model
from quintain.trainers.rendering.renderer import Renderer, shared_prefix

_SHARED_PREFIX = 16
"""Minimum shared prefix in tokens for which a separate pass pays."""


def open_policy(agent: Agent, sampling: Sampling, *, seed: int = 0) -> LocalPolicy:
    """Load an agent's model as a policy.

    Args:
        agent: The agent; its own sampling settings are ignored.
        sampling: Sampling settings.
        seed: Part of every episode's random seed.
    """
    loaded = load_model(agent.model)
    return LocalPolicy(loaded, Renderer.of(loaded.tokenizer, agent.template), sampling, seed=seed)


class LocalPolicy:
    """`records.protocols.Policy` for a model in this process, which may be under training.

    Nothing is copied, and adapters stay unmerged. The model is in eval mode while it acts, and returns to its mode afterwards.
    Caches belong to the current weights: when they change, create another policy. Act under the trainer's autocast, if it uses
    one, or the log-probs differ.
    """

    def __init__(self, loaded: LoadedModel, renderer: Renderer, sampling: Sampling, *, seed: int = 0) -> None:
        """Create a policy without episodes; `seed` is part of every episode's random seed."""
        # peft's wrapper only hides the signature of the forward pass; adapters are inside of the layers.
        self._model = loaded.model.get_base_model() if is_adapter(loaded.model) else loaded.model
        self._context = loaded.context_tokens
        self._renderer = renderer
        self._sampling = sampling
        self._seed = seed
        self._device = loaded.model.device
        self._episodes: dict[str, Episode] = {}
        generation = getattr(self._model, "generation_config", None)
        eos = getattr(generation, "eos_token_id", None)
        also = eos if isinstance(eos, list) else [eos]
        self._ends = renderer.end_ids | {i for i in also if i is not None}
        self._end_ids = torch.tensor(sorted(self._ends), device=self._device)
        self._decoder = Decoder.of(self._model, self._context)
        self.on_share: Callable[[float], None] | None = None
        """See `records.protocols.ReportsShare`: tokens written, relative to the longest turn that is possible."""
        self._batches = self._decoder.caching == "batched"
        """False: each episode is its own cohort, without padding."""
        self.warnings = loaded.warnings
        """Warnings for the user."""
        if self._decoder.caching == "none":
            self.warnings += (
                f"this model ({self._model.config.model_type}) has no cache that reproduces its own predictions, so it reads the "
                "whole run again for each new token: the result is right, but time grows with the square of a run's length; "
                "choose a model with attention, or fewer episodes, turns and max_new_tokens",
            )

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        """Answer each turn in one batch; replies are in the order of the turns.

        An episode that no longer fits the context gets `Stop.CONTEXT` and no text.
        """
        if len({turn.episode_id for turn in turns}) < len(turns):
            raise InvalidInput(
                "expected one turn of an episode in a call, got several; send its turns one after another"
            )
        episodes = [self._with_messages(turn) for turn in turns]
        with eval_mode(self._model), torch.no_grad(), default_products(), small_batch_linear(self._model):
            while unfinished := [
                e for e in episodes if e.left
            ]:  # once, or again if cached keys become invalid within a turn
                for cohort in self._cohorts(unfinished):
                    self._decode(cohort, [e for e in unfinished if e.cohort is cohort])
        return [self._reply(e) if e.turn else Reply(text="", stop=Stop.CONTEXT) for e in episodes]

    def close(self, episode_id: str) -> None:
        """Free an episode; unknown ids are ignored."""
        if episode := self._episodes.pop(episode_id, None):
            episode.cohort = None

    def _with_messages(self, turn: Turn) -> Episode:
        """Return the turn's episode with the ids of the new messages added."""
        episode = self._episodes.get(turn.episode_id)
        new = list(turn.messages)
        if episode is None:
            temperature = self._sampling.temperature if turn.temperature is None else turn.temperature
            episode = self._episodes[turn.episode_id] = Episode(turn.tools, turn.seed, temperature)
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
        episode.turn, episode.logprobs = [], []
        episode.left = max(0, min(self._sampling.max_new_tokens, self._context - len(episode.ids)))
        return episode

    def _cohorts(self, acting: Sequence[Episode]) -> list[Cohort]:
        """Return the cohorts of these episodes; create them for episodes without one, or with keys of other rotary factors."""
        groups: dict[Any, list[Episode]] = {}
        for episode in acting:
            factors = self._decoder.rotary.factors_of(len(episode.ids))
            if episode.cohort is None or episode.cohort.factors != factors:
                groups.setdefault(factors if self._batches else id(episode), []).append(episode)
        for group in groups.values():
            self._create_cohort(group)
        return list({id(e.cohort): e.cohort for e in acting if e.cohort}.values())

    def _create_cohort(self, episodes: list[Episode]) -> None:
        """Create a cohort: encode the shared prefix of its episodes, then each distinct opening once."""
        openings = list(dict.fromkeys(tuple(e.ids) for e in episodes))
        nothing = torch.zeros(1, 0, dtype=torch.bool, device=self._device)
        factors = self._decoder.rotary.factors_of(len(episodes[0].ids))
        cohort = Cohort(new_cache(self._model.config), episodes, nothing, factors)
        shared = min(shared_prefix(*openings), *(len(opening) - 1 for opening in openings))
        if len(openings) == 1 or shared < _SHARED_PREFIX:
            shared = 0
        else:
            self._feed_ids(cohort, [openings[0][:shared]])
        cohort.select([0] * len(openings))
        # The last token is fed in the first turn, which gives the first logits.
        rest = [opening[shared:-1] for opening in openings]
        if len(openings) < len(episodes) and any(rest):
            self._feed_ids(cohort, rest)
        cohort.select([openings.index(tuple(e.ids)) for e in episodes])
        for episode, cached in zip(episodes, cohort.mask.sum(1).tolist(), strict=True):
            episode.cohort, episode.cached = cohort, cached

    def _decode(self, cohort: Cohort, acting: Sequence[Episode]) -> None:
        """Feed new tokens of the acting episodes, and decode their turns as far as their keys are valid."""
        cohort.drop_closed()
        row_of = {id(episode): i for i, episode in enumerate(cohort.rows)}
        rows = [row_of[id(episode)] for episode in acting]
        chunks: list[list[int]] = [[] for _ in cohort.rows]
        limits = torch.zeros(len(cohort.rows), dtype=torch.long)
        for row, episode in zip(rows, acting, strict=True):
            chunks[row] = episode.ids[episode.cached :]
            limits[row] = self._decoder.rotary.room(len(episode.ids), episode.left)
        draws = self._draws(cohort, dict(zip(rows, acting, strict=True)), int(limits.max()))
        tokens, logprobs = self._write(cohort, self._feed_ids(cohort, chunks), limits.to(self._device), draws)
        for row, episode in zip(rows, acting, strict=True):
            self._add_tokens(episode, tokens[row][: int(limits[row])], logprobs[row])

    def _write(
        self, cohort: Cohort, logits: torch.Tensor, limits: torch.Tensor, draws: Draws | None
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Sample and feed tokens until every row has reached its end token or its limit.

        Whenever half of the rows are done, the others continue in a smaller cache, which is merged back at the end. So a turn costs its
        own tokens, however long another one gets.

        Args:
            cohort: The cohort.
            logits: float32 [B, V], for the first token.
            limits: int64 [B], maximum tokens of a row; 0 for rows that do not act.
            draws: Random numbers and temperatures; None: all rows are greedy.

        Returns:
            Tokens [B, W] and their log-probs [B, W]; undefined behind a row's end.
        """
        shape = len(limits), int(limits.max())
        tokens = torch.zeros(shape, dtype=torch.long, device=self._device)
        logprobs = torch.zeros(shape, device=self._device)
        rows = torch.arange(len(limits), device=self._device)
        done = limits == 0
        parts: list[tuple[Cohort, torch.Tensor]] = [(cohort, rows)]
        for step in range(shape[1]):
            own = None if draws is None else Draws(draws.uniform[rows, step], draws.temperature[rows])
            token, logprob = pick(logits, own, self._sampling.top_p)
            tokens[rows, step], logprobs[rows, step] = token, logprob
            done = done | torch.isin(token, self._end_ids) | (limits[rows] <= step + 1)
            n_writing = len(done) - int(done.sum())
            if n_writing == 0:
                break
            if n_writing <= len(done) // 2:
                writing = (~done).nonzero()[:, 0]
                whole = parts[-1][0]
                parts.append((whole.part(writing), writing))
                rows, token, done = rows[writing], token[writing], done[writing]
            logits = self._feed(parts[-1][0], token[:, None], ~done[:, None])
            if self.on_share is not None:
                self.on_share((step + 1) / shape[1])
        for (whole, _), (part, writing) in reversed(list(pairwise(parts))):
            whole.take_back(part, writing)
        return tokens.tolist(), logprobs.tolist()

    def _feed_ids(self, cohort: Cohort, chunks: Sequence[Sequence[int]]) -> torch.Tensor:
        """Feed a list of ids to each row, padded on the left; see `_feed`."""
        width = max(map(len, chunks))
        ids = torch.tensor([[0] * (width - len(c)) + [*c] for c in chunks], device=self._device)
        real = torch.tensor([[False] * (width - len(c)) + [True] * len(c) for c in chunks], device=self._device)
        return self._feed(cohort, ids, real)

    def _feed(self, cohort: Cohort, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Run tokens through the model behind the cohort's cache.

        Args:
            cohort: The cohort; its cache and mask grow by the width of `ids`.
            ids: int64 [B, T], padded on the left.
            real: bool [B, T]; True at tokens, False at padding.

        Returns:
            float32 [B, V], the logits after the last column; undefined in rows that end with padding.
        """
        cohort.mask = torch.cat([cohort.mask, real], 1)
        if self._decoder.caching == "none":
            cohort.row_ids = ids if cohort.row_ids is None else torch.cat([cohort.row_ids, ids], 1)
        return self._decoder.feed(cohort.cache, ids, cohort.mask, cohort.row_ids, cohort.factors)

    def _draws(self, cohort: Cohort, acting: dict[int, Episode], width: int) -> Draws | None:
        """Return random numbers seeded by episode and turn, with temperatures; None if all rows are greedy."""
        if not any(episode.temperature for episode in acting.values()):
            return None
        drawn = torch.zeros(len(cohort.rows), width, dtype=torch.float64)
        temperature = torch.zeros(len(cohort.rows), dtype=torch.float64)
        for row, episode in acting.items():
            name = f"{self._seed}/{episode.seed}/{episode.n_turns}"
            stream = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1)
            done = len(episode.turn)
            drawn[row] = torch.rand(done + width, generator=stream, dtype=torch.float64)[done:]
            temperature[row] = episode.temperature
        dtype = widest_float(self._device)
        return Draws(drawn.to(self._device, dtype), temperature.to(self._device, dtype))

    def _add_tokens(self, episode: Episode, tokens: list[int], logprobs: list[float]) -> None:
        """Cut a sampled row at its end token and add it to its episode."""
        length = next((i + 1 for i, token in enumerate(tokens) if token in self._ends), len(tokens))
        written = tokens[:length]
        episode.cached = len(episode.ids) + length - 1  # the last sampled token was never fed
        episode.ids += written
        episode.turn += written
        episode.logprobs += logprobs[:length]
        episode.left = 0 if written[-1] in self._ends else episode.left - length

    def _reply(self, episode: Episode) -> Reply:
        """Parse the turn of an episode, and add it to its messages."""
        turn = episode.turn
        ended = turn[-1] in self._ends
        text = self._renderer.decode(turn[:-1] if ended else turn)
        parsed = self._renderer.parse(text, episode.tools)
        answer = Message(role="assistant", thought=parsed.thought, actions=parsed.actions)
        episode.messages.append(Message(role="assistant", content=text) if parsed.error else answer)
        episode.closing = self._renderer.closing(turn)
        episode.n_turns += 1
        return Reply(
            text=text,
            thought=parsed.thought,
            actions=parsed.actions,
            stop=Stop.END if ended else Stop.LENGTH,
            sampled=SampledTokens(
                token_ids=tuple(turn), logprobs=tuple(episode.logprobs), tokenizer=self._renderer.fingerprint
            ),
            error=parsed.error,
        )
