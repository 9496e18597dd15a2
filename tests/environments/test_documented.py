"""The code of docs/tutorials/write-an-environment.md, in an installed package: it acts, trains and is measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs_in_process import jobs_in_process  # noqa: F401
from quintain import extensions
from quintain.tools import RLTrainingTool

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "write-an-environment.md"
ENVIRONMENT, TRAINING = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[:2]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's environment as the installed package acme-boxes."""
    site = tmp_path / "site"
    info = site / "acme_boxes-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "acme_boxes.py").write_text(ENVIRONMENT, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-boxes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[quintain.environments]\nacme/boxes = acme_boxes:Boxes\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    extensions.extensions_of.cache_clear()
    yield
    extensions.extensions_of.cache_clear()


@pytest.mark.usefixtures("installed", "jobs_in_process")
def test_an_agent_learns_in_the_documented_environment_by_the_documented_code(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(ENVIRONMENT.splitlines()) <= 45, "a new user's environment is short"
    monkeypatch.setenv("QUINTAIN_HOME", str(home))
    exec(compile(TRAINING, str(PAGE), "exec"), {"__name__": "acme_training"})
    measured = json.loads(capsys.readouterr().out)
    assert (measured["status"], measured["num_samples"]) == ("success", 20), measured
    assert measured["accuracy"] >= 0.9
    tool = RLTrainingTool(home)
    found = json.loads(tool.run({"action": "search", "filter": {"job_id": measured["job_id"]}, "limit": 1}))
    assert found["items"][0]["prompt"] == "One of 3 boxes holds a coin. Find it."
    asked = {"action": "collect", "agent": "finder", "environment": "acme/boxes?coins=2"}
    refused = json.loads(tool.run(asked))
    assert (refused["status"], refused["code"]) == ("error", "unknown_option")
    tool.close()
