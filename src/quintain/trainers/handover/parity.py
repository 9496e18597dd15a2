"""Parity of exported files with the agent, on a few rendered turns and random tokens.

The agent is measured as it was trained, its adapter beside the weights, so that a wrong merge shows as well as a wrong file.
Log-probs are compared token by token. For the greedy continuation, the agent's tokens are fed to the exported model, which continues
alike where each of them is its most likely token too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from quintain.errors import Conflict, InvalidInput
from quintain.records.agent import Agent, Sampling
from quintain.records.jobs.handover import Parity
from quintain.records.protocols import Message, Turn
from quintain.records.trajectory import Action
from quintain.trainers.acting.policy import LocalPolicy
from quintain.trainers.engine.machine import products_of
from quintain.trainers.models.loading import LoadedModel, decoder_and_head, eval_mode
from quintain.trainers.models.value_head import head_of
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.rendering.template_probe import PROBE_TOOLS

BOUNDS = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.15}
"""Maximum difference of a token's log-prob l, in nats for each max(1, -l), by the coarser of the stored and the computed format.

Rounding moves the log-prob of an unlikely token more, because its logit is far from the others. A number is rounded by up to 2^-24
(float32), 2^-11 (float16) or 2^-8 (bfloat16) of itself. For the embedded model with random adapters (rank 8, standard deviations
from 0.005 to 0.05) the largest share of the bound in use was 0.2 (float32), 0.33 (float16) and 0.22 (bfloat16).
"""

_GREEDY_TOKENS = 16
_RANDOM_TOKENS = 64
_MOST_TOKENS = 512
"""Maximum tokens of a probe row; longer prompts are cut."""

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    ' \t  indented\n\n\ntext,  with   spaces \r\n and "quotes" {"a": [1, 2.50, null]}',
    "Ünïcödé, 日本語, العربية, emoji 👩‍🚀, e\u0301 and \u00e9",
    "def f(x):\n    return x ** 2  # 12345678901234567890",
)


class Measurement(NamedTuple):
    """Measurements of a model on the probe rows."""

    logprobs: list[torch.Tensor]
    """float64 [t - 1] on the CPU, of each row's tokens after the first."""
    gaps: torch.Tensor
    """float64 [g]: difference of each continuation token to the most likely one; 0 if it is that one."""
    values: list[torch.Tensor]
    """float64 [t, K] of each row; empty without a value head."""


@dataclass(frozen=True)
class Probes:
    """Inputs for both models."""

    conversations: tuple[tuple[Message, ...], ...]
    rows: tuple[tuple[int, ...], ...]
    """The last one is an opening and the agent's greedy continuation of it."""
    n_greedy: int

    @staticmethod
    def of(agent: Agent, own: LoadedModel, renderer: Renderer) -> Probes:
        """Create two rendered conversations, random tokens, and the agent's continuation of the first conversation."""
        system = Message(
            role="system", content=(agent.system_prompt or "You answer with the tools that you have.")[:2000]
        )
        user = Message(role="user", content=f"{TEXTS[0]} {TEXTS[2]}")
        call = Action(tool="probe_tool", args={"text": "mango", "n": 3})
        reply = Message(role="assistant", thought="I look it up first.", actions=(call,))
        result = Message(role="tool", content='{"price": 40, "stock": 7}')
        conversations = ((system, user), (system, user, reply, result))
        most = min(_MOST_TOKENS, own.context_tokens)
        openings = [renderer.opening(messages, PROBE_TOOLS) for messages in conversations]
        written = _continuation(own, renderer, conversations[0])
        # The continuation needs its whole prompt.
        rows = (openings[1][:most], _random_ids(own.tokenizer, most), (openings[0] + written)[: own.context_tokens])
        return Probes(conversations, tuple(map(tuple, rows)), len(written))


