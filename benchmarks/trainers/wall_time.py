"""Supervised fine-tuning from process start to saved model, in a separate process for each run.

`python -m benchmarks.trainers.wall_time SIDE FOLDER` is such a process; it prints one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

RATE = 1e-4
"""Learning rate of both sides; constant, without weight decay."""
PEAK = "VmHWM:"
"""The line of /proc/self/status that tells it."""


class _Place(NamedTuple):
    """What our loop shuffles, in place of an example."""

    key: str
    number: int


def wall(folder: Path, *, rounds: int, quick: bool) -> None:
    """Time, memory and losses of both sides, in alternation."""
    from benchmarks.figures import report, say
    from benchmarks.trainers.rounds import AGREE

    steps, batch_size = (2, 2) if quick else (6, 4)
    _write_data(folder, steps * batch_size, batch_size, quick=quick)
    say(f"sft_wall: {steps} steps of {batch_size} runs, {rounds} rounds, one process each")
    ended: dict[str, list[dict[str, Any]]] = {"trl": [], "ours": []}
    for i in range(rounds):
        for side in ended if i % 2 else reversed(ended):
            ended[side].append(_started(side, folder))
            say(f"  {side:6s} {ended[side][-1]}")
    pairs = list(zip(ended["trl"], ended["ours"], strict=True))
    difference = max(abs(a - b) for t, o in pairs for a, b in zip(t["losses"], o["losses"], strict=True))
    report("sft_wall_loss_difference", [difference], "nats", AGREE["fp32"], "lower")
    if not difference <= AGREE["fp32"]:
        say("sft_wall: the losses do not agree, so no ratio is given")
        return
    report("sft_wall_speedup", [t["wall_s"] / o["wall_s"] for t, o in pairs], "1", 4.0)
    report("sft_wall_training_speedup", [t["train_s"] / o["train_s"] for t, o in pairs], "1", None)
    report("sft_peak_memory_ratio", [o["peak_mb"] / t["peak_mb"] for t, o in pairs], "1", 0.5, "lower")
    for side, runs in ended.items():
        report(f"sft_wall_{side}", [run["wall_s"] for run in runs], "s", None, "lower")
        report(f"sft_peak_memory_{side}", [run["peak_mb"] for run in runs], "MiB", None, "lower")


def _started(side: str, folder: Path) -> dict[str, Any]:
    began = time.time()
    command = [sys.executable, "-m", "benchmarks.trainers.wall_time", side, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(f"{side} failed:\n{done.stderr[-3000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures | {"wall_s": round(figures.pop("saved_at") - began, 3)}


def _write_data(folder: Path, n: int, batch_size: int, *, quick: bool) -> None:
    """The same runs for both sides; TRL reads them in the order in which our loop will shuffle them."""
    from benchmarks.workload import Writer, load, row_of
    from quintain.trainers.loop.schedule import EpochSource

    writer = Writer(load(folder / "model").tokenizer, 11)
    runs = [writer.run_of_length((2, 3, 4) if quick else (4, 7, 10, 13)) for _ in range(n)]
    rows = "\n".join(row_of(messages).model_dump_json() for messages in runs)
    (folder / "train.jsonl").write_text(rows + "\n", "utf-8")
    places: Any = [_Place(str(i), i) for i in range(n)]
    source: Any = EpochSource(places, _config(batch_size), 0)
    order = [place.number for step in range(source.total_steps) for place in source.step(step)]
    (folder / "messages.json").write_text(json.dumps([{"messages": runs[i]} for i in order]), "utf-8")
    (folder / "batch_size").write_text(str(batch_size), "utf-8")


def _config(batch_size: int) -> Any:
    from quintain.records.hyperparameters.methods import SFTConfig

    return SFTConfig(
        epochs=1, batch_size=batch_size, learning_rate=RATE, schedule="constant", warmup_ratio=0.0, weight_decay=0.0
    )


def _ours(folder: Path) -> dict[str, Any]:
    """The job kind `train` as the worker carries it out, less its event file."""
    from benchmarks.trainers.sides import Listener
    from quintain.files import sha256_of
    from quintain.records.agent import Agent, ModelRef
    from quintain.records.jobs.job import TrainSpec
    from quintain.worker.job_kinds.train import run

    listener, job = Listener(), folder / f"job-{os.getpid()}"
    job.mkdir()
    spec = TrainSpec(
        agent=Agent(name="start", model=ModelRef(source="folder", path=str(folder / "model"))),
        dataset_id="runs",
        dataset_path=str(folder),
        dataset_files={"train.jsonl": sha256_of(folder / "train.jsonl")},
        name="trained",
        output_dir=str(job / "trained"),
        config=_config(int((folder / "batch_size").read_text("utf-8"))),
    )
    run(spec, job, listener)
    return {"losses": listener.losses, "train_s": listener.phases["saving"] - listener.phases["training"]}


def _trl(folder: Path) -> dict[str, Any]:
    """As TRL's documentation shows it, in float32."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    rows = json.loads((folder / "messages.json").read_text("utf-8"))
    batch_size = int((folder / "batch_size").read_text("utf-8"))
    losses: list[float] = []

    class Watch(TrainerCallback):
        def on_log(self, *args: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
            if logs and "loss" in logs:
                losses.append(float(logs["loss"]))

    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    config = SFTConfig(
        output_dir=str(folder / f"trl-{os.getpid()}"),
        per_device_train_batch_size=batch_size,
        num_train_epochs=1,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=1.0,
        assistant_only_loss=True,
        max_length=None,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = SFTTrainer(
        model,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(folder / "model"),
        callbacks=[Watch()],
    )
    began = time.time()
    trainer.train()
    trained = time.time()
    trainer.save_model()
    return {"losses": losses, "train_s": trained - began}


def _peak_mb() -> float:
    """Most resident memory of this process; what a parent held before it started the process does not count."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(PEAK))


if __name__ == "__main__":
    figures = {"trl": _trl, "ours": _ours}[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps(figures | {"saved_at": time.time(), "peak_mb": _peak_mb()}))
