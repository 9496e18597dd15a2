"""Ctrl-C while a command waits for a job: heeded at whatever line it falls, and told without a traceback."""

from __future__ import annotations

import io
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from jobs_in_process import in_process, starts_held
from quintain.cli.commands.jobs import watch
from quintain.cli.session import collected_interrupts
from quintain.records.jobs.job import SelftestSpec
from quintain.settings import Settings
from quintain.tools.evaluation.rollouts import collect_rollouts
from quintain.tools.jobs.jobs import list_jobs
from quintain.tools.services import Services, open_services
from terminal import quintain
from tiny_models import save_tiny_model


@pytest.fixture(autouse=True)
def _heeded() -> Iterator[None]:
    """Ctrl-C as at a terminal, also where the tests run behind a script's `&`, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_after(seconds: float) -> None:
    """Press Ctrl-C so long after the watching has begun."""
    while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        time.sleep(0.001)
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGINT)


def test_watching_a_job_that_its_launcher_cannot_start_says_once_why(settings: Settings) -> None:
    far = {"launcher": "ray", "ray_address": "http://127.0.0.1:9"}
    services, screen = open_services(settings.model_copy(update=far)), io.StringIO()
    job_id = collect_rollouts(services, "starter", "quintain/inventory", n_tasks=1).job_id

    def press_when_shown() -> None:
        while "RAY_ADDRESS" not in screen.getvalue():
            time.sleep(0.01)
        press_after(4 * settings.poll_s)

    threading.Thread(target=press_when_shown, daemon=True).start()
    view = watch(services, job_id, Console(file=screen, width=200))
    assert view.status == "queued"
    assert screen.getvalue().count("check that RAY_ADDRESS is the URL") == 1
    services.close()


def test_ctrl_c_at_any_moment_ends_the_watching_and_nothing_else(
    settings: Settings, services: Services, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """10 moments of the first 100 ms, which hold a look at the database, the drawing and the sleep between two looks."""
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    with starts_held(settings.jobs_dir):
        job = services.jobs.start(SelftestSpec()).job
        chance = random.Random(0)
        for _ in range(10):
            screen = io.StringIO()
            press = threading.Thread(target=press_after, args=(chance.uniform(0, 0.1),))
            press.start()
            view = watch(services, job.id, Console(file=screen, width=200))
            press.join()
            assert view.status == "queued"
            assert f"{job.id} keeps running" in screen.getvalue()
    assert (lost, caplog.text) == ([], "")


def test_ctrl_c_leaves_a_training_and_the_same_command_follows_it_to_its_end(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 epochs of 2 texts, one at a time: 4 steps, in place of the file's 1000, because options go before it."""
    monkeypatch.setenv("QUINTAIN_POLL_S", "0.1")
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"Text {name}: items have a price.", encoding="utf-8")
    file = f"method: pretrain\ntext: '*.txt'\nname: reader\nmodel: {save_tiny_model(tmp_path / 'tiny', hidden=16)}\n"
    config = tmp_path / "training.yaml"
    config.write_text(f"{file}hyperparameters: {{num_train_epochs: 500, batch_size: 1}}\n", encoding="utf-8")
    asked = ("train", "--config", str(config), "--set", "epochs=2", "--name", "scholar")

    services = open_services(Settings(home=home))
    with starts_held(services.settings.jobs_dir):
        press = threading.Thread(target=press_after, args=(0.1,))
        press.start()
        left = quintain(*asked, home=home)
        press.join()
        (job_id,) = (job.job_id for job in list_jobs(services).items)
    assert left.returncode == 130
    assert f"quintain jobs watch {job_id}" in left.stdout
    assert f"quintain jobs cancel {job_id}" in left.stdout

    with in_process():
        done = quintain(*asked, home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "agent: agent:scholar@1" in done.stdout
    assert f"{job_id}: succeeded" in done.stdout
    (job,) = list_jobs(services).items
    assert (job.status, job.step, job.total_steps) == ("succeeded", 4, 4)
    watch(services, job_id, Console(file=(screen := io.StringIO()), width=50))
    assert " 4/4 0:00:0" in screen.getvalue(), "what it does is cut, not how far it is"
    services.close()


def test_to_watch_a_job_that_was_cancelled_is_no_success(settings: Settings, home: Path) -> None:
    settings.jobs_dir.mkdir()
    with starts_held(settings.jobs_dir):
        started = quintain("collect", "starter", "--environment", "quintain/inventory", "--detach", home=home)
        job_id = started.stdout.strip()
        assert quintain("jobs", "cancel", job_id, home=home).returncode == 0
        watched = quintain("jobs", "watch", job_id, home=home)
    assert (watched.returncode, f"{job_id}: cancelled" in watched.stdout) == (1, True)


def test_the_second_ctrl_c_is_an_exception_and_the_first_handler_comes_back() -> None:
    with collected_interrupts() as seen:
        signal.raise_signal(signal.SIGINT)
        assert seen == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_that_was_started_to_ignore_ctrl_c_goes_on_ignoring_it() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with collected_interrupts() as seen:
        signal.raise_signal(signal.SIGINT)
    assert seen == []
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
