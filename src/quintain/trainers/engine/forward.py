"""The engine: exact log-probabilities of supervised tokens and their gradients.

The packed path lays the rows of a forward pass out as one sequence in which each shared prefix occurs once, computes the last
block and the head only where they are read, and never stores the logits. A check at the start compares it with the model's own
padded forward pass; a model that disagrees takes the padded path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from quintain.errors import InvalidInput
from quintain.trainers.data.streams import TokenRow, token_row
from quintain.trainers.engine import head as output
from quintain.trainers.engine.attention import (
    Kernel,
    Layout,
    attention_configs,
    enable_checkpointing,
    is_checkpointed,
    kept_bytes,
    kernels_for,
    packed_attention_in,
)
from quintain.trainers.engine.causality import layer_windows, picked_keys, reads_ahead, shorter_windows
from quintain.trainers.engine.embeddings import embedding_noise
from quintain.trainers.engine.flex import BLOCK
from quintain.trainers.engine.flops import useful_flops
from quintain.trainers.engine.head import AS_COMPUTED, LogitShape, ShapedHead
from quintain.trainers.engine.head import TokenScores as TokenScores
from quintain.trainers.engine.packing import computed_tokens, group_by_length, pack
from quintain.trainers.engine.pruning import block_pruned, last_block, query_runs
from quintain.trainers.engine.rotary import PADDING, Rotary
from quintain.trainers.engine.self_check import (
    CHECK_WINDOW,
    MISFITS,
    apart,
    first_that_agrees,
    own_states,
    padded_inputs,
    probes,
)
from quintain.trainers.models.adapters import first_line
from quintain.trainers.models.loading import decoder_and_head, eval_mode, is_adapter
from quintain.trainers.models.value_head import ValueHead, head_of


class Cost(NamedTuple):
    """Cost of a forward and backward pass over some rows."""

    logical_tokens: int
    """Tokens of the rows."""
    computed_tokens: int
    """Tokens that the engine computes: fewer with shared prefixes, more with padding."""
    supervised_tokens: int
    flops: float
    """Useful floating-point operations, without padding, sharing or recomputation."""


class _Hidden(NamedTuple):
    """Input of the head."""

    head: Any
    states: torch.Tensor
    """float [m, h]"""
    source: torch.Tensor
    """int64 [N]"""
    target: torch.Tensor
    """int64 [N]"""


@dataclass(frozen=True, eq=False)
class Engine:
    """Log-probs of supervised tokens under one model, or values of its value head.

    The model is patched only inside of a call; between calls it decodes, saves and trains as usual. Rows that share a prefix
    share its dropout mask.
    """

    model: Any
    path: Literal["packed", "padded"]
    pruned: bool
    """Whether the last block computes only the rows that are read."""
    shares: bool
    """Whether the tokens of shared prefixes are computed once."""
    reason: str | None = None
    """Why the model does not take the fastest path; None if it does."""
    autocast: torch.dtype | None = None
    noise: float = 0.0
    """Alpha of `embedding_noise` while the model is trained."""
    whole_logits: bool = False
    """Padded path: whether the logits differ from head(hidden states)."""
    logit_shape: LogitShape = AS_COMPUTED
    """Transformation of the output of the model's head."""
    kernel: Kernel | None = None
    """Kernel of packed attention; None: the one of the device that needs no check."""
    gathered: Callable[[Callable[[], Any]], Any] | None = None
    """Runs a pass over a sharded model; then each call is one pass, because all ranks must make the same number."""

    @staticmethod
    def of(
        model: Any,
        *,
        share_prefixes: bool = True,
        gradient_checkpointing: bool = False,
        autocast: torch.dtype | None = None,
        noise: float = 0.0,
    ) -> Engine:
        """Return the fastest engine that agrees with the model's own padded forward pass on a few short rows.

        The model's mode and the random number generators stay unchanged.

        Raises:
            InvalidInput: The model is not causal (`not_causal`).
        """
        whole = model.get_base_model() if is_adapter(model) else model
        checkpointed = gradient_checkpointing or is_checkpointed(whole)
        fastest = Engine(model, "packed", pruned=not checkpointed, shares=share_prefixes)
        with eval_mode(model), torch.no_grad():
            if reads_ahead(model):
                raise InvalidInput(
                    f"expected a causal language model, got a {type(whole).__name__} that reads the tokens it should predict; "
                    "choose a causal model, or set is_decoder to true in the config.json of a BERT-like one",
                    code="not_causal",
                )
            engine = _with_fastest_kernel(replace(_checked(fastest), autocast=autocast, noise=noise))
        if checkpointed:
            enable_checkpointing(whole, attention_configs(whole))
        return engine

    def logprobs(self, rows: Sequence[TokenRow], *, entropy: bool = False, collision: bool = False) -> TokenScores:
        """Return differentiable log-probs of the supervised tokens, in the order of `streams.streams_of`."""
        return self._run(lambda: output.logprobs(*self._hidden(rows), entropy=entropy, collision=collision))

    def predicted(self, rows: Sequence[TokenRow]) -> output.TokenPredictions:
        """Return log-probs of the supervised tokens, and whether each is the most likely one, in the order of `streams_of`."""
        predicted: output.TokenPredictions = self._run(lambda: output.are_most_likely(*self._hidden(rows)))
        return predicted

    def nll(self, rows: Sequence[TokenRow], weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return -sum(weight * logprobs), whose gradient is formed in the forward pass, and the detached log-probs.

        For losses that are linear in the log-probs, where it is faster than `logprobs`.

        Returns:
            Scalar (float64 except on MPS) for one backward pass, and float32 [N].
        """
        return self._run(lambda: output.nll(*self._hidden(rows), weight.to(self._device)))

    def states(self, rows: Sequence[TokenRow]) -> torch.Tensor:
        """Return hidden states, float [N, h], of the tokens before the marked ones, in the order of `streams.streams_of`.

        Raises:
            InvalidInput: The model does not expose its hidden states.
        """
        return self._run(lambda: self._read(rows))

    def values(self, rows: Sequence[TokenRow]) -> torch.Tensor:
        """Return the values of the value head at these states, float [N, K]; differentiable.

        Raises:
            InvalidInput: The model has no value head, or does not expose its hidden states.
        """
        head, reader = self._value_head(), self._critic or self
        return self._run(lambda: head(reader._read(rows)))

    def scores_and_values(self, rows: Sequence[TokenRow], *, frozen: bool = False) -> TokenScores:
        """Return log-probs, entropies and values of the supervised tokens from one forward pass.

        With `frozen`, only the value head and its own trunk get gradients.

        Raises:
            InvalidInput: As `values`.
        """
        values, critic = self._value_head(), self._critic

        def work() -> TokenScores:
            with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
                hidden = self._hidden(rows)
                scores = output.logprobs(*hidden, entropy=True)
                if critic is None:
                    states = self._read(rows) if self.whole_logits else hidden.states[hidden.source]
            return scores._replace(values=values(states if critic is None else critic._read(rows)))

        return self._run(work)

    def _value_head(self) -> ValueHead:
        head = head_of(self.model)
        if head is None:
            raise InvalidInput(
                "expected a model with a value head, got one without; train it with method 'reward', 'prm' or 'ppo'"
            )
        return head

    def idle(self) -> torch.Tensor:
        """Return zero by a pass over one token, for a rank without rows."""
        rows = [token_row([0, 0], [False, True])]
        head = head_of(self.model)
        if head is not None and head.is_critic:
            scored = self.scores_and_values(rows)
            assert scored.values is not None
            return (scored.logprobs.sum() + scored.values.sum()) * 0.0
        return (self.values(rows) if head else self.logprobs(rows).logprobs).sum() * 0.0

    def cost(self, rows: Sequence[TokenRow], *, head: bool = True) -> Cost:
        """Return tokens and useful FLOPs of a forward and backward pass over the rows; without `head`, up to the hidden states."""
        logical, supervised = sum(map(len, rows)), sum(row.n_supervised for row in rows)
        if self.path == "packed":
            computed = computed_tokens(self._rotary.with_factors(rows), share=self.shares)
        else:
            computed = sum(len(group) * max(len(rows[i]) for i in group) for group in self._together(rows))
        flops = useful_flops(self.model, rows, self._windows, head=head)
        return Cost(logical, computed, supervised, flops)

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def _kernel(self) -> Kernel:
        return self.kernel or kernels_for(self._device)[-1]

    @cached_property
    def _windows(self) -> dict[int, int | None]:
        return layer_windows(decoder_and_head(self.model)[0].config) or {}

    @cached_property
    def _rotary(self) -> Rotary:
        return Rotary.of(self.model)

    @cached_property
    def _critic(self) -> Engine | None:
        """The engine of the value head's own trunk; None where it reads the model's states."""
        head = head_of(self.model)
        if head is None or head.trunk is None:
            return None
        checkpoints = is_checkpointed(self.model)
        return Engine.of(
            head.trunk, share_prefixes=self.shares, gradient_checkpointing=checkpoints, autocast=self.autocast
        )

    def precision(self) -> AbstractContextManager[object]:
        """Return the context of the engine's number format, for code that must compute alike."""
        return torch.autocast(self._device.type, self.autocast) if self.autocast else nullcontext()

    def _run(self, work: Callable[[], Any]) -> Any:
        with self.precision():
            return self.gathered(work) if self.gathered else work()

    def _hidden(self, rows: Sequence[TokenRow]) -> _Hidden:
        return self._packed(rows) if self.path == "packed" else self._padded(rows)

    def _read(self, rows: Sequence[TokenRow]) -> torch.Tensor:
        # The states are read directly, so logits that differ from head(states) do not matter.
        engine = replace(self, whole_logits=False) if self.whole_logits else self
        try:
            decoder_and_head(self.model)
        except AttributeError as error:
            raise InvalidInput(
                f"cannot read the hidden states of a {type(self.model).__name__}, which a value head needs ({first_line(error)}); use "
                "a model whose class has get_decoder",
                code="no_hidden_states",
            ) from None
        hidden = engine._hidden(rows)
        return hidden.states[hidden.source]

    def _decoder_and_head(self) -> tuple[Any, Any]:
        decoder, head = decoder_and_head(self.model)
        return decoder, head if self.logit_shape == AS_COMPUTED else ShapedHead(head, self.logit_shape)

    def _packed(self, rows: Sequence[TokenRow]) -> _Hidden:
        decoder, head = self._decoder_and_head()
        plan = pack(self._rotary.with_factors(rows), share=self.shares)
        plan, factors = self._rotary.without_factors(plan.padded(BLOCK) if self._kernel == "flex" else plan)
        if not len(plan.token_ids):  # nothing supervised: no rows of hidden states, and a loss of zero
            nothing = torch.zeros(0, decoder.config.hidden_size, device=self._device, requires_grad=True)
            return _Hidden(head, nothing, plan.source.to(self._device), plan.target.to(self._device))
        runs = query_runs(plan) if self.pruned else ()
        plan = plan.to(self._device)
        layout = Layout(plan.segments, self._kernel, self._windows, kept_bytes(decoder))
        with ExitStack() as stack:
            stack.enter_context(packed_attention_in(attention_configs(decoder)))
            stack.enter_context(self._rotary.factors_by_row(factors.to(self._device)))
            stack.enter_context(embedding_noise(self.model, self.noise, plan.row_lengths))
            if self.pruned:
                stack.enter_context(block_pruned(last_block(decoder), plan.select, runs))
            ids, positions = plan.token_ids.unsqueeze(0), plan.positions.unsqueeze(0)
            states = decoder(input_ids=ids, position_ids=positions, use_cache=False, packed=layout).last_hidden_state[0]
        if not self.pruned:
            states = states.index_select(0, plan.select)
        return _Hidden(head, states, plan.source, plan.target)

    def _padded(self, rows: Sequence[TokenRow]) -> _Hidden:
        """Compute rows of similar length together, and select the states that predict supervised tokens."""
        decoder, head = self._decoder_and_head() if not self.whole_logits else (None, torch.nn.Identity())
        ends = np.cumsum([row.n_supervised for row in rows])
        states, which = [], []
        for group in self._together(rows):
            batch = padded_inputs([rows[i] for i in group], self._device)
            factors = torch.tensor([[self._rotary.factors_of(len(rows[i]))] for i in group], device=self._device)
            noise = embedding_noise(self.model, self.noise, batch["attention_mask"].sum(1, keepdim=True))
            with noise, self._rotary.factors_by_row(factors.where(batch["attention_mask"].bool(), PADDING)):
                output_states = self.model(**batch).logits if decoder is None else decoder(**batch).last_hidden_state
            width = output_states.shape[1]
            places = np.concatenate([at * width + rows[i].places - 1 for at, i in enumerate(group)])
            states.append(output_states.flatten(0, 1).index_select(0, torch.from_numpy(places).to(self._device)))
            which += [np.arange(ends[i] - rows[i].n_supervised, ends[i]) for i in group]
        source = torch.from_numpy(np.argsort(np.concatenate(which))).to(self._device)
        target = np.concatenate([row.token_ids[row.places] for row in rows]).astype(np.int64)
        return _Hidden(head, torch.cat(states), source, torch.from_numpy(target).to(self._device))

    def _together(self, rows: Sequence[TokenRow]) -> list[list[int]]:
        """Return the groups of rows that are padded together."""
        return [list(range(len(rows)))] if self.gathered else group_by_length(rows, picked_keys(self.model.config))


def _checked(engine: Engine) -> Engine:
    """Return the fastest engine that agrees with the model, whose sliding windows are shortened for the comparison."""
    rows = probes(engine.model)
    padded = replace(engine, path="padded", pruned=False, shares=False)
    with shorter_windows(engine.model, CHECK_WINDOW):
        try:
            own = own_states(engine.model, rows)
        except MISFITS as error:
            return replace(
                padded, whole_logits=True, reason=f"its decoder and head cannot be separated: {first_line(error)}"
            )
        if own is None:
            return replace(padded, whole_logits=True, reason="its logits are not head(hidden states)")
        states, shape = own
        engine, padded = replace(engine, logit_shape=shape), replace(padded, logit_shape=shape)
        decoder, _ = decoder_and_head(engine.model)
        windows = layer_windows(decoder.config)
        if windows is None:
            return replace(padded, reason="it has layers with recurrent states, selected keys or local windows")
        if longest := max((window for window in windows.values() if window and window > CHECK_WINDOW), default=0):
            return replace(
                padded, reason=f"it has layers with windows of {longest} tokens that the check cannot shorten"
            )
        reason = None
        if engine.pruned and last_block(decoder) is None:
            engine = replace(engine, pruned=False)
            if len(getattr(decoder, "layers", "?")):  # a new trunk has no blocks, and loses nothing
                reason = "its last block has another shape than those that can be pruned"
        problem = _disagreement(engine, rows, states)
        if problem and engine.pruned:
            engine, reason = replace(engine, pruned=False), f"its last block cannot be pruned: {problem}"
            problem = _disagreement(engine, rows, states)
        return replace(padded, reason=problem) if problem else replace(engine, reason=reason)


def _with_fastest_kernel(engine: Engine) -> Engine:
    """Return the engine with the fastest kernel whose states and gradients agree with those of the one that needs no check.

    The rows are longer than two blocks of a mask, the sliding windows shorter. Gradients count because a kernel may drop a part of
    them without an error.
    """
    faster = kernels_for(engine._device)[:-1] if engine.path == "packed" else ()
    if not faster:
        return engine
    rows = probes(engine.model, stretch=6)

    def states(kernel: Kernel | None) -> torch.Tensor:
        return replace(engine, kernel=kernel)._hidden(rows).states

    with shorter_windows(engine.model, CHECK_WINDOW), engine.precision():
        kernel, problems = first_that_agrees(engine.model, states, faster)
    reasons = [*([engine.reason] if engine.reason else []), *problems]
    return replace(engine, kernel=kernel, reason="; ".join(reasons) or None)


def _disagreement(engine: Engine, rows: Sequence[TokenRow], own: torch.Tensor) -> str | None:
    """Return how the engine's hidden states differ from the model's own; None if they agree."""
    try:
        hidden = engine._hidden(rows)
    except MISFITS as error:
        return first_line(error)
    return apart(hidden.states[hidden.source], own)
