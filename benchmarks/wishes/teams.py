"""Ten more wishes, of people who work together: two vendors, a customer, a colleague's marks, a failed night, a report.

They were written before anybody looked at how they can be fulfilled; see `first_twenty` for the form.
"""

from __future__ import annotations

import json
import os
import re
import signal
import zipfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import anyio
import psutil

from benchmarks.wishes.assistant import Assistant, require
from benchmarks.wishes.first_twenty import INVENTORY, QUICK, runs_at_hand, trained_agent


async def two_vendors(a: Assistant) -> None:
    """I have runs of two agents, one on Claude and one on GPT, on the same tasks. Which is better and how sure are you?"""
    await _support(a)
    found = await a.call("compare_agents", agents=["support-claude", "support-gpt"])
    (pair,) = found["comparisons"]
    require(pair["n_tasks"] == 20 and pair["significant"] and pair["difference"] < 0, f"no verdict: {pair}")


async def failed_job(a: Assistant) -> None:
    """My job failed. Why, and what do I change?"""
    profile = '[gone]\nprotocol = "openai"\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n'
    with a.uncounted():
        (a.home / "endpoints.toml").write_text(profile)
        await a.ended(await a.call("evaluate_agent", agent="endpoint:gone", environment=INVENTORY, n_tasks=2))
    view = await a.follow(await a.call("list_jobs", status="failed"), "get_job")
    message = view["error"]["message"]
    require("cannot be reached" in message and "start again" in message, f"no cause or remedy: {view['error']}")


async def customer(a: Assistant) -> None:
    """Customer ACME wants to be forgotten. Delete everything of them and say which models learned from it."""
    await _support(a)
    with a.uncounted():
        data = await a.call("export_dataset", kind="sft", name="acme", filter={"tags": ["customer:acme"]})
        await a.done(await a.follow(data, "start_training", name="acme", hyperparameters=QUICK))
    dry = await a.call("forget", filter={"tags": ["customer:acme"]})
    tainted = [one["id"] for one in dry["touched"] if one["state"] == "tainted"]
    gone = await a.follow(dry, "forget", copies=True)
    require(gone["runs"] == dry["runs"] == 10 and tainted == ["agent:acme@1"], f"not all of them: {dry}")
    require(data["path"] in gone["removed"], f"the dataset stays on the disk: {gone}")
    with a.uncounted():
        left = await a.call("search_trajectories", filter={"tags": ["customer:acme"]})
    require(not left["items"], "a run of the customer is still listed")


