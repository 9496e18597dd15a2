"""Policy that acts by token ids behind an endpoint: prompts are rendered here, and what was sampled is recorded as it came.

The endpoint continues the ids of the episode and returns ids with log-probs, so that training sees what was sampled. Its chat template
and its tokenizer play no part. An answer that continues other ids, or comes from other weights than asked for, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from quintain.endpoints.client import EndpointClient
from quintain.endpoints.completion import Ask, TokenIds, price
from quintain.endpoints.faults import STOPPED, UNANSWERED
from quintain.endpoints.parallel import map_in_parallel
from quintain.errors import InvalidInput, QuintainError, Unavailable
from quintain.records.agent import Sampling
from quintain.records.protocols import Reply, Stop, Turn
from quintain.records.trajectory import SampledTokens, Usage
from quintain.trainers.acting.episode import Episode
from quintain.trainers.rendering.chat_template import shared_prefix
from quintain.trainers.rendering.renderer import Renderer


@dataclass
class ServedWeights:
    """Weights under training on a server, which may change while it samples."""

    name: str
    """Prefix of their labels."""
    version: int = 0
    """Optimizer steps behind the newest ones that the server has."""

    @property
    def label(self) -> str:
        """Label of the newest weights on the server."""
        return f"{self.name}/{self.version}"

    def version_of(self, label: str) -> int | None:
        """Return the version of a label; None for weights of others."""
        name, _, version = label.rpartition("/")
        return int(version) if name == self.name and version.isdecimal() else None


class TokenModel(NamedTuple):
    """Properties of the model behind a policy's endpoint."""

    context_tokens: int
    end_ids: frozenset[int]
    vocabulary: int
    """Ids are below this."""
    weights: ServedWeights | None = None
    """The weights; None: they are not under training."""


class Continuation(NamedTuple):
    """A checked continuation."""

    ids: TokenIds
    versions: tuple[int, ...] | None
    """Optimizer steps behind the weights that sampled each token; None: they are not under training."""
    usage: Usage


