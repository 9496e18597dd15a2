"""Log-probabilities of the supervised tokens from hidden states, one tile of logits at a time.

With h a hidden state, z = W h its logits and p = softmax(z), the gradient of sum_j w_j log p[t_j] over the targets t_j of
h is sum_j w_j (onehot(t_j) - p). So several targets of one hidden state (where rows branch or coincide) cost one row of
logits. m hidden states, N targets, V tokens in the vocabulary; no tensor is larger than [tile, V] or the weight itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from quintain.trainers.data.streams import widest_float

_TILE_ROWS = 256
"""Fewest hidden states in a tile: below, the products with the weight become slow."""

_TILE_LOGITS = {"cpu": 2**21, "cuda": 2**26}
"""Logits in a tile, by device, where that is more than the fewest rows hold."""


class LogitShape(NamedTuple):
    """Transformation of the output of a model's head: logits are cap * tanh(scale * z / cap), or scale * z without a cap."""

    scale: float = 1.0
    cap: float | None = None

    def of(self, z: torch.Tensor) -> torch.Tensor:
        """Return the logits; differentiable."""
        if self.cap is not None:
            return self.cap * (z * (self.scale / self.cap)).tanh()
        return z if self.scale == 1 else z * self.scale

    def over(self, z: torch.Tensor, *, slope: bool = False) -> tuple[torch.Tensor, torch.Tensor | float]:
        """Write the logits over z, and return them with d logits / dz; without `slope`, a cap's is left out."""
        if self.cap is None:
            return (z if self.scale == 1 else z.mul_(self.scale)), self.scale
        squashed = z.mul_(self.scale / self.cap).tanh_()
        slopes = squashed.square().neg_().add_(1).mul_(self.scale) if slope else self.scale
        return squashed.mul_(self.cap), slopes


AS_COMPUTED = LogitShape()
"""The shape of most models: logits are the output of the head."""


class ShapedHead(NamedTuple):
    """A head whose output the model scales or caps."""

    layer: Any
    shape: LogitShape

    @property
    def out_features(self) -> int:
        """Return the size of the vocabulary."""
        return int(self.layer.out_features)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, float [..., V]."""
        return self.shape.of(self.layer(hidden))


class TokenScores(NamedTuple):
    """Log-probs of the N supervised tokens, and figures of the distributions that predict them."""

    logprobs: torch.Tensor
    """float32 [N], differentiable; float64 from a float64 model."""
    entropy: torch.Tensor | None
    """float32 [N], detached, in nats; None if not requested."""
    collision: torch.Tensor | None = None
    """float32 [N], detached: log sum_v p_v^2, in nats; None if not requested."""
    values: torch.Tensor | None = None
    """float32 [N, K] of the value head at the states before them; None if not requested."""


class _Figures(NamedTuple):
    """The figures of distributions that are requested."""

    entropy: bool
    collision: bool


class TokenPredictions(NamedTuple):
    """Log-probs of the N supervised tokens, and whether greedy decoding would pick them."""

    logprobs: torch.Tensor
    """float32 [N]"""
    first: torch.Tensor
    """bool [N]; True where the token is the most likely one."""


def logprobs(
    head: Any,
    hidden: torch.Tensor,
    source: torch.Tensor,
    target: torch.Tensor,
    *,
    entropy: bool = False,
    collision: bool = False,
) -> TokenScores:
    """Return differentiable log-probs; the backward pass recomputes each tile of logits (4 matrix products).

    Args:
        head: The output layer. A module other than a plain `nn.Linear` without bias is called, tile by tile.
        hidden: float [m, h].
        source: int64 [N]; the row of `hidden` that predicts each target.
        target: int64 [N].
        entropy: Return the entropies as well.
        collision: Return log sum_v p_v^2 as well.
    """
    layer, shape = _layer_and_shape(head)
    wanted = _Figures(entropy, collision)
    if _fusable(layer):
        return TokenScores(*_Logprobs.apply(hidden, layer.weight, source, target, wanted, shape))
    tiles = list(_tiles(source, target, hidden.shape[0], _width(head, hidden)))
    pieces = [
        checkpoint(_through_module, head, hidden[t.start : t.end], t.row, t.target, wanted, use_reentrant=False)
        for t in tiles
    ]
    back = torch.argsort(torch.cat([t.which for t in tiles]))
    return TokenScores(
        torch.cat([piece.logprobs for piece in pieces])[back],
        torch.cat([piece.entropy for piece in pieces])[back] if entropy else None,
        torch.cat([piece.collision for piece in pieces])[back] if collision else None,
    )


def nll(
    head: Any, hidden: torch.Tensor, source: torch.Tensor, target: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return -sum(weight * logprobs) and the detached log-probs; the gradient is formed in the forward pass (3 products).

    Arguments as in `logprobs`, and the weight of each target.

    Returns:
        Scalar, summed in float64 where the device has it, and float32 [N].
    """
    layer, shape = _layer_and_shape(head)
    if torch.is_grad_enabled() and _fusable(layer):
        loss, scores = _NLL.apply(hidden, layer.weight, source, target, weight, shape)
        return loss, scores
    scores = logprobs(head, hidden, source, target).logprobs
    return -_dot(weight, scores), scores.detach()


