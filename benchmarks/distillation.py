"""What does a student take over from a teacher? Distillation on recorded runs and on its own, beside the start and the teacher.

The teacher is the embedded model after the demonstrations of the warehouse's expert; the student is the embedded model. On a dataset
it sees the demonstrations of other tasks, a quarter as many. `python -m benchmarks.distillation`; `--quick` takes one seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.figures import report, say
from benchmarks.forgetting import FIRST, Bench, Size
from benchmarks.jobs import STARTER, carry_out
from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import Dataset
from quintain.records.hyperparameters.methods import DistillConfig
from quintain.records.jobs.job import TrainSpec

SEEDS = 5
SIZE = Size(seeds=SEEDS, first=100, second=25, tasks=60, epochs=4)
RATE = 2e-3


def distil(bench: Bench, name: str, teacher: Agent, data: Dataset | None, **settings: Any) -> tuple[Agent, list[float]]:
    """Return the student, and the divergence from its teacher at each step, in nats a token."""
    source: dict[str, Any] = {"environment": FIRST}
    if data is not None:
        source = {"dataset_id": data.id, "dataset_path": data.path, "dataset_files": data.files}
    spec = TrainSpec(
        method="distill",
        agent=STARTER,
        name=name,
        output_dir=str(bench.folder / name),
        config=DistillConfig(teacher=teacher.name, **settings),
        teacher_agent=teacher,
        seed=bench.seed,
        **source,
    )
    folder = carry_out(spec, bench.folder / f"job-{name}")
    lines = (json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines())
    steps = [line["metrics"] for line in lines if line["type"] == "progress"]
    kind = "reverse_kl" if data is None else "forward_kl"
    divergences = [step[kind] for step in steps if step.get(kind) is not None]
    return STARTER.model_copy(update={"model": ModelRef(source="folder", path=spec.output_dir)}), divergences


def one_seed(bench: Bench) -> dict[str, dict[str, Any]]:
    """Return by agent: success on held-out tasks, and for students processor seconds and first and last divergence."""
    teacher = bench.train("teacher", STARTER, bench.demonstrations(FIRST, SIZE.first, "first"))
    teacher = teacher.model_copy(update={"id": "agent:teacher@1", "name": "teacher"})
    few = bench.demonstrations(FIRST, SIZE.second, "few", seed=bench.seed + 1)
    found: dict[str, dict[str, Any]] = {}
    for name, agent in (("start", STARTER), ("teacher", teacher)):
        found[name] = {"success": bench.success(name, agent, FIRST, "held_out")}
    students: dict[str, tuple[Dataset | None, dict[str, Any]]] = {
        "on recorded runs": (few, {"epochs": 8, "batch_size": 8, "learning_rate": 1e-3}),
        "on own runs": (
            None,
            {"rollouts": 12, "tasks_per_step": 4, "group_size": 4, "max_new_tokens": 96, "learning_rate": 3e-4},
        ),
    }
    for name, (data, settings) in students.items():
        began = time.process_time()
        student, divergences = distil(bench, name.replace(" ", "-"), teacher, data, **settings)
        seconds = time.process_time() - began
        success = bench.success(name.replace(" ", "-"), student, FIRST, "held_out")
        found[name] = {"success": success, "cpu_s": seconds, "first": divergences[0], "last": divergences[-1]}
        say(f"seed {bench.seed} {name}: {found[name]}")
    return found


def main() -> None:
    """One line for each agent: success on held-out tasks over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed")
    seeds = 1 if parser.parse_args().quick else SEEDS
    results: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as home:
        for seed in range(seeds):
            for name, figures in one_seed(Bench(Path(home) / str(seed), seed, SIZE, RATE)).items():
                results.setdefault(name, []).append(figures)
    for name, runs in results.items():
        means = {key: round(statistics.mean(run[key] for run in runs), 4) for key in runs[0] if key != "success"}
        report(f"distillation {name}: success in {FIRST}", [run["success"] for run in runs], "share", None, **means)


if __name__ == "__main__":
    main()
