"""Artifacts in a bucket: MB/s of transfers, uploads that are killed at random, and the cost of mirrored checkpoints for a step.

Run as `python -m benchmarks.cluster.artifacts`. The bucket is moto's server, in a separate process.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.figures import report, say, summarize
from benchmarks.machine import free_port
from quintain.artifacts.transfers import delete, fetch, upload
from quintain.datasets.dataset_writer import ExportOptions, write_dataset
from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import KeyedRow
from quintain.errors import InvalidInput, NotFound
from quintain.jobs.directory import JobDirectory
from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import TextRow
from quintain.records.hyperparameters.methods import CONFIGS
from quintain.records.jobs.job import TrainSpec
from quintain.worker.processes.reporter import FileReporter

_UPLOAD = """
import sys
from pathlib import Path
import s3fs
from quintain.artifacts.transfers import upload
s3fs.S3FileSystem().ls("benchmark")
print(flush=True)
upload(Path(sys.argv[1]), sys.argv[2])
"""


@contextmanager
def bucket() -> Iterator[str]:
    """Serve S3 in another process; yield the URL of an empty bucket, and name the server in the environment."""
    port = free_port()
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "benchmark",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        import s3fs

        s3fs.S3FileSystem().mkdir("benchmark")
        yield "s3://benchmark"
    finally:
        server.kill()
        server.wait()


def _wait_for(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the server of the bucket did not start")


def _folder(path: Path, *, large: int, small: int) -> Path:
    path.mkdir()
    (path / "weights.bin").write_bytes(random.Random(0).randbytes(large))
    for i in range(small):
        (path / f"{i}.json").write_bytes(random.Random(i).randbytes(10_000))
    return path


def transfers(folder: Path, url: str, rounds: int = 3) -> None:
    """Measure uploads and downloads of one large file, and of many small ones."""
    for name, large, small in (("large", 200_000_000, 0), ("small", 1000, 300)):
        source = _folder(folder / name, large=large, small=small)
        size = sum(path.stat().st_size for path in source.iterdir()) / 1e6
        ups, downs = [], []
        for i in range(rounds):
            began = time.perf_counter()
            upload(source, f"{url}/{name}")
            ups.append(size / (time.perf_counter() - began))
            began = time.perf_counter()
            fetch(f"{url}/{name}", folder / f"cache-{name}-{i}")
            downs.append(size / (time.perf_counter() - began))
            delete(f"{url}/{name}")
        report(f"artifact_upload_{name}", ups, "MB/s", None, files=small + 1, megabytes=round(size))
        report(f"artifact_download_{name}", downs, "MB/s", None, files=small + 1, megabytes=round(size))


def kills(folder: Path, url: str, n: int) -> None:
    """Kill the process of an upload at random; a reader must get all or nothing, and the upload must go on."""
    source = _folder(folder / "killed", large=20_000_000, small=20)
    wanted = {path.name: path.read_bytes() for path in source.iterdir()}
    chance, wrong, complete, place = random.Random(0), 0, 0, 0
    for _ in range(n):
        location = f"{url}/killed-{place}"
        process = subprocess.Popen([sys.executable, "-c", _UPLOAD, str(source), location], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(chance.uniform(0.0, 2.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        try:
            copy = fetch(location, folder / "cache")
        except (InvalidInput, NotFound):
            continue
        wrong += {path.name: path.read_bytes() for path in copy.iterdir()} != wanted
        complete, place = complete + 1, place + 1  # the next upload goes to another location
    report("artifact_reads_wrong_after_kills", [wrong], "reads", 0, "lower", kills=n, completed=complete)


def mirrored_steps(folder: Path, url: str, steps: int = 24) -> None:
    """Measure the steps of a training with a checkpoint after each third, with and without copies."""
    from quintain.tools.training.model_folders import starter_folder
    from quintain.worker.job_kinds import train

    rows = (KeyedRow(str(i), TextRow(text=f"Item {i} has a price and a stock. " * 20)) for i in range(64))
    options = ExportOptions(dataset_id="ds-t", name="t", kind="text")
    data = write_dataset(rows, folder / "ds-t", options, ExportCounts()).dataset
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    for i in range(3):
        for name, found in seconds.items():
            config = CONFIGS["pretrain"](checkpoint_every_steps=3, max_steps=steps, batch_size=2, epochs=10)
            spec = TrainSpec(
                method="pretrain",
                agent=Agent(id="agent:s@1", name="s", model=ModelRef(source="starter", path=str(starter_folder()))),
                name="clerk",
                output_dir=str(folder / f"out-{name}-{i}"),
                dataset_id=data.id,
                dataset_path=data.path,
                dataset_files=data.files,
                config=config,
                mirror=f"{url}/{name}-{i}" if name == "with" else None,
            )
            directory = JobDirectory(folder / f"job-{name}-{i}")
            directory.checkpoints.mkdir(parents=True)
            times: list[float] = []

            class Timed(FileReporter):
                def progress(self, *arguments: object, **more: object) -> None:
                    times.append(time.perf_counter())  # noqa: B023

            train.run(spec, directory.path, Timed(directory, 1, lambda: datetime.now(UTC)))
            found.append((times[-1] - times[2]) / (len(times) - 3))
    for name, found in seconds.items():
        report(f"step_{name}_mirrored_checkpoints", found, "s", None, "lower", steps=steps)
    ratio = min(seconds["with"]) / min(seconds["without"])
    report("step_mirrored_to_plain", [ratio], "ratio of the fastest rounds", None, "lower")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster.artifacts", description="Artifacts in a bucket."
    )
    parser.add_argument("--only", choices=("transfers", "kills", "mirror"), help="one part")
    parser.add_argument("--kills", type=int, default=30, help="random kills of an upload")
    options = parser.parse_args(arguments)

    def wanted(name: str) -> bool:
        return options.only in {None, name}

    with tempfile.TemporaryDirectory() as name, bucket() as url:
        folder = Path(name)
        if wanted("transfers"):
            transfers(folder, url)
        if wanted("kills"):
            kills(folder, url, options.kills)
        if wanted("mirror"):
            mirrored_steps(folder, url)
    say("")
    summarize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
