"""Is what was written the agent? Its files, read back, beside the agent on a few rendered turns and random tokens.

The agent is measured as it was trained, its adapter beside the weights, so that a wrong merge shows as well as a wrong file.
Log-probs are compared token by token. For the greedy continuation the agent's own tokens are fed to what was read back:
it continues alike exactly where each of them is its most likely token too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from quintain.errors import Conflict, InvalidInput
from quintain.records.agent import Agent, Sampling
from quintain.records.handover import Parity
from quintain.records.seams import Message, Turn
from quintain.records.trajectory import Action
from quintain.trainers.acting.policy import live_policy
from quintain.trainers.engine.machine import default_products
from quintain.trainers.models import LoadedModel, decoder_and_head, eval_mode
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.rendering.template_probe import PROBE_TOOLS
from quintain.trainers.value_head import head_of

BOUNDS = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.15}
"""Most that a token's log-prob l may differ, in nats for each max(1, -l), by the coarser of the formats stored and computed in.

Of an unlikely token rounding moves the log-prob more: its logit lies far from the others'. A number is rounded by up to 2^-24
(float32), 2^-11 (float16) or 2^-8 (bfloat16) of itself. For the embedded model with random adapters (rank 8, standard deviations
from 0.005 to 0.05) the largest share of the bound in use was 0.2 (float32), 0.33 (float16) and 0.22 (bfloat16).
"""

_GREEDY_TOKENS = 16
_RANDOM_TOKENS = 64
_MOST_TOKENS = 512
"""Of a probe row; longer prompts are cut."""

_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    ' \t  indented\n\n\ntext,  with   spaces \r\n and "quotes" {"a": [1, 2.50, null]}',
    "Ünïcödé, 日本語, العربية, emoji 👩‍🚀, e\u0301 and \u00e9",
    "def f(x):\n    return x ** 2  # 12345678901234567890",
)


class Measured(NamedTuple):
    """What a model says of the probe rows."""

    logprobs: list[torch.Tensor]
    """float64 [t - 1] on the CPU, of each row's tokens after the first."""
    gaps: torch.Tensor
    """float64 [g]: how far each token of the continuation is below the most likely one; 0 where it is that itself."""
    values: list[torch.Tensor]
    """float64 [t, K] of each row where there is a value head; else none."""


@dataclass(frozen=True)
class Probes:
    """What both are asked."""

    conversations: tuple[tuple[Message, ...], ...]
    rows: tuple[tuple[int, ...], ...]
    """The last one is an opening and the agent's greedy continuation of it."""
    n_greedy: int

    @staticmethod
    def of(agent: Agent, own: LoadedModel, renderer: Renderer) -> Probes:
        """Two rendered conversations, random tokens, and what the agent itself writes next in the first."""
        system = Message(
            role="system", content=(agent.system_prompt or "You answer with the tools that you have.")[:2000]
        )
        user = Message(role="user", content=f"{_TEXTS[0]} {_TEXTS[2]}")
        call = Action(tool="probe_tool", args={"text": "mango", "n": 3})
        acted = Message(role="assistant", thought="I look it up first.", actions=(call,))
        seen = Message(role="tool", content='{"price": 40, "stock": 7}')
        conversations = ((system, user), (system, user, acted, seen))
        most = min(_MOST_TOKENS, own.context_tokens)
        openings = [renderer.opening(messages, PROBE_TOOLS) for messages in conversations]
        written = _continuation(own, renderer, conversations[0])
        # The agent must have seen all that stands before what it wrote.
        rows = (openings[1][:most], _random_ids(own.tokenizer, most), (openings[0] + written)[: own.context_tokens])
        return Probes(conversations, tuple(map(tuple, rows)), len(written))


