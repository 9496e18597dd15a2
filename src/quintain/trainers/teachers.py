"""Teachers of distillation: models that return log-probs at the supervised positions of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from quintain.errors import InvalidInput
from quintain.records.agent import Agent
from quintain.trainers.data.example_files import read_examples, write_examples
from quintain.trainers.data.streams import Example, Floats, Ints, TokenRow, rows_of, split_by_row
from quintain.trainers.data.teacher_tokens import with_top
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.other_tokens import top_tokens
from quintain.trainers.engine.packing import micro_batches
from quintain.trainers.loop.checkpoints import disk_errors_explained
from quintain.trainers.losses.advantages import divergence_advantages
from quintain.trainers.models.loading import load_model


class RowScores(NamedTuple):
    """Log-probs of a teacher for one row with n supervised positions."""

    ids: Ints | None
    """int32 [n, k]; None if the scores are those of the row's own tokens."""
    logprobs: Floats
    """float32 [n, k], nats; [n, 1] of the row's own tokens."""


class Teacher(Protocol):
    """A model that returns log-probs."""

    def require_tokenizer(self, tokenizer: Any) -> None:
        """Refuse a student with another vocabulary.

        Raises:
            InvalidInput: The vocabularies differ (`tokenizer_mismatch`).
        """

    def scores(self, examples: Sequence[Example], top_k: int | None) -> dict[TokenRow, RowScores]:
        """Return the scores of the examples' rows.

        Args:
            examples: Examples with rows.
            top_k: Number of the likeliest tokens; None: the row's own tokens.
        """


class LocalTeacher:
    """A model on this machine, in eval mode."""

    def __init__(self, agent: Agent, batch_tokens: int) -> None:
        loaded = load_model(agent.model)
        self._name, self._tokenizer, self._batch_tokens = agent.id_or_name, loaded.tokenizer, batch_tokens
        self._engine = Engine.of(loaded.model)

    def require_tokenizer(self, tokenizer: Any) -> None:
        """Refuse another vocabulary; see `Teacher`."""
        if tokenizer.get_vocab() != self._tokenizer.get_vocab():
            raise InvalidInput(
                f"expected the student's tokenizer in the teacher {self._name}, got another vocabulary; name a teacher of the same "
                "model family, or train with sft on its runs",
                code="tokenizer_mismatch",
            )

    @torch.no_grad()
    def scores(self, examples: Sequence[Example], top_k: int | None) -> dict[TokenRow, RowScores]:
        """Return the scores of rows; see `Teacher`."""
        found: dict[TokenRow, RowScores] = {}
        for batch in micro_batches(examples, self._batch_tokens, share=self._engine.shares):
            rows = rows_of(batch)
            if top_k is None:
                ids, logprobs = None, self._engine.logprobs(rows).logprobs.float()[:, None]
            else:
                ids, logprobs = top_tokens(self._engine, rows, top_k)
            parts = split_by_row(logprobs.cpu().numpy(), rows)
            tops = [None] * len(rows) if ids is None else split_by_row(ids.int().cpu().numpy(), rows)
            found |= {row: RowScores(top, part) for row, top, part in zip(rows, tops, parts, strict=True)}
        return found


def with_teacher(examples: Sequence[Example], teacher: Teacher, top_k: int | None) -> list[Example]:
    """Return the examples with the teacher's log-probs in every row; see `Teacher.scores`."""
    scores = teacher.scores(examples, top_k) if examples else {}
    return [replace(e, rows=tuple(_scored(row, scores[row]) for row in e.rows)) for e in examples]


def with_advantages(examples: Sequence[Example], teacher: Teacher) -> list[Example]:
    """Return a group of the student's runs with the teacher's log-probs of its tokens, and their advantages."""
    scored = with_teacher(examples, teacher, None)
    rows = rows_of(scored)
    old = [row.old_logprob[row.places] if row.old_logprob is not None else None for row in rows]
    own = [row.teacher_logprobs[row.places, 0] for row in rows if row.teacher_logprobs is not None]
    advantages = dict(zip(rows, divergence_advantages(own, old), strict=True))
    return [replace(e, rows=tuple(r.with_supervised("advantage", advantages[r]) for r in e.rows)) for e in scored]


def cached_with_teacher(
    examples: Sequence[Example], teacher: Teacher, top_k: int, path: Path, fingerprint: str
) -> list[Example]:
    """Return `with_teacher`. The result is kept in a file, so a resumed run asks the teacher nothing twice."""
    if path.exists():
        try:
            return read_examples(path).examples
        except InvalidInput:
            pass  # damaged: ask again
    scored = with_teacher(examples, teacher, top_k)
    with disk_errors_explained(path, path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_examples(path, scored, fingerprint)
    return scored


def _scored(row: TokenRow, scores: RowScores) -> TokenRow:
    if scores.ids is None:
        return row.with_supervised("teacher_logprobs", scores.logprobs)
    return with_top(row, scores.ids, scores.logprobs)
