"""SECURITY.md names a test for each threat, and each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_threat_names_a_test_that_exists() -> None:
    rows = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(row.split("|")[1]) for row in rows] == list(range(1, 18))
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row)
        assert named, row
        for file, name in named:
            assert f"def {name}" in (ROOT / file).read_text(), (file, name)
