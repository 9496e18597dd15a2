"""`quintain/sandbox` behind real walls: its tools, what an agent cannot do, verdicts, and what is left afterwards."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from playing import Scripted, act, play, text_of
from quintain.environments.sandbox import Sandboxed
from quintain.environments.sandbox.environment import Coding
from quintain.environments.sandbox.functions import Function, all_functions
from quintain.environments.sandbox.projects import FAMILY, build_project
from quintain.environments.sandbox.scripted_policy import Expert
from quintain.errors import QuintainError
from quintain.records.protocols import Reply, Turn
from quintain.records.trajectory import Action, OutcomeStatus, Task
from quintain.sandbox.backends import Isolation

TASK = Task(id="sandbox/train/implement/easy/00001")


@pytest.fixture(scope="module")
def source() -> Sandboxed:
    opened = Sandboxed()
    try:
        opened.sandbox()
    except QuintainError as error:
        pytest.skip(error.message)
    return opened


@pytest.fixture
def coding(source: Sandboxed) -> Iterator[Coding]:
    environment = Coding(source)
    environment.reset(TASK)
    yield environment
    environment.close()


def solution(task: Task = TASK) -> tuple[str, str]:
    """The module of a task of one function that is not written, and that module with the function."""
    project = build_project(FAMILY.parse(task.id))
    path, text = next((path, text) for path, text in project.files.items() if "NotImplementedError" in text)
    function: Function = next(one for one in all_functions().values() if one.stub in text)
    return path, text.replace(function.stub, function.source)


def test_the_expert_solves_each_type_of_task_eight_at_once(source: Sandboxed) -> None:
    tasks = [*source.tasks("train", 4, 1), *source.tasks("held_out", 12, 1)[8:]]
    episodes = play(source, Expert(), tasks, concurrency=8)
    assert {task.type for task in tasks} == set(FAMILY.types)
    assert [(episode.result.reward, episode.result.error) for episode in episodes] == [(1.0, None)] * len(tasks)
    for episode in episodes:
        metrics = episode.result.metrics
        assert metrics["tests_passed"] == 1
        assert metrics["files_changed"] >= 1 <= metrics["diff_lines"]
        assert "diff --git a/" in str(episode.trajectory.agent_steps[-1].observations[0].content)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("split", ["train", "held_out"])
def test_the_expert_solves_every_task(source: Sandboxed, split: str) -> None:
    episodes = play(source, Expert(), source.tasks(split, 60, 2), concurrency=8)
    assert [episode.result.task_id for episode in episodes if episode.result.reward != 1] == []


def test_the_tools_work_and_mistakes_are_errors(coding: Coding) -> None:
    path, right = solution()
    assert path in text_of(act(coding, "list_files")).splitlines()
    assert text_of(act(coding, "list_files", path="tests")).splitlines()[0] == "tests/__init__.py"
    text = text_of(act(coding, "read_file", path=f"/workspace/{path}"))
    assert text == build_project(FAMILY.parse(TASK.id)).files[path]
    assert text_of(act(coding, "read_file", path=path, offset=1, limit=1)) == text.splitlines()[0] + "\n"
    assert "raise NotImplementedError" in text_of(act(coding, "grep", pattern="raise +NotImpl", path="."))
    assert text_of(act(coding, "grep", pattern="no such thing")) == "No line matches."
    assert "FAILED (errors=" in text_of(act(coding, "run_tests"))
    edited = act(coding, "edit_file", path=path, old_string=text, new_string=right)
    assert (text_of(edited), edited.info["metrics"]) == ("Edited.", {"commands": 3.0})
    assert "-    raise NotImplementedError" in text_of(act(coding, "git"))
    tested = text_of(act(coding, "run_tests"))
    assert "in some time" in tested
    assert tested.endswith("OK")
    done = coding.step([Action(tool="submit", args={}), Action(tool="bash", args={"command": "ls"})])
    assert (done.reward, done.terminated, len(done.observations)) == (1.0, True, 2)
    assert "nothing more was carried out" in str(done.observations[1].content)
    assert done.info["patch"].startswith(f"diff --git a/{path} b/{path}\n")
    assert done.info["metrics"]["files_changed"] == 1


@pytest.mark.parametrize(
    ("tool", "args", "message"),
    [
        ("read_file", {"path": "no.py"}, "no.py: no such file"),
        ("read_file", {"path": "../x"}, "expected a relative path below the workspace"),
        ("read_file", {"path": "/etc/passwd"}, "expected a relative path below the workspace"),
        ("read_file", {"path": "tests"}, "tests: is a directory"),
        ("read_file", {"path": "README.md", "offset": 999}, "so none from 999 on"),
        ("read_file", {"path": "README.md", "offset": 0}, "greater than or equal to 1"),
        ("list_files", {"path": "nowhere"}, "there is no folder 'nowhere'"),
        ("write_file", {"path": "README.md/x", "content": ""}, "not a directory"),
        ("write_file", {"path": "x"}, "write_file.content is required"),
        ("edit_file", {"path": "README.md", "old_string": "zzz", "new_string": ""}, "does not occur in 'README.md'"),
        ("edit_file", {"path": "README.md", "old_string": "e", "new_string": ""}, "times in 'README.md'"),
        ("git", {"arguments": "log 'x"}, "quote them as in a shell"),
        ("bash", {"command": "x" * 40_000}, "at most 30000"),
        ("fly", {}, "no tool is called 'fly'"),
    ],
)
def test_what_cannot_be_done_is_an_observation(shared: Coding, tool: str, args: dict[str, Any], message: str) -> None:
    step = act(shared, tool, **args)
    assert message in text_of(step)
    assert (step.observations[0].is_error, step.reward, step.terminated) == (True, None, False)


@pytest.fixture(scope="module")
def shared(source: Sandboxed) -> Iterator[Coding]:
    environment = Coding(source)
    environment.reset(TASK)
    yield environment
    environment.close()


def test_nothing_of_the_machine_is_visible_and_neither_network_nor_links_lead_out(
    shared: Coding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUINTAIN_CANARY", "seen")
    look = "env; hostname; cat /proc/1/cmdline | tr '\\0' ' '; wc -l < /proc/net/dev; ls /home /root 2>&1; timeout 2 python3 -c "
    reach = "\"import socket; socket.create_connection(('1.1.1.1', 53), 1)\""
    shown = text_of(act(shared, "bash", command=look + reach))
    assert "Network is unreachable" in shown
    assert "\nsandbox\n" in shown
    shown = shown.replace(sys.prefix, "")  # the interpreter that runs tests is known to the agent
    repository, folders = str(Path(__file__).parents[2]), tempfile.gettempdir() + "/quintain"
    for secret in ("CANARY", "site-packages/quintain", repository, folders):
        assert secret not in shown
    (tmp_path / "secret").write_text("canary")
    act(shared, "bash", command=f"ln -s {tmp_path}/secret out; ln -s {tmp_path} up; mkfifo pipe")
    for path in ("out", "up/secret", "pipe"):
        assert "canary" not in text_of(act(shared, "read_file", path=path))
        assert act(shared, "write_file", path=path, content="x").observations[0].is_error
    assert (tmp_path / "secret").read_text() == "canary"
    assert "up/secret" not in text_of(act(shared, "list_files"))


FAKE_RUNNER = 'import sys; print("Ran 9 tests in 0.1s\\n\\nOK"); sys.exit(0)'
FAKE_RESULTS = 'import os\\nprint("[]\\nOK")\\nos.write(1, b"[]")\\nos._exit(0)\\n'
EQUALS_ALL = (
    "class Any(dict):\\n    def __eq__(self, other):\\n        return True\\n    __hash__ = None\\n"
    "def __getattr__(name):\\n    return lambda *a, **o: Any()\\n"
)
CHEATS = {
    "the tests are edited": "for f in tests/test_*.py; do echo 'import unittest' > $f; done",
    "the tests are deleted": "rm -rf tests .git",
    "a test runner of its own": f"printf '{FAKE_RUNNER}' | tee unittest.py pytest.py > /dev/null",
    "hooks": "printf 'import os; os._exit(0)' | tee conftest.py sitecustomize.py usercustomize.py json.py > /dev/null",
    "results are printed": f"for f in [a-s]*/*s.py; do printf '{FAKE_RESULTS}' > $f; done",
    "a value that equals all": f"for f in [a-s]*/*s.py; do printf '{EQUALS_ALL}' > $f; done",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_who_tampers_with_tests_gets_no_reward(coding: Coding, cheat: str) -> None:
    assert "[exit code" not in text_of(act(coding, "bash", command=CHEATS[cheat]))
    done = act(coding, "submit")
    assert (done.reward, done.terminated) == (0.0, True), text_of(done)
    assert done.info["metrics"]["tests_passed"] < 1


def test_a_command_that_hangs_or_writes_much_costs_an_observation() -> None:
    short = Coding(Sandboxed(timeout_s=3))
    try:
        short.reset(TASK)
        hung = act(short, "bash", command="sleep 30 & sleep 30")
        assert "stopped after 3 s" in text_of(hung)
        assert hung.observations[0].is_error
        endless = text_of(act(short, "bash", command="yes | head -c 10000000"))
        assert len(endless) < 20_000
        assert "left out" in endless
    finally:
        short.close()


def test_a_workspace_stays_below_its_limit(coding: Coding) -> None:
    fill = "for i in 1 2 3 4 5 6; do head -c 40000000 /dev/zero > big$i; done"  # a killed fallocate may give its space back
    assert "until files are deleted nothing can be written" in text_of(act(coding, "bash", command=fill))
    assert "delete files first" in text_of(act(coding, "write_file", path="x", content=""))
    assert "nothing can be written" in text_of(act(coding, "bash", command="echo more > small"))
    assert text_of(act(coding, "read_file", path="small")) == "The file is empty."
    assert text_of(act(coding, "bash", command="rm big* small")) == "[no output]"
    assert text_of(act(coding, "write_file", path="x", content="y")) == "1 character written."
    deep = 'python3 -c \'import os\nfor _ in range(800): os.mkdir("d"); os.chdir("d")\''
    assert "nothing can be written" in text_of(act(coding, "bash", command=deep))
    assert act(coding, "submit").reward == 0.0
    folder = coding._tools.workspace.folder
    coding.close()
    assert not folder.parent.exists()


def test_a_broken_sandbox_ends_the_episode_without_a_verdict(
    source: Sandboxed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(turn: Turn) -> Reply:
        backend = type(source.sandbox().backend)
        monkeypatch.setattr(backend, "isolate", lambda *arguments: Isolation(["/no/such/program"]))
        return Reply(text="", actions=(Action(tool="submit", args={}),))

    (episode,) = play(source, Scripted(submit), [TASK])
    assert (episode.result.status, episode.result.reward) == (OutcomeStatus.ERROR, None)
    assert "no_sandbox" in str(episode.result.error)
