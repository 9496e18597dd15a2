"""Faults of files: checkpoints, datasets and agents, each file damaged in turn, and kills inside the save of a checkpoint."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.faults.home import call, exit_code, fault_home, forked
from benchmarks.figures import report, say
from quintain.datasets.dataset_writer import ExportOptions, write_dataset
from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import KeyedRow
from quintain.errors import QuintainError
from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import DatasetRow
from quintain.records.hyperparameters.methods import CONFIGS
from quintain.records.jobs.job import TrainSpec
from quintain.records.trajectory import Actor, Step, Task, Trajectory
from quintain.tools.training.model_folders import starter_folder
from quintain.worker.rank import SilentReporter

CHECKSUMS = "SHA256SUMS"
KEPT = 3
"""Checkpoints that a trial keeps."""


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "truncate": _truncate,
    "zero": _zero,
    "flip": _flip,
    "delete": Path.unlink,
}


class TrialReporter(SilentReporter):
    """Reports to the trial; ends the process without a trace after a step, as SIGKILL does."""

    def __init__(self, die_after: int | None = None) -> None:
        super().__init__()
        self.die_after = die_after
        self.steps: list[int] = []
        self.warnings: list[str] = []

    def progress(
        self,
        step: int,
        total_steps: int,
        metrics: dict[str, float | None],
        totals: dict[str, float | None] | None = None,
    ) -> None:
        """Note a step."""
        self.steps.append(step)
        if step == self.die_after:
            os.kill(os.getpid(), signal.SIGKILL)

    def warn(self, code: str, message: str) -> None:
        """Note a warning."""
        self.warnings.append(message)


def _rows() -> list[DatasetRow]:
    steps = [
        (Step(actor=Actor.USER, message=f"price of {n}?"), Step(actor=Actor.AGENT, message="It costs 40."))
        for n in range(4)
    ]
    return [
        DatasetRow(trajectory=Trajectory(task=Task(id=str(n), prompt="p"), steps=own)) for n, own in enumerate(steps)
    ]


def train_starter(folder: Path, steps: int, reporter: TrialReporter | None = None) -> TrialReporter:
    """Train the starter model for some steps with a checkpoint after each; go on where an earlier attempt died."""
    import torch

    from quintain.trainers.run_setup import Data
    from quintain.trainers.train import train

    # A copy of a process has no pool of threads, and threads that read weights would race to make it ("Invalid thread pool!").
    torch.set_num_threads(1)
    settings = {"max_steps": steps, "epochs": 1000, "batch_size": 2, "schedule": "constant", "warmup_ratio": 0.0}
    config = CONFIGS["sft"](**settings, checkpoint_every_steps=1, keep_checkpoints=KEPT)
    spec = TrainSpec(
        method="sft",
        agent=Agent(name="starter", model=ModelRef(source="folder", path=str(starter_folder()))),
        dataset_id="ds",
        dataset_path="unused",
        name="trained",
        output_dir=str(folder / "out"),
        config=config,
        seed=11,
        cache_dir=str(folder.parent / "cache"),  # measured on a busy machine, each would choose another way to compute
    )
    reporter = reporter or TrialReporter()
    folder.mkdir(exist_ok=True)
    train(spec, Data(_rows()), folder / "job", reporter)
    return reporter


def _weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@contextmanager
def one_thread() -> Iterator[Path]:
    """Yield a folder for trainings in copies of this process, which may not have threads."""
    import torch

    import quintain.trainers.train  # noqa: F401  loaded once, before the copies

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with TemporaryDirectory() as folder:
            yield Path(folder)
    finally:
        torch.set_num_threads(threads)


def corrupt_checkpoints(count: int) -> None:
    """Damage each file of the newest checkpoint: the resumed run takes the one before, names the file, and ends the same."""
    with one_thread() as folder:
        require_killed(forked(train_starter, folder / "killed", 5, TrialReporter(die_after=4)))
        _require_ended(forked(train_starter, folder / "whole", 5))
        expected = _weights(folder / "whole/out")
        newest = max((folder / "killed/job/checkpoints").glob("step-*"))
        trials = [
            (path.relative_to(newest), name) for path in sorted(newest.rglob("*")) if path.is_file() for name in DAMAGES
        ]
        random.Random(7).shuffle(trials)
        wrong = []
        for number, (file, damage) in enumerate(trials[:count]):
            copy = folder / f"copy-{number}"
            shutil.copytree(folder / "killed", copy)
            DAMAGES[damage](copy / "job/checkpoints" / newest.name / file)
            label = f"{damage} {file}"
            if exit_code(forked(_resumed, copy, 5, newest.name, str(file), expected)):
                wrong.append(label)
            shutil.rmtree(copy)
    report("checkpoints_corrupted", [min(count, len(trials))], "files", None, of=len(trials))
    report("failed_resumes_after_corruption", [len(wrong)], "resumes", 0, "lower", found=wrong[:5])


def _resumed(folder: Path, steps: int, damaged: str, file: str, expected: bytes) -> None:
    """Resume, and check what was read, what was reported and what came out."""
    reporter = train_starter(folder, steps)
    named = [text for text in reporter.warnings if damaged in text and file in text]
    before = int(damaged.rpartition("-")[2]) - 1
    left, is_equal = half_written(folder), _weights(folder / "out") == expected
    if reporter.steps[0] != before + 1 or not named or left or not is_equal:
        raise AssertionError(
            f"resumed at {reporter.steps[:1]} with warnings {reporter.warnings}, {left} left, equal weights: {is_equal}"
        )


def half_written(folder: Path) -> list[str]:
    """Return the names of half-written files and folders, which the attempt after has to remove."""
    return [path.name for path in folder.rglob(".*")]


def require_killed(child: int) -> None:
    if (code := exit_code(child)) != -signal.SIGKILL:
        raise RuntimeError(f"expected a training that is killed, got exit code {code}")


def _require_ended(child: int) -> None:
    if code := exit_code(child):
        raise RuntimeError(f"expected a training that ends, got exit code {code}")


def save_kills(count: int) -> None:
    """Kill a training inside the save of a checkpoint, again and again: each attempt goes on, and the weights are right."""
    from quintain.trainers.loop.checkpoints import newest_complete

    dice, inside = random.Random(8), 0
    wrong: list[str] = []
    with one_thread() as folder:
        saves = folder / "killed/job/checkpoints"
        step = 0
        while inside < count and len(wrong) < 5:
            child = forked(train_starter, folder / "killed", 2000)
            if not _save_begins(child, saves, after=step):
                wrong.append(f"the attempt after step {step} ended by itself with {exit_code(child)}")
                continue
            time.sleep(dice.uniform(0, 0.02))
            os.kill(child, signal.SIGKILL)
            inside += any(saves.glob(".*.partial"))
            exit_code(child)
            newest = newest_complete(saves)
            wrong += [f"incomplete under its final name: {text}" for text in newest.skipped]
            reached = int(newest.path.name.rpartition("-")[2]) if newest.path else 0
            wrong += [] if reached >= step else [f"went back from step {step} to {reached}"]
            step = reached
        if step:
            require_killed(forked(train_starter, folder / "killed", 2000, TrialReporter(die_after=step + 3)))
            wrong += [f"left over: {name}" for name in half_written(folder / "killed")]
            require_killed(forked(train_starter, folder / "whole", 2000, TrialReporter(die_after=step + 3)))
            step += 2
            pair = [_weights(folder / name / "job/checkpoints" / f"step-{step:08d}") for name in ("killed", "whole")]
            wrong += [] if pair[0] == pair[1] else [f"other weights at step {step} than without kills"]
    report("kills_inside_a_save", [inside], "kills", None, steps=step)
    report("failed_resumes_after_kills", [len(wrong)], "resumes", 0, "lower", found=wrong[:5])


def _save_begins(child: int, saves: Path, after: int) -> bool:
    """Wait until a training writes a checkpoint of a step later than `after + 1`. Return False if it ended."""
    earlier = {path.name for path in saves.glob(".*.partial")}
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        partial = [path.name for path in saves.glob(".*.partial")]
        if any(name not in earlier and int(name.split("-")[1].split(".")[0]) > after + 1 for name in partial):
            return True
        time.sleep(0.0005)
    return False


def corrupt_datasets(count: int) -> None:
    """Damage each file of a dataset: training is refused with the file's name, and another dataset is as it was."""
    wrong, trials = [], []
    with fault_home() as home:
        for name in ("ds-damaged", "ds-sound"):
            folder = home.folder / "datasets" / name
            rows = [KeyedRow(str(n), row) for n, row in enumerate(_rows())]
            options = ExportOptions(name, name, shares={"validation": 0.5}, created_at=datetime.now(UTC))
            written = write_dataset(rows, folder, options, ExportCounts())
            home.store.datasets.add(written.dataset, [], datetime.now(UTC))
            trials = [(file, damage) for file in written.dataset.files for damage in DAMAGES]
        damaged, client = home.folder / "datasets/ds-damaged", home.server()
        random.Random(9).shuffle(trials)
        for file, damage in trials[:count]:
            before = (damaged / file).read_bytes()
            DAMAGES[damage](damaged / file)
            try:
                call(client, "start_training", method="sft", model="starter", dataset_id="ds-damaged", name="x")
                wrong.append(f"{damage} {file}: accepted")
            except RuntimeError as error:
                refused = str(error).startswith("[dataset_damaged]") and file in str(error)
                wrong += [] if refused else [f"{damage} {file}: {error}"]
            (damaged / file).write_bytes(before)
        plan = call(client, "plan_training", method="sft", model="starter", dataset_id="ds-sound")
        wrong += [] if plan else ["the sound dataset cannot be read"]
        client.close()
        wrong += home.audit()
    report("datasets_corrupted", [min(count, len(trials))], "files", None, of=len(trials))
    report("corrupt_datasets_not_named", [len(wrong)], "files", 0, "lower", found=wrong[:5])


