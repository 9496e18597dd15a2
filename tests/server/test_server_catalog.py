"""The real catalog on a real home folder."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError

from jobs_in_process import jobs_in_process  # noqa: F401
from quintain.records.jobs.job import SelftestSpec
from quintain.server.app import build_server, create_server
from quintain.settings import Settings
from quintain.tools.catalog import CATALOG
from quintain.tools.services import open_services
from server.talks import ERAS, serve

RUN = {
    "task": "Count the apples",
    "messages": [{"role": "user", "content": "Count"}, {"role": "assistant", "content": "3"}],
}


async def listed(client: Client) -> str:
    tools = (await client.list_tools()).tools
    return json.dumps([tool.model_dump(by_alias=True, exclude_none=True) for tool in tools], separators=(",", ":"))


@ERAS
def test_the_list_of_tools_is_short_and_the_same_whatever_is_stored(settings: Settings, mode: str) -> None:
    async def main() -> None:
        with anyio.fail_after(100):
            async with Client(create_server(settings), mode=mode) as client:
                before = await listed(client)
                assert len(before.encode()) < 40_000
                assert "talk_to_agent" not in before
                refused = await client.call_tool("talk_to_agent", {})
                assert "expected either `agent` to begin with or `job_id`" in refused.content[0].text, (
                    "it answers all the same"
                )
                stored = (await client.call_tool("record_trajectory", RUN)).structured_content
                assert stored["created"] is True
                page = (await client.read_resource(stored["resource_uri"])).contents[0]
                assert "Count the apples" in page.text
                assert await listed(client) == before
            async with Client(create_server(settings, read_only=True), mode=mode) as client:
                assert "record_trajectory" not in await listed(client)

    anyio.run(main)


def tools_of(settings: Settings, **switches: Any) -> dict[str, Any]:
    """Return each tool that a server offers, by its name."""

    async def talk(client: Client) -> dict[str, Any]:
        return {tool.name: tool.model_dump(by_alias=True) for tool in (await client.list_tools()).tools}

    return serve(create_server(settings, **switches), "auto", talk)


def types_in(schema: Any) -> list[Any]:
    if isinstance(schema, list):
        return [found for part in schema for found in types_in(part)]
    if not isinstance(schema, dict):
        return []
    inner = [found for part in schema.values() for found in types_in(part)]
    return [*inner, schema["type"]] if "type" in schema else inner


def test_tools_and_arguments_are_described_and_no_schema_gives_a_list_of_types(settings: Settings) -> None:
    """Inspector and some hosts take one type a schema; alternatives come as `anyOf`, and in results as a name alone."""
    for name, tool in tools_of(settings).items():
        assert 0 < len(tool["description"].encode()) < 1500, name
        for argument, schema in tool["inputSchema"].get("properties", {}).items():
            assert schema.get("description"), (name, argument)
        found = types_in([tool["inputSchema"], tool["outputSchema"]])
        assert "object" in found, name
        assert not any(isinstance(kind, list) for kind in found), name


@pytest.mark.usefixtures("jobs_in_process")
def test_a_job_can_be_followed_listed_read_and_completed(settings: Settings) -> None:
    """A selftest job, started beside the server, as another server on the same home would."""
    services = open_services(settings)

    async def main() -> None:
        with anyio.fail_after(100):
            async with Client(build_server(CATALOG, lambda: open_services(settings))) as client:
                job_id = services.jobs.start(SelftestSpec(steps=3)).job.id
                view: dict[str, Any] = {"status": "queued"}
                while view["status"] in {"queued", "running"}:
                    view = (await client.call_tool("get_job", {"job_id": job_id, "wait_s": 20})).structured_content
                assert view["status"] == "succeeded"
                uris = [str(resource.uri) for resource in (await client.list_resources()).resources]
                pages = ["ui://quintain/dashboard", "judging://rubrics", "guide://pipeline", "guide://curation"]
                assert uris == [*pages, f"job://{job_id}"]
                for part, key in (("", "status"), ("/metrics", "curves"), ("/figure", "figure")):
                    page = (await client.read_resource(f"job://{job_id}{part}")).contents[0]
                    assert json.loads(page.text)[key]
                assert (await client.read_resource(f"job://{job_id}/log?tail=5")).contents[0].mime_type == "text/plain"
                with pytest.raises(MCPError, match=r"tail: expected a number of lines, 1\.\.1000, got '0'"):
                    await client.read_resource(f"job://{job_id}/log?tail=0")
                with pytest.raises(MCPError, match=r"\[not_found\]") as missing:
                    await client.read_resource("job://job-0000000000")
                assert missing.value.error.code == -32602
                ref = {"type": "ref/resource", "uri": "job://{job_id}"}
                found = await client.complete(ref=ref, argument={"name": "job_id", "value": "job-"})  # type: ignore[arg-type]
                assert found.completion.values == [job_id]
                assert "learning_rate" in (await client.read_resource("guide://methods/sft")).contents[0].text

    try:
        anyio.run(main)
    finally:
        services.close()


def test_bad_input_names_the_value_the_bound_and_what_to_call_next(settings: Settings) -> None:
    cases: list[tuple[str, dict[str, Any], list[str]]] = [
        ("search_trajectories", {"limitt": 1}, ["[unknown_argument]", "did you mean 'limit'", "valid: filter, limit"]),
        ("search_trajectories", {"filter": {"agnt": "x"}}, ["filter.agnt", "valid `filter`: job_id, agent"]),
        (
            "search_trajectories",
            {"filter": {"since": "yesterday"}},
            ["filter.since: expected a date, such as 2026-11-01, or time", ", got 'yesterday'; correct"],
        ),
        (
            "start_training",
            {"method": "rlhf", "model": "starter"},
            [
                "arguments.method: expected one of sft, bc,",
                "use 'ppo' (policy gradients with a value head); list_library(",
            ],
        ),
        ("search_trajectories", {"limit": 500}, ["got 500", "1..200", "call search_trajectories again"]),
        ("get_trajectory", {"trajectory_id": "traj-x"}, ["[not_found]", "'traj-x'", "see search_trajectories"]),
        ("get_job", {"job_id": "job-x"}, ["[not_found]", "'job-x'", "see list_jobs"]),
        ("record_trajectory", {"trajectory": {"steps": []}}, ["trajectory.steps", "at least 1"]),
        ("export_dataset", {"kind": "sft", "name": "d", "filter": {}}, ["[empty_filter]", "job_id, agent"]),
        (
            "start_training",
            {"method": "sft", "model": "/etc", "dataset_id": "d"},
            ["[outside_roots]", "QUINTAIN_ROOTS"],
        ),
    ]

    async def talk(client: Client) -> list[str]:
        results = [await client.call_tool(tool, arguments) for tool, arguments, _ in cases]
        assert all(result.is_error for result in results)
        return [result.content[0].text for result in results]

    for text, (tool, _, words) in zip(serve(create_server(settings), "legacy", talk), cases, strict=True):
        assert [word for word in words if word not in text] == [], (tool, text)


READERS = {
    "search_trajectories",
    "get_trajectory",
    "list_library",
    "preview_dataset",
    "get_job",
    "list_jobs",
    "plot_job",
    "show_training_dashboard",
}


def test_every_toolset_comes_with_what_reads_and_what_follows_jobs(settings: Settings) -> None:
    own = {
        "data": {"record_trajectory", "import_trajectories", "export_dataset"},
        "label": {"score_trajectories", "record_preferences", "fit_calibration", "get_judging_batch", "submit_scores"},
        "train": {"plan_training", "start_training", "register_agent", "export_agent"},
        "evaluate": {"collect_rollouts", "evaluate_agent", "compare_agents"},
    }
    for toolset, tools in own.items():
        found = tools_of(settings, toolsets=[toolset])
        assert found.keys() >= tools | READERS | {"cancel_job", "resume_job"}, toolset
        assert found.keys().isdisjoint(set().union(*own.values()) - tools), toolset


def test_a_read_only_server_offers_what_reads_plans_previews_and_compares(settings: Settings) -> None:
    found = tools_of(settings, read_only=True)
    assert found.keys() >= READERS | {"plan_training", "compare_agents"}
    assert found.keys() == {spec.name for spec in CATALOG if spec.read_only}

    async def talk(client: Client) -> str:
        arguments = {"agents": ["starter", "expert"], "environment": "quintain/inventory", "sequential": True}
        return (await client.call_tool("compare_agents", arguments)).content[0].text

    assert "[read_only] expected sequential=false" in serve(create_server(settings, read_only=True), "auto", talk)


def test_a_next_step_and_an_error_mark_the_calls_that_this_server_leaves_out(settings: Settings) -> None:
    async def talk(client: Client) -> str:
        result = await client.call_tool("list_library", {"kind": "environments"})
        assert json.loads(result.content[0].text) == result.structured_content
        export = {"kind": "sft", "name": "good", "filter": {"environment": "none"}}
        refused = (await client.call_tool("export_dataset", export)).content[0].text
        if "export_dataset" in {tool.name for tool in (await client.list_tools()).tools}:
            assert (
                "collect_rollouts(agent='starter', environment='quintain/inventory') (left out by this server)"
                in refused
            )
        return str(result.structured_content["next_step"])

    async def call_left_out(client: Client) -> str:
        return (await client.call_tool("start_training", {})).content[0].text

    refused = serve(create_server(settings, read_only=True), "auto", call_left_out)
    assert "[unknown_tool] start_training is left out by this server" in refused
    marked = "collect_rollouts(agent='starter', environment=...) (left out by this server)"
    assert marked in serve(create_server(settings, toolsets=["data"]), "auto", talk)
    unmarked = serve(create_server(settings, toolsets=["evaluate"]), "auto", talk)
    assert "collect_rollouts(" in unmarked
    assert "left out" not in unmarked
