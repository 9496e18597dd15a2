"""Measuring by command, with real jobs, side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from quintain.cli.main import app

ENVIRONMENT = "quintain/inventory"


def command(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--home", str(home)])


@pytest.mark.soak
def test_the_commands_measure_compare_and_write_reports(home: Path, tmp_path: Path) -> None:
    wanted = ("--environment", ENVIRONMENT, "--n-tasks", "4", "--report")
    greedy = command(home, "evaluate", "starter", *wanted, str(tmp_path / "greedy.json"))
    assert greedy.exit_code == 0, greedy.output
    assert "success" in greedy.stdout
    warm = command(home, "evaluate", "starter", "--temperature", "1", *wanted, str(tmp_path / "warm.html"))
    assert warm.exit_code == 0, warm.output
    assert "temperature 1" in (tmp_path / "warm.html").read_text(encoding="utf-8")
    first = json.loads((tmp_path / "greedy.json").read_text(encoding="utf-8"))["id"]
    second = "eval-" + warm.stdout.split("eval-", 1)[1].split()[0]
    page, text = tmp_path / "both.html", tmp_path / "both.md"
    compared = command(home, "compare", first, second, "--report", str(page))
    assert compared.exit_code == 0, compared.output
    assert "sampled differently" in compared.stdout
    assert "data:image/png;base64," in page.read_text(encoding="utf-8")
    as_json = command(home, "compare", first, second, "--json", "--report", str(text))
    assert json.loads(as_json.stdout)["lineage"][0]["evaluation_id"] == first
    assert "## Leaderboard" in text.read_text(encoding="utf-8")
    refused = command(home, "compare", first, second, "--report", str(tmp_path / "both.pdf"))
    assert refused.exit_code == 2
    assert "must end with .md, .html, .json" in refused.stderr
