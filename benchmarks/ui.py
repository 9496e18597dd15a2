"""The web page on 10,000 runs and 1,000 jobs: paint of each view, a step's way to an open page, memory and work of the server.

Run as `python -m benchmarks.ui`; prints one JSON line per figure. Needs the extra `browser` and a Chromium, by default
/usr/bin/chromium. Times of views are those of the browser, from the start of the navigation, with an empty cache.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.figures import report, summarize
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.dataset import Dataset
from quintain.records.evaluation import Evaluation, Rate
from quintain.records.jobs.job import Job, JobStatus, SelftestSpec, TrainSpec
from quintain.records.jobs.job_events import JobEvent
from quintain.records.trajectory import Action, Actor, Observation, Outcome, OutcomeStatus, Step, Task, Trajectory
from quintain.store.job_spans import Span
from quintain.store.store import Store, open_store
from quintain.tools.services import utc_now

RUNS, JOBS, STEPS = 10_000, 1_000, 1_000
REPEATS = 3
LIVE_STEPS = 8
IDLE_S = 5.0
WAIT_S = 30.0
OTHER_HOME = "home-of-the-benchmark"
"""Home of the job that runs, so that no server takes it for dead."""

_WATCH = """
new MutationObserver(() => {
  const view = document.querySelector(".view");
  if (view && !view.hasAttribute("aria-busy")) window.shownAt ??= performance.now();
  const status = document.querySelector("[role=status].quiet")?.textContent ?? "";
  const step = /step ([0-9,]+) of/.exec(status)?.[1];
  if (step && step !== window.newestStep) [window.newestStep, window.stepAt] = [step, Date.now()];
}).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
"""


def fill(home: Path) -> Store:
    """Fill a home by store calls."""
    store = open_store(f"sqlite:///{home / 'quintain.db'}")
    now = utc_now()
    base = store.agents.add(Agent(name="base", model=ModelRef(source="starter", path="starter")), now)
    spec = {"agent": base, "name": "clerk", "method": "sft", "output_dir": "o", "dataset_id": "ds-1", "config": {}}
    training = TrainSpec.model_validate(spec)
    for start in range(0, RUNS, 1000):
        store.trajectories.add_many([_run(number) for number in range(start, start + 1000)], now)
    for number in range(JOBS):
        _job(store, f"job-{number:06d}", SelftestSpec(steps=number), JobStatus.SUCCEEDED)
    _job(store, "job-running", training, JobStatus.RUNNING)
    events = [_progress(step) for step in range(1, STEPS + 1)]
    store.jobs.ingest_spans([Span("job-running", "events.jsonl", 0, STEPS, events)], now)
    store.datasets.add(Dataset(id="ds-1", name="runs", kind="sft", path="d", rows=1, splits={"train": 1}), [], now)
    rate = Rate(successes=60, n=80, value=0.75, ci_low=0.64, ci_high=0.84)
    about = {"environment": "quintain/inventory", "suite_hash": "h", "split": "held_out", "seed": 1}
    for number in range(50):
        one = Evaluation(
            id=f"eval-{number}", agent_id=base.id or "", sampling=Sampling(), results=(), rate=rate, **about
        )
        store.evaluations.add(one, now)
    return store


def _run(number: int) -> Trajectory:
    call = Step(
        actor=Actor.AGENT,
        actions=(Action(tool="look", args={"item": str(number)}),),
        observations=(Observation(content=f"There are {number} boxes."),),
    )
    steps = (Step(actor=Actor.USER, message="How many boxes?"), call, Step(actor=Actor.AGENT, message=f"{number}."))
    status = OutcomeStatus.SUCCESS if number % 3 else OutcomeStatus.FAILURE
    task = Task(id=f"t{number}", prompt="How many boxes?", environment="quintain/inventory")
    return Trajectory(steps=steps, task=task, outcome=Outcome(status=status), episode_key=str(number))


def _job(store: Store, job_id: str, spec: Any, status: JobStatus) -> None:
    now = utc_now()
    more = {"created_at": now, "updated_at": now, "home": OTHER_HOME}
    store.jobs.insert(Job(id=job_id, kind=spec.kind, status=JobStatus.QUEUED, spec=spec, request_key=job_id, **more))
    store.jobs.begin_attempt(job_id, 0, 1, now)
    if status is not JobStatus.RUNNING:
        store.jobs.finish(job_id, 1, status, now)


def _progress(step: int) -> JobEvent:
    metrics: dict[str, float | None] = {"loss": 2.0 / step**0.5, "grad_norm": 1.0 + step % 7, "learning_rate": 1e-3}
    common = {"attempt": 1, "seq": step, "time": utc_now(), "type": "progress"}
    return JobEvent(**common, step=step, total_steps=100_000, metrics=metrics)


@contextmanager
def serving(home: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Run `quintain ui` on a free port. Yield its URL and its process."""
    command = [sys.executable, "-m", "quintain.cli.main", "ui", "--port", "0", "--home", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        url = next(word for line in process.stdout for word in line.split() if word.startswith("http://"))
        try:
            yield url.split("#")[0].rstrip("/"), psutil.Process(process.pid)
        finally:
            process.terminate()


def wait_for(page: Page, condition: str) -> None:
    """Wait for a condition. The page's policy forbids the browser's own way, which evaluates text in the page."""
    deadline = time.monotonic() + WAIT_S
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"expected {condition} within {WAIT_S} s"
        page.wait_for_timeout(20)


def paint(browser: Browser, url: str, name: str, path: str) -> None:
    """Report the first paint of a view and the time until its data is shown."""
    first, shown = [], []
    for _ in range(REPEATS):
        context = browser.new_context()
        page = context.new_page()
        page.add_init_script(_WATCH)
        page.goto(url + path)
        wait_for(page, "window.shownAt")
        first.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"))
        shown.append(page.evaluate("window.shownAt"))
        context.close()
    painted = [one for one in first if one is not None]
    report(f"ui_first_paint_{name}", painted or shown, "ms", 1000, "lower")
    report(f"ui_shown_{name}", shown, "ms", 1000, "lower")


def live_steps(browser: Browser, url: str, store: Store, process: psutil.Process) -> None:
    """Report how long a stored step takes to an open page, and the server's work while the page is open."""
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(_WATCH)
    page.goto(f"{url}/jobs/job-running")
    wait_for(page, "window.shownAt")
    time.sleep(2)
    waits = []
    for number in range(1, LIVE_STEPS + 1):
        step = STEPS + number
        stored = time.time()
        store.jobs.ingest_spans([Span("job-running", "events.jsonl", step - 1, step, [_progress(step)])], utc_now())
        wait_for(page, f"window.newestStep === '{step:,}'")
        waits.append(page.evaluate("window.stepAt") / 1000 - stored)
        time.sleep(1.2)
    report("ui_step_to_page", waits, "s", 1, "lower")
    report_work("page_of_a_running_job_open", process)
    context.close()


def report_work(state: str, process: psutil.Process) -> None:
    """Report memory and processor time of the server over some seconds."""
    before = sum(process.cpu_times()[:2])
    time.sleep(IDLE_S)
    share = (sum(process.cpu_times()[:2]) - before) / IDLE_S
    report(f"ui_server_rss_{state}", [process.memory_info().rss / 1e6], "MB", 90 if "idle" in state else None, "lower")
    report(f"ui_server_cpu_{state}", [100 * share], "% of a core", None, "lower")


def report_libraries() -> None:
    """Report the memory of an interpreter with the libraries of the server alone: no change of ours gets below it."""
    code = "import mcp.server, sqlalchemy, typer, uvicorn, sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        report(
            "ui_server_rss_libraries_alone", [psutil.Process(process.pid).memory_info().rss / 1e6], "MB", None, "lower"
        )
        process.stdin.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder)
        store = fill(home)
        views = {
            **{"overview": "/", "jobs": "/jobs", "job_of_1000_steps": "/jobs/job-running", "runs": "/runs"},
            **{"datasets": "/datasets", "agents": "/agents", "agent": "/agents/base@1", "comparisons": "/comparisons"},
            **{"lineage": "/lineage/agent:base@1", "judging": "/judging", "leaderboard": "/leaderboard"},
        }
        report_libraries()
        with serving(home) as (url, process):
            report_work("idle_after_start", process)
            browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
            for name, path in views.items():
                paint(browser, url, name, path)
            live_steps(browser, url, store, process)
            browser.close()
            report_work("idle_after_all_views", process)
        store.close()
    summarize()


if __name__ == "__main__":
    main()
