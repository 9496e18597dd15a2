"""Wishes of people whose data is a spreadsheet: a support team, teachers, an analyst; `first_twenty` has the form."""

from __future__ import annotations

import csv
from collections.abc import Awaitable, Callable, Iterable, Sequence

from benchmarks.wishes.assistant import Assistant, require
from benchmarks.wishes.first_twenty import QUICK


async def tickets(a: Assistant) -> None:
    """Here are our support tickets, a message per line; learn from the replies that customers rated 4 or better."""
    rows = [("ticket", "sender", "text", "stars")]
    for n in range(10):
        rows += [(f"T-{n}", f"Customer {n}", f"Where is order {n}?", str(n % 5 + 1))]
        rows += [(f"T-{n}", "Support", f"Order {n} is on the way.", str(n % 5 + 1))]
    _write(a, "tickets.csv", rows)
    why = await a.refused("export_dataset", kind="sft", name="tickets", path="tickets.csv")
    require("session_id, role and content" in why, f"the form of a table of messages is not named: {why}")
    columns = {"session_id": "ticket", "role": "sender", "content": "text"}
    asked = {"path": "tickets.csv", "curation": {"where": {"stars": ">=4"}}}
    why = await a.refused("export_dataset", kind="sft", name="tickets", columns=columns, **asked)
    require('"assistant"' in why, f"the way to name the agent's role is missing: {why}")
    data = await a.call(
        "export_dataset", kind="sft", name="tickets", columns={**columns, "assistant": "Support"}, **asked
    )
    require(data["rows"] == 4, f"not the tickets with four stars or five: {data}")


async def two_files(a: Assistant) -> None:
    """Train on both datasets together."""
    for name, word in (("fruit", "apple"), ("beasts", "bear")):
        with a.uncounted():
            rows = [("prompt", "response"), *((f"Which {word}, {n}?", f"The {word} {n}.") for n in range(6))]
            _write(a, f"{name}.csv", rows)
            await a.call("export_dataset", kind="sft", name=name, path=f"{name}.csv")
    asked = {"method": "sft", "model": "starter", "name": "both", "hyperparameters": {**QUICK, "max_minutes": 20}}
    why = await a.refused("start_training", dataset_id=["fruit", "beasts"], **asked)
    require("path='fruit+beasts'" in why, f"the way to join datasets is not named: {why}")
    data = await a.call("export_dataset", kind="sft", name="both", path="fruit+beasts")
    view = await a.done(await a.call("start_training", dataset_id=data["dataset_id"], **asked))
    require(view["result"]["report"]["examples"] == 12, f"not both were learned: {view['result']}")


async def pupils(a: Assistant) -> None:
    """Here are the answers of two pupils with their points. Is one really better?"""
    rows = [("pupil", "question", "answer", "points")]
    rows += [("Ann", f"What is {n} + 1?", f"{n + 1}", "1") for n in range(20)]
    rows += [("Bert", f"What is {n} + 1?", f"{n + 1 if n % 2 else 0}", f"{n % 2}") for n in range(20)]
    _write(a, "pupils.csv", rows)
    columns = {"prompt": "question", "response": "answer", "agent": "pupil", "reward": "points"}
    await a.call("export_dataset", kind="sft", name="pupils", path="pupils.csv", columns=columns)
    found = await a.call("compare_agents", agents=["Ann", "Bert"])
    (pair,) = found["comparisons"]
    require(pair["n_tasks"] == 20, f"equal answers are not compared: {pair}")
    require(pair["difference"] == -0.5 and pair["significant"], f"no verdict: {pair}")


async def arena(a: Assistant) -> None:
    """We compared two answers to each question, a and b, and noted the winner. Train on that."""
    rows = [("prompt", "response_a", "response_b", "winner")]
    rows += [(f"Question {n}?", f"A good answer {n}.", "No.", "a") for n in range(6)]
    rows += [(f"Question {n}?", "No.", f"A good answer {n}.", "b") for n in range(6, 12)]
    _write(a, "arena.csv", rows)
    data = await a.call("export_dataset", kind="dpo", name="arena", path="arena.csv")
    require(data["rows"] == 12, f"not every comparison is a pair: {data}")
    view = await a.done(await a.follow(data, "start_training", name="liked-more", hyperparameters={"epochs": 1}))
    require(view["result"]["report"]["examples"] == 12, f"not every pair was learned: {view['result']}")


async def choices(a: Assistant) -> None:
    """My quiz is a spreadsheet with the choices in columns. Let the starter take it."""
    rows = [("Question", "A", "B", "C", "Key"), *((f"{n} + 1?", f"{n}", f"{n + 1}", "0", "B") for n in range(4))]
    _write(a, "choices.csv", rows)
    environment = (await a.call("list_library", kind="environments", text="quiz"))["items"][0]["id"]
    asked = {"agent": "starter", "split": "all", "n_tasks": 4}
    why = await a.refused("evaluate_agent", environment=f"{environment}?file=choices.csv", **asked)
    require("prompt=ASK,A,B,C&answer=RIGHT" in why, f"the way to name the columns is missing: {why}")
    quiz = f"{environment}?file=choices.csv&prompt=Question,A,B,C&answer=Key"
    view = await a.done(await a.call("evaluate_agent", environment=quiz, **asked))
    require(view["result"]["n"] == 4, f"not every question was asked: {view['result']}")
    with a.uncounted():
        page = await a.call("search_trajectories", filter={"text": "B: 1"}, limit=1)
    require(page["items"], "the agent did not see the choices")


def _write(a: Assistant, name: str, rows: Iterable[Sequence[str]]) -> None:
    with (a.home / "inbox" / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


TABLE_WISHES: dict[Callable[[Assistant], Awaitable[None]], int] = {
    tickets: 3,
    two_files: 4,
    pupils: 2,
    arena: 3,
    choices: 4,
}
"""As `WISHES`. Three wishes begin with the call that an assistant tries first, whose refusal is counted."""
