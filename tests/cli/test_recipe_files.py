"""The recipes of `examples/recipes/` run by the commands that they name, in small."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmarks.recipes import RECIPES, commands

from jobs_in_process import jobs_in_process  # noqa: F401
from quintain.tools import RLTrainingTool
from terminal import quintain

# One recipe runs always; that the stages of all are accepted is tested in tests/tools/test_methods.py.
SHIPPED = [
    pytest.param(path, id=path.stem, marks=() if path.stem == "own-logs" else pytest.mark.soak)
    for path in sorted(RECIPES.glob("*.yaml"))
]
SMALL: dict[str, Any] = {"max_steps": 1, "batch_size": 2}


@pytest.mark.usefixtures("jobs_in_process")
@pytest.mark.parametrize("recipe", SHIPPED)
def test_a_shipped_recipe_runs_by_the_commands_at_its_head(recipe: Path, home: Path, tmp_path: Path) -> None:
    document = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    for stage in document["stages"]:
        if stage["method"] == "evaluate":
            stage["n_tasks"] = 2
        else:
            stage["hyperparameters"] |= SMALL if stage["method"] != "grpo" else {"rollouts": 1, "group_size": 2}
    small = tmp_path / recipe.name
    small.write_text(yaml.safe_dump(document), encoding="utf-8")
    for words in commands(recipe):
        asked = [str(small) if word == recipe.name else re.sub(r"^(60|150)$", "6", word) for word in words[1:]]
        done = quintain(*asked, home=home)
        assert done.returncode == 0, done.stdout + done.stderr
    tool = RLTrainingTool(home=str(home))
    (job,) = json.loads(tool.run({"action": "jobs", "kind": "recipe"}))["items"]
    report = json.loads(tool.run({"action": "status", "job_id": job["job_id"]}))["result"]["report"]
    measured = [stage for stage in report["stages"] if "success_rate" in stage]
    assert len(report["stages"]) == len(document["stages"])
    assert len(measured) == sum(stage["method"] == "evaluate" for stage in document["stages"])
