"""Twelve wishes of users who look twice: who ask again, check a result, tidy up.

As in `first_twenty`, each function is what an assistant does that knows only the list of tools and the answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.wishes.assistant import Assistant, require
from benchmarks.wishes.first_twenty import INVENTORY, QUICK, runs_at_hand, trained_agent


async def asked_again(a: Assistant) -> None:
    """The line broke while I ordered a measurement. I order it again; but do not do the work twice."""
    order = {"agent": "starter", "environment": INVENTORY, "n_tasks": 6, "request_key": "tuesday"}
    first = await a.call("evaluate_agent", **order)
    second = await a.call("evaluate_agent", **order)
    require(second["deduplicated"] and second["job_id"] == first["job_id"], f"it is done twice: {second}")
    with a.uncounted():
        await a.done(second)


async def misused(a: Assistant) -> None:
    """Which tool does it misuse most often?"""
    found = await a.call("search_trajectories", filter=await runs_at_hand(a), summary=True, limit=1)
    tools = found["summary"]["tools"]
    require(tools, f"no tools are counted: {found['summary']}")
    require(all({"calls", "errors"} <= tool.keys() for tool in tools.values()), f"errors are not counted: {tools}")


async def price(a: Assistant) -> None:
    """What did a solved ticket cost me on average? My agent logs its dollars."""
    with a.uncounted():
        for n, usd in enumerate((0.02, 0.03, 0.01, 0.04)):
            step = {"actor": "agent", "message": f"Ticket {n} is closed.", "extra": {"cost_usd": usd}}
            run = {
                "task": {"id": f"ticket-{n}", "prompt": f"Close ticket {n}."},
                "agent": {"name": "clerk"},
                "steps": [step],
                "outcome": {"status": "success" if n % 2 else "failure"},
                "tags": ["tickets"],
            }
            await a.call("record_trajectory", trajectory=run)
    found = await a.call("search_trajectories", filter={"tags": ["tickets"]}, summary=True)
    per_success = found["summary"]["cost_per_success"]
    require(
        abs(per_success - 0.05) < 1e-9, f"0.10 dollars for two solved tickets are not 0.05 each: {found['summary']}"
    )


async def rematch(a: Assistant) -> None:
    """Let my agent play a board game against the expert. Who wins?"""
    (game,) = (await a.call("list_library", kind="environments", text="board game"))["items"]
    played = {"agent": "starter", "environment": game["id"], "opponent": "expert", "n_tasks": 6}
    rate = (await a.done(await a.call("evaluate_agent", **played)))["result"]["report"]["rate"]
    require(rate["n"] == 6 and rate["value"] < 0.5, f"the game has no result: {rate}")


async def one_of_each(a: Assistant) -> None:
    """Many of my examples are nearly the same. Keep one of each kind, and tell me how many went."""
    with a.uncounted():
        for n in range(6):
            words = "To reset the router hold the button for ten seconds, then wait until the light is green again."
            said = [
                {"role": "assistant", "content": f"{words} ({n})" if n < 4 else f"Answer {n} is about billing only."}
            ]
            task = {"id": f"router-{n}", "prompt": "How do I reset my router?" if n < 4 else f"Bill {n}?"}
            await a.call("record_trajectory", messages=said, task=task, outcome="success", tags=["helpdesk"])
    data = await a.call(
        "export_dataset", kind="sft", name="each", filter={"tags": ["helpdesk"]}, curation={"near_duplicates": 0.7}
    )
    require(data["dropped"].get("near_duplicate") == 3 and data["rows"] == 3, f"likenesses are left: {data['dropped']}")


async def word_by_word(a: Assistant) -> None:
    """Show me in one example which words it will learn, and which it only reads."""
    data = await a.call("export_dataset", kind="sft", name="words", filter=await runs_at_hand(a), seed=2)
    shown = await a.call("preview_dataset", dataset_id=data["dataset_id"], model="starter", rows=1)
    while shown["status"] in {"queued", "running"}:
        shown = await a.follow(shown, "preview_dataset")
    spans = shown["rows"][0]["spans"]
    require({span["trained"] for span in spans} == {True, False}, f"nothing is told apart: {spans}")
    require(all(span["by"] == "agent" for span in spans if span["trained"]), "it learns what others said")


async def undone(a: Assistant) -> None:
    """That training was a mistake. Throw the agent and its dataset away."""
    with a.uncounted():
        data = await a.call("export_dataset", kind="sft", name="mistake", filter=await runs_at_hand(a), seed=5)
        view = await a.done(await a.follow(data, "start_training", name="mistake", hyperparameters=QUICK))
    dry = await a.call("forget", id=view["result"]["agent"], trajectory_ids=[data["dataset_id"]])
    require(dry["dry_run"], "nothing is shown before it is done")
    gone = await a.follow(dry, "forget")
    require(not gone["dry_run"], f"it was not done: {gone}")
    with a.uncounted():
        names = [item["name"] for item in (await a.call("list_library", kind="agents"))["items"]]
        sets = [item["name"] for item in (await a.call("list_library", kind="datasets"))["items"]]
    require("mistake" not in names + sets, f"it is still there: {names} {sets}")


async def luck(a: Assistant) -> None:
    """Train the same thing twice with other luck. Do the two differ?"""
    with a.uncounted():
        data = await a.call("export_dataset", kind="sft", name="twice", filter=await runs_at_hand(a), seed=6)
    agents = []
    for seed in (1, 2):
        started = await a.follow(data, "start_training", name=f"luck-{seed}", seed=seed, hyperparameters=QUICK)
        view = await a.done(started)
        agents.append(view["result"]["agent"])
        await a.done(await a.follow(view, "evaluate_agent", n_tasks=8))
    found = await a.call("compare_agents", agents=agents, environment=INVENTORY)
    (pair,) = found["comparisons"]
    require(pair["p_corrected"] is not None and pair["n_tasks"] == 8, f"not compared: {pair}")


async def full_disk(a: Assistant) -> None:
    """My disk is full. What of yours can go without harm? Do it."""
    await trained_agent(a)
    dry = await a.call("forget", ended_days=0)
    require(dry["dry_run"] and dry["freed_bytes"] > 0, f"nothing can go: {dry}")
    gone = await a.follow(dry, "forget")
    require(not gone["dry_run"] and gone["freed_bytes"] == dry["freed_bytes"], f"less went than was promised: {gone}")


async def still_same(a: Assistant) -> None:
    """Do the runs of the other day still end the same when they are repeated?"""
    view = await a.done(await a.call("score_trajectories", scorer="replay", filter=await runs_at_hand(a)))
    report = view["result"]["report"]
    require(report["reproduced"] == report["runs"] > 0, f"not the same: {report}")


async def two_worlds(a: Assistant) -> None:
    """Measure it on logistics and arithmetic together. Which of the two is harder for it?"""
    weights = {
        (await a.call("list_library", kind="environments", text=word))["items"][0]["id"]: 1
        for word in ("logistics", "arithmetic")
    }
    view = await a.done(await a.call("evaluate_agent", agent="starter", environment=weights, n_tasks=12))
    parts = view["result"]["report"]["by_environment"]
    require(set(parts) == set(weights) and all(part["n"] == 6 for part in parts.values()), f"not told apart: {parts}")


async def taboo(a: Assistant) -> None:
    """It must never compare items by that tool. How often does it do so all the same?"""
    asked = {"agent": "expert", "environment": INVENTORY, "n_tasks": 12, "forbidden": ["compare"]}
    view = await a.done(await a.call("evaluate_agent", **asked))
    count: Any = view["result"]["report"]["forbidden"]
    require(count["forbidden_calls"] > 0 and count["episodes"]["successes"] > 0, f"the calls are not counted: {count}")


SECOND_LOOK_WISHES: dict[Callable[[Assistant], Awaitable[None]], int] = {
    asked_again: 2,
    misused: 1,
    price: 1,
    rematch: 3,
    one_of_each: 1,
    word_by_word: 2,
    undone: 2,
    luck: 9,
    full_disk: 2,
    still_same: 2,
    two_worlds: 4,
    taboo: 2,
}
"""As `WISHES`."""
