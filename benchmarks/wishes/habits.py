"""Four wishes of users who bring the habits of other tools: their file formats, their scales, their settings.

As in `first_twenty`, each function is what an assistant does that knows only the list of tools and the answers.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.wishes.assistant import Assistant, require
from benchmarks.wishes.first_twenty import INVENTORY


async def verl_file(a: Assistant) -> None:
    """My questions are in verl's format, some of them twice. Plan GRPO with TRL's settings, and count the questions."""
    rows = [
        {
            "data_source": "school",
            "prompt": [{"role": "user", "content": f"What is {n % 6} + 7?"}],
            "reward_model": {"style": "rule", "ground_truth": str(n % 6 + 7)},
            "extra_info": {"index": n},
        }
        for n in range(9)
    ]
    _write(a, "school.jsonl", rows)
    place = "quintain/math?file=school.jsonl"
    settings = {
        "num_generations": 4,
        "beta": 0.0,
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "loss_type": "dapo",
        "max_steps": 3,
    }
    plan = await a.call("plan_training", goal=["improve_by_acting"], environment=place, hyperparameters=settings)
    planned = plan["hyperparameters"]
    require(
        plan["method"] == "grpo" and planned["group_size"] == 4,
        f"these are settings of GRPO: {plan['method']}, {planned}",
    )
    job = await a.done(await a.call("evaluate_agent", agent="expert", environment=place, split="all"))
    require(job["result"]["n"] == 6, f"6 questions are told apart, not {job['result']['n']}")


async def five_stars(a: Assistant) -> None:
    """I rate these answers with 5, 2 and 1 stars. Which one is the worst?"""
    with a.uncounted():
        for n in range(3):
            said = [{"role": "assistant", "content": f"Answer {n}."}]
            await a.call("record_trajectory", messages=said, task=f"Question {n}?", tags=["stars"])
    rated = {"filter": {"tags": ["stars"]}, "judge": "person", "rubric": {"name": "stars", "criteria": ["Is it good?"]}}
    batch = await a.call("get_judging_batch", limit=3, **rated)
    items = [item["item_id"] for item in batch["items"]]

    def answers(stars: list[float]) -> list[dict[str, Any]]:
        return [{"item_id": item, "value": x} for item, x in zip(items, stars, strict=True)]

    told = await a.call("submit_scores", batch_id=batch["batch_id"], scores=answers([5, 2, 1]))
    again = [one for one in answers([1, 0.25, 0]) if one["item_id"] in told["remaining"]]
    await a.call("submit_scores", batch_id=batch["batch_id"], scores=again)
    found = (await a.call("search_trajectories", filter={"tags": ["stars"]}, sort="-people"))["items"]
    require([run["score"] for run in found] == [0, 0.25, 1], f"the worst has the best mark: {found}")


async def clear_pairs(a: Assistant) -> None:
    """Of my rated pairs take only the clear ones, and tell me how often the new model agrees with pairs it has not seen."""
    rows = [
        {
            "prompt": f"Which number follows {n}?",
            "chosen": f"It is {n + 1}.",
            "rejected": f"No idea about {n}.",
            "score_chosen": 8,
            "score_rejected": 3 if n % 3 else 8,
        }
        for n in range(60)
    ]
    _write(a, "rated.jsonl", rows)
    data = await a.call(
        "export_dataset", kind="dpo", name="clear", path="rated.jsonl", margin=0.5, validation_share=0.3
    )
    require(data["rows"] == 40 and data["dropped"] == {"below_margin": 40}, f"pairs of equal scores are in: {data}")
    job = await a.done(await a.follow(data, "start_training", hyperparameters={"max_steps": 3}))
    agreed = job["result"]["report"]["held_out_agreement"]
    require(agreed["n"] == data["splits"]["validation"], f"not each unseen pair was asked for: {agreed}")


async def own_prompt(a: Assistant) -> None:
    """My clerk has a prompt of its own. Can it learn from the runs of the expert?"""
    with a.uncounted():
        await a.call("register_agent", name="my-clerk", model="starter", system_prompt="You are a polite clerk.")
        shown = {"agent": "expert", "environment": INVENTORY, "n_tasks": 12, "tags": ["shown"]}
        await a.done(await a.call("collect_rollouts", **shown))
    data = await a.call("export_dataset", kind="sft", name="shown", filter={"tags": ["shown"]})
    plan = await a.call("plan_training", goal=["imitate"], dataset_id=data["dataset_id"], model="my-clerk")
    found = [one for one in plan["blockers"] if one["code"] == "other_prompt"]
    require(bool(found), f"it would act under a prompt that it never learned with, without a word: {plan['blockers']}")


def _write(a: Assistant, name: str, rows: list[dict[str, Any]]) -> None:
    (a.home / "inbox" / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


HABIT_WISHES: dict[Callable[[Assistant], Awaitable[None]], int] = {
    verl_file: 3,
    five_stars: 4,
    clear_pairs: 3,
    own_prompt: 2,
}
"""As `WISHES`."""
