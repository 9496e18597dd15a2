"""The recorder around a stranger's loop: what it keeps, values that no record can hold, and a database that does not answer."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from quintain.importers.run_splitting import PART_CHARS
from quintain.records.trajectory import MAX_TRAJECTORY_CHARS, OutcomeStatus, Trajectory
from quintain.settings import Settings
from quintain.store.store import open_store
from quintain.tools import Recorder
from quintain.tools.dict_calls.recorder import Recording


def stored(home: Path, recording: Recording) -> Trajectory:
    store = open_store(Settings(home=home).url)
    try:
        return store.trajectories.get(recording.trajectory_id)
    finally:
        store.close()


def test_a_loop_is_recorded_turn_by_turn(home: Path) -> None:
    recorder = Recorder(agent="mine", model="tiny", tags=["prod"], home=home)
    with recorder.run({"id": "t1", "prompt": "Fix it"}, session_id="s1", tags=["nightly"]) as run:
        run.system("Be brief.")
        run.user("Fix it")
        run.agent("Looking.", thought="hm", calls=[("read", {"path": "a"}, "c1"), ("read", '{"path": "b"}', "c2")])
        run.result({"lines": 3}, call_id="c2")
        run.result("no such file", call_id="c1", is_error=True)
        run.reward(0.25)
        run.messages([{"role": "assistant", "content": "Done.", "model": "large"}])
        run.outcome("success", reward=1.0, tests=0.5)
    kept = stored(home, run)
    assert run.failures == []
    assert [step.actor for step in kept.steps] == ["system", "user", "agent", "agent"]
    first, last = kept.agent_steps
    assert [(o.call_id, o.content, o.is_error) for o in first.observations] == [
        ("c2", '{"lines": 3}', False),
        ("c1", "no such file", True),
    ]
    assert (first.reward, first.model, last.model) == (0.25, "tiny", "large")
    assert first.actions[1].raw_args == '{"path": "b"}'
    assert (kept.task.id, kept.session_id, kept.tags, kept.agent.name) == ("t1", "s1", ("prod", "nightly"), "mine")
    outcome = kept.outcome
    assert (outcome.status, outcome.reward, outcome.scores) == (OutcomeStatus.SUCCESS, 1.0, {"tests": 0.5})


def test_an_exception_of_the_loop_passes_through_and_is_the_outcome(home: Path) -> None:
    recording = Recorder(home=home).run("Try")

    def loop() -> None:
        with recording as run:
            run.agent("I try.")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    kept = stored(home, recording)
    assert (kept.outcome.status, kept.outcome.exit_status) == (OutcomeStatus.ERROR, "ZeroDivisionError")


def test_two_equal_runs_stay_two(home: Path) -> None:
    ids = set()
    for _ in range(2):
        with Recorder(home=home).run("Say hi") as run:
            run.agent("hi")
        ids.add(run.trajectory_id)
    assert len(ids) == 2


def test_nonsense_costs_the_loop_nothing_and_the_rest_is_kept(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Recorder(home=home).run("Say hi") as run:
        run.reward(1.0)  # before any turn
        run.agent("hi", calls=[("broken",)])
        run.result(object())
        run.outcome("splendid")
        run.agent("hi again")
    assert len(run.failures) == 3
    assert "splendid" in caplog.text
    kept = stored(home, run)
    assert (kept.outcome.status, kept.agent_steps[-1].message) == (OutcomeStatus.UNKNOWN, "hi again")


def test_a_secret_is_redacted_before_it_is_stored(home: Path) -> None:
    key = "ghp_" + "a1B2" * 9
    with Recorder(home=home).run("Push") as run:
        run.agent(f"git push https://{key}@example.org")
    assert sum(stored(home, run).redactions.values()) >= 1
    assert key.encode() not in b"".join(path.read_bytes() for path in home.glob("quintain.db*"))


def test_each_part_of_a_long_run_counts_the_secrets_in_it(home: Path) -> None:
    secret = "export SERVICE_API_KEY=q1w2e3r4t5y6u7i8\n"
    with Recorder(home=home).run("Go") as run:
        for n in (0, 2, 1):
            run.agent(secret * n + "x" * (PART_CHARS * 2 // 3))
    with closing(open_store(Settings(home=home).url)) as store:
        parts = list(store.trajectories.iterate())
    assert [part.redactions for part in parts] == [{}, {"api_key": 2}, {"api_key": 1}]


def test_a_run_that_the_store_does_not_take_is_kept_in_the_inbox(home: Path) -> None:
    (home / "quintain.db").write_bytes(b"this is no database" * 100)
    with Recorder(home=home).run("Say hi") as run:
        run.agent("hi")
    assert run.trajectory_id is None
    assert len(run.failures) == 1
    (kept,) = (home / "inbox").glob("recorded-*.json")
    assert json.loads(kept.read_text())["task"]["prompt"] == "Say hi"


def test_a_message_that_cannot_be_read_costs_no_other(home: Path) -> None:
    with Recorder(home=home).run("Try") as run:
        run.messages([{"role": "critic", "content": "Bad."}, {"role": "assistant", "content": "Done."}])
    assert run.failures == ["role:critic"]
    assert [step.message for step in stored(home, run).agent_steps] == ["Done."]


KEY = "ghp_" + "a1B2c3D4e5" * 4


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Broken:
    def __iter__(self) -> Any:
        raise Unprintable


def test_bad_numbers_are_unknown_and_the_run_is_kept(home: Path) -> None:
    with Recorder(home=home).run("Say hi") as run:
        run.agent("hi", usage={"input_tokens": -1})
        run.reward(float("nan"))
        run.outcome("success", reward=float("inf"), speed=float("nan"), tests=0.5)
    kept = stored(home, run)
    outcome = kept.outcome
    assert (outcome.status, outcome.reward, outcome.scores) == (OutcomeStatus.SUCCESS, None, {"tests": 0.5})
    assert (kept.agent_steps[0].reward, kept.agent_steps[0].usage) == (None, None)
    assert len(run.failures) == 4


def test_half_characters_deep_and_endless_values_are_mended(home: Path) -> None:
    deep: Any = "bottom"
    for _ in range(500):
        deep = {"in": deep}
    endless: list[Any] = []
    endless += [endless, endless]
    with Recorder(home=home).run("Say hi") as run:
        run.agent(
            "half \ud800", calls=[("look", {"deep": deep, "to": {1, 2}}, "c1"), ("broken",), ("raw", '{"a": "\ud800"}')]
        )
        run.result("seen \udfff", call_id="c1")
        run.result(endless)
        run.messages([{"role": "assistant", "content": "done \ud800"}])
    kept = stored(home, run)
    first, last = kept.agent_steps
    assert (first.message, last.message) == ("half \ufffd", "done \ufffd")
    assert [call.tool for call in first.actions] == ["look", "raw"]
    assert first.observations[0].content == "seen \ufffd"
    assert any("deeper than" in failure for failure in run.failures)


def test_a_task_with_other_fields_and_ids_that_are_no_text_are_kept(home: Path) -> None:
    task = {"id": 7, "prompt": "Say hi", "owner": "me", "metadata": {"a": 1}}
    with Recorder(home=home, tags=["good", 5, "live"]).run(task, session_id=5, tags=None) as run:
        run.agent("hi")
    kept = stored(home, run)
    assert (kept.task.id, kept.task.metadata) == ("7", {"a": 1, "owner": "me"})
    assert (kept.session_id, kept.tags) == ("5", ("good",))


class Stubborn:
    """Has no text, no truth and no members."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    def __bool__(self) -> bool:
        raise RuntimeError("no")


