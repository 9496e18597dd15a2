"""Measuring by command: evaluations side by side, and their reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs_in_process import jobs_in_process  # noqa: F401
from terminal import quintain


@pytest.mark.usefixtures("jobs_in_process")
def test_the_commands_measure_compare_and_write_reports(home: Path, tmp_path: Path) -> None:
    wanted = ("--environment", "quintain/inventory", "--n-tasks", "2", "--max-turns", "2", "--report")
    greedy = quintain("evaluate", "starter", *wanted, str(tmp_path / "greedy.json"), home=home)
    assert greedy.returncode == 0, greedy.stderr
    assert "success" in greedy.stdout
    warm = quintain("evaluate", "starter", "--temperature", "1", *wanted, str(tmp_path / "warm.html"), home=home)
    assert warm.returncode == 0, warm.stderr
    assert "temperature 1" in (tmp_path / "warm.html").read_text(encoding="utf-8")
    first = json.loads((tmp_path / "greedy.json").read_text(encoding="utf-8"))["id"]
    second = "eval-" + warm.stdout.split("eval-", 1)[1].split()[0]
    page, text = tmp_path / "both.html", tmp_path / "both.md"
    compared = quintain("compare", first, second, "--report", str(page), home=home)
    assert compared.returncode == 0, compared.stderr
    assert "used different sampling settings" in compared.stdout
    assert [name for name in (first, second) if name not in page.read_text(encoding="utf-8")] == []
    as_json = quintain("compare", first, second, "--json", "--report", str(text), home=home)
    assert json.loads(as_json.stdout)["lineage"][0]["evaluation_id"] == first
    assert "## Leaderboard" in text.read_text(encoding="utf-8")
    refused = quintain("compare", first, second, "--report", str(tmp_path / "both.pdf"), home=home)
    assert refused.returncode == 2
    assert "must end with .md, .html, .json" in refused.stderr
