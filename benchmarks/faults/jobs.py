"""Faults of processes: kill -9, SIGSTOP, workers that ignore SIGTERM, floods of log, starts and cancels at one moment."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from contextlib import suppress

import psutil

from benchmarks.faults.home import FaultHome, call, fault_home, record_by
from benchmarks.faults.starter import starter
from benchmarks.figures import report, say
from quintain.jobs.exits import ends
from quintain.jobs.launch import JobLimits
from quintain.records.jobs.job import UNFINISHED, Job, JobStatus, SelftestSpec

SHORT = SelftestSpec(steps=20, step_s=0.05, checkpoint_every_steps=3)
STEADY = SelftestSpec(steps=60, step_s=0.1, checkpoint_every_steps=3)
DEATH_S = 1.0
"""Goal of the time until a death is seen."""
LONG = SelftestSpec(steps=100_000, step_s=0.02)
CHILDREN = 4
"""Child processes of a worker that ignores SIGTERM."""
LONGEST = 19
"""The suspension that lasts a minute."""


def kills(count: int, seed: int = 1) -> None:
    """Kill workers and supervisors at random moments while jobs run; every job has to end right.

    A job whose newest attempt has brought no new step is killed again only after one: each further vain attempt would double
    its pause, of up to a minute. So the pauses, which stay switched on, last 1 s.
    """
    dice, done = random.Random(seed), 0
    delays: list[float] = []
    with fault_home() as home:
        number = 0
        while done < count:
            ids = [home.runner.start(SHORT, request_key=f"k{number + k}").job.id for k in range(4)]
            number += 4
            while (alive := [i for i in ids if home.store.jobs.get(i).status in UNFINISHED]) and done < count:
                time.sleep(dice.uniform(0.05, 0.5))
                home.look()
                if delay := _kill_one(home, dice.choice(alive), dice.choice(("worker", "shim"))):
                    done += 1
                    delays.append(delay)
            if not home.finished():
                say(f"unfinished after {done} kills: {[job.id for job in home.store.jobs.unfinished()]}")
                break
        wrong = home.audit()
    delays.sort()
    report("kills_of_workers_and_supervisors", [done], "kills", None)
    report("faults_after_kills", [len(wrong)], "faults", 0, "lower", found=wrong[:5])
    within = sum(delay <= DEATH_S for delay in delays)
    report("death_seen_after_p50", [delays[len(delays) // 2]], "s", DEATH_S, "lower")
    report("death_seen_after_p95", [delays[int(0.95 * len(delays))]], "s", DEATH_S, "lower")
    report("death_seen_after_max", [delays[-1]], "s", DEATH_S, "lower", within_goal=within, of=len(delays))


def _kill_one(home: FaultHome, job_id: str, which: str) -> float | None:
    """Kill a process of a job. Return the seconds until the store has the next attempt or the end; None if it had ended."""
    record = home.directory(job_id).shim()
    job = home.store.jobs.get(job_id)
    if record is None or record.worker is None or record.attempt != job.attempt or job.status not in UNFINISHED:
        return None
    if home.runner.trouble(job_id) is not None or _was_vain(home, job):
        return None  # it pauses between two attempts, or would pause for long
    try:
        os.kill(record.worker if which == "worker" else record.shim, signal.SIGKILL)
    except ProcessLookupError:
        return None
    begin = time.monotonic()
    home.until(lambda: _has_moved_on(home, job_id, job.attempt), 60)
    return time.monotonic() - begin


def _was_vain(home: FaultHome, job: Job) -> bool:
    """Whether a kill now would be the second in a row without a new step."""
    steps = [end.step for end in ends(home.directory(job.id))[-2:]]
    return len(steps) == 2 and job.step <= steps[1] <= steps[0]


def _has_moved_on(home: FaultHome, job_id: str, attempt: int) -> bool:
    job = home.store.jobs.get(job_id)
    return job.attempt > attempt or job.status not in UNFINISHED or home.runner.trouble(job_id) is not None


def server_kills(count: int) -> None:
    """Kill the server at a random moment while it records runs, with jobs started; what it acknowledged has to be there."""
    dice, runs, started = random.Random(2), list[str](), list[str]()
    with fault_home() as home:
        for trial in range(count):
            client = home.server()
            if trial % 5 == 0:
                acting = {"agent": "starter", "environment": "quintain/inventory", "n_tasks": 1, "seed": trial}
                started.append(call(client, "collect_rollouts", **acting)["job_id"])
            runs.append(record_by(client, f"{trial}-0"))
            killer = threading.Timer(dice.uniform(0.0, 0.6), client.process.kill)
            killer.start()
            with suppress(OSError, ValueError):  # the server has died, in a call or between two
                for number in itertools.count(1):
                    runs.append(record_by(client, f"{trial}-{number}"))
            killer.join()
            client.process.wait()
        home.finished()
        stored = {found.id for found in home.store.trajectories.iterate()}
        lost = [run for run in runs if run not in stored] + [j for j in started if not _exists(home, j)]
        wrong = home.audit()
    report("server_kills", [count], "kills", None, acknowledged=len(runs) + len(started))
    report("acknowledged_lost_after_server_kills", [len(lost)], "rows", 0, "lower")
    report("faults_after_server_kills", [len(wrong)], "faults", 0, "lower", found=wrong[:5])


def _exists(home: FaultHome, job_id: str) -> bool:
    return any(job.id == job_id for job in home.jobs())


def duplicate_starts(count: int) -> None:
    """Start the same job from eight servers at one moment."""
    wrong = 0
    with fault_home() as home:
        for trial in range(count):
            gate = home.folder.parent / f"gate-{trial}"
            spec = SelftestSpec(steps=3)
            servers = [starter(home.url, home.options, spec, f"same-{trial}", gate) for _ in range(8)]
            for server in servers:
                assert server.stdout is not None
                server.stdout.readline()
            gate.touch()
            answers = [server.communicate(timeout=300)[0].split() for server in servers]
            ids = {answer[0] for answer in answers}
            fresh = sum(answer[1] == "False" for answer in answers)
            wrong += len(ids) != 1 or fresh != 1 or home.store.jobs.get(ids.pop()).attempt != 1
        faults = home.audit()
    report("duplicate_starts", [count], "rounds of 8 servers", None)
    report("jobs_started_twice", [wrong + len(faults)], "rounds", 0, "lower", found=faults[:5])


def cancelled_calls(count: int) -> None:
    """Cancel a call that starts a job at a random moment, or cut its connection: either no job, or one that runs."""
    dice, wrong = random.Random(3), []
    arguments = {"agent": "starter", "environment": "quintain/inventory", "n_tasks": 1}
    with fault_home() as home:
        client, begin = home.server(), time.monotonic()
        call(client, "collect_rollouts", **arguments, request_key="whole")
        usual_s = time.monotonic() - begin
        client.close()
        for trial in range(count):
            client = home.server()
            own = {"name": "collect_rollouts", "arguments": arguments | {"request_key": f"c{trial}"}}
            client.send({"id": 9, "method": "tools/call", "params": own})
            time.sleep(dice.uniform(0, 1.2 * usual_s))
            if trial % 2:
                client.send({"method": "notifications/cancelled", "params": {"requestId": 9}})
                call(client, "list_jobs")
            client.close()
        if not home.finished(600):
            wrong.append("a job never ended")
        wrong += home.audit()
        jobs = len(home.jobs()) - 1
    report("calls_cut", [count], "calls", None, jobs=jobs)
    report("faults_after_cut_calls", [len(wrong)], "faults", 0, "lower", found=wrong[:5])


def suspended(count: int) -> None:
    """Stop workers by SIGSTOP: none may be taken for dead, and with a limit of silence all go on."""
    false_deaths, wrong = 0, []
    with fault_home() as home:
        for trial in range(count):
            job = home.runner.start(STEADY, request_key=f"s{trial}").job
            worker = _suspend(home, job.id)
            end = time.monotonic() + (60 if trial == LONGEST else 2)
            while time.monotonic() < end:
                home.look()
                time.sleep(0.05)
            false_deaths += home.store.jobs.get(job.id).attempt != 1
            os.kill(worker, signal.SIGCONT)
            home.finished()
        job = home.runner.start(LONG, request_key="cancelled").job
        _suspend(home, job.id)
        begin = time.monotonic()
        home.runner.cancel(job.id)
        home.until_ended(job.id)
        cancel_s = time.monotonic() - begin
        if home.store.jobs.get(job.id).status is not JobStatus.CANCELLED:
            wrong.append(f"{job.id} was not cancelled")
        home.runner = home.runner_with(limits=JobLimits(stall_s=20))
        job = home.runner.start(STEADY, request_key="limited").job
        _suspend(home, job.id)
        home.finished()
        wrong += home.audit(None)
        wrong += [] if home.store.jobs.get(job.id).status is JobStatus.SUCCEEDED else [f"{job.id} did not go on"]
    report("cancel_of_a_suspended_worker", [cancel_s], "s", home.options.grace_s + 2, "lower")
    report("suspended_taken_for_dead", [false_deaths], f"of {count}", 0, "lower")
    report("faults_after_suspension", [len(wrong)], "faults", 0, "lower", found=wrong[:5])


def _suspend(home: FaultHome, job_id: str) -> int:
    """Suspend the worker of a job that steps. Return its process id."""
    home.until_step(2, job_id)
    worker = home.worker(job_id)
    assert worker is not None
    os.kill(worker, signal.SIGSTOP)
    return worker


def deaf_workers(count: int) -> None:
    """Cancel workers that ignore SIGTERM and have four children that do: all gone at most 2 s after the grace."""
    delays = []
    with fault_home() as home:
        for trial in range(count):
            spec = LONG.model_copy(update={"ignore_sigterm": True, "children": CHILDREN})
            job = home.runner.start(spec, request_key=f"d{trial}").job
            home.until_step(1, job.id)
            begin = time.monotonic()
            home.runner.cancel(job.id)
            home.finished()
            delays.append(time.monotonic() - begin - home.options.grace_s)
        wrong = home.audit(JobStatus.CANCELLED)
    delays.sort()
    report("cancel_past_the_grace_p50", [delays[len(delays) // 2]], "s", 2.0, "lower")
    report("cancel_past_the_grace_max", [delays[-1]], "s", 2.0, "lower", cancels=len(delays))
    report("faults_after_forced_cancels", [len(wrong)], "faults", 0, "lower", found=wrong[:5])


def log_flood(megabytes: int) -> None:
    """Flood the log."""
    with fault_home() as home:
        job = home.runner.start(SelftestSpec(steps=2, log_bytes=megabytes * 1_000_000)).job
        home.finished(600)
        begin = time.perf_counter()
        home.runner.log_tail(job.id, 100)
        tail_s = time.perf_counter() - begin
        size = sum(path.stat().st_size for path in home.directory(job.id).path.rglob("*") if path.is_file())
        wrong = home.audit()
    report("log_flood", [megabytes], "MB", None)
    report("disk_of_a_flooded_log", [size / 1e6], "MB", 20, "lower")
    report("faults_of_a_flooded_log", [len(wrong)], "faults", 0, "lower", found=wrong[:5])
    report("tail_of_a_flooded_log", [1000 * tail_s], "ms", 50, "lower")


def slots(count: int) -> None:
    """Ten slots, many jobs, four servers, random kills: never more than ten run."""
    dice, most, left = random.Random(4), 0, count // 5
    with fault_home() as home:
        home.runner = home.runner_with(slots=10)
        others = [home.runner_with(slots=10) for _ in range(3)]
        for number in range(count):
            dice.choice([home.runner, *others]).start(SHORT, request_key=f"n{number}")
        while home.store.jobs.unfinished():
            dice.choice(others).reconcile()
            home.look()
            running = home.store.jobs.running()
            most = max(most, len(running))
            worker = home.worker(dice.choice(running).id) if running and left and dice.random() < 0.1 else None
            if worker is not None and psutil.pid_exists(worker):
                os.kill(worker, signal.SIGKILL)
                left -= 1
            time.sleep(0.05)
        wrong = home.audit()
    report("most_jobs_in_ten_slots", [most], "jobs", 10, "lower", jobs=count)
    report("faults_in_ten_slots", [len(wrong)], "faults", 0, "lower", found=wrong[:5])
