"""What does each method make of the same start and the same data? Success on new tasks, and processor time.

Run as `python -m benchmarks.methods [--only METHOD,...] [--courses COURSE,...] [--first-seed N] [--seeds N] [--budget N]
[--rates FACTOR] [--tasks N]`. The embedded model solves no task of `math` and `tools`; there the start of a seed is the embedded
model after `sft` on a few runs of the expert, and its processor time is reported. Where it still solves none, no method is tried. The
start plays training tasks; its runs are the data of the methods that learn from runs, and the methods that act may play as many
episodes. Every agent plays the same new tasks twice: greedily, and sampled at temperature 1 as rollouts are. One JSON line a seed,
course, method and way of acting with a 95 % Clopper-Pearson interval over the tasks, then one a course, method and way: the median gain
over the seeds, with the smallest and the largest.
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
from typing import Any, Literal, NamedTuple

import psutil

from benchmarks.figures import report, rounded, say
from quintain.evaluation.statistics.success_rates import clopper_pearson
from quintain.tools import RLTrainingTool


class Course(NamedTuple):
    """What is learned, and from which start."""

    environment: str
    demonstrations: int = 0
    """Runs of the expert from which the start learns; 0: the embedded model is the start."""
    split: Literal["held_out", "train"] = "held_out"
    """Of the tasks that measure. A model of this size learns no new words: `train` has the words of training in new tasks."""
    rates: float = 1.0
    """Factor of all learning rates. Of 1, 0.3 and 0.1 the one with the best median gain of `sft` and `dpo` on seed 100, which is not
    among those that measure."""


COURSES = {
    "inventory": Course("quintain/inventory"),
    "math": Course("quintain/math?difficulty=easy&types=collection", demonstrations=180, split="train", rates=0.3),
    "tools": Course(
        "quintain/tools-1k?mode=direct&k=2&difficulty=easy&types=kitchen", demonstrations=400, split="train"
    ),
}
START = {"epochs": 6, "batch_size": 8, "learning_rate": 2e-3}
"""Settings of the training that makes a start."""
OTHER_TASKS = 1000
"""Added to the seed where tasks must differ from those that are learned from."""
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
    "ppo": ("ppo", SINGLE | {"critic_warmup_steps": 10}),
    "rloo": ("ppo", {"advantage": "rloo", **GROUPS}),
    "reinforce_pp": ("ppo", {"advantage": "reinforce_pp", **SINGLE}),
}
"""Name -> method, settings."""


SAMPLES = 5
"""Of a worker's processor time, for each question about its job, which costs the server a query."""
TEMPERATURES = {"greedy": 0.0, "sampled": 1.0}
"""Way of acting -> temperature."""


class Success(NamedTuple):
    """An agent on the tasks that measure, and what its training cost."""

    solved: dict[str, int]
    """Tasks by the way of acting."""
    n: int
    cpu_s: float
    """Processor time of the worker, by its last sample."""

    def rate(self, way: str) -> float:
        """Return the share of tasks that are solved."""
        return self.solved[way] / self.n


