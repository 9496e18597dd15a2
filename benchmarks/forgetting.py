"""Does an agent keep its first skill while it learns a second one? Plain training, replay, EWC, and both.

The embedded model learns the warehouse from its expert, then word problems from theirs. After each it is measured in the warehouse
on held-out tasks, and on other problems in the words of the training split, because a model of its size learns no new words.
`python -m benchmarks.forgetting`; `--quick` takes one seed and fewer tasks.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.figures import report
from benchmarks.jobs import STARTER, carry_out, runs_of
from quintain.datasets.dataset_writer import ExportOptions, write_dataset
from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import KeyedRow
from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import Dataset, DatasetRow
from quintain.records.hyperparameters.methods import EWCConfig, ReplayConfig, SFTConfig
from quintain.records.jobs.job import EvaluateSpec, RolloutSpec, TrainSpec
from quintain.records.jobs.recipe import EarlierSkill
from quintain.records.trajectory import OutcomeStatus

FIRST, SECOND = "quintain/inventory", "quintain/math?difficulty=easy&types=collection"
EXPERT = Agent(id="agent:expert@1", name="expert", model=ModelRef(source="expert", path=""))
VARIANTS = ("plain", "replay", "ewc", "both")


class Size(NamedTuple):
    """How much is trained and measured."""

    seeds: int
    first: int
    """Demonstrations of the first skill."""
    second: int
    """Demonstrations of the second one."""
    tasks: int
    epochs: float


FULL, QUICK = Size(5, 100, 200, 40, 4), Size(1, 100, 200, 30, 4)


class Bench:
    """The jobs of one seed."""

    def __init__(self, folder: Path, seed: int, size: Size, rate: float) -> None:
        self.folder, self.seed, self.size, self.rate = folder, seed, size, rate
        folder.mkdir(parents=True)

    def demonstrations(self, environment: str, n_tasks: int, name: str, seed: int | None = None) -> Dataset:
        """Return a dataset of the expert's runs on training tasks, drawn by the bench's seed unless another is given."""
        seed = self.seed if seed is None else seed
        spec = RolloutSpec(agent=EXPERT, environment=environment, n_tasks=n_tasks, seed=seed, split="train")
        runs = runs_of(carry_out(spec, self.folder / f"job-expert-{name}"))
        rows = (KeyedRow("", DatasetRow(trajectory=run)) for run in runs)
        options = ExportOptions(dataset_id=f"ds-{name}", name=name, kind="sft")
        return write_dataset(rows, self.folder / f"ds-{name}", options, ExportCounts()).dataset

    def train(self, name: str, agent: Agent, data: Dataset, kept: Dataset | None = None, **settings: Any) -> Agent:
        """Return the agent of a training by sft."""
        config = SFTConfig(epochs=self.size.epochs, learning_rate=self.rate, **settings)
        earlier = kept and EarlierSkill(dataset_id=kept.id, dataset_path=kept.path, dataset_files=kept.files)
        spec = TrainSpec(
            agent=agent,
            dataset_id=data.id,
            dataset_path=data.path,
            dataset_files=data.files,
            name=name,
            output_dir=str(self.folder / name),
            cache_dir=str(self.folder / "cache"),
            config=config,
            earlier=earlier,
            seed=self.seed,
        )
        carry_out(spec, self.folder / f"job-{name}-job")
        return agent.model_copy(update={"model": ModelRef(source="folder", path=spec.output_dir)})

    def success(self, name: str, agent: Agent, environment: str, split: Literal["train", "held_out"]) -> float:
        """Return the share of tasks that an agent solves, greedily; the seed is not that of the demonstrations."""
        spec = EvaluateSpec(
            agent=agent, environment=environment, split=split, n_tasks=self.size.tasks, seed=self.seed + 1000
        )
        runs = runs_of(carry_out(spec, self.folder / f"job-{name}-{environment.split('/')[1].split('?')[0]}"))
        return sum(run.outcome.status is OutcomeStatus.SUCCESS for run in runs) / len(runs)


def one_seed(
    bench: Bench, variants: Sequence[str], strengths: Sequence[float]
) -> dict[str, tuple[float, float, float]]:
    """Return by agent: success in the first environment, success in the second, and processor seconds of its training."""
    size = bench.size
    first = bench.demonstrations(FIRST, size.first, "first")
    second = bench.demonstrations(SECOND, size.second, "second")
    replay = ReplayConfig(size=size.first, ratio=0.5)
    settings: dict[str, dict[str, Any]] = {"plain": {}, "replay": {"replay": replay}}
    for strength in strengths:
        ewc = {"ewc": EWCConfig(strength=strength), "kept": first}
        settings |= {f"ewc {strength:g}": ewc, f"both {strength:g}": {"replay": replay, **ewc}}
    found = {}

    def measure(name: str, agent: Agent, seconds: float) -> None:
        first, second = bench.success(name, agent, FIRST, "held_out"), bench.success(name, agent, SECOND, "train")
        found[name] = (first, second, seconds)
        more: dict[str, Any] = {"second": second, "n": size.tasks, "seed": bench.seed, "cpu_s": round(seconds, 1)}
        report(f"forgetting, {name}: success in the first environment", [first], "share", None, **more)

    began = time.process_time()
    skilled = bench.train("skilled", STARTER, first, replay=replay)
    measure("skilled", skilled, time.process_time() - began)
    for variant, chosen in settings.items():
        if variant.partition(" ")[0] in variants:
            began = time.process_time()
            agent = bench.train(variant.replace(" ", "-"), skilled, second, **chosen)
            measure(variant, agent, time.process_time() - began)
    return found


def main() -> None:
    """Report each agent of each seed, then both successes over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, fewer tasks")
    parser.add_argument("--seeds", type=int, help="how many seeds; default 5, with --quick 1")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--strengths", type=float, nargs="*", default=[EWCConfig().strength], help="ewc.strength")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate")
    parser.add_argument("--only", choices=VARIANTS, nargs="*", default=VARIANTS, help="variants to train")
    asked = parser.parse_args()
    size = QUICK if asked.quick else FULL
    results: dict[str, list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as home:
        for seed in range(asked.first_seed, asked.first_seed + (asked.seeds or size.seeds)):
            bench = Bench(Path(home) / str(seed), seed, size, asked.rate)
            for name, figures in one_seed(bench, asked.only, asked.strengths).items():
                results.setdefault(name, []).append(figures)
    for name, runs in results.items():
        first, second, _ = (list(column) for column in zip(*runs, strict=True))
        report(f"forgetting, {name}: success in the first environment over the seeds", first, "share", None)
        report(f"forgetting, {name}: success in the second environment over the seeds", second, "share", None)


if __name__ == "__main__":
    main()
