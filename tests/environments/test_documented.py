"""The code of docs/tutorials/write-an-environment.md, in an installed package: it acts, trains and is measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from installed_packages import Install, install_package  # noqa: F401
from jobs_in_process import jobs_in_process  # noqa: F401
from quintain.tools import RLTrainingTool

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "write-an-environment.md"
ENVIRONMENT, TRAINING = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[:2]


@pytest.fixture
def installed(install_package: Install) -> None:  # noqa: F811
    """The page's environment as the installed package acme-boxes."""
    install_package(
        "acme-boxes", {"acme_boxes": ENVIRONMENT}, {"quintain.environments": {"acme/boxes": "acme_boxes:Boxes"}}
    )


@pytest.mark.usefixtures("installed", "jobs_in_process")
def test_an_agent_learns_in_the_documented_environment_by_the_documented_code(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(ENVIRONMENT.splitlines()) <= 45, "a new user's environment is short"
    monkeypatch.setenv("QUINTAIN_HOME", str(home))
    names: dict[str, Any] = {"__name__": "acme_training"}
    exec(compile(TRAINING, str(PAGE), "exec"), names)
    evaluation = names["evaluation"]
    assert (evaluation.rate.n, evaluation.success_rate >= 0.9) == (20, True), evaluation
    (found,) = names["home"].runs(job_id=evaluation.job_id, limit=1)
    assert found.prompt == "One of 3 boxes holds a coin. Find it."
    names["home"].close()
    tool = RLTrainingTool(home)
    asked = {"action": "collect", "agent": "finder", "environment": "acme/boxes?coins=2"}
    refused = json.loads(tool.run(asked))
    assert (refused["status"], refused["code"]) == ("error", "unknown_option")
    tool.close()