class Bench:
    """A fresh home with the start of one seed and its runs."""

    def __init__(self, home: Path, course: Course, seed: int, budget: int, tasks: int) -> None:
        self.home, self.course, self.seed, self.budget, self.tasks = home, course, seed, budget, tasks
        self._tool = RLTrainingTool(home=str(home))
        self._model, cpu_s = "starter", 0.0
        if course.demonstrations:
            self._model, cpu_s = self._taught()
        self.start = self._success(self._model, cpu_s)
        if not any(self.start.solved.values()):
            return
        asked = {"agent": self._model, "n_tasks": budget // ATTEMPTS, "attempts": ATTEMPTS, "tags": ["own"]}
        self._job("collect", environment=course.environment, seed=seed, **asked)

    def train(self, name: str) -> Success:
        """Return what a method makes of the start.

        Raises:
            RuntimeError: It cannot learn from these runs, with the reason.
        """
        if name in LEARN:
            method, kind, settings = LEARN[name]
            source: dict[str, Any] = {"dataset_id": self._dataset(kind)}
        else:
            method, settings = ACT[name]
            rollouts = max(self.budget // EPISODES, 1)
            settings = settings | {"rollouts": rollouts, "learning_rate": 3e-4, "max_new_tokens": 96}
            source = {"environment": self.course.environment}
        settings = settings | {"learning_rate": settings["learning_rate"] * self.course.rates}
        asked = {"method": method, "model": self._model, "name": name, "hyperparameters": settings}
        return self._success(name, self._job("start_training", seed=self.seed, **asked, **source))

    def close(self) -> None:
        """Close the home."""
        self._tool.close()

    def _taught(self) -> tuple[str, float]:
        """Return the agent that the embedded model becomes by a few runs of the expert, and the processor seconds."""
        n, environment = self.course.demonstrations, self.course.environment
        self._job(
            "collect", agent="expert", environment=environment, n_tasks=n, tags=["shown"], seed=self.seed + OTHER_TASKS
        )
        self._run("export", kind="sft", name="shown", filter={"tags": ["shown"], "outcome": "success"})
        asked = {"model": "starter", "dataset_id": "shown", "name": "start", "hyperparameters": START}
        return "start", self._job("start_training", method="sft", seed=self.seed, **asked)

    def _dataset(self, kind: str) -> str:
        """Return the name of the dataset of a kind of the start's own runs."""
        name = f"own-{kind}"
        if name not in {row["name"] for row in self._run("library", kind="datasets")["items"]}:
            more = {"scorer": "outcome", "min_score": 1.0} if kind == "sft" else {}
            if kind == "sft":
                self._run("score", scorer="outcome", filter={"tags": ["own"]})
            self._run("export", kind=kind, name=name, filter={"tags": ["own"]}, **more)
        return name

    def _success(self, agent: str, cpu_s: float) -> Success:
        course = self.course
        seed = self.seed + (2 * OTHER_TASKS if course.split == "train" else 0)
        asked = {"environment": course.environment, "split": course.split, "n_tasks": self.tasks, "seed": seed}
        solved = {}
        for way, temperature in TEMPERATURES.items():
            self._job("evaluate_agent", agent=agent, sampling={"temperature": temperature}, **asked)
            result = self._view["result"]
            solved[way] = round(result["success_rate"] * result["n"])
        return Success(solved, result["n"], cpu_s)

    def _job(self, tool: str, **arguments: Any) -> float:
        """Carry out a job; return the processor seconds of its worker."""
        job_id = self._run(tool, wait=False, **arguments)["job_id"]
        cpu_s = 0.0
        while (view := self._run("status", job_id=job_id))["status"] in {"queued", "running"}:
            for _ in range(SAMPLES):
                time.sleep(0.2)
                cpu_s = max(cpu_s, self._worker_time(job_id))
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


def one_seed(
    course: str, names: Sequence[str], seed: int, asked: argparse.Namespace
) -> dict[str, tuple[Success, Success]]:
    """Report each method from the start of a seed; return by method its success and that of the start."""
    found = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        chosen = COURSES[course] if asked.rates is None else COURSES[course]._replace(rates=asked.rates)
        bench = Bench(Path(folder), chosen, seed, asked.budget, asked.tasks)
        start = bench.start
        _lines(course, "start", seed, start, start)
        learns = any(start.solved.values())
        if not learns:
            say(f"{course}, seed {seed}: the start solves none of the tasks, so no method has anything to learn from")
        for name in names if learns else ():
            try:
                success = bench.train(name)
            except RuntimeError as error:
                say(f"{course}, {name}, seed {seed}: {error}")
                continue
            _lines(course, name, seed, success, start)
            found[name] = (success, start)
        bench.close()
    return found


def _lines(course: str, name: str, seed: int, success: Success, start: Success) -> None:
    for way, solved in success.solved.items():
        rate = clopper_pearson(solved, success.n)
        more: dict[str, Any] = {"low": rounded(rate.ci_low or 0.0), "high": rounded(rate.ci_high or 0.0), "n": rate.n}
        more |= {"start": start.rate(way), "seed": seed, "cpu_s": rounded(success.cpu_s)}
        report(f"methods, {course}, {name}: {way} success", [success.rate(way)], "share", None, **more)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the methods that are asked for, seed by seed."""
    names = [*LEARN, *ACT]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.methods", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(names), help="methods, separated by commas")
    parser.add_argument("--courses", default=",".join(COURSES), help="separated by commas")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--budget", type=int, default=240, help="episodes that a method may learn from")
    parser.add_argument("--rates", type=float, help="factor of all learning rates; default: that of the course")
    parser.add_argument("--tasks", type=int, default=100, help="new tasks that measure")
    asked = parser.parse_args(arguments)
    names, found = asked.only.split(","), dict[tuple[str, str], list[tuple[Success, Success]]]()
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        for course in asked.courses.split(","):
            for name, ended in one_seed(course, names, seed, asked).items():
                found.setdefault((course, name), []).append(ended)
    for (course, name), seeds in found.items():
        cpu_s = rounded(statistics.median(success.cpu_s for success, _ in seeds))
        for way in TEMPERATURES:
            gains = [success.rate(way) - start.rate(way) for success, start in seeds]
            report(f"methods, {course}, {name}: {way} gain", gains, "share", None, seeds=len(seeds), cpu_s=cpu_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
