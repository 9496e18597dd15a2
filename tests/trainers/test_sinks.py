from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quintain.trainers.loop import sinks
from quintain.trainers.loop.sinks import LIBRARIES, Library, Metrics, ReportedRun, Writer, open_sinks

OPEN = Callable[[Any, str, Path], Writer]


class Warnings:
    """Warnings of a run, and the threads on which it got them."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        self.threads: set[int] = set()

    def __call__(self, code: str, message: str) -> None:
        self.messages.append((code, message))
        self.threads.add(threading.get_ident())


@pytest.fixture
def warn() -> Warnings:
    return Warnings()


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, OPEN], None]:
    """Add a sink of the test's own at the seam where the libraries stand; `json` is a module that can be imported."""
    return lambda name, open: monkeypatch.setitem(LIBRARIES, name, Library("json", open))


def lines(_: Any, named: ReportedRun, folder: Path) -> Writer:
    """A sink that writes JSON lines."""
    file = (folder / f"{named.agent}.jsonl").open("w", encoding="utf-8")
    return Writer(lambda step, metrics: print(json.dumps([step, metrics]), file=file), file.close)


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Look until it holds; what is waited for happens on another thread."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def test_points_arrive_in_order_with_their_names_and_without_what_is_unknown(
    register: Callable[[str, OPEN], None], warn: Warnings, tmp_path: Path
) -> None:
    register("lines", lines)
    out = open_sinks(["lines", "lines"], named=ReportedRun("run-1"), folder=tmp_path, warn=warn)
    for step in range(3):
        out.log(step, {"loss": 1.0 / (step + 1), "validation_loss": None})
    out.close()
    written = [json.loads(line) for line in (tmp_path / "run-1.jsonl").read_text("utf-8").splitlines()]
    assert written == [[0, {"loss": 1.0}], [1, {"loss": 0.5}], [2, {"loss": 1 / 3}]]
    assert warn.messages == []


