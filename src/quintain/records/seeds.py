"""Seeds that are the same on every machine and in every process: Python's own `hash` is not."""

from __future__ import annotations

import hashlib


def stable_seed(*parts: str | int) -> int:
    """A seed in 0..2^63-1 from the names of what it is for, such as (run seed, task id, attempt).

    The parts are joined with lengths, so that ("a", "bc") and ("ab", "c") differ.
    """
    encoded = "".join(f"{len(str(part))}:{part}" for part in parts).encode("utf-8")
    return int.from_bytes(hashlib.sha256(encoded).digest()[:8], "big") >> 1
