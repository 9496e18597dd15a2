"""Rewards that a caller names: planned, trained on and read back through the protocol, with a scorer of an installed package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from jobs_in_process import jobs_in_process  # noqa: F401
from mcp_client import call, ended, finished, until
from quintain import extensions
from quintain.server.app import create_server
from quintain.settings import Settings

BREVITY = '''
def brevity(run):
    """1 for a run of one turn, less for more."""
    return 1 / len(run.agent_steps)
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scorer `brevity` of the installed package acme-scores."""
    site = tmp_path / "site"
    info = site / "acme_scores-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "acme_scores.py").write_text(BREVITY, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-scores\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[quintain.scorers]\nbrevity = acme_scores:brevity\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    extensions.extensions_of.cache_clear()
    yield
    extensions.extensions_of.cache_clear()


async def talk(settings: Settings) -> dict[str, Any]:
    async with Client(create_server(settings)) as client:
        result: dict[str, Any] = {"scorers": (await call(client, "list_library", kind="scorers"))["items"]}
        result["plan"] = await call(
            client, "plan_training", goal=["short_answers"], environment="quintain/inventory", method="grpo"
        )
        small = {"rollouts": 1, "tasks_per_step": 3, "group_size": 4}
        where = {"method": "grpo", "model": "starter", "environment": "quintain/inventory", "hyperparameters": small}
        result["job"] = await finished(
            client,
            "start_training",
            reward={**result["plan"]["reward"], "parts": {**result["plan"]["reward"]["parts"], "brevity": 0.5}},
            name="short",
            **where,
        )
        started = await call(client, "start_training", reward="length", **where)
        result["constant"] = await until(client, started["job_id"], ended)
        chosen = {"job_id": result["job"]["job_id"]}
        result["runs"] = (await call(client, "search_trajectories", filter=chosen))["items"]
        scorer = result["job"]["result"]["report"]["reward"]["reward"]
        result["groups"] = await call(
            client, "export_dataset", kind="grpo", name="groups", filter=chosen, scorer=scorer
        )
        return result


@pytest.mark.usefixtures("installed", "jobs_in_process")
def test_short_answers_are_planned_and_rewarded_in_grpo_by_named_parts(settings: Settings) -> None:
    result = anyio.run(talk, settings)
    names = {item["name"]: item["source"] for item in result["scorers"]}
    assert (names["length"], names["brevity"], names["words"]) == ("built in", "installed by acme-scores", "declared")
    assert result["plan"]["reward"] == {"parts": {"outcome": 1, "length": 1}, "combine": "product"}
    assert "reward={'parts': {'outcome': 1, 'length': 1}, 'combine': 'product'}" in result["plan"]["next_step"]
    job = result["job"]
    assert job["step"] == 1, job
    assert [warning.partition(" was ")[0] for warning in job["warnings"]] == [
        "constant_reward_part: part 'length' of the reward"
    ]
    assert {"reward/outcome", "reward/length", "reward/brevity"} <= job["metrics"].keys()
    failed = result["constant"]
    assert (failed["error"]["code"], "a `reward` that ranks" in failed["error"]["message"]) == (
        "nothing_supervised",
        True,
    )
    assert "part 'length' of the reward was 1 in all 12 runs" in failed["warnings"][0], (
        "the cause, though the job failed"
    )
    found = job["result"]["report"]["reward"]
    assert (found["reward"], len(result["runs"])) == ("mix(brevity=0.5, length=1, outcome=1, product)", 12)
    assert found["scored"] + sum(found["unscored"].values()) == 12
    parts = found["parts"]
    assert 0 < parts["brevity"] <= 1
    assert 0 < found["mean"] <= parts["outcome"] < 1, "brevity earns nothing where the outcome is a failure"
    assert result["groups"]["rows"] >= 1, "the job's scores are stored under the name of the reward"
