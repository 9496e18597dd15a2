"""Rollouts in two environments at once, scored while they are played, and carried out again: real jobs, as a client sees them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp import Client

from mcp_client import call, finished
from quintain.server.app import create_server
from quintain.settings import Settings

PARTS = ("quintain/inventory", "quintain/tools-1k?k=8&mode=direct")
MIX = "mix(outcome=0.5, rules=0.5)"


async def talk(settings: Settings) -> dict[str, Any]:
    async with Client(create_server(settings)) as client:
        played = await finished(
            client,
            "collect_rollouts",
            agent="starter",
            environment=dict.fromkeys(PARTS, 1.0),
            n_tasks=2,
            attempts=2,
            temperature=[0.0, 1.0],
            scorer={"outcome": 0.5, "rules": 0.5},
            max_turns=3,
        )
        chosen = played["result"]["trajectories"]["filter"]
        result: dict[str, Any] = {"played": played}
        result["runs"] = (await call(client, "search_trajectories", filter=chosen))["items"]
        result["replayed"] = await finished(client, "score_trajectories", scorer="replay", filter=chosen)
        every: dict[str, Any] = {"kind": "sft", "filter": chosen, "outcomes": ["success", "failure", "truncated"]}
        result["kept"] = await call(client, "export_dataset", name="kept", scorer=MIX, min_score=0.1, **every)
        result["verified"] = await call(client, "export_dataset", name="sure", scorer="replay", min_score=1, **every)
        return result


@pytest.mark.soak
def test_runs_of_a_mixture_are_scored_as_they_are_played_and_come_out_the_same_when_carried_out_again(
    settings: Settings,
) -> None:
    result = anyio.run(talk, settings)
    report = result["played"]["result"]["report"]
    assert report["temperatures"] == [0.0, 1.0]
    assert (report["scores"]["scorer"], report["scores"]["scored"]) == (MIX, 4)
    assert f"scorer={MIX!r}" in result["played"]["next_step"]
    assert sorted(run["environment"] for run in result["runs"]) == sorted([*PARTS, *PARTS])
    assert (
        result["kept"]["rows"] + sum(result["kept"]["dropped"].values()) == 4
    )  # the stored scores are those of the job
    assert result["replayed"]["result"]["report"]["reproduced"] == 4
    assert result["verified"]["rows"] + result["verified"]["dropped"].get("duplicate", 0) == 4
