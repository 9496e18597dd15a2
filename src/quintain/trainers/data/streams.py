"""Training data: token rows with per-token streams, and the examples that are shuffled and counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, eq=False)
class TokenRow:
    """One row of tokens and its streams, all of the same length T.

    `advantage`, `old_logprob` and `ref_logprob` are None where the loss does not use them. An unknown log-prob is NaN.
    """

    token_ids: Ints
    supervised: Bools
    """True: the token has loss. Never true at place 0, which is not predicted."""
    step_index: Ints
    """Step of the trajectory that wrote the token; -1 outside of agent turns."""
    weight: Floats
    """Weight of the token in the loss; 0 where it is not supervised."""
    advantage: Floats | None = None
    """Advantage of the token's run or step."""
    old_logprob: Floats | None = None
    """Log-prob under the policy that sampled the token (temperature 1, no top_p)."""
    ref_logprob: Floats | None = None
    """Log-prob under the reference model."""
    label: Floats | None = None
    """[T, K]: target of each of K heads; NaN where unknown."""
    old_value: Floats | None = None
    """[T, K]: values of the heads when the token was sampled; NaN where `label` is."""
    teacher_ids: Ints | None = None
    """[T, k]: the teacher's likeliest tokens; None where it is asked about the row's own."""
    teacher_logprobs: Floats | None = None
    """[T, k]: the teacher's log-probs of these tokens, -inf where it named fewer; [T, 1] of the row's own."""

    def __post_init__(self) -> None:
        lengths = {name: len(s) for name, s in vars(self).items() if s is not None}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"expected streams of one length in a row, got {lengths}")
        if len(self.supervised) and self.supervised[0]:
            raise ValueError(
                "expected an unsupervised first token in a row, got a supervised one, which nothing predicts"
            )

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def places(self) -> NDArray[np.intp]:
        """Places of the supervised tokens, ascending; length n."""
        return np.flatnonzero(self.supervised)

    @property
    def n_supervised(self) -> int:
        """Number of tokens in the loss."""
        return int(self.supervised.sum())

    def with_supervised(self, stream: str, values: NDArray[np.floating] | Sequence[float]) -> TokenRow:
        """Return the row with a stream set at its supervised places (n values or [n, K], in order) and NaN elsewhere."""
        known = np.asarray(values, np.float32)
        full = np.full((len(self), *known.shape[1:]), np.nan, np.float32)
        full[self.places] = known
        return replace(self, **cast(dict[str, Any], {stream: full}))

    def masked_before(self, place: int) -> TokenRow:
        """Return the row without loss before a place."""
        supervised, weight = self.supervised.copy(), self.weight.copy()
        supervised[:place], weight[:place] = False, 0
        return replace(self, supervised=supervised, weight=weight)

    def at_steps(self, by_step: Mapping[int, float], otherwise: float) -> Floats:
        """Return float32 [T]: the number of the step that wrote each token."""
        steps, inverse = np.unique(self.step_index, return_inverse=True)
        return np.asarray([by_step.get(int(s), otherwise) for s in steps], np.float32)[inverse]


def token_row(token_ids: Sequence[int], supervised: Sequence[bool], **streams: Sequence[float] | None) -> TokenRow:
    """Create a row from lists; `weight` is 1 and `step_index` 0 at supervised tokens by default."""
    mask = np.asarray(supervised, np.bool_)
    known: dict[str, Any] = {
        name: np.asarray(s, np.float32) for name, s in streams.items() if s is not None and name != "step_index"
    }
    index = streams.get("step_index")
    return TokenRow(
        token_ids=np.asarray(token_ids, np.int32),
        supervised=mask,
        step_index=np.asarray(index, np.int32) if index is not None else np.where(mask, 0, -1).astype(np.int32),
        weight=known.pop("weight", mask.astype(np.float32)),
        **known,
    )


@dataclass(frozen=True, eq=False)
class Example:
    """A run, a pair or a group: the unit that is shuffled, counted by `batch_size` and computed together.

    A member is one trajectory: a pair has members 0 (chosen) and 1 (rejected), a group one for each run. A member can have several
    rows: chunks, or the turns of a template that rewrites history.
    """

    rows: tuple[TokenRow, ...]
    member: tuple[int, ...]
    """Member of each row; ascending from 0 without gaps."""
    value: tuple[float, ...] = (0.0,)
    """One number a member: its reward, or 1 and -1 for KTO's desirable and undesirable."""
    weight: float = 1.0
    """Weight of the example in losses that count examples."""
    key: str = ""
    """Identifies the source, for messages and the replay buffer."""
    divisible: bool = True
    """Whether its members may be in different forward passes; not if the loss couples them, as in a pair."""
    cost: tuple[float, ...] = ()
    """Cost of each member, under a constraint."""

    @property
    def n_members(self) -> int:
        """Number of trajectories."""
        return len(self.value)

    @property
    def n_supervised(self) -> int:
        """Number of tokens in the loss, over all rows."""
        return sum(row.n_supervised for row in self.rows)

    @property
    def n_tokens(self) -> int:
        """Number of tokens of all rows, shared prefixes counted in each."""
        return sum(len(row) for row in self.rows)

    @property
    def by_member(self) -> list[list[TokenRow]]:
        """The rows of each member."""
        rows: list[list[TokenRow]] = [[] for _ in self.value]
        for row, member in zip(self.rows, self.member, strict=True):
            rows[member].append(row)
        return rows


