"""Seeds that are equal on every machine and in every process, unlike Python's `hash`."""

from __future__ import annotations

import hashlib


def stable_seed(*parts: str | int) -> int:
    """Return a seed in 0..2^63-1 from the parts that identify its use, such as (run seed, task id, attempt).

    The encoding contains the lengths of the parts, so that ("a", "bc") and ("ab", "c") differ.
    """
    encoded = "".join(f"{len(str(part))}:{part}" for part in parts).encode("utf-8")
    return int.from_bytes(hashlib.sha256(encoded).digest()[:8], "big") >> 1