class TokenPolicy:
    """`records.protocols.Policy` for a server that continues token ids. Its methods are called from one thread."""

    def __init__(
        self,
        client: EndpointClient,
        renderer: Renderer,
        sampling: Sampling,
        model: TokenModel,
        *,
        seed: int = 0,
        should_stop: Callable[[], bool] = lambda: False,
        tolerance: int = 0,
    ) -> None:
        """Create a policy without episodes.

        Args:
            client: Client that asks for samples.
            renderer: Renders the episodes.
            sampling: Sampling settings.
            model: The model behind the endpoint.
            seed: Part of the seed of every request.
            should_stop: Checked while requests are running.
            tolerance: Number of consecutive unanswered requests that end only their own episodes.
        """
        self._tolerance, self._unanswered = tolerance, 0
        self._client, self._renderer, self._sampling, self._model = client, renderer, sampling, model
        self._seed, self._should_stop = seed, should_stop
        self._episodes: dict[str, Episode] = {}
        self.on_share: Callable[[float, int], None] | None = None
        """See `records.protocols.ReportsShare`."""

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        """Answer the turns concurrently, within the limit of the endpoint's profile; replies are in the order of the turns.

        An episode that no longer fits the context gets `Stop.CONTEXT` and no text.
        """
        context = self._model.context_tokens
        episodes = [Episode.of_turn(turn, self._episodes, self._renderer, self._sampling, context) for turn in turns]
        asked = [episode for episode in episodes if episode.left > 0]
        replies = {id(episode): Reply(text="", stop=Stop.CONTEXT) for episode in episodes}
        replies |= {id(e): Reply(text="", stop=Stop.FAILED, error="the job was asked to stop") for e in asked}
        n_tokens = 0
        answers = map_in_parallel(asked, self._answer, self._client.endpoint.concurrency, self._should_stop)
        for n_answered, (episode, found) in enumerate(answers, 1):
            replies[id(episode)] = self._reply(episode, found)
            n_tokens += len(episode.turn)
            if self.on_share is not None:
                self.on_share(n_answered / len(asked), n_tokens)
        return [replies[id(episode)] for episode in episodes]

    def close(self, episode_id: str) -> None:
        """Free an episode; unknown ids are ignored."""
        self._episodes.pop(episode_id, None)

    def sample(self, episode: Episode) -> Continuation:
        """Return a checked continuation of an episode's ids, at most `episode.left` tokens."""
        sampling = self._sampling
        ask = Ask(
            prompt_ids=tuple(episode.ids),
            temperature=episode.temperature,
            max_tokens=episode.left,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            stop_ids=tuple(sorted(self._model.end_ids)),
            seed=episode.turn_seed(self._seed),
        )
        weights = self._model.weights
        before = weights.version if weights is not None else 0
        completion = self._client.complete(ask)
        found = completion.sampled
        assert found is not None, "a client that asks for samples returns them"
        self._require_same_prompt(found, episode.ids)
        self._require_known_ids(found)
        versions = None if weights is None else self._versions(found, weights, before)
        return Continuation(found, versions, completion.usage)

    def _answer(self, episode: Episode) -> Continuation | QuintainError:
        """Return a continuation, or the error that concerns this request alone. Runs in several threads."""
        try:
            return self.sample(episode)
        except QuintainError as error:
            if error.code not in UNANSWERED:
                raise
            return error

    def _reply(self, episode: Episode, found: Continuation | QuintainError) -> Reply:
        """Return the reply to a continuation, or to its failure."""
        if isinstance(found, QuintainError):
            return self._failure_reply(found)
        self._unanswered = 0
        ids, versions, usage = found
        episode.add_tokens(ids.token_ids, ids.logprobs, self._renderer, self._model.end_ids)
        reply = episode.reply(self._renderer, self._model.end_ids)
        assert reply.sampled is not None, "an episode records what was sampled"
        endpoint = self._client.endpoint
        return reply.model_copy(
            update={
                "sampled": _labelled(reply.sampled, versions),
                "usage": usage,
                "cost_usd": price(endpoint, usage.input_tokens, usage.output_tokens),
            }
        )

    def _failure_reply(self, error: QuintainError) -> Reply:
        if error.code == "too_long":
            return Reply(text="", stop=Stop.CONTEXT)
        if error.code != STOPPED:
            self._unanswered += 1
            if self._unanswered > self._tolerance:
                raise Unavailable(
                    f"{error.message}; check the server, then resume the job: what it has finished is kept",
                    code=error.code,
                )
        return Reply(text="", stop=Stop.FAILED, error=error.message)

    @property
    def _name(self) -> str:
        return f"endpoint {self._client.endpoint.name!r}"

    def _require_same_prompt(self, found: TokenIds, ids: Sequence[int]) -> None:
        if list(found.prompt_ids) == list(ids):
            return
        place = shared_prefix(found.prompt_ids, ids)
        raise InvalidInput(
            f"expected {self._name} to continue the {len(ids)} token ids that were sent, got {len(found.prompt_ids)} in its "
            f"prompt_token_ids, others from place {place} on; use a server that takes token ids as prompt and adds nothing to them",
            code="tokenizer_mismatch",
        )

    def _require_known_ids(self, found: TokenIds) -> None:
        unknown = [token for token in found.token_ids if token >= self._model.vocabulary]
        if found.token_ids and not unknown:
            return
        got = f"id {unknown[0]}" if unknown else "none"
        raise InvalidInput(
            f"expected from {self._name} token ids below {self._model.vocabulary}, got {got}; let it serve the model that is "
            "trained, with its tokenizer",
            code="tokenizer_mismatch",
        )

    def _versions(self, found: TokenIds, weights: ServedWeights, before: int) -> tuple[int, ...]:
        """Return the version of the weights that sampled each token; of a server without labels, that at the time of the request."""
        if not found.versions:
            return (before,) * len(found.token_ids)
        versions = [before] * len(found.token_ids)
        for span in found.versions:
            version = weights.version_of(span.version)
            if version is None or not before <= version <= weights.version:
                raise InvalidInput(
                    f"expected from {self._name} tokens of the weights {weights.label!r}, got tokens of {span.version!r}; let one "
                    "training at a time update its weights",
                    code="other_weights",
                )
            versions[span.start : span.end] = [version] * (span.end - span.start)
        return tuple(versions[: len(found.token_ids)])


def no_answer_error(error: QuintainError) -> Unavailable:
    """Return the error of a job whose server does not answer."""
    return Unavailable(
        f"{error.message}; check the server, then resume the job: its checkpoints are kept", code=error.code
    )


def _labelled(sampled: SampledTokens, versions: Sequence[int] | None) -> SampledTokens:
    """Return the tokens of a turn with the versions of their weights; the turn may end before the last version."""
    if versions is None:
        return sampled
    kept = versions[: len(sampled.token_ids)]
    starts = [place for place, version in enumerate(kept) if place == 0 or version != kept[place - 1]]
    spans = tuple((place, kept[place]) for place in starts)
    return sampled.model_copy(
        update={"weight_version": min(kept, default=None), "weight_spans": spans if len(spans) > 1 else None}
    )
