"""How long waiting threads spin and how memory is allocated: set early, and never over the user's own choice."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from quintain.threads import GOMP_SPINCOUNT, KMP_BLOCKTIME, limit_spinning


@pytest.mark.parametrize(
    ("chosen", "count"),
    [({}, GOMP_SPINCOUNT), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
    ids=["nothing chosen", "a count", "a policy"],
)
def test_spinning_is_limited_unless_the_user_has_chosen(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], count: str | None
) -> None:
    for name in ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    limit_spinning()
    assert os.environ.get("GOMP_SPINCOUNT") == count
    assert os.environ.get("KMP_BLOCKTIME") == (KMP_BLOCKTIME if count else None)


_FREED = """
import sys
from pathlib import Path
from quintain.threads import configure_malloc
def resident_kb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4
sys.argv[1] == "configured" and configure_malloc()
bytearray(24 * 2**20)
before = resident_kb()
large = bytearray(24 * 2**20)
behind = [bytes(100_000) for _ in range(30)]
del large
print(resident_kb() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="takes glibc, whose malloc it configures")
def test_a_server_gives_a_large_block_back_when_it_is_freed() -> None:
    """The 3 MB behind the block keep a heap from shrinking; a block that is mapped alone needs none."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    kept = {
        how: int(subprocess.run([sys.executable, "-c", _FREED, how], env=env, capture_output=True, check=True).stdout)
        for how in ("configured", "default")
    }
    assert kept["configured"] < 8_000 < kept["default"], kept