async def cheaper(a: Assistant) -> None:
    """The training that I planned takes too long here. Make it cheaper."""
    with a.uncounted():
        await a.call("export_dataset", kind="sft", name="dear", filter=await runs_at_hand(a), seed=5)
    first = await a.call("plan_training", dataset_id="dear")
    less = {"max_steps": max(1, first["estimate"]["steps"] // 4)}
    second = await a.call("plan_training", dataset_id="dear", hyperparameters=less)
    spent = [(plan["estimate"]["duration_range_s"] or [plan["estimate"]["duration_s"]])[-1] for plan in (first, second)]
    require(spent[1] < spent[0], f"nothing is saved: at most {spent[1]} s, before {spent[0]} s")


async def colleague(a: Assistant) -> None:
    """Train only on runs that my colleague Dana rated good."""
    await _support(a)
    for rater, value in (("Dana", 1.0), ("Eve", 0.0)):
        with a.uncounted():
            batch = await a.call(
                "get_judging_batch", judge="person", rater=rater, limit=4, filter={"tags": ["support"]}
            )
            names = [criterion["name"] for criterion in batch["rubric"]["criteria"]]
            scores = [{"item_id": one["item_id"], "scores": dict.fromkeys(names, value)} for one in batch["items"]]
            await a.call("submit_scores", batch_id=batch["batch_id"], scores=scores)
    scorers = (await a.call("list_library", kind="scorers"))["items"]
    require(any("people@NAME" in item["about"] for item in scorers), f"no scorer is of one rater: {scorers}")
    chosen = {"filter": {"tags": ["support"]}, "scorer": "people@Dana", "min_score": 0.7}
    data = await a.call("export_dataset", kind="sft", name="dana", **chosen)
    require(data["rows"] == 4, f"not the four runs of Dana: {data['rows']}")
    await a.done(await a.follow(data, "start_training", name="dana", hyperparameters={**QUICK, "max_steps": 1}))


async def yesterday(a: Assistant) -> None:
    """My laptop was shut down in the middle of something. Go on with what was running."""
    with a.uncounted():
        data = await a.call("export_dataset", kind="sft", name="night", filter=await runs_at_hand(a), seed=6)
        steps = {"epochs": 100, "max_steps": 40, "batch_size": 2, "checkpoint_every_steps": 2}
        started = await a.follow(data, "start_training", name="night", hyperparameters=steps)
        view = await a.call("get_job", job_id=started["job_id"])
        while view["step"] < 4:
            view = await a.call("get_job", job_id=started["job_id"], wait_s=1)
        pids = json.loads((a.home / "jobs" / started["job_id"] / "shim.json").read_text())
        for pid in (pids["worker"], pids["shim"]):
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
        while view["attempt"] == 1 and view["status"] == "running":
            view = await a.call("get_job", job_id=started["job_id"])
            await anyio.sleep(0.2)
    view = await a.follow(await a.call("list_jobs"), "get_job")
    if view["status"] == "interrupted":
        view = await a.follow(view, "resume_job")
    view = await a.done(view) if view["status"] != "succeeded" else view
    require(view["attempt"] > 1 and view["result"]["report"]["resumed_from_step"], f"it began anew: {view['result']}")


async def langfuse(a: Assistant) -> None:
    """My logs are in a zip that I exported from Langfuse. Load them."""
    base = {"traceId": "t1", "startTime": "2026-11-01T10:00:00Z", "endTime": "2026-11-01T10:00:01Z"}
    turn = {
        **base,
        "id": "o1",
        "type": "GENERATION",
        "name": "answer",
        "model": "gpt-x",
        "input": [{"role": "user", "content": "Where is order 7?"}],
        "output": {"role": "assistant", "content": "It is on the way."},
    }
    with zipfile.ZipFile(a.home / "inbox" / "langfuse.zip", "w") as packed:
        packed.writestr("export/observations.jsonl", json.dumps(turn) + "\n")
    found = await a.call("import_trajectories", path="langfuse.zip", tags=["langfuse"])
    require(
        (found["imported"], found["format"]) == (1, "langfuse"), f"not read: {found['rejected'] or found['format']}"
    )


async def good_steps(a: Assistant) -> None:
    """Train only on the good steps of the runs, not on the bad ones."""
    scored = await a.call("score_trajectories", scorer="rules", filter=await runs_at_hand(a))
    data = await a.follow(scored, "export_dataset", name="steps", min_score=0, outcomes=["success", "failure"])
    plan = await a.call("plan_training", dataset_id=data["dataset_id"])
    field = plan["fields"]["step_weighting"]
    require("reward" in field, f"the plan names no weight of steps: {field}")
    settings = {**QUICK, "step_weighting": "reward", "max_steps": 2}
    view = await a.done(await a.follow(plan, "start_training", name="stepwise", hyperparameters=settings))
    require(view["result"]["report"]["examples"] == data["rows"], f"rows were lost: {view['result']['report']}")


async def last_week(a: Assistant) -> None:
    """What changed since last week?"""
    await _support(a)
    with a.uncounted():
        await trained_agent(a)
    since = (datetime.now(UTC) - timedelta(days=7)).isoformat()
    runs = await a.call("search_trajectories", filter={"since": since})
    jobs = await a.call("list_jobs")
    agents = await a.call("list_library", kind="agents")
    dates = [item["created_at"] for part in (runs, jobs, agents) for item in part["items"]]
    require(dates and min(dates) > since and len(agents["items"]) > 1, f"a change lacks its date: {dates[:3]}")


async def report_to_boss(a: Assistant) -> None:
    """My boss wants a report on whether the trained agent is better. Give me a file that I can send."""
    agents = ["starter", await trained_agent(a)]
    for agent in agents:
        await a.done(await a.call("evaluate_agent", agent=agent, environment=INVENTORY, n_tasks=8, seed=9))
    found = await a.call("compare_agents", agents=agents, environment=INVENTORY)
    page = a.home / "reports" / f"{found['comparison_id']}.html"
    require(f"reports/{page.name}" in found["next_step"], f"no file is named: {found['next_step']}")
    text = page.read_text(encoding="utf-8")
    require(not re.search(r"(src|href)=.https?:", text), "the file needs a network")


async def _support(a: Assistant) -> None:
    """Record runs that the user already has: of two agents on 20 tasks, five tasks of a customer."""
    if "support" in a.kept:
        return
    a.kept["support"] = True
    with a.uncounted():
        for n in range(20):
            for agent, solved in (("support-claude", True), ("support-gpt", n % 3 == 0)):
                words = f"Order {n} is {'on the way' if solved else 'lost'}, says {agent}."
                await a.call(
                    "record_trajectory",
                    messages=[{"role": "assistant", "content": words}],
                    task={"id": f"order-{n}", "prompt": f"Where is order {n}?"},
                    agent=agent,
                    outcome="success" if solved else "failure",
                    tags=["support", *(["customer:acme"] if n % 4 == 0 else [])],
                )


TEAM_WISHES: dict[Callable[[Assistant], Awaitable[None]], int] = {
    two_vendors: 1,
    failed_job: 2,
    colleague: 4,
    customer: 2,
    cheaper: 2,
    yesterday: 3,
    langfuse: 1,
    good_steps: 5,
    last_week: 3,
    report_to_boss: 5,
}
"""As `WISHES`."""
