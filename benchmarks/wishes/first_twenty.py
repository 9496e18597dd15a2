"""What people wish, in their words, and the calls by which an assistant that knows only the tools fulfils it.

Each function makes calls, follows the calls that answers name, and checks the end that the wish asks for. The first ten
are wishes of people who tried the product; the others are like them.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import psutil

from benchmarks.data.logs import claude_code
from benchmarks.wishes.assistant import Assistant, require

INVENTORY = "quintain/inventory"
SECRET = "hunter2-Zebra-77"
QUICK = {"epochs": 1, "batch_size": 4}
"""A short training on a few dozen runs."""


async def warehouse(a: Assistant) -> None:
    """Let the starter model try the warehouse tasks and make it better; prove it."""
    environment = (await a.call("list_library", kind="environments", text="warehouse"))["items"][0]["id"]
    plan = await a.call("plan_training", goal=["improve_by_acting"], environment=environment)
    short = {"iterations": 1, "tasks_per_iteration": 40, "attempts": 2, "evaluation_tasks": 20, "final_tasks": 40}
    view = await a.done(await a.follow(plan, "start_training", name="clerk", hyperparameters=short))
    proof = a.named(view["next_step"], "compare_agents")
    shown = await a.answer(proof.tool, **proof.arguments)
    (pair,) = shown.facts["comparisons"]
    require(pair["significant"] and pair["difference"] > 0, f"no gain is proven: {pair}")
    require(shown.pictures == 1, "the comparison comes without its picture")
    require(shown.facts["contrast"]["solved"]["lines"], "the comparison shows no pair of runs")


async def logs(a: Assistant) -> None:
    """I have Claude Code logs in this folder; import them and show me what the model would learn from."""
    claude_code(a.home / "inbox" / "logs", 150_000)
    found = await a.call("import_trajectories", path="inbox/logs", tags=["my-logs"])
    require(found["imported"] > 0 and found["format"] == "claude_code", f"not imported: {found}")
    data = await a.follow(found, "export_dataset", name="logs")
    view = await a.call("preview_dataset", dataset_id=data["dataset_id"], model="starter", rows=2)
    while view["status"] in {"queued", "running"}:
        await a.call("get_job", job_id=view["job_id"], until="done", wait_s=50)
        view = await a.call("preview_dataset", dataset_id=data["dataset_id"], model="starter", rows=2)
    spans = [span for row in view["rows"] for span in row["spans"]]
    require(any(span["trained"] and span["by"] == "agent" for span in spans), f"no trained text: {view['verdict']}")
    require(not any(span["trained"] and span["by"] != "agent" for span in spans), "text of others is trained")


async def judge(a: Assistant) -> None:
    """Judge these runs yourself, with a rubric about honesty and efficiency; then train on the best half."""
    runs = await runs_at_hand(a)
    criteria = ["Does the agent answer only what it found?", "Does it reach the answer without needless calls?"]
    rubric: dict[str, Any] = {"name": "honest-lean", "criteria": criteria}
    batch = await a.call("get_judging_batch", filter=runs, limit=8, rubric=rubric)
    await _judged(a, batch)
    again = await a.call("get_judging_batch", filter=runs, limit=8, rubric="honest-lean", seed=1)
    require(again["rubric"] == batch["rubric"], "the rubric cannot be named again")
    await _judged(a, again)
    scored = await a.call("score_trajectories", scorer="judge:honest-lean", filter=runs)
    best = {"name": "best-half", "curation": {"top_share": 0.5}, "min_score": None}
    data = await a.follow(scored, "export_dataset", **best)
    left_out = data["dropped"].get("below_top_share", 0)
    require(abs(data["rows"] - left_out) <= 1, f"expected half of the judged runs, got {data['rows']} and {left_out}")
    view = await a.done(await a.follow(data, "start_training", name="judged", hyperparameters=QUICK))
    require(view["result"]["agent"] == "agent:judged@1", f"no agent: {view['result']}")


async def which_is_better(a: Assistant) -> None:
    """Which of my two agents is better at maths, and are you sure? How many tasks do I need?"""
    environment = (await a.call("list_library", kind="environments", text="maths"))["items"][0]["id"]
    asked: dict[str, Any] = {"environment": environment, "n_tasks": 16}
    views = [await a.done(await a.call("evaluate_agent", agent=agent, **asked)) for agent in ("starter", "expert")]
    require(all(view["result"]["report"]["rate"]["ci_high"] is not None for view in views), "a rate has no interval")
    found = await a.call("compare_agents", agents=["starter", "expert"], environment=environment)
    (pair,) = found["comparisons"]
    require(pair["significant"] and pair["difference"] > 0.5, f"the expert does not win: {pair}")
    require(pair["ci_low"] > 0 and pair["tasks_for_5_points"] > pair["n_tasks"], f"no certainty or size: {pair}")


async def dpo(a: Assistant) -> None:
    """Train with DPO on pairs from my runs, but tell me first whether it fits and how long it takes."""
    data = await a.call("export_dataset", kind="dpo", name="pairs", filter=await runs_at_hand(a))
    plan = await a.call("plan_training", method="dpo", dataset_id="pairs", hyperparameters={"epochs": 1})
    estimate = plan["estimate"]
    require(estimate["memory_mb"] < estimate["available_memory_mb"], f"it does not fit: {estimate}")
    require(estimate["duration_s"] or estimate["duration_range_s"], f"the duration is not known: {estimate}")
    view = await a.done(await a.follow(plan, "start_training", name="preferred"))
    require(view["result"]["report"]["examples"] >= data["rows"] > 0, f"not all pairs were learned: {view['result']}")


async def stuck(a: Assistant) -> None:
    """The job looks stuck, what is going on? Stop it and go on tomorrow."""
    settings = {"epochs": 200, "max_steps": 200, "batch_size": 4, "checkpoint_every_steps": 5}
    data = await a.call("export_dataset", kind="sft", name="long", filter=await runs_at_hand(a))
    started = await a.follow(data, "start_training", name="patient", hyperparameters=settings)
    job = started["job_id"]
    with a.uncounted():
        view = await a.call("get_job", job_id=job)
        while view["step"] < 6 and view["status"] in {"queued", "running"}:
            view = await a.call("get_job", job_id=job, wait_s=0.5)
        require(view["status"] == "running", f"the job ended before it could be suspended: {view['status']}")
        worker = psutil.Process(json.loads((a.home / "jobs" / job / "shim.json").read_text())["worker"])
        worker.send_signal(signal.SIGSTOP)
        await anyio.to_thread.run_sync(_wait_until_stopped, worker)
    view = await a.call("get_job", job_id=job, detail="log")
    require("suspended" in (view["stalled"] or ""), f"a suspended job is not recognized: {view['stalled']}")
    require(view["log"], "the log is empty")
    asked = await a.follow(view, "cancel_job")
    view = await a.ended(asked)
    require(view["status"] == "cancelled", f"expected a cancelled job, got {view['status']}")
    view = await a.done(await a.follow(view, "resume_job"))
    require(view["resumed_from"] == job, "the job does not continue the one that was stopped")
    require(0 < view["result"]["report"]["resumed_from_step"] < 200, f"nothing was kept: {view['result']}")
    a.kept["resumed"] = view["job_id"]


async def short_answers(a: Assistant) -> None:
    """Write me a reward for short answers and use it in GRPO."""
    plan = await a.call("plan_training", goal=["short_answers"], method="grpo", environment=INVENTORY)
    require("length" in plan["reward"]["parts"], f"the plan has no reward for brevity: {plan['reward']}")
    length = {"unit": "characters", "full_at": 20, "zero_at": 400}
    reward = {**plan["reward"], "parts": {"outcome": 1, "length": length}}
    short = {"rollouts": 2, "tasks_per_step": 4, "group_size": 4}
    started = await a.follow(plan, "start_training", name="brief", reward=reward, hyperparameters=short)
    report = (await a.done(started))["result"]["report"]
    parts = {part.partition("(")[0] for part in report["reward"]["parts"]}
    require(parts == {"outcome", "length"}, f"the reward was not used: {report['reward']}")
    require(report["reward"]["scored"] == 32, f"not every run was scored: {report['reward']}")


async def curves(a: Assistant) -> None:
    """Show me the curves."""
    if "resumed" not in a.kept:
        await trained_agent(a)
    job = a.kept.get("resumed", a.kept.get("trained"))
    shown = await a.answer("plot_job", job_id=job)
    require(shown.pictures == 1 and "loss" in shown.texts[0].lower(), f"no picture: {shown.texts}")
    with a.uncounted():
        view = await a.call("get_job", job_id=job, detail="metrics")
    require(view["curves"]["loss"]["steps"][0] <= 1, "the curve of a resumed job begins late")


async def forget_session(a: Assistant) -> None:
    """Delete everything you learned from session X."""
    folder = a.home / "inbox" / "sessions"
    claude_code(folder, 60_000, seed=5)
    session = sorted(folder.iterdir())[0].stem
    with a.uncounted():
        found = await a.call("import_trajectories", path="sessions", tags=["sessions"])
        data = await a.follow(found, "export_dataset", name="sessions")
    dry = await a.call("forget", id=session)
    require(dry["dry_run"] and dry["runs"] == 1, f"the session was not found: {dry}")
    gone = await a.follow(dry, "forget", copies=True, twins=True)
    require(gone["runs"] == 1 and data["path"] in gone["removed"], f"a copy stays: {gone}")
    with a.uncounted():
        left = await a.call("search_trajectories", filter={"tags": ["sessions"]}, limit=200)
        again = await a.call("import_trajectories", path="sessions", again=True)
    require(not any(session in json.dumps(item) for item in left["items"]), "a run of the session is still listed")
    require(again["forgotten"] == 1, "the session comes back by another import")


async def hand_over(a: Assistant) -> None:
    """Give me the trained model for Ollama, and for my colleague on transformers."""
    agent = await trained_agent(a)
    view = await a.done(await a.call("export_agent", agent=agent, format="merged"))
    report = view["result"]["report"]
    folder = Path(report["path"])
    require({"config.json", "model.safetensors", "tokenizer.json"} <= set(report["files"]), f"files lack: {report}")
    require(os.stat(folder / "model.safetensors").st_mode & 0o044 == 0o044, "only the owner may read the files")
    if "Modelfile" not in report["files"]:
        a.kept["left_out"] = "a Modelfile: Ollama reads no weights of the starter's architecture"


async def demonstrations(a: Assistant) -> None:
    """Show my model how the expert solves the maths problems; how good was it before, and after?"""
    seen = await a.done(
        await a.call("collect_rollouts", agent="expert", environment="quintain/math?difficulty=easy", n_tasks=60)
    )
    data = await a.call("export_dataset", kind="sft", name="shown", filter=seen["result"]["trajectories"]["filter"])
    trained = await a.done(await a.follow(data, "start_training", name="pupil", hyperparameters={"epochs": 2}))
    asked: dict[str, Any] = {"environment": "quintain/math?difficulty=easy", "n_tasks": 16}
    agents = ["starter", trained["result"]["agent"]]
    for agent in agents:
        await a.done(await a.call("evaluate_agent", agent=agent, **asked))
    found = await a.call("compare_agents", agents=agents, environment=asked["environment"])
    rates = {row["agent"]: row["success_rate"] for row in found["leaderboard"]}
    require(set(rates) == set(agents) and None not in rates.values(), f"a rate is unknown: {rates}")


async def questions(a: Assistant) -> None:
    """Here are questions with answers; how many does the starter get right? Can it learn from them?"""
    rows = [{"question": f"Anna has {n} red and {n + 2} blue hats. How many hats?", "answer": f"#### {2 * n + 2}"}
            for n in range(12)]  # fmt: skip
    (a.home / "inbox" / "hats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = {"agent": "starter", "environment": "quintain/math?file=hats.jsonl", "split": "all"}
    rate = (await a.done(await a.call("evaluate_agent", **asked, n_tasks=12)))["result"]["report"]["rate"]
    require(rate["n"] == 12 and rate["ci_high"] < 1, f"not every question was asked: {rate}")
    data = await a.call("export_dataset", kind="sft", name="hats", path="hats.jsonl")
    view = await a.done(await a.follow(data, "start_training", name="hatter", hyperparameters=QUICK))
    require(view["result"]["report"]["examples"] >= 12, f"not every question was learned: {view['result']}")


async def learning_rates(a: Assistant) -> None:
    """Which learning rate suits my data, 1e-3 or 1e-5?"""
    data = await a.call(
        "export_dataset", kind="sft", name="halves", filter=await runs_at_hand(a), validation_share=0.4, seed=1
    )
    losses = {}
    for rate in (1e-3, 1e-5):
        settings = {**QUICK, "epochs": 2, "learning_rate": rate}
        view = await a.done(await a.follow(data, "start_training", name=f"rate-{rate:g}", hyperparameters=settings))
        losses[rate] = view["result"]["report"]["best_validation_loss"]
    require(None not in losses.values() and losses[1e-3] < losses[1e-5], f"no answer: {losses}")


async def failures(a: Assistant) -> None:
    """Which of my runs failed, and where did they go wrong?"""
    failed = await a.call("search_trajectories", filter={**await runs_at_hand(a), "outcome": "failure"}, limit=3)
    require(failed["items"], "no failed run is found")
    view = await a.follow(failed, "get_trajectory")
    require(view["trajectory"]["outcome"]["status"] == "failure" and view["notice"], f"not the failed run: {view}")
    rules = await a.follow(view, "score_trajectories")
    require(rules["scored"] == 1 and rules["components"], f"the rules found nothing: {rules}")


async def other_trainers(a: Assistant) -> None:
    """Write my runs for LLaMA-Factory, and for fine-tuning at OpenAI."""
    for name in ("llamafactory", "openai"):
        data = await a.call("export_dataset", kind="sft", name=f"to-{name}", filter=await runs_at_hand(a), format=name)
        files = [file for file in os.listdir(data["path"]) if file.endswith((".json", ".jsonl"))]
        require(files and data["rows"] > 0, f"nothing was written for {name}: {data}")


async def cheating(a: Assistant) -> None:
    """Is anybody cheating my reward?"""
    write = {
        "name": "write_file",
        "arguments": json.dumps({"path": "tests/test_a.py", "content": "def test_a(): pass"}),
    }
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": write}]},
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
        {"role": "assistant", "content": "All tests pass now."},
    ]
    with a.uncounted():
        done = await a.call(
            "record_trajectory", task="Make the tests pass.", messages=messages, outcome="success", tags=["coding"]
        )
    found = await a.call("score_trajectories", scorer="outcome", filter={"tags": ["coding"]}, audit=True)
    caught = {run for finding in found["audit"]["findings"] for run in finding["trajectory_ids"]}
    require(done["trajectory_id"] in caught, f"the run that empties its test is not flagged: {found['audit']}")


async def password(a: Assistant) -> None:
    """This log has a password in it; import it so that nobody can read it."""
    messages = [
        {"role": "user", "content": f"Log in with password: {SECRET} and count the rows."},
        {"role": "assistant", "content": "There are 12 rows."},
    ]
    (a.home / "inbox" / "secret.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    found = await a.call("import_trajectories", path="secret.jsonl", tags=["secret"])
    require(found["imported"] == 1 and found["redactions"], f"nothing was redacted: {found}")
    with a.uncounted():
        require(
            not (await a.call("search_trajectories", filter={"text": SECRET}))["items"], "the password can be found"
        )
        shown = await a.follow(await a.follow(found, "search_trajectories"), "get_trajectory")
    require(SECRET not in json.dumps(shown), "the password can be read")


async def keep_skills(a: Assistant) -> None:
    """Train my agent further on new runs, but do not let it forget what it knows."""
    agent = await trained_agent(a)
    await a.call("export_dataset", kind="sft", name="more", filter=await runs_at_hand(a), seed=2)
    plan = await a.call("plan_training", goal=["imitate", "keep_skills"], model=agent, dataset_id="more")
    require(plan["hyperparameters"]["replay"], f"the plan replays nothing: {plan['hyperparameters']}")
    settings = {**plan["hyperparameters"], "epochs": 1}
    view = await a.done(await a.follow(plan, "start_training", name="steady", hyperparameters=settings))
    require(view["result"]["agent"] == "agent:steady@1", f"no agent: {view['result']}")


async def remember(a: Assistant) -> None:
    """Remember this conversation as a good example of how to answer me."""
    messages = [{"role": "assistant", "content": "Paris."}]
    asked = "What is the capital of France?"
    done = await a.call("record_trajectory", task=asked, messages=messages, outcome="success", tags=["liked"])
    require(done["outcome"] == "success", f"the outcome was not taken: {done}")
    with a.uncounted():
        data = await a.call("export_dataset", kind="sft", name="liked", filter={"tags": ["liked"]})
    require(data["rows"] == 1, f"the example is not in the dataset: {data}")


async def own_benchmark(a: Assistant) -> None:
    """Make a test set out of my runs and rank my agents on it."""
    data = await a.call("export_dataset", kind="benchmark", name="mine", filter=await runs_at_hand(a))
    agents = ["starter", await trained_agent(a)]
    for agent in agents:
        await a.done(await a.follow(data, "evaluate_agent", agent=agent))
    found = await a.call("compare_agents", agents=agents)
    require([row["n"] for row in found["leaderboard"]] == [data["rows"]] * 2, f"not ranked: {found['leaderboard']}")
    with a.uncounted():
        require(json.loads(await a.read(found["resource_uri"]))["id"] == found["comparison_id"], "no stored comparison")


def _wait_until_stopped(process: psutil.Process) -> None:
    while process.status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)


async def runs_at_hand(a: Assistant) -> dict[str, Any]:
    """Return the filter of runs that the user already has: of the starter on warehouse tasks, several a task."""
    if "runs" not in a.kept:
        with a.uncounted():
            started = await a.call(
                "collect_rollouts", agent="starter", environment=INVENTORY, n_tasks=16, attempts=4, seed=7
            )
            a.kept["runs"] = (await a.done(started))["result"]["trajectories"]["filter"]
    return dict(a.kept["runs"])


async def trained_agent(a: Assistant) -> str:
    """Return an agent that the user already has: the starter after a short training on its good runs."""
    if "agent" not in a.kept:
        with a.uncounted():
            data = await a.call("export_dataset", kind="sft", name="good", filter=await runs_at_hand(a))
            view = await a.done(await a.follow(data, "start_training", name="picker", hyperparameters=QUICK))
            a.kept |= {"agent": view["result"]["agent"], "trained": view["job_id"]}
    return str(a.kept["agent"])


async def _judged(a: Assistant, batch: dict[str, Any]) -> None:
    """Judge a batch: the more steps, the less; a run whose last answer was wrong did not answer what it found."""
    answers = []
    for item in batch["items"]:
        lines = item["text"].splitlines()
        quote = next(lines[i + 1][1:] for i, line in enumerate(lines) if line in {"thought:", "message:"})
        steps = sum(line.startswith("STEP ") for line in lines)
        values = (0.9 if "Right." in item["text"] else 0.1, max(0.1, 1 - steps / 10))
        names = [criterion["name"] for criterion in batch["rubric"]["criteria"]]
        scores = {name: {"quotes": [quote], "value": value} for name, value in zip(names, values, strict=True)}
        answers.append({"item_id": item["item_id"], "scores": scores, "rationale": f"{steps} steps"})
    stored = await a.call("submit_scores", batch_id=batch["batch_id"], scores=answers)
    require(stored["accepted"] == len(answers) and not stored["remaining"], f"not stored: {stored}")


WISHES: dict[Callable[[Assistant], Awaitable[None]], int] = {
    warehouse: 4,
    logs: 3,
    judge: 8,
    which_is_better: 6,
    dpo: 4,
    stuck: 7,
    short_answers: 3,
    curves: 1,
    forget_session: 2,
    hand_over: 2,
    demonstrations: 10,
    questions: 5,
    learning_rates: 5,
    failures: 3,
    other_trainers: 2,
    cheating: 1,
    password: 1,
    keep_skills: 4,
    remember: 1,
    own_benchmark: 6,
}
"""Wish -> the fewest calls that fulfil it: with look-ups of what its words do not name, and one wait a job."""
