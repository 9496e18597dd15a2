"""A process of a training killed at random, again and again: what each attempt repeats, and what is left of the kills at the end."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figures import report, say

STEPS, EVERY = 200, 4
"""Steps of the run, and from one checkpoint to the next."""


def killed_ranks(kills: int = 30) -> None:
    """Kill the worker or one of its two processes at random times; compare with a run that nobody touches."""
    _killed("none", kills)


def killed_sharded_ranks(kills: int = 30) -> None:
    """The same with the model split over the processes, whose checkpoints are written by all of them."""
    _killed("full", kills)


def _killed(sharding: str, kills: int) -> None:
    chance, ranks = random.Random(0), "ranks" if sharding == "none" else "sharded_ranks"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        whole, attempts = prepared(folder, "whole", sharding=sharding), 0
        attempt(whole, 1, None, chance)
        job, left, named, done = prepared(folder, "killed", sharding=sharding), 0, 0, False
        while not done:
            attempts += 1
            done = attempt(job, attempts, chance.random() if attempts <= kills else None, chance)
            job.sweep()  # as the server does between attempts
            named += [event.type for event in events(job)][-1] == "failed"
            left += len(processes_of(job))
        distance = apart(folder / "out-whole", folder / "out-killed")
        report(f"kills_of_{ranks}", [attempts - 1], "kills", None, named_as_process_lost=named)
        report(f"processes_left_after_kills_of_{ranks}", [left], "processes", 0, "lower")
        report(f"steps_taken_twice_after_kills_of_{ranks}", [repeated(job)], "steps", 0, "lower")
        report(f"weights_apart_after_kills_of_{ranks}", [distance], "relative", 1e-6, "lower")


def prepared(folder: Path, name: str, **settings: Any) -> Any:
    """A job folder of a training in two processes."""
    from benchmarks.workload import row_of
    from quintain.files import sha256_of
    from quintain.records.agent import Agent, ModelRef
    from quintain.records.hyperparameters.methods import SFTConfig
    from quintain.records.jobs.job import TrainSpec
    from quintain.tools.training.model_folders import starter_folder

    model, data = ModelRef(source="starter", path=str(starter_folder())), folder / "data"
    if not data.exists():
        data.mkdir()
        talks = [
            [{"role": "user", "content": f"What is {n} + 1?"}, {"role": "assistant", "content": f"It is {n + 1}."}]
            for n in range(STEPS)
        ]
        lines = [row_of(talk).model_dump_json() for talk in talks]
        (data / "train.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = SFTConfig(
        processes=2,
        batch_size=2,
        epochs=2,
        batch_tokens=512,
        precision="fp32",
        learning_rate=1e-4,
        checkpoint_every_steps=EVERY,
        **settings,
    )
    spec = TrainSpec(
        method="sft",
        agent=Agent(name="bench", model=model),
        dataset_id="ds",
        dataset_path=str(data),
        name="bench",
        dataset_files={"train.jsonl": sha256_of(data / "train.jsonl")},
        output_dir=str(folder / f"out-{name}"),
        config=config,
    )
    return job_folder(folder, name, spec)


def job_folder(folder: Path, name: str, spec: Any) -> Any:
    """A job folder that no server knows."""
    from quintain.jobs.directory import JobDirectory
    from quintain.records.jobs.job import Job, JobStatus

    directory = JobDirectory(folder / name / "jobs" / name)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    times = {"created_at": now, "updated_at": now}
    directory.prepare(Job(id=name, kind=spec.kind, spec=spec, status=JobStatus.QUEUED, request_key="k", **times))
    return directory


def attempt(job: Any, number: int, when: float | None, chance: random.Random) -> bool:
    """Run an attempt, and kill one of its three processes somewhere in its life; whether the job has succeeded."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "quintain.worker", str(job.path), str(number)], stderr=subprocess.DEVNULL
    )
    if when is not None:
        begun = sum(event.type == "progress" for event in events(job))
        wanted = begun + int(when * 2 * EVERY)
        while worker.poll() is None and sum(event.type == "progress" for event in events(job)) <= wanted:
            time.sleep(0.05)
        with suppress(psutil.Error):
            chosen = chance.choice([psutil.Process(worker.pid), *psutil.Process(worker.pid).children()])
            chosen.send_signal(signal.SIGKILL)
    worker.wait()
    for process in processes_of(job):
        with suppress(psutil.TimeoutExpired):
            process.wait(10)
    last = events(job)[-1]
    say(f"attempt {number}: {last.type} {last.code or ''} at step {max((e.step or 0 for e in events(job)), default=0)}")
    return last.type == "result"


def events(job: Any) -> list[Any]:
    """Complete events of a job."""
    from quintain.jobs.directory import read_lines
    from quintain.records.jobs.job_events import JobEvent

    return [JobEvent.model_validate_json(line) for line in read_lines(job.events, 0).lines]


def processes_of(job: Any) -> list[psutil.Process]:
    """Processes that still run the job."""
    found = psutil.process_iter(["cmdline"])
    return [p for p in found if str(job.path) in (p.info["cmdline"] or []) and p.status() != psutil.STATUS_ZOMBIE]


def repeated(job: Any) -> int:
    """Steps of an attempt that do not follow the one before, or the newest checkpoint of an earlier attempt."""
    wrong, checkpoint, step, now = 0, 0, 0, 0
    for event in events(job):
        if event.attempt != now:
            now, step = event.attempt, checkpoint
        if event.type == "checkpoint":
            checkpoint = event.step or 0
        if event.type == "progress":
            wrong += event.step != step + 1
            step = event.step or 0
    return wrong


def apart(one: Path, two: Path, file: str = "model.safetensors") -> float:
    """Largest relative distance of a weight."""
    from safetensors.torch import load_file

    left, right = (load_file(folder / file) for folder in (one, two))
    return max(float((left[name] - right[name]).norm() / left[name].norm()) for name in left)
