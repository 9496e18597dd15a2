"""The recorder around a stranger's loop."""

from __future__ import annotations

import json
import logging
from contextlib import closing
from pathlib import Path

import pytest

from quintain.importers.run_splitting import PART_CHARS
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.settings import Settings
from quintain.store.store import open_store
from quintain.tools import Recorder
from quintain.tools.recorder import Recording


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
