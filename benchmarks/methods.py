"""What does each method make of the same start and the same data? Success on held-out tasks, and processor time.

Run as `python -m benchmarks.methods [--only METHOD,...] [--environments ENV,...] [--seeds N] [--budget N] [--tasks N]`. For each
seed the embedded model acts on training tasks; its runs are the data of the methods that learn from runs, and the methods that
act may play as many episodes. Every agent plays the same held-out tasks. One JSON line a method and environment: the median
gain over the seeds, with the smallest and the largest; a method that does not beat its start is shown as such.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.figures import report, rounded, say
from quintain.tools import RLTrainingTool

ENVIRONMENTS = ("quintain/inventory", "quintain/math?difficulty=easy", "quintain/tools-1k")
ATTEMPTS = 4
LEARN: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sft": ("sft", "sft", {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3}),
    "dpo": ("dpo", "dpo", {"epochs": 1, "batch_size": 8, "learning_rate": 1e-4}),
    "orpo": ("orpo", "dpo", {"epochs": 1, "batch_size": 8, "learning_rate": 3e-4}),
    "simpo": ("simpo", "dpo", {"epochs": 1, "batch_size": 8, "learning_rate": 1e-4}),
    "kto": ("kto", "kto", {"epochs": 1, "batch_size": 8, "learning_rate": 1e-4}),
    "grpo_stored": ("grpo", "grpo", {"epochs": 1, "batch_size": 4, "learning_rate": 3e-4}),
}
"""Name -> method, kind of its dataset, settings."""
GROUPS = {"group_size": 8, "tasks_per_step": 5}
SINGLE = {"group_size": 1, "tasks_per_step": 40}
EPISODES = 40
"""Of a rollout."""
ACT: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("grpo", GROUPS),
    "ppo": ("ppo", SINGLE),
    "rloo": ("ppo", {"advantage": "rloo", **GROUPS}),
    "reinforce_pp": ("ppo", {"advantage": "reinforce_pp", **SINGLE}),
}
"""Name -> method, settings."""


class Found(NamedTuple):
    """What came of one training."""

    success: float
    cpu_s: float
    """Processor time of the worker, by its last sample."""


class Bench:
    """A fresh home with the runs of one seed."""

    def __init__(self, home: Path, environment: str, seed: int, budget: int, tasks: int) -> None:
        self.home, self.environment, self.seed, self.budget, self.tasks = home, environment, seed, budget, tasks
        self._tool = RLTrainingTool(home=str(home))
        asked = {"agent": "starter", "n_tasks": budget // ATTEMPTS, "attempts": ATTEMPTS, "tags": ["own"]}
        self._job("collect", environment=environment, seed=seed, **asked)

    def train(self, name: str) -> Found | str:
        """Return what a method made of the starter, or why it could not learn from these runs."""
        try:
            if name in LEARN:
                method, kind, settings = LEARN[name]
                dataset = f"own-{kind}"
                if dataset not in {row["name"] for row in self._run("library", kind="datasets")["items"]}:
                    more = {"scorer": "outcome", "min_score": 1.0} if kind == "sft" else {}
                    if kind == "sft":
                        self._run("score", scorer="outcome", filter={"tags": ["own"]})
                    self._run("export", kind=kind, name=dataset, filter={"tags": ["own"]}, **more)
                source: dict[str, Any] = {"dataset_id": dataset}
            else:
                method, settings = ACT[name]
                rollouts = max(self.budget // EPISODES, 1)
                settings = settings | {"rollouts": rollouts, "learning_rate": 3e-4, "max_new_tokens": 96}
                source = {"environment": self.environment}
            cpu_s = self._job(
                "start_training",
                method=method,
                model="starter",
                name=name,
                seed=self.seed,
                hyperparameters=settings,
                **source,
            )
        except RuntimeError as error:
            return str(error)
        return Found(self.success(name), cpu_s)

    def close(self) -> None:
        """Close the home."""
        self._tool.close()

    def success(self, agent: str) -> float:
        """Return the share of held-out tasks that an agent solves."""
        self._job("evaluate_agent", agent=agent, environment=self.environment, n_tasks=self.tasks, seed=self.seed)
        return float(self._view["result"]["success_rate"])

    def _job(self, tool: str, **arguments: Any) -> float:
        """Carry out a job; return the processor seconds of its worker."""
        job_id = self._run(tool, wait=False, **arguments)["job_id"]
        cpu_s = 0.0
        while (view := self._run("status", job_id=job_id))["status"] in {"queued", "running"}:
            cpu_s = max(cpu_s, self._worker_time(job_id))
            time.sleep(0.2)
        if view["status"] != "succeeded":
            raise RuntimeError(f"{tool}: {view['error']}")
        self._view = view
        return cpu_s

    def _worker_time(self, job_id: str) -> float:
        try:
            shim = json.loads((self.home / "jobs" / job_id / "shim.json").read_bytes())
            times = psutil.Process(shim["worker"]).cpu_times()
        except (OSError, ValueError, KeyError, psutil.Error):
            return 0.0
        return float(times.user + times.system)

    def _run(self, action: str, **arguments: Any) -> Mapping[str, Any]:
        answer: dict[str, Any] = json.loads(self._tool.run({"action": action, **arguments}))
        if answer.get("status") == "error":
            raise RuntimeError(f"{action}: {answer['message']}")
        return answer


def measure(environment: str, names: Sequence[str], asked: argparse.Namespace) -> None:
    """Report each method in one environment."""
    found: dict[str, list[Found]] = {name: [] for name in names}
    starts: list[float] = []
    for seed in range(asked.seeds):
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), environment, seed, asked.budget, asked.tasks)
            starts.append(bench.success("starter"))
            for name in names:
                one = bench.train(name)
                say(f"{environment}, seed {seed}, {name}: {one} (start {starts[-1]:.2f})")
                if isinstance(one, Found):
                    found[name].append(one)
            bench.close()
    for name, ends in found.items():
        if len(ends) < asked.seeds:
            say(f"{environment}: {name} could not learn on {asked.seeds - len(ends)} of {asked.seeds} seeds")
        if ends:
            gains = [end.success - start for end, start in zip(ends, starts, strict=False)]
            cpu = rounded(statistics.median(end.cpu_s for end in ends))
            more = {"start": statistics.median(starts), "success": statistics.median(end.success for end in ends)}
            report(f"methods_{environment}_{name}_gain", gains, "1", None, **more, cpu_s=cpu)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the methods that are asked for."""
    names = [*LEARN, *ACT]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.methods", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(names), help="methods, separated by commas")
    parser.add_argument("--environments", default=",".join(ENVIRONMENTS), help="separated by commas")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--budget", type=int, default=240, help="episodes that a method may learn from")
    parser.add_argument("--tasks", type=int, default=100, help="held-out tasks")
    asked = parser.parse_args(arguments)
    for environment in asked.environments.split(","):
        measure(environment, asked.only.split(","), asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())