def test_a_sink_that_blocks_keeps_nobody_waiting_and_its_losses_are_counted(
    register: Callable[[str, OPEN], None], warn: Warnings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Point 0 is in the sink's hands, 4 of the next 10 may wait: the newest stay; none of the 11 is written in time."""
    monkeypatch.setattr(sinks, "_WAITING", 4)
    held, released, seen = threading.Event(), threading.Event(), list[int]()

    def log(step: int, metrics: Metrics) -> None:
        held.set()
        released.wait(60)
        seen.append(step)

    register("slow", lambda *_: Writer(log, lambda: None))
    register("lines", lines)
    out = open_sinks(["slow", "lines"], named=ReportedRun("run"), folder=tmp_path, warn=warn)
    out.log(0, {"loss": 0.0})
    assert held.wait(60)
    for step in range(1, 11):
        out.log(step, {"loss": 0.0})
    out.close(deadline_s=0.05)
    assert seen == [], "log and close do not wait for the sink, which waits for this thread"
    assert ("sink_incomplete", "11 of 11 points did not reach slow") in warn.messages
    released.set()
    until(lambda: len(seen) == 5)
    assert seen == [0, 7, 8, 9, 10]


def test_a_sink_that_hangs_while_it_opens_or_closes_does_not_hold_up_the_run(
    register: Callable[[str, OPEN], None], warn: Warnings, tmp_path: Path
) -> None:
    released = threading.Event()

    def opens_never(*_: Any) -> Writer:
        released.wait(30)
        return Writer(lambda step, metrics: None, lambda: None)

    register("opens-never", opens_never)
    register("closes-never", lambda *_: Writer(lambda step, metrics: None, lambda: bool(released.wait(30)) and None))
    out = open_sinks(["opens-never", "closes-never"], named=ReportedRun("run"), folder=tmp_path, warn=warn)
    out.log(0, {"loss": 1.0})
    until(lambda: out._channels[1].written == 1)
    out.close(deadline_s=0.05)
    released.set()
    assert warn.messages == [
        ("sink_incomplete", "1 of 1 points did not reach opens-never"),
        ("sink_incomplete", "closes-never did not close in time; its last points may be missing"),
    ]


def test_a_sink_that_raises_is_reported_once_on_the_runs_own_thread_and_the_others_get_their_points(
    register: Callable[[str, OPEN], None], warn: Warnings, tmp_path: Path
) -> None:
    """One refuses every second point, one cannot be opened."""
    seen = list[int]()

    def log(step: int, metrics: Metrics) -> None:
        if step % 2:
            raise RuntimeError(f"no room for step {step}")
        seen.append(step)

    def refuse(*_: Any) -> Writer:
        raise PermissionError("no key")

    register("broken", lambda *_: Writer(log, lambda: None))
    register("closed", refuse)
    register("lines", lines)
    out = open_sinks(["broken", "closed", "lines"], named=ReportedRun("run"), folder=tmp_path, warn=warn)
    for step in range(6):
        out.log(step, {"loss": 1.0})
    out.close()
    out.close()
    assert seen == [0, 2, 4]
    assert len((tmp_path / "run.jsonl").read_text("utf-8").splitlines()) == 6
    failed = sorted(message for code, message in warn.messages if code == "sink_failed")
    assert "broken refused a point: RuntimeError: no room for step 1" in failed[0]
    assert "closed cannot be opened: PermissionError: no key" in failed[1]
    assert len(failed) == 2
    lost = [message for code, message in warn.messages if code == "sink_incomplete"]
    assert lost == ["3 of 6 points did not reach broken", "6 of 6 points did not reach closed"]
    assert warn.threads == {threading.get_ident()}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "wandb is not installed, so"),
        ("import sys\nsys.exit(3)", "wandb cannot be imported (SystemExit: 3"),
    ],
    ids=["missing", "exits"],
)
def test_a_package_that_cannot_be_imported_is_one_warning_with_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, warn: Warnings, tmp_path: Path, content: str | None, why: str
) -> None:
    name = f"quintain_test_{len(content or '')}"
    if content:
        (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(LIBRARIES, "wandb", LIBRARIES["wandb"]._replace(module=name))
    out = open_sinks(["wandb"], named=ReportedRun("run"), folder=tmp_path, warn=warn)
    out.log(0, {"loss": 1.0})
    out.close()
    ((code, message),) = warn.messages
    assert code == "sink_missing"
    assert message.startswith(why)
    assert message.endswith("no metrics go there; install it with: pip install 'quintain[wandb]'")


def test_every_sink_that_a_config_can_name_has_a_library_and_an_extra_of_its_name() -> None:
    import tomllib
    from typing import get_args

    from quintain.records.hyperparameters.methods import Sink

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(get_args(Sink)) == set(LIBRARIES)
    assert set(LIBRARIES) <= set(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("chosen", "project", "mode"), [(set[str](), None, "offline"), ({"mode", "project"}, "mine", None)]
)
def test_wandb_stays_offline_in_a_project_of_its_own_unless_the_operator_chose_them(
    chosen: set[str], project: str | None, mode: str | None, tmp_path: Path
) -> None:
    """wandb's settings say which of them the environment or a settings file gave; the module is only what it is asked for."""
    asked: dict[str, Any] = {}
    module = SimpleNamespace(
        setup=lambda: SimpleNamespace(settings=SimpleNamespace(model_fields_set=chosen, project=project)),
        Settings=dict,
        init=lambda **arguments: asked.update(arguments) or SimpleNamespace(finish=lambda: None),
    )
    LIBRARIES["wandb"].open(module, ReportedRun("agent"), tmp_path)
    assert (asked["mode"], asked["project"], asked["name"]) == (mode, project or "quintain", "agent")
    LIBRARIES["wandb"].open(module, ReportedRun("agent", "theirs", "second try"), tmp_path)
    assert (asked["project"], asked["name"]) == ("theirs", "second try")


def test_tensorboard_gets_every_point(warn: Warnings, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra 'tensorboard'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = open_sinks(["tensorboard"], named=ReportedRun("run"), folder=tmp_path, warn=warn)
    for step in range(3):
        out.log(step, {"loss": 0.5 * step})
    out.close()
    events = EventAccumulator(str(tmp_path / "tensorboard" / "run"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert warn.messages == []


def test_wandb_writes_an_offline_run_and_prints_nothing(
    warn: Warnings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("wandb", reason="needs the extra 'wandb'")
    monkeypatch.setenv("HOME", str(tmp_path))
    out = open_sinks(["wandb"], named=ReportedRun("run"), folder=tmp_path / "job", warn=warn)
    out.log(0, {"loss": 0.5})
    out.close(deadline_s=60)
    assert list((tmp_path / "job" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert warn.messages == []
    assert capfd.readouterr().out == ""


def test_trackio_keeps_the_points_in_its_database_and_prints_nothing(
    warn: Warnings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("trackio", reason="needs the extra 'trackio'")
    from trackio.sqlite_storage import SQLiteStorage

    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path)
    out = open_sinks(["trackio"], named=ReportedRun("run"), folder=tmp_path, warn=warn)
    for step in range(3):
        out.log(step, {"loss": 0.5 * step})
    out.close(deadline_s=60)
    assert [(row["step"], row["loss"]) for row in SQLiteStorage.get_logs("quintain", "run")] == [
        (0, 0.0),
        (1, 0.5),
        (2, 1.0),
    ]
    assert warn.messages == []
    assert capfd.readouterr().out == ""
