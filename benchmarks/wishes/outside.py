"""Wishes of an outsider's trial that first fell short, as `first_twenty` has them."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.wishes.assistant import Assistant, require
from benchmarks.wishes.first_twenty import INVENTORY, QUICK, runs_at_hand

SERVER = Path(__file__).parents[2] / "tests" / "environments" / "notes_mcp_server.py"


async def short_if_right(a: Assistant) -> None:
    """Reward short answers, but only if they are correct."""
    plan = await a.call("plan_training", goal=["short_answers"], method="grpo", environment=INVENTORY)
    score = await a.call("score_trajectories", scorer=plan["reward"], filter=await runs_at_hand(a))
    require(score["scored"] and "product" in score["scorer"], f"nothing was multiplied: {score}")
    worst = await a.call("search_trajectories", sort=f"-{score['scorer']}", filter={"outcome": "failure"}, limit=50)
    paid = [run["score"] for run in worst["items"] if run["score"]]
    require(worst["items"] and not paid, f"failures earn {paid}")


async def fits(a: Assistant) -> None:
    """Will this training fit into my laptop with half a gigabyte? And into one with eight?"""
    with a.uncounted():
        data = await a.call("export_dataset", kind="sft", name="good", filter=await runs_at_hand(a))
    small, large = [await a.call("plan_training", dataset_id=data["dataset_id"], memory_gb=gb) for gb in (0.5, 8)]
    require([one["code"] for one in small["blockers"]] == ["out_of_memory"], f"it should not fit: {small['blockers']}")
    require(not large["blockers"] and large["estimate"]["memory_is_stated"], f"it should fit: {large['blockers']}")


async def nothing_personal(a: Assistant) -> None:
    """Train only on runs in which nothing personal was found."""
    with a.uncounted():
        for answer in ("Call bob.smith@corp.net.", "It is on shelf 4."):
            turns = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": answer}]
            await a.call("record_trajectory", messages=turns, outcome="success", tags=["desk"])
    clean = {"tags": ["desk"], "personal_data": "none"}
    data = await a.call("export_dataset", kind="sft", name="clean", filter=clean)
    require((data["rows"], data["redactions"]) == (1, {}), f"not the clean run alone: {data}")


async def queued(a: Assistant) -> None:
    """My job does not start. What is it waiting for?"""
    with a.uncounted():
        data = await a.call("export_dataset", kind="sft", name="good", filter=await runs_at_hand(a))
        long = {"epochs": 500, "batch_size": 4}
        first = await a.follow(data, "start_training", name="long", hyperparameters=long)
        await a.call("evaluate_agent", agent="starter", environment=INVENTORY, n_tasks=2)
    view = await a.follow(await a.call("list_jobs", status="queued"), "get_job")
    ahead = await a.call("get_job", job_id=next(iter(view["waiting_for"]["held_by"])))
    require(ahead["job_id"] == first["job_id"], f"the wrong job: {ahead['label']}")
    require(ahead["label"] in view["next_step"], f"the next step does not name what it waits for: {view['next_step']}")
    await a.ended(await a.call("cancel_job", job_id=ahead["job_id"]))
    await a.done(view)


async def own_server(a: Assistant) -> None:
    """Train my agent to use my MCP server's tools: write tasks for it, collect, train, evaluate."""
    with a.uncounted():
        lines = f'[mcp.notes]\ncommand = "{sys.executable}"\nargs = ["{SERVER}"]\nfresh = "session"\n'
        (a.home / "environments.toml").write_text(lines, encoding="utf-8")
    found = (await a.call("list_library", kind="environments", text="mcp"))["items"]
    environment = next(item["id"] for item in found if item["id"] == "mcp:notes")
    form = await a.refused("collect_rollouts", agent="expert", environment=environment, tasks=[{"prompt": "Add."}])
    require("'checker'" in form and "'script'" in form, f"the form of a task is not shown: {form}")
    tasks = [
        {"prompt": f"What is {n} + 3?", "answer": n + 3, "script": [{"tool": "add", "args": {"a": n, "b": 3}}]}
        for n in range(1, 13)
    ]
    played = await a.done(await a.call("collect_rollouts", agent="expert", environment=environment, tasks=tasks))
    require(played["result"]["success_rate"] == 1, f"not all tasks are solved by their calls: {played['result']}")
    data = await a.follow(played, "export_dataset", name="notes")
    trained = await a.done(await a.follow(data, "start_training", name="notary", hyperparameters=QUICK))
    measured = await a.done(await a.follow(trained, "evaluate_agent", n_tasks=4))
    require(
        environment in measured["label"] and measured["result"]["n"] == 4, f"measured elsewhere: {measured['label']}"
    )


OUTSIDE_WISHES: dict[Callable[[Assistant], Awaitable[None]], int] = {
    short_if_right: 3,
    fits: 2,
    nothing_personal: 1,
    queued: 6,
    own_server: 9,
}
"""As `WISHES`."""
