"""Twenty more wishes of users, of daily work: finding, marking, correcting, stopping, mistyping.

As in `first_twenty`, each function is what an assistant does that knows only the list of tools and the answers.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.wishes.assistant import Assistant, require
from benchmarks.wishes.first_twenty import INVENTORY, QUICK, runs_at_hand, trained_agent


async def surroundings(a: Assistant) -> None:
    """Where could an agent practise looking things up with tools, and who scores that?"""
    found = await a.call("list_library", kind="environments", text="tools")
    require(found["items"], f"no environment is found: {found}")
    scorers = await a.call("list_library", kind="scorers")
    require({"outcome", "rules"} <= {item["name"] for item in scorers["items"]}, f"scorers lack: {scorers}")


async def ancestry(a: Assistant) -> None:
    """Which of my runs did this agent learn from?"""
    lineage = await a.call("get_lineage", id=await trained_agent(a))
    learned = lineage["learned_from"]
    page = await a.follow(lineage, "search_trajectories")
    require(page["items"] and learned["count"], f"the runs behind the agent are not found: {learned}")


async def curated(a: Assistant) -> None:
    """Make a dataset of my good runs, but only short ones, and at most 10."""
    chosen: dict[str, Any] = {"kind": "sft", "name": "short", "filter": await runs_at_hand(a)}
    data = await a.call("export_dataset", **chosen, curation={"max_steps": 12, "max_rows": 10})
    require(0 < data["rows"] <= 10, f"not at most ten rows: {data['rows']}")


async def recorded_pair(a: Assistant) -> None:
    """My colleague found the second answer better than the first. Keep that, and learn from it."""
    ids = []
    for text in ("Bread is baked.", "Bread is flour, water, salt and yeast, baked until brown."):
        messages = [{"role": "assistant", "content": text}]
        stored = await a.call(
            "record_trajectory", task={"id": "bread", "prompt": "What is bread?"}, messages=messages, tags=["bread"]
        )
        ids.append(stored["trajectory_id"])
    word = {"chosen": ids[1], "rejected": ids[0], "reason": "It explains more.", "rater": "colleague"}
    kept = await a.call("record_preferences", source="person", pairs=[word])
    require(kept["created"] == 1, f"the preference is not stored: {kept}")
    data = await a.follow(kept, "export_dataset", name="bread")
    require(data["rows"] == 1, f"the pair is not in the dataset: {data}")


async def correction(a: Assistant) -> None:
    """In this run the answer was wrong; it should have said 4. Learn that."""
    messages = [{"role": "assistant", "content": "2 and 2 make 5."}]
    with a.uncounted():
        stored = await a.call("record_trajectory", task="What do 2 and 2 make?", messages=messages, tags=["sums"])
    batch = await a.call("get_judging_batch", limit=1, trajectory_ids=[stored["trajectory_id"]])
    (item,) = batch["items"]
    names = [criterion["name"] for criterion in batch["rubric"]["criteria"]]
    answer = {
        "item_id": item["item_id"],
        "scores": {name: {"quotes": [], "value": 0} for name in names},
        "outcome": "failure",
        "correction": {"step": 0, "message": "2 and 2 make 4."},
        "rationale": "The sum is 4.",
    }
    done = await a.call("submit_scores", batch_id=batch["batch_id"], scores=[answer])
    require(done["accepted"] == 1 and done["corrections"], f"the correction is not stored: {done}")
    data = await a.follow(done, "export_dataset", name="sums")
    require(data["rows"] == 1, f"the corrected run is not in the dataset: {data}")


async def stop_everything(a: Assistant) -> None:
    """Is anything still running? Stop it, I need the machine."""
    with a.uncounted():
        data = await a.call("export_dataset", kind="sft", name="endless", filter=await runs_at_hand(a), seed=3)
        endless = {"epochs": 500, "max_steps": 5000, "batch_size": 4}
        await a.follow(data, "start_training", name="endless", hyperparameters=endless)
    for job in (await a.call("list_jobs"))["items"]:
        if job["status"] in {"running", "queued"}:
            view = await a.ended(await a.call("cancel_job", job_id=job["job_id"]))
            require(view["status"] == "cancelled", f"the job goes on: {view['status']}")
    with a.uncounted():
        left = (await a.call("list_jobs", status="running"))["items"]
    require(not left, f"jobs still run: {left}")


async def live_run(a: Assistant) -> None:
    """Record what we do from now on as one run, and tell me at the end that it worked."""
    opened = await a.call(
        "record_trajectory", live="open", task="Sort the files", messages=[{"role": "assistant", "content": "Looking."}]
    )
    more = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Sorted."}]
    run = opened["trajectory_id"]
    await a.call("record_trajectory", live="append", trajectory_id=run, messages=more)
    closed = await a.call("record_trajectory", live="close", trajectory_id=run, outcome="success")
    require(closed["outcome"] == "success" and closed["steps"] == 2, f"the run is not whole: {closed}")


async def persona(a: Assistant) -> None:
    """Would it do better if it were told to be careful? Try it with another system prompt."""
    words = "Be careful. Check each step before you answer."
    made = await a.call("register_agent", name="careful", model="starter", system_prompt=words)
    agents = ["starter", made["agent"]["id"]]
    for agent in agents:
        await a.done(await a.call("evaluate_agent", agent=agent, environment=INVENTORY, n_tasks=8))
    found = await a.call("compare_agents", agents=agents, environment=INVENTORY)
    require(found["comparisons"][0]["n_tasks"] == 8, f"not compared: {found['comparisons']}")


async def aside(a: Assistant) -> None:
    """Keep a fifth of the tasks aside, so that I see whether it only learns by heart."""
    data = await a.call(
        "export_dataset", kind="sft", name="fifth", filter=await runs_at_hand(a), validation_share=0.2, seed=1
    )
    require(0 < data["splits"]["validation"] < data["splits"]["train"], f"nothing is held back: {data['splits']}")


async def sharegpt(a: Assistant) -> None:
    """I have conversations in the ShareGPT style; can you read them?"""
    talk = [{"from": "human", "value": "Who are you?"}, {"from": "gpt", "value": "An assistant."}]
    (a.home / "inbox" / "share.json").write_text(json.dumps([{"id": "1", "conversations": talk}]))
    found = await a.call("import_trajectories", path="share.json", tags=["share"])
    require(found["imported"] == 1, f"not read: {found}")
    with a.uncounted():
        shown = await a.follow(found, "search_trajectories")
    require(shown["items"], "the runs are not found")


async def outside(a: Assistant) -> None:
    """Import the logs in /var/log/agents."""
    why = await a.refused("import_trajectories", path="/var/log/agents")
    require("QUINTAIN_ROOTS" in why and "inbox" in why, f"the refusal names no way: {why}")
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    (a.home / "inbox" / "agents.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    found = await a.call("import_trajectories", path="agents.jsonl")
    require(found["imported"] == 1, f"not imported: {found}")


async def cost(a: Assistant) -> None:
    """How long would it take to train on my good runs, and does it fit on this machine?"""
    await a.call("export_dataset", kind="sft", name="priced", filter=await runs_at_hand(a), seed=4)
    plan = await a.call("plan_training", dataset_id="priced")
    estimate = plan["estimate"]
    require(estimate["memory_mb"] and estimate["available_memory_mb"], f"memory is not known: {estimate}")
    require(estimate["duration_s"] or estimate["duration_range_s"], f"the duration is not known: {estimate}")


async def worst_first(a: Assistant) -> None:
    """Show me the runs in which it worked worst, worst first."""
    chosen = await runs_at_hand(a)
    await a.call("score_trajectories", scorer="rules", filter=chosen)
    page = await a.call("search_trajectories", filter=chosen, sort="-rules", limit=3)
    require(len(page["items"]) == 3, f"no runs: {page}")
    with a.uncounted():
        shown = await a.follow(page, "get_trajectory")
    require(shown["trajectory"]["steps"], "the worst run cannot be read")


async def mentions(a: Assistant) -> None:
    """In which runs did it talk about Timbuktu?"""
    messages = [{"role": "assistant", "content": "Timbuktu is in Mali."}]
    with a.uncounted():
        await a.call("record_trajectory", task="Where is Timbuktu?", messages=messages)
    page = await a.call("search_trajectories", filter={"text": "timbuktu"})
    require(len(page["items"]) == 1, f"the run is not found: {page}")


async def bug_report(a: Assistant) -> None:
    """Give me one failed run in full, I want to paste it into a bug report."""
    page = await a.call("search_trajectories", filter={**await runs_at_hand(a), "outcome": "failure"}, limit=1)
    shown = await a.follow(page, "get_trajectory")
    require(len(shown["trajectory"]["steps"]) == shown["total_steps"], f"not in full: {shown['total_steps']} steps")
    require(not shown["truncated"], "texts are cut")


async def laptop(a: Assistant) -> None:
    """I closed the laptop yesterday; what became of my training?"""
    with a.uncounted():
        await trained_agent(a)
    jobs = await a.call("list_jobs", kind="train")
    view = await a.follow(jobs, "get_job")
    require(view["kind"] == "train" and view["status"] != "running", f"not the training: {view['label']}")
    require(view["next_step"], "the end names no next step")


async def typo(a: Assistant) -> None:
    """Train on the dataset "weakly"."""
    with a.uncounted():
        await a.call("export_dataset", kind="sft", name="weekly", filter=await runs_at_hand(a), seed=4)
    asked: dict[str, Any] = {"method": "sft", "model": "starter", "name": "spelt", "hyperparameters": QUICK}
    why = await a.refused("start_training", **asked, dataset_id="weakly")
    require("weekly" in why, f"the refusal names no near name: {why}")
    view = await a.done(await a.call("start_training", **asked, dataset_id="weekly"))
    require(view["result"]["agent"] == "agent:spelt@1", f"no agent: {view['result']}")


async def own_tasks(a: Assistant) -> None:
    """Here are three sums of mine; let the starter try them."""
    tasks = [{"question": f"What is {n} + {n}?", "answer": f"#### {2 * n}"} for n in (3, 4, 5)]
    started = await a.call("collect_rollouts", agent="starter", environment="quintain/math", n_tasks=3, tasks=tasks)
    view = await a.done(started)
    require(view["result"]["trajectories"]["count"] == 3, f"not every sum was tried: {view['result']}")


async def thumbs(a: Assistant) -> None:
    """I liked two of these answers and disliked two. Train it to do more of what I like."""
    for n, outcome in enumerate(("success", "success", "failure", "failure")):
        messages = [{"role": "assistant", "content": f"Answer number {n}."}]
        await a.call("record_trajectory", task=f"Question {n}", messages=messages, outcome=outcome, tags=["thumbs"])
    data = await a.call("export_dataset", kind="kto", name="thumbs", filter={"tags": ["thumbs"]})
    require(data["rows"] == 4, f"not every mark is in the dataset: {data}")
    view = await a.done(await a.follow(data, "start_training", name="liked", hyperparameters={"epochs": 1}))
    require(view["result"]["agent"] == "agent:liked@1", f"no agent: {view['result']}")


async def handbook(a: Assistant) -> None:
    """Teach it our handbook; it is a plain text file."""
    text = "Doors are locked at six. Keys are with Anna. " * 40
    (a.home / "inbox" / "handbook.txt").write_text(text)
    data = await a.call("export_dataset", kind="text", name="handbook", path="handbook.txt")
    view = await a.done(await a.follow(data, "start_training", name="reader", hyperparameters={"epochs": 1}))
    require(view["result"]["agent"] == "agent:reader@1", f"no agent: {view['result']}")


MORE_WISHES: dict[Callable[[Assistant], Awaitable[None]], int] = {
    surroundings: 2,
    ancestry: 2,
    curated: 1,
    recorded_pair: 4,
    correction: 3,
    stop_everything: 3,
    live_run: 3,
    persona: 6,
    aside: 1,
    sharegpt: 1,
    outside: 2,
    cost: 2,
    worst_first: 2,
    mentions: 1,
    bug_report: 2,
    laptop: 2,
    typo: 3,
    own_tasks: 2,
    thumbs: 7,
    handbook: 3,
}
"""As `WISHES`. Two wishes begin with a mistake of the user, whose refusal is counted."""
