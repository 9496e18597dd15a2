"""Jobs through Ray next to this machine's launcher: time to start, time until a death is seen, random kills; many servers.

Run as `python -m benchmarks.cluster --only job_homes` and `python -m benchmarks.faults --full --only ray_jobs ray_heads`. A Ray
cluster of two CPUs is started for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from random import Random

from benchmarks.figures import not_run, report, say
from benchmarks.ray_cluster import RayHead, ray_head
from quintain.jobs.directory import JobDirectory
from quintain.jobs.launch import JobOptions
from quintain.jobs.launchers.contract import ClusterOptions
from quintain.jobs.runner import JobRunner
from quintain.records.jobs.job import UNFINISHED, JobStatus, SelftestSpec
from quintain.store.database.paging import read_pages
from quintain.store.store import Store, open_store

LIMIT_S = 120.0


class Home:
    """One home with its server's runner, which reconciles when told to."""

    def __init__(self, folder: Path, launcher: str, address: str | None = None, slots: int = 4) -> None:
        self.jobs_dir = folder / "jobs"
        self.jobs_dir.mkdir(parents=True)
        self.store: Store = open_store(f"sqlite:///{folder / 'quintain.db'}")
        self.options = JobOptions(
            jobs_dir=self.jobs_dir,
            slots=slots,
            max_attempts=100,
            auto_resume=True,
            grace_s=10.0,
            light_kinds=frozenset(),
            launcher=launcher,
            cluster=ClusterOptions(ray_address=address),
            lease_s=20.0,
        )
        self.runner = JobRunner(self.store, self.options, lambda: datetime.now(UTC))

    def move_to(self, address: str) -> None:
        """Serve the same home with another cluster."""
        options = replace(self.options, cluster=ClusterOptions(ray_address=address))
        self.runner = JobRunner(self.store, options, lambda: datetime.now(UTC))

    def directory(self, job_id: str) -> JobDirectory:
        """The folder of a job."""
        return JobDirectory(self.jobs_dir / job_id)

    def until(self, condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> float:
        """Reconcile as a server does until the condition holds; return the seconds that it took."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > limit_s:
                raise TimeoutError(f"after {limit_s:.0f} s still not: {what}")
            self.runner.reconcile()
            time.sleep(0.05)
        return time.monotonic() - began

    def ended(self, job_id: str) -> bool:
        """Whether a job has ended."""
        return self.store.jobs.get(job_id).status not in UNFINISHED

    def until_end(self, job_id: str) -> None:
        """Reconcile until a job has ended."""
        self.until(lambda: self.ended(job_id), f"the end of {job_id}")

    def until_step(self, job_id: str, step: int) -> None:
        """Reconcile until a job has reached a step."""
        self.until(lambda: self.store.jobs.get(job_id).step >= step, f"step {step} of {job_id}")

    def until_attempt(self, job_id: str, attempt: int, *, begun: bool) -> float:
        """Reconcile until an attempt is decided, or has begun; return the seconds that it took."""
        directory, jobs = self.directory(job_id), self.store.jobs
        is_there = (lambda: directory.has_begun(attempt)) if begun else (lambda: jobs.get(job_id).attempt == attempt)
        return self.until(is_there, f"attempt {attempt} of {job_id}")

    def until_report(self, job_id: str) -> None:
        """Reconcile until the worker has written an event."""
        events = self.directory(job_id).events
        self.until(lambda: events.exists() and events.stat().st_size, f"a report of {job_id}")

    def serve(self, seconds: float) -> None:
        """Reconcile for some time."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > end, "the time has passed")

    def is_whole(self, job_id: str, steps: int) -> bool:
        """Whether a job succeeded with every step once."""
        job = self.store.jobs.get(job_id)
        seen = [event.step for event in self.store.jobs.progress(job_id)]
        return job.status is JobStatus.SUCCEEDED and seen == list(range(1, steps + 1))


def starts(folder: Path, head: RayHead, rounds: int = 5) -> None:
    """Seconds from the call to the worker's first report; the first start, which imports the client, is apart."""
    for launcher, goal in (("local", None), ("ray", 4.0)):
        home = Home(folder / f"start-{launcher}", launcher, head.address)
        times = []
        for number in range(rounds + 1):
            began = time.perf_counter()
            job = home.runner.start(SelftestSpec(steps=1), request_key=str(number)).job
            home.until_report(job.id)
            times.append(time.perf_counter() - began)
            home.until_end(job.id)
        report(f"{launcher}_job_start_s", times[1:], "s", goal, "lower", first=round(times[0], 2))


def deaths(folder: Path, head: RayHead, rounds: int = 3) -> None:
    """Seconds from kill -9 of the worker, and of its supervisor, until the next attempt is decided."""
    for launcher in ("local", "ray"):
        home = Home(folder / f"deaths-{launcher}", launcher, head.address)
        for victim in ("worker", "shim"):
            times = []
            for number in range(rounds):
                spec = SelftestSpec(steps=10_000, step_s=0.05)
                job = home.runner.start(spec, request_key=f"{victim} {number}").job
                home.until_step(job.id, 2)
                found = home.directory(job.id).shim()
                assert found is not None
                pid = getattr(found, victim)
                os.kill(pid, signal.SIGKILL)
                times.append(home.until_attempt(job.id, 2, begun=False))
                home.until_attempt(job.id, 2, begun=True)
                home.runner.cancel(job.id)
                home.until_end(job.id)
            report(f"{launcher}_death_of_{victim}_seen_s", times, "s", 1.0 if launcher == "local" else None, "lower")


def kills(folder: Path, head: RayHead, n: int) -> None:
    """Kill workers and supervisors of jobs on Ray at random moments; every job must end right, each step once."""
    home, dice, steps = Home(folder / "kills", "ray", head.address), Random(18), 40
    spec = SelftestSpec(steps=steps, step_s=0.15, checkpoint_every_steps=3)
    ids = [home.runner.start(spec, request_key=str(number)).job.id for number in range(3)]
    done = {"worker": 0, "shim": 0}
    while sum(done.values()) < n:
        home.serve(dice.uniform(0.0, 2.0))
        ids = [job_id if not home.ended(job_id) else _again(home, ids, spec) for job_id in ids]
        victim, job_id = dice.choice(("worker", "shim")), dice.choice(ids)
        found = home.directory(job_id).shim()
        job = home.store.jobs.get(job_id)
        if (
            found is None
            or found.worker is None
            or found.attempt != job.attempt
            or home.directory(job_id).exit(job.attempt) is not None
        ):
            continue
        try:
            os.kill(getattr(found, victim), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
        done[victim] += 1
    for job_id in ids:
        home.until_end(job_id)
    every = [job.id for job in home.store.jobs.page(limit=200).items]
    whole = sum(home.is_whole(job_id, steps) for job_id in every)
    report("ray_jobs_right_after_random_kills", [whole / len(every)], "of jobs", 1.0, jobs=len(every), kills=done)


def _again(home: Home, ids: Sequence[str], spec: SelftestSpec) -> str:
    """Start another job in the place of an ended one."""
    key = f"{len(home.store.jobs.page(limit=200).items)} of {len(ids)}"
    return home.runner.start(spec, request_key=key).job.id


def heads(folder: Path, n: int) -> None:
    """Kill the head, or the whole node, while a job runs, and serve the home with a new cluster."""
    dice, steps, right = Random(19), 30, 0
    home = Home(folder / "heads", "ray", "http://127.0.0.1:9")
    spec, job_id = SelftestSpec(steps=steps, step_s=0.15, checkpoint_every_steps=3), ""
    for number in range(n):
        with ray_head() as head:
            home.move_to(head.address)
            if job_id:
                home.until_end(job_id)
                right += home.is_whole(job_id, steps)
                say(f"after {number} deaths: {right} of {number} jobs are right")
            job_id = home.runner.start(spec, request_key=f"head {number}").job.id
            home.until_step(job_id, dice.randrange(1, 10))
            if number % 2:  # the rest dies with the cluster below
                head.send(signal.SIGKILL, "gcs_server", "dashboard/dashboard.py")
                home.serve(dice.uniform(0.0, 3.0))
    with ray_head() as head:
        home.move_to(head.address)
        home.until_end(job_id)
        right += home.is_whole(job_id, steps)
    report("ray_jobs_right_after_death_of_the_head", [right / n], "of jobs", 1.0, jobs=n)


_SERVER = """
import json, sys, time
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from quintain.jobs.launch import JobOptions
from quintain.jobs.runner import JobRunner
from quintain.records.jobs.job import Job, UNFINISHED, SelftestSpec
from quintain.store.store import open_store
url, folder, me, n = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
store = open_store(url)
options = JobOptions(folder, 2, 5, True, 5.0, frozenset())
runner = JobRunner(store, options, lambda: datetime.now(UTC))
mine = [runner.start(SelftestSpec(steps=2, step_s=0.0), request_key=f"{me} {k}").job.id for k in range(n)]
while any(store.jobs.get(job_id).status in UNFINISHED for job_id in mine):
    runner.reconcile()
    time.sleep(0.3)
print(json.dumps(mine))
"""


def homes(folder: Path, servers: int = 8, jobs: int = 200, n_homes: int = 4) -> None:
    """Servers of several homes on one database start jobs at once; each job runs once, in its home."""
    url = f"sqlite:///{folder / 'shared.db'}"
    store = open_store(url)
    folders = [folder / f"home-{number}" / "jobs" for number in range(n_homes)]
    for path in folders:
        path.mkdir(parents=True)
    began = time.perf_counter()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _SERVER, url, str(folders[me % n_homes]), str(me), str(jobs // servers)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(servers)
    ]
    for server in running:
        server.communicate(timeout=1800)
    once = 0
    for job in read_pages(store.jobs.page):
        steps = [event.step for event in store.jobs.events(job.id, type="progress")]
        places = sum((path / job.id).exists() for path in folders)
        once += (job.status, job.attempt, steps, places) == (JobStatus.SUCCEEDED, 1, [1, 2], 1)
    store.close()
    seconds = round(time.perf_counter() - began, 1)
    report(
        "jobs_run_once_of_several_homes", [once / jobs], "of jobs", 1.0, servers=servers, homes=n_homes, seconds=seconds
    )


def ray_jobs(count: int = 30) -> None:
    """Measure starts and deaths of jobs on Ray, and kill so many of their processes."""
    if _lacks_ray("ray_jobs_right_after_random_kills"):
        return
    with tempfile.TemporaryDirectory() as folder, ray_head() as head:
        starts(Path(folder), head)
        deaths(Path(folder), head)
        kills(Path(folder), head, count)


def ray_heads(count: int = 30) -> None:
    """Kill so many heads or nodes."""
    if _lacks_ray("ray_jobs_right_after_death_of_the_head"):
        return
    with tempfile.TemporaryDirectory() as folder:
        heads(Path(folder), count)


def _lacks_ray(figure: str) -> bool:
    """Report a figure as not run where Ray is not installed. Return whether it is not."""
    is_missing = find_spec("ray") is None
    if is_missing:
        not_run(figure, "of jobs", 1.0, "higher", "needs Ray: install the extra `cluster`")
    return is_missing


def job_homes() -> None:
    """Run 200 jobs by eight servers of four homes on one database."""
    with tempfile.TemporaryDirectory() as folder:
        homes(Path(folder))
