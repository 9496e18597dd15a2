"""Environments in processes of their own, against environments that misbehave."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from environments.child_processes import group_is_gone
from quintain.environments.inventory import Inventory
from quintain.environments.isolation.isolated import IsolatedSource
from quintain.errors import QuintainError
from quintain.records.trajectory import Action, Task

SERVER = str(Path(__file__).with_name("rough_mcp_server.py"))
BAD = """
import os, sys, time, subprocess
from pathlib import Path
from quintain.records.protocols import TimeStep
from quintain.records.trajectory import Observation, Task

class Bad:
    id, version = "acme/bad", "1"
    system_prompt, tools, max_turns = "", (), 3

    def tasks(self, split, n, seed):
        return [Task(id=f"t{i}", prompt="p") for i in range(n)]

    def make(self):
        return self

    def reset(self, task):
        print("printed by the environment")
        self.task = task
        return TimeStep(message="go")

    def step(self, actions):
        match self.task.prompt:
            case "hang":
                subprocess.Popen(["sleep", "600"])
                Path(self.task.id).write_text(str(os.getpid()))
                time.sleep(600)
            case "raise":
                raise RuntimeError("the shelf fell")
            case "die":
                os._exit(3)
            case "flood":
                return TimeStep(observations=(Observation(content="x" * 30_000_000),))
            case "garbage":
                return {"not": "a step"}
        return TimeStep(observations=(Observation(content="fine"),), reward=1.0, terminated=True)

    def close(self):
        pass
"""


@pytest.fixture
def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed package that brings an environment which does what its task's prompt says."""
    package = tmp_path / "site"
    info = package / "acme_bad-1.0.dist-info"
    info.mkdir(parents=True)
    (package / "acme_bad.py").write_text(BAD)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-bad\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[quintain.environments]\nacme/bad = acme_bad:Bad\n")
    monkeypatch.setenv("PYTHONPATH", str(package))
    return "acme/bad"


def task(what: str, task_id: str = "t") -> Task:
    return Task(id=task_id, prompt=what)


def test_an_isolated_environment_plays_as_it_does_in_this_process() -> None:
    here, there = Inventory(), IsolatedSource("quintain/inventory")
    assert (there.id, there.version) == (here.id, here.version)
    tasks = there.tasks("train", 3, 7)
    assert tasks == here.tasks("train", 3, 7)
    ours, theirs = here.make(), there.make()
    assert theirs.reset(tasks[0]) == ours.reset(tasks[0])
    assert (theirs.tools, theirs.system_prompt, theirs.max_turns) == (ours.tools, ours.system_prompt, ours.max_turns)
    for actions in ([], [Action(tool="search", args={"query": "red"})], [Action(tool="nope", args=None, raw_args="{")]):
        assert theirs.step(actions) == ours.step(actions)
    theirs.close()
    there.close()  # type: ignore[attr-defined]


def test_a_faulty_environment_ends_only_its_own_episode(bad: str, tmp_path: Path) -> None:
    """One that hangs is killed with what it started."""
    source, pid = IsolatedSource(bad, answer_bytes=1_000_000), tmp_path / "pid"
    other = source.make()
    other.reset(task("behave"))
    for what, message in (
        ("raise", "RuntimeError: the shelf fell"),
        ("die", "ended"),
        ("flood", "more than 1000000 bytes"),
        ("garbage", "the result of step"),
        ("hang", "did not answer within 1 s"),
    ):
        environment = source.make()
        environment.reset(task(what, str(pid)))
        if what == "hang":
            environment._child._timeout_s = 1.0  # the process has started
        with pytest.raises(QuintainError, match=message):
            environment.step([Action(tool="x")])
        environment.close()
    assert group_is_gone(int(pid.read_text()))
    assert other.step([Action(tool="x")]).reward == 1.0
    other.close()
    source.close()  # type: ignore[attr-defined]


def test_children_and_servers_end_when_their_host_is_killed() -> None:
    program = f"""
import json, sys, time
from quintain.environments.isolation.isolated import IsolatedSource
from quintain.environments.mcp_server.source import ServerSource
from quintain.environments.servers import ServerProfile
from quintain.records.trajectory import Task
source = IsolatedSource("quintain/inventory")
child = source.make()
child.reset(source.tasks("train", 1, 0)[0])
profile = ServerProfile(name="rough", command=sys.executable, args=({SERVER!r}, "deaf"))
server = ServerSource(profile, lambda name: None).make()
server.reset(Task(id="t", prompt="Go on."))
connection = server._connection
print(json.dumps([child._child._process.pid, connection._wire.pid, connection._folder]), flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as host:
        child, server, folder = json.loads(host.stdout.readline())
        assert psutil.pid_exists(child)
        assert Path(folder).is_dir()
        host.kill()
    assert group_is_gone(server)
    _, alive = psutil.wait_procs([psutil.Process(child)] if psutil.pid_exists(child) else [], timeout=60)
    assert alive == []
    assert not Path(folder).exists()