def corrupt_agents(count: int) -> None:
    """Damage each file of a trained agent: it is refused with the file's name."""
    with one_thread() as folder:
        _require_ended(forked(train_starter, folder / "trained", 1))
        agent = folder / "trained/out"
        trials = [(path.name, name) for path in sorted(agent.iterdir()) for name in DAMAGES]
        trials.remove((CHECKSUMS, "delete"))  # a folder without checksums is a model from elsewhere
        random.Random(10).shuffle(trials)
        wrong = []
        for file, damage in trials[:count]:
            copy = folder / "copy"
            shutil.copytree(agent, copy)
            DAMAGES[damage](copy / file)
            if refusal := _not_refused(copy, file):
                wrong.append(f"{damage} {file}: {refusal}")
            shutil.rmtree(copy)
        if refusal := _refusal(agent):
            say(f"the sound agent is refused: {refusal}")
            wrong.append("the sound agent is refused")
    report("agents_corrupted", [min(count, len(trials))], "files", None, of=len(trials))
    report("corrupt_agents_not_named", [len(wrong)], "files", 0, "lower", found=wrong[:5])


def _not_refused(folder: Path, file: str) -> str | None:
    """Return why a damaged agent counts as a fault; None if it was refused with the file's name."""
    refusal = _refusal(folder)
    if refusal is None:
        return "accepted"
    is_named = file in refusal or f"*{Path(file).suffix}" in refusal
    return None if refusal.startswith("[") and is_named else refusal


def _refusal(folder: Path) -> str | None:
    from quintain.trainers.models.loading import load_model

    try:
        load_model(ModelRef(source="folder", path=str(folder)))
    except QuintainError as error:
        return str(error)
    return None
