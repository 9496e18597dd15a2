"""A network path that goes silent (every packet lost, no error) at random: to the database, the sampler, the other machine.

Run as `python -m benchmarks.faults --full --only silent_database silent_sampler silent_machine`, on Linux as root.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cluster import killed_ranks
from benchmarks.cluster.two_machines import DEVICES, FIRST, ROOT, NoNamespaces, TwoMachines, isolated, module
from benchmarks.figures import not_run, report, say, summarize
from benchmarks.postgres_server import NoServer, Server
from quintain.jobs.launch import JobOptions, Launch
from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters.methods import GRPOConfig, LoraConfig, SamplerConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.labels.judging import Endpoint
from quintain.records.labels.reward import LengthReward, RewardPart, RewardSpec
from quintain.store.store import open_store
from quintain.tools.training.model_folders import starter_folder

PORT = 29500
LEASE_S = 2.0
TIMEOUT_S = 4.0
"""Of requests and of the database's connections; by default 60 and 30 s."""

_WRITER = """
import sys, time
from benchmarks.faults.home import record
from quintain.errors import Unavailable
from quintain.store.store import open_store
store = open_store(sys.argv[1])
number = 0
while True:
    number += 1
    for attempt in range(2):
        began = time.monotonic()
        try:
            record(store, f"{sys.argv[2]}-{number}")
            print("stored", number, time.monotonic() - began, flush=True)
            break
        except Unavailable as error:
            print(error.code, number, time.monotonic() - began, flush=True)
"""


def silent_database(count: int = 30) -> None:
    """Silence the path to PostgreSQL under three writers: each call returns in time, and nothing acknowledged is lost."""
    _alone("silent_database", count)


def silent_sampler(count: int = 30) -> None:
    """Silence the path to the server that samples: the training ends with the weights of an undisturbed one."""
    _alone("silent_sampler", count)


def silent_machine(count: int = 30) -> None:
    """Silence the path between two machines of a training: each attempt ends on both, and the next one continues it."""
    _alone("silent_machine", count)


def _alone(name: str, count: int) -> None:
    """Run a part in a process with its own network."""
    try:
        if isolated(*module("benchmarks.cluster.silent_network", name, str(count))):
            raise RuntimeError(f"{name} has failed")
    except NoNamespaces as reason:
        not_run(f"{name}_faults", "faults", 0, "lower", str(reason))


def database(machines: TwoMachines, folder: Path, count: int) -> None:
    """See `silent_database`."""
    server = Server(f"listen_addresses={FIRST}")
    server.allow("10.77.0.0/24")
    patience = {"keepalives_idle": "1", "keepalives_interval": "1", "keepalives_count": "1"}
    patience |= {"connect_timeout": "2", "tcp_user_timeout": str(int(1000 * TIMEOUT_S))}
    url = server.url().set(host=FIRST, query=patience).render_as_string(hide_password=False)
    here = server.url().render_as_string(hide_password=False)
    open_store(here).close()
    writers = [
        subprocess.Popen(
            [*machines.second, sys.executable, "-c", _WRITER, url, f"w{number}"],
            stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )
        for number in range(3)
    ]  # fmt: skip
    lines: list[list[str]] = []
    readers = [threading.Thread(target=_collect, args=(one, number, lines)) for number, one in enumerate(writers)]
    for reader in readers:
        reader.start()
    dice = random.Random(18)
    for _ in range(count):
        _until(partial(_all_wrote, lines, len(lines)), "all write again")
        time.sleep(dice.uniform(0, 0.3))
        machines.silence()
        time.sleep(dice.uniform(0.1, 4 * TIMEOUT_S))
        machines.restore()
    for writer in writers:
        writer.kill()
    for reader in readers:
        reader.join()
    store = open_store(here)
    stored = Counter(run.task.id for run in store.trajectories.iterate())
    store.close()
    server.close()
    acknowledged = {f"w{writer}-{number}" for writer, word, number, _ in lines if word == "stored"}
    codes = Counter(word for _, word, _, _ in lines if word != "stored")
    report("silences_towards_the_database", [count], "silences", None, acknowledged=len(acknowledged), codes=codes)
    report("longest_call_at_a_silence_s", [max(float(line[3]) for line in lines)], "s", 60, "lower")
    report("acknowledged_lost_by_silences", [len(acknowledged - stored.keys())], "rows", 0, "lower")
    report("rows_stored_twice_by_silences", [sum(n > 1 for n in stored.values())], "rows", 0, "lower")
    report("wrong_codes_at_silences", [sum(codes.values()) - codes["database_unavailable"]], "calls", 0, "lower")


