"""The prompts name tools that exist, and their arguments are completed from what is stored."""

from __future__ import annotations

import re

import anyio
from mcp import Client

from quintain.scoring.judges.rubrics import RUBRICS
from quintain.server.app import create_server
from quintain.server.prompts import PROMPTS
from quintain.settings import Settings
from quintain.tools.catalog import CATALOG
from quintain.tools.services import open_services
from quintain.tools.training.agents import register_agent
from trajectory_runs import answer, call, run, user

ARGUMENTS = {"agents": "a, b", "run": "traj-1", "environment": "my/env", "agent": "mine", "rubric": "default"}


def test_every_tool_that_a_prompt_names_exists_and_takes_the_arguments_that_it_names() -> None:
    tools = {spec.name: spec for spec in CATALOG}
    texts = [spec.render(ARGUMENTS | {"run": run}) for spec in PROMPTS.values() for run in ("traj-1", "job-1")]
    for text in texts:
        for name, given in re.findall(r"\b([a-z]+_[a-z_]+)\(([^()]*)\)", text):
            assert name in tools, name
            known = tools[name].function.__code__.co_varnames
            assert [a for a in re.findall(r"\b(\w+)=", given) if a not in known] == [], (name, given)
        assert tools.keys() & set(re.findall(r"\w+", text)), text


def test_arguments_of_prompts_are_completed_from_what_is_stored(settings: Settings) -> None:
    services = open_services(settings)
    one = register_agent(services, "mine", "starter").agent.id
    two = register_agent(services, "mine", "starter", description="Again.").agent.id
    (stored,) = services.store.trajectories.add_many(
        [run("t1", user(), call("look", "a box"), answer("Done."))], services.clock()
    )

    async def completed(prompt: str, argument: str, start: str) -> list[str]:
        async with Client(create_server(settings)) as client:
            ref = {"type": "ref/prompt", "name": prompt}
            found = await client.complete(ref=ref, argument={"name": argument, "value": start})  # type: ignore[arg-type]
            return found.completion.values

    def values(*asked: str) -> list[str]:
        return anyio.run(completed, *asked)

    assert values("diagnose_run", "run", "tr") == [stored.id]
    assert values("diagnose_run", "run", "job-") == []
    assert values("compare_agents", "agents", "agent:m") == [two, one]
    assert values("compare_agents", "agents", f"{one}, agent:mine@2") == [f"{one}, {two}"]
    assert values("compare_agents", "agents", "mi") == values("train_end_to_end", "model", "mi") == ["mine"]
    assert values("compare_agents", "agents", "mine, mi") == ["mine, mine"]
    assert values("label_data", "agent", "m") == ["mine"]
    assert values("label_data", "rubric", "def") == [name for name in RUBRICS if name.startswith("def")]
    assert values("train_end_to_end", "model", "s")[0] == "starter"
    services.close()