def test_a_value_that_cannot_be_asked_costs_its_turn_nothing_else(home: Path) -> None:
    odd: Any = Stubborn()
    recorder = Recorder(agent=odd, tools=odd, tags=odd, home=home)
    with recorder.run(odd, session_id=odd, tags=odd) as run:
        run.agent("said", thought=odd, calls=odd)
        run.agent("asked", model=odd, calls=[("get", {"n": Fraction(1, 2), "odd": odd}, "c")])
        run.result("got", call_id="c", is_error=odd)
        run.outcome("success", reward=1.0, score=odd)
    kept = stored(home, run)
    assert [step.message for step in kept.steps] == ["said", "asked"]
    assert kept.steps[1].actions[0].args == {"n": 0.5, "odd": ""}
    assert [observation.content for observation in kept.steps[1].observations] == ["got"]
    assert (kept.outcome.status, kept.outcome.reward, kept.outcome.scores) == (OutcomeStatus.SUCCESS, 1.0, {})
    assert "is_error is of type Stubborn, whose truth value is ambiguous (RuntimeError)" in run.failures


def test_what_cannot_be_built_is_written_to_the_inbox_redacted(home: Path) -> None:
    with Recorder(home=home).run("Read it") as run:
        run.agent("reading", calls=[("read", {"token": KEY})])
        run.result("x" * (MAX_TRAJECTORY_CHARS + 1))
    assert run.trajectory_id is None
    (kept,) = (home / "inbox").glob("recorded-*.json")
    text = kept.read_text()
    assert KEY not in text
    assert json.loads(text)["steps"][0]["message"] == "reading"


def test_a_recording_without_the_agent_is_kept_in_the_inbox_and_an_empty_one_nowhere(home: Path) -> None:
    with Recorder(home=home).run("Ask") as run:
        run.user("Anybody there?")
    with Recorder(home=home).run("Ask") as empty:
        pass
    assert (run.trajectory_id, empty.trajectory_id) == (None, None)
    assert "at least one recorded turn" in empty.failures[0]
    (kept,) = (home / "inbox").glob("recorded-*.json")
    assert json.loads(kept.read_text())["steps"][0]["message"] == "Anybody there?"


def test_an_exception_without_words_stays_inside(home: Path) -> None:
    with Recorder(home=home).run("Say hi") as run:
        run.agent("hi")
        run.agent("there", calls=Broken())
    assert any("Unprintable" in failure for failure in run.failures)
    assert stored(home, run).agent_steps[0].message == "hi"


def test_failures_and_the_log_hold_no_secret(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Recorder(home=home).run("Say hi") as run:
        run.agent("hi")
        run.outcome("succes" + KEY)
        run.messages([{"role": KEY, "content": "x"}])
    assert KEY not in "".join(run.failures) + caplog.text
    assert "outcome" in run.failures[0]


def test_a_locked_database_holds_the_loop_for_seconds_and_the_run_goes_to_the_inbox(home: Path) -> None:
    open_store(Settings(home=home).url).close()
    holder = sqlite3.connect(home / "quintain.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        began = time.monotonic()
        with Recorder(home=home).run("Say hi") as run:
            run.agent("hi")
        held = time.monotonic() - began
    finally:
        holder.close()
    assert run.trajectory_id is None
    assert held < 15, "the store itself waits 30 s"
    assert list((home / "inbox").glob("recorded-*.json"))


def test_a_bad_setting_costs_the_loop_nothing_and_the_run_is_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUINTAIN_MODEL_TERMS", "zzz")
    with Recorder(home=home).run("Say hi") as run:
        run.agent("hi")
    assert "QUINTAIN_MODEL_TERMS" in run.failures[0]
    assert list((home / "inbox").glob("recorded-*.json"))