@torch.no_grad()
def are_most_likely(head: Any, hidden: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> TokenPredictions:
    """Compare the targets with the most likely tokens; arguments as in `logprobs`."""
    likely = torch.zeros(len(target), device=target.device)
    first = torch.zeros(len(target), dtype=torch.bool, device=target.device)
    for tile, logits in _logits(head, hidden, source, target):
        logs = logits.log_softmax(-1)
        likely[tile.which] = logs[tile.row, tile.target].float()
        first[tile.which] = logs.argmax(-1)[tile.row] == tile.target
    return TokenPredictions(likely, first)


@torch.no_grad()
def sample_tokens(head: Any, hidden: torch.Tensor, source: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw a token from each of the distributions that predict the targets; int64 [N]."""
    tokens = torch.zeros_like(source)
    for tile, logits in _logits(head, hidden, source, tokens):
        if len(tile.row):
            tokens[tile.which] = torch.multinomial(logits.softmax(-1)[tile.row], 1, generator=generator)[:, 0]
    return tokens


@torch.no_grad()
def top_tokens(head: Any, hidden: torch.Tensor, source: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k likeliest tokens of each distribution and their log-probs, int64 and float32 [N, k], the likeliest first.

    With fewer than k tokens in the vocabulary, all of them. Arguments as in `sample_tokens`.
    """
    k = min(k, _width(head, hidden))
    tokens = torch.zeros(len(source), k, dtype=torch.long, device=source.device)
    logprobs = torch.zeros(len(source), k, device=source.device)
    for tile, logits in _logits(head, hidden, source, torch.zeros_like(source)):
        found = logits.log_softmax(-1).topk(k)
        tokens[tile.which], logprobs[tile.which] = found.indices[tile.row], found.values[tile.row].float()
    return tokens, logprobs


def _logits(
    head: Any, hidden: torch.Tensor, source: torch.Tensor, target: torch.Tensor
) -> Iterator[tuple[_Tile, torch.Tensor]]:
    """Yield each tile with its logits, in float32 at least."""
    for tile in _tiles(source, target, hidden.shape[0], _width(head, hidden)):
        logits = head(hidden[tile.start : tile.end])
        yield tile, logits.to(at_least_float32(logits.dtype))


def _width(head: Any, hidden: torch.Tensor) -> int:
    """Return the size of the vocabulary, as far as the head names it."""
    return int(getattr(head, "out_features", hidden.shape[-1]))


def _layer_and_shape(head: Any) -> tuple[Any, LogitShape]:
    return tuple(head) if isinstance(head, ShapedHead) else (head, AS_COMPUTED)


def _fusable(head: Any) -> bool:
    """Whether the head is h -> W h and nothing else."""
    if type(head) is not torch.nn.Linear or [name for name, _ in head.named_parameters()] != ["weight"]:
        return False
    return not (head._forward_hooks or head._forward_pre_hooks or "forward" in vars(head))


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    wide = widest_float(a.device)
    return (a.to(wide) * b.to(wide)).sum()


class _Tile(NamedTuple):
    """Hidden states start..end and the targets that they predict."""

    start: int
    end: int
    which: torch.Tensor
    """int64 [k]; the tile's targets among all N."""
    row: torch.Tensor
    """int64 [k]; the row of the tile that predicts each."""
    target: torch.Tensor
    """int64 [k]"""


def _tiles(source: torch.Tensor, target: torch.Tensor, rows: int, vocabulary: int) -> Iterator[_Tile]:
    device = source.device
    size = max(_TILE_ROWS, _TILE_LOGITS.get(device.type, _TILE_LOGITS["cpu"]) // vocabulary)
    ordered, order = torch.sort(source, stable=True)
    starts = list(range(0, max(rows, 1), size))  # without rows one empty tile, so that concatenation works
    edges = torch.searchsorted(ordered, torch.tensor([*starts, rows], device=device)).tolist()
    for start, lo, hi in zip(starts, edges, edges[1:], strict=False):
        which = order[lo:hi]
        yield _Tile(start, min(start + size, rows), which, ordered[lo:hi] - start, target[which])


def _through_module(
    head: Any, hidden: torch.Tensor, row: torch.Tensor, target: torch.Tensor, wanted: _Figures
) -> TokenScores:
    """Return the scores of a tile by plain autograd."""
    logits = head(hidden)
    logs = logits.to(at_least_float32(logits.dtype)).log_softmax(-1)
    spread = torch.special.entr(logs.detach().exp()).sum(-1)[row] if wanted.entropy else None
    collision = (2 * logs.detach()).logsumexp(-1)[row] if wanted.collision else None
    return TokenScores(logs[row, target], spread, collision)


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return float32, or the type itself where it is wider."""
    return torch.promote_types(dtype, torch.float32)


def _matmul_dtype(hidden: torch.Tensor, weight: torch.Tensor) -> torch.dtype:
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


def _exponentials(
    hidden: torch.Tensor, weight: torch.Tensor, tile: _Tile, shape: LogitShape, *, slope: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | float]:
    """Return exp(logit - max) [k, V] of a tile, its sum and log-sum-exp [k], the targets' log-probs, and `LogitShape.over`'s slope."""
    logits, slopes = shape.over((hidden @ weight.t()).to(at_least_float32(weight.dtype)), slope=slope)
    chosen = logits[tile.row, tile.target]
    peak = logits.amax(1, keepdim=True)
    exponentials = logits.sub_(peak).exp_()
    total = exponentials.sum(1)
    lse = peak.squeeze(1) + total.log()
    return exponentials, total, lse, chosen - lse[tile.row], slopes


def _logit_gradient(
    probabilities: torch.Tensor, tile: _Tile, weight: torch.Tensor, slopes: torch.Tensor | float
) -> torch.Tensor:
    """d/dz of -sum_j w_j log p[t_j] for a tile, written over `probabilities` [k, V]; `weight` [N_tile], `slopes` d logits / dz."""
    of_row = weight.new_zeros(len(probabilities)).index_add_(0, tile.row, weight)
    gradient = probabilities.mul_(of_row.unsqueeze(1))
    gradient.index_put_((tile.row, tile.target), -weight, accumulate=True)
    return gradient if isinstance(slopes, float) and slopes == 1 else gradient.mul_(slopes)


class _Gradients:
    """Gradients of the hidden states and of the weight, summed over tiles; None if not needed."""

    def __init__(self, hidden: torch.Tensor, weight: torch.Tensor, needed: tuple[bool, ...]) -> None:
        self.hidden = torch.empty_like(hidden) if needed[0] else None
        self.weight = torch.zeros_like(weight, dtype=at_least_float32(weight.dtype)) if needed[1] else None

    def add(self, tile: _Tile, d_logits: torch.Tensor, hidden: torch.Tensor, weight: torch.Tensor) -> None:
        d_logits = d_logits.to(weight.dtype)
        if self.hidden is not None:
            torch.mm(d_logits, weight, out=self.hidden[tile.start : tile.end])
        if self.weight is None:
            return
        if self.weight.dtype == d_logits.dtype:
            self.weight.addmm_(d_logits.t(), hidden)
        else:
            self.weight.add_(d_logits.t() @ hidden)


class _NLL(torch.autograd.Function):
    """-sum(w log p) with the gradients formed tile by tile in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        source: torch.Tensor,
        target: torch.Tensor,
        factor: torch.Tensor,
        shape: LogitShape,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss and the log-probs."""
        ctx.dtypes = hidden.dtype, weight.dtype
        dtype = _matmul_dtype(hidden, weight)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
        scores = torch.empty(len(target), dtype=at_least_float32(dtype), device=hidden.device)
        factor = factor.to(scores.dtype)
        # Weights of a step's share are tiny: brought to 1, the gradients keep their digits in half precision too.
        ctx.gain = factor.abs().max().clamp_min(torch.finfo(factor.dtype).tiny) if len(factor) else factor.sum()
        scaled = factor / ctx.gain
        ctx.gradients = _Gradients(hidden, weight, ctx.needs_input_grad[:2])
        for tile in _tiles(source, target, len(hidden), len(weight)):
            h = hidden[tile.start : tile.end]
            exponentials, total, _, scores[tile.which], slopes = _exponentials(h, weight, tile, shape, slope=True)
            probabilities = exponentials.div_(total.unsqueeze(1))
            ctx.gradients.add(tile, _logit_gradient(probabilities, tile, scaled[tile.which], slopes), h, weight)
        ctx.mark_non_differentiable(scores)
        return -_dot(factor, scores), scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Scale what the forward pass has formed."""
        gradients, ctx.gradients = ctx.gradients, None  # scaled in place: a second backward pass would be wrong
        scale = (grad * ctx.gain).to(at_least_float32(ctx.dtypes[0]))
        parts = (gradients.hidden, gradients.weight)
        scaled = [None if x is None else x.mul_(scale).to(t) for x, t in zip(parts, ctx.dtypes, strict=True)]
        return (*scaled, None, None, None, None)


class _Logprobs(torch.autograd.Function):
    """log p of the targets; the backward pass forms each tile of logits again."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        source: torch.Tensor,
        target: torch.Tensor,
        wanted: _Figures,
        shape: LogitShape,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Return the log-probs, and the figures that are requested."""
        ctx.shape = shape
        ctx.dtype = _matmul_dtype(hidden, weight)
        h, w = hidden.to(ctx.dtype), weight.to(ctx.dtype)
        scores = torch.empty(len(target), dtype=at_least_float32(ctx.dtype), device=hidden.device)
        spread = torch.empty_like(scores) if wanted.entropy else None
        collision = torch.empty_like(scores) if wanted.collision else None
        lse = torch.empty(len(hidden), dtype=scores.dtype, device=hidden.device)
        for tile in _tiles(source, target, len(h), len(w)):
            rows = slice(tile.start, tile.end)
            exponentials, total, lse[rows], scores[tile.which], _ = _exponentials(h[rows], w, tile, shape)
            if spread is not None:  # -sum p log p with p = e / total is sum(-e log e) / total + log total
                of_row = torch.special.entr(exponentials).sum(1) / total + total.log()
                spread[tile.which] = of_row[tile.row]
            if collision is not None:
                collision[tile.which] = (exponentials.square_().sum(1).log() - 2 * total.log())[tile.row]
        ctx.save_for_backward(hidden, weight, source, target, lse)
        ctx.mark_non_differentiable(*(figure for figure in (spread, collision) if figure is not None))
        return scores, spread, collision

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor, *_: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Form each tile of probabilities again."""
        hidden, weight, source, target, lse = ctx.saved_tensors
        h, w = hidden.to(ctx.dtype), weight.to(ctx.dtype)
        gradients = _Gradients(h, w, ctx.needs_input_grad[:2])
        for tile in _tiles(source, target, len(h), len(w)):
            rows = slice(tile.start, tile.end)
            logits, slopes = ctx.shape.over((h[rows] @ w.t()).to(lse.dtype), slope=True)
            probabilities = logits.sub_(lse[rows].unsqueeze(1)).exp_()
            gradients.add(tile, _logit_gradient(probabilities, tile, -grad[tile.which], slopes), h[rows], w)
        parts = ((gradients.hidden, hidden), (gradients.weight, weight))
        return (*(None if g is None else g.to(x.dtype) for g, x in parts), None, None, None, None)
