"""Policy of a local model: batched episodes with a KV cache that is kept between turns.

Episodes that act together are decoded in one batch (`kv_cache`). The shared prefix of their openings is encoded once, and so is
each opening, however many attempts its task has; afterwards only new tokens are fed. Rows of different lengths are padded on the
left, masked, and placed by explicit position ids, so that an episode's tokens do not depend on its neighbours. An episode may have
its own temperature; a greedy one stays exactly greedy. Sampled ids are fed back and recorded: text is never decoded and tokenised
again. A turn ends with an end token, or where its text is complete (`Renderer.turn_end`): what was sampled behind is dropped.
If a model's rotary factors depend on the length of a row (`engine/rotary.py`), an episode that passes a border is read again from its
start, as in transformers.

Recorded log-probs are those of the model itself, at temperature 1, so that the ratio pi(a|s) / pi_old(a|s) of policy-gradient
methods (PPO, Schulman et al. 2017, arXiv 1707.06347, eq. 6) is 1 before the first update. At a sampling temperature T != 1 the
gradient at the logits is T times that of the expected reward of pi_T, plus E[A] (pi_T - pi), which vanishes only where the mean
advantage of a state does. So train at temperature 1, or near it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from quintain.errors import InvalidInput
from quintain.records.agent import Agent, Sampling
from quintain.records.protocols import Reply, Stop, Turn
from quintain.trainers.acting.decoding import Decoder
from quintain.trainers.acting.episode import Episode
from quintain.trainers.acting.generation import Generation
from quintain.trainers.acting.kv_cache import Row
from quintain.trainers.acting.products import IN_PROCESS, PRODUCTS, ProductForms, to_bf16
from quintain.trainers.acting.sampling import Draws, TokenLimits, pick
from quintain.trainers.acting.static_steps import StaticSteps
from quintain.trainers.data.streams import widest_float
from quintain.trainers.models.loading import LoadedModel, eval_mode, is_adapter, load_model
from quintain.trainers.rendering.chat_template import shared_prefix
from quintain.trainers.rendering.renderer import Renderer

_SHARED_PREFIX = 16
"""Minimum shared prefix in tokens for which a separate pass pays."""

_CHECK_STEPS = 8
"""Steps between two checks whether turns are complete. Where a turn ends does not depend on it."""

_FEWEST_STATIC = 8
"""Fewest steps for which capturing them pays: a capture costs about four."""


def open_policy(agent: Agent, sampling: Sampling, *, seed: int = 0, folder: Path | None = None) -> LocalPolicy:
    """Load an agent's model as a policy.

    Args:
        agent: The agent; its own sampling settings are ignored.
        sampling: Sampling settings.
        seed: Part of every episode's random seed.
        folder: The job's folder, which keeps how products are computed; None: nothing is kept.
    """
    loaded = load_model(agent.model)
    products = IN_PROCESS if folder is None else ProductForms(folder / PRODUCTS)
    if products.precision(loaded.model, sampling.precision) == "bf16":
        to_bf16(loaded.model)
    return LocalPolicy(loaded, Renderer.of(loaded.tokenizer, agent.template), sampling, seed=seed, products=products)


def end_ids(model: Any, renderer: Renderer) -> frozenset[int]:
    """Return the ids that end a turn: the renderer's, and those of the model's generation settings."""
    eos = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    also = eos if isinstance(eos, list) else [eos]
    return renderer.end_ids | {i for i in also if i is not None}


class LocalPolicy:
    """`records.protocols.Policy` for a model in this process, which may be under training.

    Nothing is copied, and adapters stay unmerged. The model is in eval mode while it acts, and returns to its mode afterwards.
    Caches belong to the current weights: when they change, create another policy. Act under the trainer's autocast, if it uses
    one, or the log-probs differ.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        renderer: Renderer,
        sampling: Sampling,
        *,
        seed: int = 0,
        products: ProductForms = IN_PROCESS,
        weight_version: int | None = None,
    ) -> None:
        # peft's wrapper only hides the signature of the forward pass; adapters are inside of the layers.
        self._model = loaded.model.get_base_model() if is_adapter(loaded.model) else loaded.model
        self._context = loaded.context_tokens
        self._renderer = renderer
        self._sampling = sampling
        self._seed = seed
        self._products = products
        self._weight_version = weight_version
        self._device = loaded.model.device
        self._episodes: dict[str, Episode] = {}
        self._ends = end_ids(self._model, renderer)
        self._end_ids = torch.tensor(sorted(self._ends), device=self._device)
        self._decoder = Decoder.of(self._model, self._context)
        self.on_share: Callable[[float, int], None] | None = None
        """See `records.protocols.ReportsShare`: the share is of the longest turn that is possible."""
        self._wait_steps = 1 if self._device.type == "cpu" else _CHECK_STEPS
        """Steps after which the host waits for the device, to drop finished rows."""
        self._side_by_side = self._decoder.caching == "batched"
        self.precision = {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(self._model.dtype, "fp32")
        """Number format of the weights."""
        self.warnings = loaded.warnings
        """Warnings for the user."""
        if self._decoder.caching == "single":
            self.warnings += (
                f"this model ({self._model.config.model_type}) has a cache that cannot be padded, so its episodes act one at a time: "
                "the result is right, but the time grows with the number of episodes; choose a model with attention alone where "
                "speed matters",
            )
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
        episodes = [
            Episode.of_turn(turn, self._episodes, self._renderer, self._sampling, self._context) for turn in turns
        ]
        with eval_mode(self._model), torch.no_grad(), self._products.applied(self._model):
            # Once, or again where the cached keys become invalid within a turn.
            while unfinished := [e for e in episodes if e.left]:
                groups = self._batches(unfinished)
                for n_done, group in enumerate(groups):
                    n_tokens = sum(len(episode.turn) for episode in episodes)
                    self._decode(group, partial(self._report, n_done, len(groups), n_tokens))
        return [
            e.reply(self._renderer, self._ends, self._weight_version) if e.turn else Reply(text="", stop=Stop.CONTEXT)
            for e in episodes
        ]

    def close(self, episode_id: str) -> None:
        """Free an episode; unknown ids are ignored."""
        self._episodes.pop(episode_id, None)

    def _batches(self, acting: Sequence[Episode]) -> list[list[Episode]]:
        """Return the episodes in groups that can be decoded together: with the same rotary factors, or each alone."""
        groups: dict[Any, list[Episode]] = {}
        for episode in acting:
            factors = self._decoder.rotary.factors_of(len(episode.ids))
            if episode.row.batch and episode.row.batch.factors != factors:
                episode.row = Row()
            groups.setdefault(factors if self._side_by_side else id(episode), []).append(episode)
        for group in groups.values():
            opened = [episode for episode in group if not episode.row.length]
            if len(opened) > 1:
                self._read_openings(opened)
        return list(groups.values())

    def _read_openings(self, episodes: Sequence[Episode]) -> None:
        """Read the shared prefix of some episodes once, then each opening that several of them have."""
        openings = list(dict.fromkeys(tuple(e.ids) for e in episodes))
        factors = self._decoder.rotary.factors_of(len(episodes[0].ids))
        rows = [Row() for _ in openings]
        shared = min(shared_prefix(*openings), *(len(opening) - 1 for opening in openings))
        if len(openings) > 1 and shared >= _SHARED_PREFIX:
            batch, _ = self._decoder.read([Row()], [openings[0][:shared]], factors)
            rows = [batch.row(0) for _ in openings]
        # The last token is fed in the first turn, which gives the first logits.
        if len(openings) < len(episodes) and any(
            len(o) - 1 > row.length for o, row in zip(openings, rows, strict=True)
        ):
            places = [i for i, opening in enumerate(openings) if len(opening) - 1 > rows[i].length]
            batch, _ = self._decoder.read([rows[i] for i in places], [openings[i][:-1] for i in places], factors)
            for place, i in enumerate(places):
                rows[i] = batch.row(place)
        row_of = dict(zip(openings, rows, strict=True))
        for episode in episodes:
            episode.row = row_of[tuple(episode.ids)]

    def _report(self, n_done: int, n_groups: int, n_before: int, share: float, n_tokens: int) -> None:
        """Report the share of all groups of episodes that is answered, and the tokens of all."""
        if self.on_share is not None:
            self.on_share((n_done + share) / n_groups, n_before + n_tokens)

    def _decode(self, acting: Sequence[Episode], report: Callable[[float, int], None]) -> None:
        """Read the new tokens of these episodes, and decode their turns as far as their keys are valid.

        Args:
            acting: Episodes that can be decoded together.
            report: Receives the share of the longest possible turn, and the tokens written.
        """
        factors = self._decoder.rotary.factors_of(len(acting[0].ids))
        batch, logits = self._decoder.read([e.row for e in acting], [e.ids for e in acting], factors)
        lengths = [self._decoder.rotary.room(len(e.ids), e.left) for e in acting]
        generation = Generation(batch, lengths, self._device)
        draws = self._draws(acting, max(lengths))
        limits = TokenLimits(self._sampling.top_p, self._sampling.top_k, self._sampling.min_p)
        fixed: StaticSteps | None = None
        while True:
            rows, step = generation.rows, generation.steps
            own = None if draws is None else Draws(draws.uniform[rows, step], draws.temperature[rows], draws.plain)
            token, logprob = pick(logits, own, limits)
            generation.add(token, logprob, torch.isin(token, self._end_ids))
            if generation.steps == max(lengths):
                break
            if generation.steps % _CHECK_STEPS == 0:
                generation.stop([i for i, ids in generation.unfinished().items() if self._is_over(acting[i], ids)])
            if generation.steps % self._wait_steps == 0:
                if fixed is not None:
                    fixed.settle()
                if not generation.drop_finished():
                    break
                if self.on_share is not None:
                    report(generation.steps / max(lengths), generation.n_tokens)
            if fixed is not None and fixed.batch is not generation.batch:
                fixed = None
            left = max(lengths) - generation.steps
            if self._decoder.static and fixed is None and left >= _FEWEST_STATIC:
                fixed = StaticSteps(self._model, generation.batch, left)
            following = generation.next_tokens()
            logits = self._decoder.step(generation.batch, following) if fixed is None else fixed(following)
        if fixed is not None:
            fixed.settle()
        for episode, generated in zip(acting, generation.results([len(e.ids) for e in acting]), strict=True):
            episode.row = generated.row
            episode.add_tokens(generated.tokens, generated.logprobs, self._renderer, self._ends)

    def _draws(self, acting: Sequence[Episode], width: int) -> Draws | None:
        """Return random numbers seeded by episode and turn, with temperatures; None if all rows are greedy."""
        if not any(episode.temperature for episode in acting):
            return None
        drawn = torch.zeros(len(acting), width, dtype=torch.float64)
        temperature = torch.zeros(len(acting), dtype=torch.float64)
        for row, episode in enumerate(acting):
            stream = torch.Generator().manual_seed(episode.turn_seed(self._seed))
            done = len(episode.turn)
            drawn[row] = torch.rand(done + width, generator=stream, dtype=torch.float64)[done:]
            temperature[row] = episode.temperature
        dtype = widest_float(self._device)
        plain = all(episode.temperature in (0, 1) for episode in acting)
        return Draws(drawn.to(self._device, dtype), temperature.to(self._device, dtype), plain)

    def _is_over(self, episode: Episode, tokens: Sequence[int]) -> bool:
        """Whether the text of the turn with these further tokens is complete."""
        text = episode.text(self._renderer, self._ends, tokens)
        return self._renderer.turn_end(text, episode.tools) is not None
