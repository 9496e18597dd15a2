"""The identity of a run: a hash of its content, on which ids and stored rows depend."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from pydantic_core import to_json, to_jsonable_python

_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_ENCODED_AT_ONCE = 100
"""Steps of a long run that are encoded at once."""
_PLAIN = frozenset({str, int, bool, type(None)})
"""Types of arguments that pydantic serializes like the standard library. Floats differ."""


def content_hash(
    episode: str, task: Mapping[str, str | None], tools: Sequence[Mapping[str, Any]], steps: Iterable[dict[str, Any]]
) -> str:
    """Return the SHA-256 of the content of a run, of whose task and steps the hashed fields are given, with sorted keys."""
    digest = hashlib.sha256(b'{"episode":' + to_json(episode) + b',"steps":[')
    fields, separator = iter(steps), b""
    while batch := list(islice(fields, _ENCODED_AT_ONCE)):
        digest.update(separator + _encode_steps(batch))
        separator = b","
    digest.update(b'],"task":' + to_json(task))
    digest.update(b',"tools":' + _SORTED.encode(tools).encode() + b"}")
    return digest.hexdigest()


def _encode_steps(steps: Sequence[dict[str, Any]]) -> bytes:
    """Encode the fields of steps: compact JSON with sorted keys, without brackets. Stored rows depend on it.

    Text, the largest part, is encoded by pydantic in half the time. Floats are formatted like the standard library does.
    """
    plain = list(map(_is_plain, steps))
    if all(plain):
        return to_json(steps)[1:-1]
    return b",".join(map(_encode_step, steps, plain))


def _encode_step(fields: dict[str, Any], is_plain: bool) -> bytes:
    if is_plain:
        return to_json(fields)
    done = to_jsonable_python(fields.pop("actions"), inf_nan_mode="null")
    return b'{"actions":' + _SORTED.encode(done).encode() + b"," + to_json(fields)[1:]


def _is_plain(fields: Mapping[str, Any]) -> bool:
    return all(_PLAIN.issuperset(map(type, call["args"].values())) for call in fields["actions"] if call["args"])
