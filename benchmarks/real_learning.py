"""Does a real pretrained model learn here? Gemma 3 270M, easy mathematics, held-out tasks before and after.

Run as `python -m benchmarks.real_learning [--demonstrations N] [--tasks N] [--grpo] [--home DIR]`. The calls are those of
`docs/how-to/train-your-own-model.md`, made over stdio: the scripted expert plays, its runs become a dataset, an adapter
learns from them by the settings of the plan, and both agents play the same held-out tasks. `--grpo` goes on from the
trained agent by acting and compares with that agent, both sampling as in training; the base is not played then. Give it
few demonstrations, such as 40: an agent that solves all tasks of training leaves no group to learn from. One JSON line a
figure; the weights are those of `benchmarks.real_model`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from benchmarks.figures import report, say, summarize
from benchmarks.machine import load_average
from benchmarks.real_model import model_file
from benchmarks.wishes.assistant import Assistant, connected

ENVIRONMENT = "quintain/math?difficulty=easy"
GRPO = {"lora": {}, "max_new_tokens": 64, "rollouts": 16, "learning_rate": 1e-4}
GRPO_SEED = 4242
"""Other tasks than those of the demonstrations."""
P_GOAL = 0.001
MINUTES_GOAL = 20


async def learn(home: Path, demonstrations: int, tasks: int, grpo: bool) -> None:
    """Collect, train, evaluate, compare; then by acting, if asked for."""
    (home / "inbox").mkdir(parents=True, exist_ok=True)
    os.link(model_file(home), home / "inbox" / "gemma.gguf")
    async with connected(home) as assistant:
        began = time.monotonic()
        await assistant.call(
            "register_agent", name="base", model="gemma.gguf", sampling={"temperature": 0, "max_new_tokens": 64}
        )
        if not grpo:
            await _evaluate(assistant, "base", tasks)
        await _job(
            assistant,
            "collect_rollouts",
            agent="expert",
            environment=ENVIRONMENT,
            n_tasks=demonstrations,
            tags=["demonstrations"],
        )
        dataset = await assistant.call(
            "export_dataset",
            kind="sft",
            name="easy",
            filter={"tags": ["demonstrations"], "outcome": "success"},
        )
        plan = await assistant.call(
            "plan_training",
            goal=["imitate"],
            model="base",
            dataset_id=dataset["dataset_id"],
            hyperparameters={"lora": {}},
        )
        say(f"plan: {plan}")
        trained = await _job(
            assistant,
            "start_training",
            method="sft",
            model="base",
            dataset_id=dataset["dataset_id"],
            name="imitator",
            hyperparameters={"lora": {}},
        )
        say(f"training: {trained['result']}")
        await _evaluate(assistant, "imitator", tasks)
        if not grpo:
            await _compare(assistant, "base", "imitator", "real_learning_sft")
            minutes = (time.monotonic() - began) / 60
            report("real_learning_minutes", [minutes], "min", MINUTES_GOAL, "lower", load=load_average())
        else:
            await _job(
                assistant,
                "start_training",
                method="grpo",
                model="imitator",
                environment=ENVIRONMENT,
                name="actor",
                seed=GRPO_SEED,
                hyperparameters=GRPO,
            )
            await _evaluate(assistant, "actor", tasks)
            await _compare(assistant, "imitator", "actor", "real_learning_grpo_greedy")
            for agent in ("imitator", "actor"):
                sampling = {"temperature": 1.0, "max_new_tokens": 64}
                await assistant.call("register_agent", name=f"{agent}-sampled", model=agent, sampling=sampling)
                await _evaluate(assistant, f"{agent}-sampled", tasks)
            await _compare(assistant, "imitator-sampled", "actor-sampled", "real_learning_grpo")


async def _evaluate(assistant: Assistant, agent: str, tasks: int) -> None:
    view = await _job(assistant, "evaluate_agent", agent=agent, environment=ENVIRONMENT, n_tasks=tasks)
    result = view["result"]
    report(f"real_learning_success_{agent}", [result["success_rate"]], "1", None, tasks=result["n"])


async def _compare(assistant: Assistant, before: str, after: str, name: str) -> None:
    compared = await assistant.call("compare_agents", agents=[before, after], environment=ENVIRONMENT)
    (pair,) = compared["comparisons"]
    facts = {key: pair[key] for key in ("difference", "ci_low", "ci_high", "n_tasks")}
    report(f"{name}_p", [pair["p_corrected"]], "1", P_GOAL, "lower", **facts)


async def _job(assistant: Assistant, tool: str, **arguments: Any) -> dict[str, Any]:
    began = time.monotonic()
    view = await assistant.done(await assistant.call(tool, **arguments))
    say(f"{tool} {arguments.get('name') or arguments.get('agent')}: {time.monotonic() - began:.0f} s")
    return view


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure in a fresh home, which is left behind if it was named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_learning", description=__doc__.partition("\n")[0])
    parser.add_argument("--demonstrations", type=int, default=150, help="runs of the expert")
    parser.add_argument("--tasks", type=int, default=100, help="held-out tasks")
    parser.add_argument("--grpo", action="store_true", help="go on by acting, without playing the base")
    parser.add_argument("--home", type=Path, help="a new folder to keep")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(learn, asked.home or Path(folder), asked.demonstrations, asked.tasks, asked.grpo)
    summarize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
