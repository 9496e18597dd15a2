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

import pytest
from rich.console import Console

from quintain.cli.jobs import watch
from quintain.cli.session import collected_interrupts
from quintain.records.job import SelftestSpec
from quintain.settings import Settings
from quintain.tools.services import open_services


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


def test_ctrl_c_at_any_moment_ends_the_watching_and_nothing_else(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """10 moments of the first 100 ms, which hold a look at the database, the drawing and the sleep between two looks."""
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    services = open_services(settings)
    job = services.jobs.start(SelftestSpec(steps=10_000, step_s=0.02)).job
    chance = random.Random(0)
    for _ in range(10):
        screen = io.StringIO()
        press = threading.Thread(target=press_after, args=(chance.uniform(0, 0.1),))
        press.start()
        view = watch(services, job.id, Console(file=screen, width=200))
        press.join()
        assert view.status == "running"
        assert f"{job.id} keeps running" in screen.getvalue()
    assert (lost, caplog.text) == ([], "")
    services.jobs.cancel(job.id)
    services.close()


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