def measure(loaded: LoadedModel, probes: Probes) -> Measured:
    """What a model says of the probe rows; without padding, one by one."""
    head = head_of(loaded.model)
    logprobs, values, gaps = [], [], torch.zeros(0, dtype=torch.float64)
    with eval_mode(loaded.model), torch.no_grad(), default_products():
        for row in probes.rows:
            ids = torch.tensor([row], device=loaded.model.device)
            likely = loaded.model(input_ids=ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
            said = likely.gather(1, ids[0, 1:, None])[:, 0]
            logprobs.append(said.cpu().double())
            gaps = (likely.max(-1).values - said)[len(row) - 1 - probes.n_greedy :].cpu().double()
            if head is not None:
                states = decoder_and_head(loaded.model)[0](input_ids=ids, use_cache=False).last_hidden_state
                values.append(head(states[0]).cpu().double())
    return Measured(logprobs, gaps, values)


def compare(own: Measured, read: Measured, *, compared_in: torch.dtype, stored_in: torch.dtype) -> Parity:
    """How near what was read back is to the agent; `equal_ids` and `equal_renderings` are still to be counted.

    Raises:
        Conflict: a log-prob, a token of the continuation or a value differs by more than the bound (`parity_failed`).
    """
    bound = max(BOUNDS.get(dtype, BOUNDS[torch.bfloat16]) for dtype in (compared_in, stored_in))
    before, after = torch.cat(own.logprobs), torch.cat(read.logprobs)
    differences = (before - after).abs()
    if not bool((differences <= bound * (-before).clamp(min=1)).all()):  # NaN is no parity
        raise _failed(f"a token's log-prob differs by up to {float(differences.max()):.3g}, more than {bound:g} allows")
    # The most likely tokens of the two models may change places only where they are equal but for what each may differ.
    if not bool((read.gaps <= 2 * bound).all()):
        place = int((read.gaps > 2 * bound).nonzero()[0])
        raise _failed(f"greedy decoding parts at token {place + 1} of {len(read.gaps)}")
    equal = int((read.gaps == 0).long().cumprod(0).sum())
    values = [float((a - b).abs().max()) for a, b in zip(own.values, read.values, strict=True)]
    scale = max([1.0, *(float(a.abs().max()) for a in own.values)])
    if not max(values, default=0.0) <= bound * scale:
        raise _failed(f"the value head's numbers differ by {max(values):.3g}, more than {bound * scale:g}")
    return Parity(
        compared_in=name_of(compared_in),
        stored_in=name_of(stored_in),
        bound=bound,
        max_difference=float(differences.max()),
        mean_difference=float(differences.mean()),
        tokens=len(differences),
        greedy_tokens=equal,
        greedy_tie=equal < len(read.gaps),
        max_value_difference=max(values) if values else None,
        equal_ids=0,
        equal_renderings=0,
    )


def count_equal(tokenizer: Any, renderer: Renderer, agent: Agent, probes: Probes) -> dict[str, int]:
    """How many texts and conversations a tokenizer that was read back turns into the same ids as the agent's: all of them.

    Args:
        tokenizer: Read from the files alone.
        renderer: The agent's own.
        agent: Whose template style is asked for.
        probes: Its conversations.

    Raises:
        Conflict: one of them differs (`parity_failed`).
    """
    own = renderer.tokenizer
    spelled = "".join(token.content for token in own.added_tokens_decoder.values())
    texts = (*_TEXTS, spelled)
    for text in texts:
        if own.encode(text, verbose=False) != tokenizer.encode(text, verbose=False):
            raise _failed(f"the tokenizer reads {text[:40]!r} into other ids")
    try:
        other = Renderer.of(tokenizer, agent.template)
    except InvalidInput as error:
        raise _failed(f"the chat template cannot be used: {error.message}") from None
    if other.fingerprint != renderer.fingerprint:
        raise _failed("tokenizer or chat template are not the agent's (their fingerprints differ)")
    for messages in probes.conversations:
        if other.opening(messages, PROBE_TOOLS) != renderer.opening(messages, PROBE_TOOLS):
            raise _failed("the chat template writes a conversation in another way")
    return {"equal_ids": len(texts), "equal_renderings": len(probes.conversations)}


def name_of(dtype: torch.dtype) -> str:
    """`float32`, `bfloat16`, ..."""
    return str(dtype).removeprefix("torch.")


def _failed(what: str) -> Conflict:
    return Conflict(
        f"the files that were written are not the agent: read back, {what}. They were removed; the agent is as it was. Export it in "
        "the other format, and report this with the job's log",
        code="parity_failed",
    )


def _continuation(own: LoadedModel, renderer: Renderer, messages: Sequence[Message]) -> list[int]:
    """What the agent writes next, greedily; nothing where its context is full."""
    policy = live_policy(own, renderer, Sampling(temperature=0.0, max_new_tokens=_GREEDY_TOKENS))
    (reply,) = policy.act([Turn(episode_id="probe", messages=tuple(messages), tools=PROBE_TOOLS)])
    return list(reply.sampled.token_ids) if reply.sampled else []


def _random_ids(tokenizer: Any, most: int) -> list[int]:
    """Ordinary tokens, the same ones every time: special ones may ask a model for a picture."""
    special = set(tokenizer.added_tokens_decoder)
    ordinary = torch.tensor([i for i in range(len(tokenizer)) if i not in special])
    chosen = torch.randint(len(ordinary), (min(_RANDOM_TOKENS, most),), generator=torch.Generator().manual_seed(0))
    picked: list[int] = ordinary[chosen].tolist()
    return picked