def measure(loaded: LoadedModel, probes: Probes) -> Measurement:
    """Measure a model on the probe rows one by one, without padding."""
    head = head_of(loaded.model)
    logprobs, values, gaps = [], [], torch.zeros(0, dtype=torch.float64)
    with eval_mode(loaded.model), torch.no_grad(), products_of("highest"):
        for row in probes.rows:
            ids = torch.tensor([row], device=loaded.model.device)
            likely = loaded.model(input_ids=ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
            chosen_logprobs = likely.gather(1, ids[0, 1:, None])[:, 0]
            logprobs.append(chosen_logprobs.cpu().double())
            gaps = (likely.max(-1).values - chosen_logprobs)[len(row) - 1 - probes.n_greedy :].cpu().double()
            if head is not None:
                states = decoder_and_head(loaded.model)[0](input_ids=ids, use_cache=False).last_hidden_state
                values.append(head(states[0]).cpu().double())
    return Measurement(logprobs, gaps, values)


def compare(own: Measurement, read: Measurement, *, compared_in: torch.dtype, stored_in: torch.dtype) -> Parity:
    """Compare the exported model with the agent; `equal_ids` and `equal_renderings` are filled in later.

    Raises:
        Conflict: A log-prob, a continuation token or a value differs by more than the bound (`parity_failed`).
    """
    bound = max(BOUNDS.get(dtype, BOUNDS[torch.bfloat16]) for dtype in (compared_in, stored_in))
    before, after = torch.cat(own.logprobs), torch.cat(read.logprobs)
    differences = (before - after).abs()
    relative = differences / (-before).clamp(min=1)
    if not bool((relative <= bound).all()):  # NaN fails
        raise parity_error(
            f"a token's log-prob differs by up to {float(differences.max()):.3g}, more than {bound:g} allows"
        )
    # Two most likely tokens may swap only if they are equal up to the bound on each.
    if not bool((read.gaps <= 2 * bound).all()):
        place = int((read.gaps > 2 * bound).nonzero()[0])
        raise parity_error(f"greedy decoding differs from token {place + 1} of {len(read.gaps)} on")
    equal = int((read.gaps == 0).long().cumprod(0).sum())
    values = [float((a - b).abs().max()) for a, b in zip(own.values, read.values, strict=True)]
    scale = max([1.0, *(float(a.abs().max()) for a in own.values)])
    if not max(values, default=0.0) <= bound * scale:
        raise parity_error(f"the value head's output differs by {max(values):.3g}, more than {bound * scale:g}")
    return Parity(
        compared_in=name_of(compared_in),
        stored_in=name_of(stored_in),
        bound=bound,
        bounded=float(relative.max()),
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
    """Check that the exported tokenizer gives the agent's ids for some texts and conversations; count them.

    Raises:
        Conflict: Ids differ (`parity_failed`).
    """
    own = renderer.tokenizer
    spelled = "".join(token.content for token in own.added_tokens_decoder.values())
    texts = (*TEXTS, spelled)
    for text in texts:
        if own.encode(text, verbose=False) != tokenizer.encode(text, verbose=False):
            raise parity_error(f"the tokenizer gives other ids for {text[:40]!r}")
    try:
        other = Renderer.of(tokenizer, agent.template)
    except InvalidInput as error:
        raise parity_error(f"the chat template cannot be used: {error.message}") from None
    if other.fingerprint != renderer.fingerprint:
        raise parity_error("tokenizer or chat template differ from the agent's (by their fingerprints)")
    for messages in probes.conversations:
        if other.opening(messages, PROBE_TOOLS) != renderer.opening(messages, PROBE_TOOLS):
            raise parity_error("the chat template renders a conversation differently")
    return {"equal_ids": len(texts), "equal_renderings": len(probes.conversations)}


def name_of(dtype: torch.dtype) -> str:
    """`float32`, `bfloat16`, ..."""
    return str(dtype).removeprefix("torch.")


def parity_error(what: str) -> Conflict:
    """Return the error of files that differ from the agent."""
    return Conflict(
        f"the exported files differ from the agent: {what}. They were removed and the agent is unchanged; export it in the other "
        "format, and report this with the job's log",
        code="parity_failed",
    )


def _continuation(own: LoadedModel, renderer: Renderer, messages: Sequence[Message]) -> list[int]:
    """Return the agent's greedy continuation; empty if its context is full."""
    policy = LocalPolicy(own, renderer, Sampling(temperature=0.0, max_new_tokens=_GREEDY_TOKENS))
    (reply,) = policy.act([Turn(episode_id="probe", messages=tuple(messages), tools=PROBE_TOOLS)])
    return list(reply.sampled.token_ids) if reply.sampled else []


def _random_ids(tokenizer: Any, most: int) -> list[int]:
    """Return ordinary tokens, always the same: special ones may stand for pictures."""
    special = set(tokenizer.added_tokens_decoder)
    ordinary = torch.tensor([i for i in range(len(tokenizer)) if i not in special])
    chosen = torch.randint(len(ordinary), (min(_RANDOM_TOKENS, most),), generator=torch.Generator().manual_seed(0))
    picked: list[int] = ordinary[chosen].tolist()
    return picked
