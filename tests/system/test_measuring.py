"""Measuring over stdio, with real jobs, and by command: in the environment, on a dataset, side by side."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from click.testing import Result
from mcp import Client
from typer.testing import CliRunner

from mcp_client import call, ended, server, until
from quintain.cli.main import app
from quintain.settings import Settings

ENVIRONMENT = "quintain/inventory"


async def done(client: Client, started: dict[str, Any]) -> dict[str, Any]:
    view = await until(client, started["job_id"], ended)
    assert view["status"] == "succeeded", view
    return view


async def content(client: Client, uri: str) -> Any:
    return (await client.read_resource(uri)).contents[0]


async def measure(client: Client) -> dict[str, Any]:
    made: dict[str, Any] = {}
    acting = {"agent": "starter", "environment": ENVIRONMENT, "n_tasks": 10, "attempts": 2, "seed": 2}
    rollouts = await done(client, await call(client, "collect_rollouts", **acting))
    chosen = rollouts["result"]["trajectories"]["filter"]
    data = await call(client, "export_dataset", kind="sft", name="runs", filter=chosen, validation_share=0.5)
    await call(client, "register_agent", name="twin", model="starter")
    jobs = []
    for agent in ("starter", "twin"):
        asked: list[dict[str, Any]] = [
            {"dataset_id": data["dataset_id"]},
            {"environment": ENVIRONMENT, "n_tasks": 4, "forbidden": ["compare"]},
        ]
        jobs += [await call(client, "evaluate_agent", agent=agent, **arguments) for arguments in asked]
    made["jobs"] = [await done(client, job) for job in jobs]
    made["data"] = data
    environments = (f"dataset:{data['dataset_id']}", ENVIRONMENT)
    for environment in environments:
        found = await call(client, "compare_agents", agents=["starter", "twin"], environment=environment)
        page = await content(client, found["resource_uri"])
        picture = await content(client, f"{found['resource_uri']}/picture")
        board = await content(client, f"leaderboard://{quote(environment, safe='')}")
        made[environment] = found, json.loads(page.text), base64.b64decode(picture.blob), json.loads(board.text)
    made["templates"] = [t.uri_template for t in (await client.list_resource_templates()).resource_templates]
    made["lineage"] = await call(client, "get_lineage", id=made["jobs"][0]["result"]["evaluation_id"])
    refused = await client.call_tool("evaluate_agent", {"agent": "starter", "dataset_id": "runs", "repeats": 3})
    made["refused"] = refused.content[0].text  # type: ignore[union-attr]
    return made


def test_an_agent_is_measured_in_an_environment_and_on_a_dataset_and_compared(settings: Settings) -> None:
    async def talk() -> dict[str, Any]:
        async with Client(server(settings)) as client:
            return await measure(client)

    made = anyio.run(talk)
    on_data, played = made["jobs"][0], made["jobs"][1]
    assert on_data["kind"] == "evaluate_dataset"
    assert on_data["result"]["dataset_id"] == made["data"]["dataset_id"]
    report = on_data["result"]["report"]
    assert 0 < report["loss"] < 1 < report["perplexity"]
    assert 0 <= report["action_match"] <= report["tool_match"] <= 1
    assert played["result"]["n"] == 4
    for environment in (f"dataset:{made['data']['dataset_id']}", ENVIRONMENT):
        found, comparison, picture, board = made[environment]
        assert found["comparisons"][0]["difference"] == 0.0
        assert found["comparisons"][0]["only_a"] == found["comparisons"][0]["only_b"] == 0
        assert comparison["id"] == found["comparison_id"]
        assert [origin["agent_id"] for origin in comparison["lineage"]] == ["agent:starter@1", "agent:twin@1"]
        assert picture.startswith(b"\x89PNG")
        assert [row["rank"] for row in board["rows"]] == [1, 1]
        assert [row["group"] for row in board["rows"]] == ["a", "a"]
        assert board["environment"] == environment
    assert {"leaderboard://{environment}", "comparison://{comparison_id}"} <= set(made["templates"])
    before = {node["id"] for node in made["lineage"]["ancestors"]}
    assert {made["data"]["dataset_id"], "agent:starter@1"} <= before
    assert "on a dataset nothing is played" in made["refused"]


def command(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--home", str(home)])


@pytest.mark.soak
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
