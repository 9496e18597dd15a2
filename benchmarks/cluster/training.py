"""A training in two processes next to one with two threads: tokens a second, and the peak memory of a process.

Both are the worker's own program: `trainers.train.train` in processes of torch's launcher.
"""

from __future__ import annotations

import json
import pickle
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figures import report, say

STEPS, FIRST = 6, 2
"""Steps of a run, and the first one that counts: before, memory is touched and shapes are new."""

RANK_OF_ITS_OWN = "rank"


class Run(NamedTuple):
    """What a run gave."""

    losses: list[float]
    tokens_per_s: float
    peaks_mb: list[float]
    """Of each process."""


def training(rounds: int = 3) -> None:
    """LoRA and full training of 13 million parameters; memory of a sharded training of 57 million."""
    from benchmarks.workload import SIZES, make_model

    SIZES["57m"] = (640, 12, 10, 2, 1760)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for size in ("s", "57m"):
            make_model(folder / size, size)
        for name, settings in (("lora", {"lora": {}}), ("full", {"lora": None})):
            pairs = [
                (measured(folder, "s", processes=1, **settings), measured(folder, "s", processes=2, **settings))
                for _ in range(rounds)
            ]
            ratios = [two.tokens_per_s / one.tokens_per_s for one, two in pairs]
            one, two = pairs[-1]
            apart = max(abs(a - b) / abs(a) for a, b in zip(one.losses, two.losses, strict=True))
            report(
                f"spmd_{name}_two_processes_to_one", ratios, "x", 0.9, tokens_per_s=two.tokens_per_s, loss_apart=apart
            )
        one = measured(folder, "57m", processes=1, lora=None, batch_size=2, max_steps=FIRST + 1)
        two = measured(folder, "57m", processes=2, lora=None, batch_size=2, max_steps=FIRST + 1, sharding="full")
        share = max(two.peaks_mb) / one.peaks_mb[0]
        report(
            "sharded_57m_peak_memory_of_a_process", [share], "x", 0.6, "lower", mb=two.peaks_mb, one_mb=one.peaks_mb[0]
        )


def measured(folder: Path, size: str, *, processes: int, **settings: Any) -> Run:
    """Train in new processes."""
    from quintain.trainers.distributed.launcher import launch

    job = Path(tempfile.mkdtemp(dir=folder))
    about = {"model": str(folder / size), "processes": processes, "batch_size": 4, **settings}
    (job / "about.json").write_text(json.dumps(about), encoding="utf-8")
    if failed := launch(["-m", "benchmarks.cluster.training", RANK_OF_ITS_OWN, str(job)], processes):
        raise RuntimeError(f"process {failed[0].rank + 1} {failed[0]}")
    steps = pickle.loads((job / "steps").read_bytes())
    peaks = [float((job / f"peak-{rank}").read_text()) for rank in range(processes)]
    run = Run(
        [step["loss"] for step in steps], statistics.median(step["tokens_per_s"] for step in steps[FIRST:]), peaks
    )
    say(f"{size} {about}: {run.tokens_per_s:.0f} tokens/s, {', '.join(f'{peak:.0f}' for peak in peaks)} MiB")
    return run


def rank(job: Path) -> None:
    """Be a process of a run."""
    import torch

    from benchmarks.workload import Writer, row_of
    from quintain.records.agent import Agent, ModelRef
    from quintain.records.hyperparameters.methods import SFTConfig
    from quintain.records.jobs.job import TrainSpec
    from quintain.trainers.distributed.process_group import initialize
    from quintain.trainers.engine.machine import peak_memory_mb
    from quintain.trainers.models.tokenizer_files import load_tokenizer
    from quintain.trainers.run_setup import Data
    from quintain.trainers.train import follow, train
    from quintain.worker.rank import SilentReporter
    from quintain.worker.rollouts.concurrent_rollouts import playing_partner

    torch.set_num_threads(2)
    group = initialize()
    about = json.loads((job / "about.json").read_bytes())
    model = ModelRef(source="folder", path=about.pop("model"))
    if group.is_first:
        from quintain.trainers.models.model_files import model_files

        writer = Writer(load_tokenizer(model_files(model)))
        rows = [row_of(writer.run(6)) for _ in range(STEPS * about["batch_size"])]
        fixed = {"batch_tokens": 2048, "learning_rate": 1e-4, "precision": "fp32", "epochs": 1}
        config = SFTConfig(**fixed, **about)
        agent = Agent(name="bench", model=model)
        output = str(job / "out")
        spec = TrainSpec(
            method="sft", agent=agent, dataset_id="ds", dataset_path="-", name="bench", output_dir=output, config=config
        )
        reporter = _Steps()
        train(spec, Data(rows), job / "job", reporter)
        (job / "steps").write_bytes(pickle.dumps(reporter.steps))
        group.dismiss(failed=False)
    else:
        follow(group, SilentReporter(), playing_partner)
    (job / f"peak-{group.rank}").write_text(str(peak_memory_mb("cpu")))


if __name__ == "__main__" and sys.argv[1:2] == [RANK_OF_ITS_OWN]:
    from quintain.worker.rank import SilentReporter

    class _Steps(SilentReporter):
        """Keeps the metrics of the steps."""

        def __init__(self) -> None:
            super().__init__()
            self.steps: list[dict[str, float | None]] = []

        def progress(self, step: int, total_steps: int, metrics: dict[str, float | None], *_: object) -> None:
            self.steps.append(metrics)

    rank(Path(sys.argv[2]))
