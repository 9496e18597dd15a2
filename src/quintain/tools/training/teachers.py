"""Teachers of distillation: who they are, and whether their tokens are those of the student. Nothing of torch is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters import DistillConfig, TrainingConfig
from quintain.records.judging import Endpoint
from quintain.tools.services import Services
from quintain.tools.training.agents import endpoint_of, require_policy, require_weights, resolve_agent
from quintain.tools.training.model_folders import cached_snapshot

_FILE_NAME = "tokenizer.json"

_MAX_TOKENIZER = 128 * 2**20
"""Bytes of a tokenizer.json; the largest in use have about 35 MB."""


class TeacherFields(NamedTuple):
    """The fields of a spec that name a teacher."""

    teacher_agent: Agent | None = None
    teacher_endpoint: Endpoint | None = None


def teacher_of(services: Services, config: TrainingConfig, student: Agent, *, acts: bool) -> TeacherFields:
    """Return the teacher of a distillation; nothing for other methods, or where log-probs are recorded.

    Raises:
        InvalidInput: Nobody teaches online (`no_teacher`), the teacher does not act or gives no log-probs, or its tokenizer is
            another one or unknown (`tokenizer_mismatch`).
        NotFound: The teacher does not exist.
        Refused: As `resolve_agent`.
    """
    if not isinstance(config, DistillConfig):
        return TeacherFields()
    if config.teacher is None:
        if acts:
            raise InvalidInput(
                "expected a teacher for distill in an environment, got null: nothing is recorded of runs that are still to be "
                "played; name an agent, a model folder or endpoint:NAME in hyperparameters.teacher, or give a dataset",
                code="no_teacher",
            )
        return TeacherFields()
    teacher = require_policy(resolve_agent(services, config.teacher), "teach by distill")
    endpoint = endpoint_of(services, teacher)
    if endpoint is None:
        require_weights(teacher, "teach by distill")
    elif endpoint.protocol != "openai":
        raise InvalidInput(
            f"expected an endpoint that gives log-probs, got {endpoint.name!r} of protocol {endpoint.protocol!r}, which has none; "
            "name an OpenAI-compatible server such as vLLM, or train with sft on the teacher's runs",
            code="no_logprobs",
        )
    _require_same_tokens(student, teacher, endpoint)
    return TeacherFields(teacher, endpoint)


def _require_same_tokens(student: Agent, teacher: Agent, endpoint: Endpoint | None) -> None:
    """Refuse a teacher whose token ids are not known to mean the student's tokens."""
    if endpoint is None and teacher.model == student.model:
        return
    if endpoint is not None and endpoint.tokenizer is None:
        raise InvalidInput(
            f"expected the tokenizer of endpoint {endpoint.name!r}, got none in its profile; let the operator set tokenizer to a "
            f"folder with the {_FILE_NAME} of its model",
            code="tokenizer_mismatch",
        )
    folders = [_tokenizer_folder(student.model), _tokenizer_folder(teacher.model)]
    if endpoint is not None and endpoint.tokenizer is not None:
        folders[1] = Path(endpoint.tokenizer).expanduser()
    names = student.id or student.name, teacher.id or teacher.name
    ids = [_token_ids(folder, name) for folder, name in zip(folders, names, strict=True)]
    if ids[0] != ids[1]:
        differing = len(ids[0].items() ^ ids[1].items())
        raise InvalidInput(
            Hint(
                f"expected a teacher with the tokenizer of {names[0]} ({len(ids[0]):,} tokens), got {names[1]} ({len(ids[1]):,} "
                f"tokens), which differs in {differing:,} entries; name a teacher of the same model family, or repeat its runs: ",
                call("start_training", method="sft", model=names[0], dataset_id=...),
            ),
            code="tokenizer_mismatch",
        )


def _tokenizer_folder(model: ModelRef) -> Path | None:
    """Return the folder of a model's tokenizer: beside an adapter that brings one, as in training; None if it is in no folder."""
    if model.adapter is not None and (Path(model.adapter) / _FILE_NAME).is_file():
        return Path(model.adapter)
    if model.source == "hub":
        return cached_snapshot(model.path, model.revision)
    return Path(model.path) if model.source in ("folder", "starter") else None


def _token_ids(folder: Path | None, name: str) -> dict[str, int]:
    """Return token -> id of a `tokenizer.json`, the added tokens too.

    Raises:
        InvalidInput: There is none, or it is damaged.
    """
    path = folder / _FILE_NAME if folder else None
    try:
        if path is None or not path.is_file() or path.stat().st_size > _MAX_TOKENIZER:
            raise ValueError("no such file")
        document = json.loads(path.read_bytes())
        vocabulary = document["model"]["vocab"]
        added = {token["content"]: int(token["id"]) for token in document.get("added_tokens", ())}
        return _numbered(vocabulary) | added
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise InvalidInput(
            f"expected a {_FILE_NAME} of {name} to compare the tokens of teacher and student, got none that can be read; use a model "
            "folder with one",
            code="tokenizer_mismatch",
        ) from None


def _numbered(vocabulary: Any) -> dict[str, int]:
    """Return token -> id; models of type Unigram list their tokens with scores."""
    if isinstance(vocabulary, Mapping):
        return {str(token): int(place) for token, place in vocabulary.items()}
    return {str(entry[0]): place for place, entry in enumerate(vocabulary)}