def _collect(writer: subprocess.Popen[str], number: int, lines: list[list[str]]) -> None:
    assert writer.stdout is not None
    lines.extend([str(number), *line.split()] for line in writer.stdout)


def _until(condition: Callable[[], bool], what: str, limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {limit_s:.0f} s still not: {what}")
        time.sleep(0.02)


def sampler(machines: TwoMachines, folder: Path, count: int) -> None:
    """See `silent_sampler`."""
    program = [sys.executable, str(ROOT / "tests" / "sampling_server.py"), str(starter_folder()), FIRST]
    server = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        whole, job, attempts, done = _sampled(folder, "whole", url, count), _sampled(folder, "silent", url, count), 0, 0
        _attempt_alone(machines, whole, 1).wait()
        if not _has_ended(whole, 1):
            raise RuntimeError(f"the undisturbed training failed: {killed_ranks.events(whole)[-1].message}")
        dice = random.Random(18)
        while not _has_ended(job, attempts):
            attempts += 1
            worker = _attempt_alone(machines, job, attempts)
            _until(partial(_trains_or_ended, job, attempts, worker), "an update of the server")
            while done < count and _wait(worker, dice.uniform(0.1, 1.0)):
                done += 1
                machines.silence()
                _wait(worker, dice.uniform(0.1, 3 * TIMEOUT_S))
                machines.restore()
            worker.wait(600)
            last = killed_ranks.events(job)[-1]
            say(f"attempt {attempts}: {last.type} {last.code or ''} {last.message or ''}, {done} silences")
            if last.code not in {None, "endpoint_busy"}:
                raise RuntimeError(last.message)
    finally:
        server.kill()
    codes = Counter(event.code for event in killed_ranks.events(job) if event.type == "failed")
    apart = killed_ranks.apart(folder / "out-whole", folder / "out-silent", "adapter_model.safetensors")
    report("silences_towards_the_sampler", [done], "silences", None, attempts=attempts, codes=codes)
    report("steps_taken_twice_after_silences", [killed_ranks.repeated(job)], "steps", 0, "lower")
    report("sampler_weights_apart_after_silences", [apart], "relative", 1e-5, "lower")
    report("wrong_codes_of_silent_samplers", [sum(codes.values()) - codes["endpoint_busy"]], "jobs", 0, "lower")


def _wait(worker: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait; whether the process still runs."""
    try:
        worker.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def _all_wrote(lines: Sequence[Sequence[str]], before: int) -> bool:
    """Whether each of the three writers has stored a run since there were so many lines."""
    return len({line[0] for line in lines[before:] if line[1] == "stored"}) == 3


def _trains_or_ended(job: Any, attempt: int, worker: subprocess.Popen[bytes]) -> bool:
    return _trains(job, attempt) or worker.poll() is not None


def _is_past_or_ended(job: Any, step: int, launcher: subprocess.Popen[bytes]) -> bool:
    return _steps(job) > step or launcher.poll() is not None


def _trains(job: Any, attempt: int) -> bool:
    """Whether an attempt has begun to train, which talks to the server first of all."""
    events = killed_ranks.events(job) if job.events.exists() else []
    return any((event.attempt, event.type, event.name) == (attempt, "phase", "training") for event in events)


def _has_ended(job: Any, attempts: int) -> bool:
    return attempts > 0 and killed_ranks.events(job)[-1].type == "result"


def _sampled(folder: Path, name: str, url: str, count: int) -> Any:
    """A job folder of an online training whose episodes a server samples, on tasks whose answers have several lengths."""
    tasks = folder / "tasks.jsonl"
    row = {"split": "train", "checker": {"type": "regex", "pattern": "heavy"}}
    tasks.write_text("\n".join(json.dumps({"id": f"t{i}", "prompt": f"Say {i}.", **row}) for i in range(4)), "utf-8")
    starter = Agent(name="starter", model=ModelRef(source="starter", path=str(starter_folder())))
    config = GRPOConfig(
        group_size=3, tasks_per_step=1, rollouts=count + 10, max_new_tokens=12, max_turns=1, learning_rate=1e-4,
        lora=LoraConfig(rank=4), sampler=SamplerConfig(endpoint="endpoint:far"), checkpoint_every_steps=4,
        precision="fp32",
    )  # fmt: skip
    short = LengthReward(name="short", unit="characters", of="all", full_at=0, zero_at=200)
    brevity = RewardSpec(parts=(RewardPart(scorer="short", declared=short),))
    endpoint = Endpoint(
        name="far", protocol="openai", base_url=url, model="base", allow_http=True, timeout_s=TIMEOUT_S, max_attempts=2
    )
    spec = TrainSpec(
        method="grpo", agent=starter, environment=f"quintain/tasks?file={tasks}", name="bench",
        output_dir=str(folder / f"out-{name}"), config=config, sampler_endpoint=endpoint, reward=brevity, seed=1,
    )  # fmt: skip
    return killed_ranks.job_folder(folder, name, spec)


def _attempt_alone(machines: TwoMachines, job: Any, number: int) -> subprocess.Popen[bytes]:
    command = [*machines.second, *module("quintain.worker", str(job.path), str(number))]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})


def machine(machines: TwoMachines, folder: Path, count: int) -> None:
    """See `silent_machine`."""
    meeting = {"machines": 2, "rendezvous": f"{FIRST}:{PORT}"}
    whole = killed_ranks.prepared(folder, "whole", **meeting)
    with _both(machines, whole, 1) as both:
        for launcher in both:
            launcher.wait(600)
    job, attempts, waits, codes = killed_ranks.prepared(folder, "silent", **meeting), 0, [], Counter[str]()
    dice = random.Random(18)
    while not _has_ended(job, attempts):
        attempts += 1
        begun = _steps(job)
        with _both(machines, job, attempts) as both:
            if attempts <= count:
                wanted = begun + dice.randrange(2 * killed_ranks.EVERY)
                _until(partial(_is_past_or_ended, job, wanted, both[0]), "a step")
                machines.silence()
                went = time.monotonic()
                for launcher in both:
                    launcher.wait(300)
                waits.append(time.monotonic() - went)
                machines.restore()
            else:
                for launcher in both:
                    launcher.wait(600)
        last = killed_ranks.events(job)[-1]
        codes[last.code or last.type] += attempts <= count
        say(f"attempt {attempts}: {last.type} {last.code or ''}: {last.message or ''}")
    apart = killed_ranks.apart(folder / "out-whole", folder / "out-silent")
    report("silences_between_machines", [len(waits)], "silences", None, codes=codes)
    report("both_ended_after_silence_s", waits, "s", 60, "lower", lease_s=LEASE_S)
    report("silences_not_named", [len(waits) - codes["process_lost"]], "silences", 0, "lower")
    report("steps_taken_twice_after_silences_between_machines", [killed_ranks.repeated(job)], "steps", 0, "lower")
    report("weights_apart_after_silences_between_machines", [apart], "relative", 1e-6, "lower")


def _steps(job: Any) -> int:
    return sum(event.type == "progress" for event in killed_ranks.events(job)) if job.events.exists() else 0


@contextmanager
def _both(machines: TwoMachines, job: Any, attempt: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the launchers of both machines; at the end they are killed, if they still run."""
    launch = Launch(
        attempt=attempt, lock_fd=None, worker=(), reconcile=(), env={}, grace_s=5.0, log_bytes=1, lease_s=LEASE_S,
        options=JobOptions(Path(), 1, 1, False, 5.0),
    )  # fmt: skip
    job.launch.write_text(launch.model_dump_json(), encoding="utf-8")
    other = ["--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "1", "--rdzv-backend", "static"]
    other += ["--rdzv-endpoint", f"{FIRST}:{PORT}", "-m", "quintain.worker.rank", str(job.path)]
    commands = [
        module("quintain.worker", str(job.path), str(attempt)),
        [*machines.second, *module("torch.distributed.run", *other)],
    ]
    both = [
        subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": device},
        )
        for command, device in zip(commands, DEVICES, strict=True)
    ]
    try:
        yield both
    finally:
        for launcher in both:
            launcher.kill()
            launcher.wait()


PARTS = {"silent_database": database, "silent_machine": machine, "silent_sampler": sampler}


def main(name: str, count: int) -> None:
    """Run one part, in a process of `isolated`."""
    with tempfile.TemporaryDirectory() as folder, closing(TwoMachines()) as machines:
        try:
            PARTS[name](machines, Path(folder), count)
        except NoServer as reason:
            say(f"not run: {reason}")
    summarize()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