def rows_of(examples: Iterable[Example]) -> list[TokenRow]:
    """Return the rows of all examples, in order."""
    return [row for example in examples for row in example.rows]


def common_prefix(a: NDArray[np.integer], b: NDArray[np.integer]) -> int:
    """Return the number of leading ids that two rows share."""
    n = min(len(a), len(b))
    differing = np.flatnonzero(a[:n] != b[:n])
    return int(differing[0]) if len(differing) else n


def split_by_row(values: NDArray[_Number], rows: Sequence[TokenRow]) -> list[NDArray[_Number]]:
    """Return the values of each row, from those of the supervised tokens of all rows, [N, ...]."""
    return np.split(values, np.cumsum([row.n_supervised for row in rows])[:-1])


@dataclass(frozen=True)
class TokenStreams:
    """The streams of a forward pass at its supervised tokens, on the model's device.

    N supervised tokens: rows in order, places ascending in each. S sequences, one for each member of each example. E examples.
    """

    weight: torch.Tensor
    """float32 [N]"""
    sequence: torch.Tensor
    """int64 [N]; the sequence of each token."""
    step_index: torch.Tensor
    """int64 [N]"""
    example: torch.Tensor
    """int64 [S]; the example of each sequence."""
    member: torch.Tensor
    """int64 [S]; its member in the example."""
    value: torch.Tensor
    """float64 [S]"""
    example_weight: torch.Tensor
    """float64 [E]"""
    advantage: torch.Tensor | None = None
    """float32 [N]"""
    old_logprob: torch.Tensor | None = None
    """float32 [N]"""
    ref_logprob: torch.Tensor | None = None
    """float32 [N]"""
    label: torch.Tensor | None = None
    """float32 [N, K]"""
    collision: torch.Tensor | None = None
    """float32 [N]; log sum_v p_v^2 of the policy's distribution at the token, in nats. Only where the loss needs it."""
    old_value: torch.Tensor | None = None
    """float32 [N, K]"""
    teacher_ids: torch.Tensor | None = None
    """int32 [N, k]"""
    teacher_logprobs: torch.Tensor | None = None
    """float32 [N, k], or [N, 1] without `teacher_ids`"""

    @property
    def n_sequences(self) -> int:
        """S."""
        return len(self.value)


def streams_of(examples: Sequence[Example], device: torch.device | str = "cpu") -> TokenStreams:
    """Return the streams of the examples' rows, concatenated."""
    rows = rows_of(examples)
    offsets = np.cumsum([0, *(example.n_members for example in examples)])
    counts = [row.n_supervised for row in rows]
    of_row = [int(start) + m for start, example in zip(offsets, examples, strict=False) for m in example.member]

    def at_places(name: str) -> torch.Tensor | None:
        streams = [getattr(row, name) for row in rows]
        if all(stream is None for stream in streams):
            return None
        # A row without the stream gets NaN, and leaves the others as they are.
        known = (
            np.full(n, np.nan, np.float32) if stream is None else stream[row.supervised]
            for stream, row, n in zip(streams, rows, counts, strict=True)
        )
        return torch.from_numpy(_joined(known)).to(device)

    def tensor(values: Iterable[float], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(list(values), dtype=dtype).to(device)

    weight = at_places("weight")
    assert weight is not None
    return TokenStreams(
        weight=weight,
        sequence=torch.from_numpy(np.repeat(np.asarray(of_row, np.int64), counts)).to(device),
        step_index=torch.from_numpy(_joined(row.step_index[row.supervised] for row in rows).astype(np.int64)).to(
            device
        ),
        example=tensor((i for i, e in enumerate(examples) for _ in e.value), torch.long),
        member=tensor((m for e in examples for m in range(e.n_members)), torch.long),
        value=tensor((v for e in examples for v in e.value), widest_float(device)),
        example_weight=tensor((e.weight for e in examples), widest_float(device)),
        **{stream.name: at_places(stream.name) for stream in fields(TokenRow) if stream.default is None},
    )


def _joined(parts: Iterable[NDArray[np.generic]]) -> NDArray[np.generic]:
    return np.concatenate(list(parts))


def widest_float(device: torch.device | str) -> torch.dtype:
    """Return the widest float type of a device, in which sums run."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64  # MPS has no float64
