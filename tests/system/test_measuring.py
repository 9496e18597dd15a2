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

from expert_runs import store_expert_runs
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


async def measure(client: Client, where: str) -> dict[str, Any]:
    data = await call(
        client, "export_dataset", kind="sft", name="runs", filter={"tags": ["expert"]}, validation_share=0.5
    )
    await call(client, "register_agent", name="twin", model="starter")
    asked: dict[str, Any] = {"dataset_id": data["dataset_id"]}
    if where == "environment":
        asked = {"environment": ENVIRONMENT, "n_tasks": 4, "forbidden": ["compare"]}
    jobs = [await call(client, "evaluate_agent", agent=agent, **asked) for agent in ("starter", "twin")]
    views = [await done(client, job) for job in jobs]
    environment = ENVIRONMENT if where == "environment" else f"dataset:{data['dataset_id']}"
    found = await call(client, "compare_agents", agents=["starter", "twin"], environment=environment)
    board = await content(client, f"leaderboard://{quote(environment, safe='')}")
    refused = await client.call_tool("evaluate_agent", {"agent": "starter", "dataset_id": "runs", "repeats": 3})
    return {
        "data": data,
        "measured": views[0],
        "environment": environment,
        "found": found,
        "comparison": json.loads((await content(client, found["resource_uri"])).text),
        "picture": base64.b64decode((await content(client, f"{found['resource_uri']}/picture")).blob),
        "board": json.loads(board.text),
        "templates": [t.uri_template for t in (await client.list_resource_templates()).resource_templates],
        "lineage": await call(client, "get_lineage", id=views[0]["result"]["evaluation_id"]),
        "refused": refused.content[0].text,  # type: ignore[union-attr]
    }


@pytest.mark.parametrize("where", ["dataset", pytest.param("environment", marks=pytest.mark.soak)])
def test_two_agents_are_measured_and_compared(settings: Settings, where: str) -> None:
    store_expert_runs(settings, 6)

    async def talk() -> dict[str, Any]:
        async with Client(server(settings)) as client:
            return await measure(client, where)

    made = anyio.run(talk)
    measured, board = made["measured"], made["board"]
    before = {node["id"] for node in made["lineage"]["ancestors"]}
    assert "agent:starter@1" in before
    if where == "dataset":
        assert measured["kind"] == "evaluate_dataset"
        assert measured["result"]["dataset_id"] == made["data"]["dataset_id"]
        report = measured["result"]["report"]
        assert 0 < report["loss"] < 1 < report["perplexity"]
        assert 0 <= report["action_match"] <= report["tool_match"] <= 1
        assert made["data"]["dataset_id"] in before
    else:
        assert measured["result"]["n"] == 4
    assert made["found"]["comparisons"][0]["difference"] == 0.0
    assert made["found"]["comparisons"][0]["only_a"] == made["found"]["comparisons"][0]["only_b"] == 0
    assert made["comparison"]["id"] == made["found"]["comparison_id"]
    assert [origin["agent_id"] for origin in made["comparison"]["lineage"]] == ["agent:starter@1", "agent:twin@1"]
    assert made["picture"].startswith(b"\x89PNG")
    assert [row["rank"] for row in board["rows"]] == [1, 1]
    assert [row["group"] for row in board["rows"]] == ["a", "a"]
    assert board["environment"] == made["environment"]
    assert {"leaderboard://{environment}", "comparison://{comparison_id}"} <= set(made["templates"])
    assert "on a dataset nothing is played" in made["refused"]


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
