"""Samples of the model on a few fixed openings during training, and their diversity."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

from quintain.datasets.messages import messages_of
from quintain.datasets.rows import trajectories_of
from quintain.jobs.directory import open_appending
from quintain.records.agent import Sampling
from quintain.records.dataset import Row, TextRow
from quintain.records.protocols import Message, Turn
from quintain.trainers.acting.policy import LocalPolicy
from quintain.trainers.models.loading import LoadedModel, eval_mode
from quintain.trainers.rendering.call_parsing import TurnReader
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.rendering.styles import with_bos

_COUNT = 4
_SAMPLING = Sampling(temperature=0.0, max_new_tokens=64)
_SHOWN_PROMPT = 200
"""Characters of a prompt's end in a sample."""
_TEXT_OPENING = 200
"""Characters of a plain text that the model continues."""
_AS_WRITTEN = "{{ messages[0].content }}"
"""Chat template for plain text: the prompt is the text."""


@dataclass(frozen=True)
class Sample:
    """A sample of the model on one opening: a line of `samples.jsonl`."""

    step: int
    """Optimizer steps taken."""
    prompt: str
    """End of the prompt, control tokens included."""
    text: str
    """The sampled text, without the end token."""
    tokens: int
    """Number of sampled tokens."""
    stop: str
    """`end`: it ends with an end token; `length`: the token limit cut it off."""
    error: str | None
    """Why the text could not be parsed as thought and actions; None if it could."""


class Diversity(NamedTuple):
    """Diversity of the samples of one step; None without observations."""

    distinct_1: float | None
    """Distinct tokens by all tokens, over all samples together, 0 to 1; 1 repeats nothing.

    `distinct_1` and `distinct_2` are those of Li et al. 2016 (arXiv 1510.03055), over the model's tokens
    instead of words.
    """
    distinct_2: float | None
    """Distinct pairs of neighbouring tokens by all tokens, 0 to below 1; pairs do not reach over two samples."""
    mean_length: float | None
    """Tokens of a sample, without its end token."""
    parsed: float | None
    """Share of samples that parse as an agent's turn, 0 to 1; None for plain text."""

    def metrics(self) -> dict[str, float | None]:
        """Return the figures under their metric names."""
        return {f"sample_{name}": value for name, value in self._asdict().items()}


@dataclass(frozen=True)
class Probes:
    """Fixed openings of a run; create them by `Probes.of`."""

    turns: tuple[Turn, ...]
    """Turns to answer; empty if no opening fits the context."""
    renderer: Renderer
    plain: bool
    """Whether the turns are text to continue instead of a chat to answer."""

    @staticmethod
    def of(rows: Sequence[Row], renderer: Renderer, context_tokens: int, *, seed: int = 0) -> Probes:
        """Choose up to 4 different random openings; the same rows and seed give the same ones."""
        plain = bool(rows) and isinstance(rows[0], TextRow)
        if plain:
            source = with_bos(_AS_WRITTEN, renderer.tokenizer)
            writer = replace(renderer.writer, source=source, without_tools="", style="react", has_system_role=True)
            renderer = replace(renderer, writer=writer, reader=TurnReader("react"))
        order = list(range(len(rows)))
        random.Random(seed).shuffle(order)
        chosen: dict[tuple[int, ...], Turn] = {}
        for turn in (_opening(rows[place], len(chosen)) for place in order):
            prompt = tuple(renderer.opening(turn.messages, turn.tools))
            if prompt and len(prompt) + _SAMPLING.max_new_tokens <= context_tokens:
                chosen.setdefault(prompt, turn)
            if len(chosen) == _COUNT:
                break
        return Probes(tuple(chosen.values()), renderer, plain)

    def write(self, loaded: LoadedModel, step: int) -> tuple[list[Sample], Diversity]:
        """Sample from the model on every opening; return the samples and their diversity.

        The model's mode and all random states stay unchanged: a run with samples ends bit-equal to one without.
        """
        with eval_mode(loaded.model):
            policy = LocalPolicy(loaded, self.renderer, _SAMPLING)
            replies = policy.act(self.turns)
        samples, token_rows = [], []
        for turn, reply in zip(self.turns, replies, strict=True):
            tokens = list(reply.sampled.token_ids if reply.sampled else ())
            token_rows.append(tokens[:-1] if tokens and tokens[-1] in self.renderer.end_ids else tokens)
            prompt = self.renderer.decode(self.renderer.opening(turn.messages, turn.tools))
            samples.append(
                Sample(
                    step=step,
                    prompt=prompt[-_SHOWN_PROMPT:],
                    text=reply.text,
                    tokens=len(token_rows[-1]),
                    stop=reply.stop.value,
                    error=None if self.plain else reply.error,
                )
            )
        readable = [] if self.plain else [sample.error is None for sample in samples]
        return samples, diversity(token_rows, readable)


def diversity(token_rows: Sequence[Sequence[int]], readable: Sequence[bool] = ()) -> Diversity:
    """Return the diversity of samples, given as token ids without end tokens, and whether each parses as a turn."""
    n_tokens = sum(map(len, token_rows))
    tokens = {token for row in token_rows for token in row}
    pairs = {pair for row in token_rows for pair in pairwise(row)}
    return Diversity(
        distinct_1=len(tokens) / n_tokens if n_tokens else None,
        distinct_2=len(pairs) / n_tokens if n_tokens else None,
        mean_length=n_tokens / len(token_rows) if token_rows else None,
        parsed=sum(readable) / len(readable) if readable else None,
    )


def append_samples(path: Path, samples: Sequence[Sample]) -> None:
    """Append samples to a file of JSON lines; a partial last line of a killed writer is removed.

    A resumed run writes the samples of a step again: the last ones of a step count.
    """
    lines = "".join(json.dumps(asdict(sample), ensure_ascii=False) + "\n" for sample in samples)
    with os.fdopen(open_appending(path), "wb") as file:
        file.write(lines.encode("utf-8"))


def _opening(row: Row, number: int) -> Turn:
    """Return the messages before the agent's first turn, or the start of a text; of a pair the chosen run, of a group the first."""
    name = f"probe-{number}"
    if isinstance(row, TextRow):
        return Turn(episode_id=name, messages=(Message(role="user", content=row.text[:_TEXT_OPENING]),), seed=number)
    run = trajectories_of(row)[0]
    messages = takewhile(lambda message: message.role != "assistant", (message for message, _ in messages_of(run)))
    return Turn(episode_id=name, messages=tuple(messages), tools=run.tools, seed=number)
