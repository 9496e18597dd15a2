"""What a bad server does costs its episode, what an agent does wrong costs nothing; both are reported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from environments.child_processes import group_is_gone
from playing import Scripted, act, play, text_of
from quintain.environments.mcp_server.source import ServerSource
from quintain.environments.servers import ServerProfile
from quintain.errors import InvalidInput, Unavailable
from quintain.jobs.processes import JOB_VARIABLE
from quintain.records.protocols import Environment, Reply, Turn
from quintain.records.trajectory import Action, OutcomeStatus, Task

SERVER = str(Path(__file__).parent / "rough_mcp_server.py")
TASK = Task(id="t", prompt="Go on.")


def profile(*arguments: str, **fields) -> ServerProfile:
    limits = {"timeout_s": 100.0, "start_timeout_s": 100.0} | fields
    return ServerProfile(name="rough", command=sys.executable, args=(SERVER, *arguments), **limits)


@pytest.fixture
def playing():
    """Begins an episode; all are closed after the test."""
    opened: list[Environment] = []

    def begin(*arguments: str, variables: Mapping[str, str] = MappingProxyType({}), **fields) -> Environment:
        environment = ServerSource(profile(*arguments, **fields), variables.get).make()
        opened.append(environment)
        environment.reset(TASK)
        return environment

    yield begin
    for environment in opened:
        environment.close()


def process_of(environment: Environment) -> int:
    return environment._connection._wire.pid


def test_what_a_server_may_do_without_ending_the_episode(playing) -> None:
    """All pages of its tools are the action space. Faults of a call are observations, and the server lives on."""
    environment = playing(timeout_s=1.5)
    assert [tool["function"]["name"] for tool in environment.tools][:5] == ["echo", "slow", "hang", "die", "flood"]
    assert len(environment.tools) == 17
    for action, message in (
        (Action(tool="echo", raw_args="{a:"), "not valid JSON"),
        (Action(tool="eco", args={}), "did you mean 'echo'?"),
        (Action(tool="refuse", args={}), "no such thing (code -32602)"),
        (Action(tool="slow", args={}), "slow did not answer within 1.5 s"),
    ):
        step = environment.step((action,))
        assert step.observations[0].is_error
        assert message in text_of(step)
    assert not act(environment, "echo", a=1).observations[0].is_error
    chatter = act(environment, "chatter")
    assert (text_of(chatter), chatter.info) == ("done", {"garbage_lines": 4})
    asks = act(environment, "ask")
    assert not asks.observations[0].is_error, "what it asks its client for is declined, and the call goes on"
    assert text_of(asks).startswith("refused: [-32")
    long = text_of(act(environment, "nul"))
    assert long.startswith("a\ufffdby")
    assert long.endswith("[30,003 more characters were cut]")
    assert act(environment, "change").info == {"garbage_lines": 4, "tools_changed": 1}
    assert act(environment, "another").observations[0].is_error, "tools that appear during an episode are not offered"


@pytest.mark.parametrize(
    ("tool", "code", "message"),
    [
        ("hang", "environment_timeout", r"hangs: no answer to hang within 0\.5 s"),
        ("die", "environment_died", "out of cheese"),
        ("flood", "environment_died", "messages of at most 16,000,000 bytes, got more"),
        ("pester", "environment_died", "at most 50 requests to its client at once, got more"),
        ("break_schema", "environment_garbage", "answered break_schema wrongly"),
        ("slow_pattern", "environment_garbage", "answered slow_pattern wrongly"),
    ],
)
def test_a_server_that_fails_is_killed_and_its_error_has_the_reason(
    playing, tool: str, code: str, message: str
) -> None:
    environment = playing(timeout_s=0.5 if tool == "hang" else 100.0)
    pid = process_of(environment)
    with pytest.raises(Unavailable, match=message) as caught:
        act(environment, tool)
    assert caught.value.code == code
    if tool == "die":
        with pytest.raises(Unavailable, match="has ended"):
            act(environment, "echo")
    if tool in ("hang", "flood", "pester"):
        assert group_is_gone(pid)


def test_a_server_gets_no_variable_that_its_profile_does_not_pass(
    playing: Callable[..., Environment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUINTAIN_CANARY", "seen")
    environment = playing(variables={"QUINTAIN_CANARY": "seen", JOB_VARIABLE: "job-1/2"})
    variables = text_of(act(environment, "recall", name="/proc/self/environ"))
    assert "PATH=" in variables
    assert f"{JOB_VARIABLE}=job-1/2" in variables, "or nothing finds what it leaves behind"
    assert "QUINTAIN_CANARY" not in variables


def test_tools_are_chosen_by_globs_and_a_pattern_without_a_tool_is_an_error(playing) -> None:
    environment = playing(tools=("e*", "d*"), deny=("die",))
    assert [tool["function"]["name"] for tool in environment.tools] == ["echo"]
    refused = act(environment, "die").observations[0]
    assert refused.is_error
    assert "call one of: echo" in refused.content
    with pytest.raises(InvalidInput, match=r"got 'dye' \(did you mean 'die'\?\).*correct `tools` or `deny`"):
        playing(deny=("dye",))


@pytest.mark.parametrize(
    ("arguments", "fields", "message"),
    [
        (("silent",), {"start_timeout_s": 0.5}, "did not start: within 0.5 s"),
        (("endless",), {}, "at most 2000 tools on 100 pages, got more"),
        ((), {"args": ("-c", "raise SystemExit('no licence')")}, "no licence"),
        ((), {"command": "/nowhere/server", "args": ()}, "not found|No such file"),
        ((), {"setup": ({"tool": "refuse"},)}, "refused the call refuse that prepares an episode"),
    ],
)
def test_a_server_that_does_not_start_is_reported_with_the_reason(arguments, fields, message: str) -> None:
    document = profile(*arguments).model_dump() | fields
    with pytest.raises(Unavailable, match=message):
        ServerSource(ServerProfile.model_validate(document), lambda name: None).make().reset(TASK)


def call_once(turn: Turn) -> Reply:
    """Call what the task names, then stop."""
    tool = str(turn.messages[-1].content)
    actions = (Action(tool=tool, args={}),) if tool in {"echo", "die", "hang"} else ()
    return Reply(text="", thought="t", actions=actions)


def test_a_server_that_dies_or_hangs_ends_only_its_own_episode() -> None:
    source = ServerSource(profile(timeout_s=2.0), lambda name: None)
    tasks = [Task(id=tool, prompt=tool) for tool in ("echo", "die", "hang", "echo2")]
    played = play(source, Scripted(call_once), tasks, concurrency=4)
    unknown, error = OutcomeStatus.UNKNOWN, OutcomeStatus.ERROR
    assert [episode.result.status for episode in played] == [unknown, error, error, unknown]
    assert "environment" not in (played[0].result.error or "")
    assert "out of cheese" in str(played[1].result.error)


def test_a_server_that_does_not_leave_is_ended_with_all_that_it_started(playing) -> None:
    environment = playing("deaf")
    pid = process_of(environment)
    environment.close()
    assert group_is_gone(pid)


def test_an_episode_has_its_own_server_in_its_state_unless_the_profile_shares_it() -> None:
    """Calls of the profile and of the task bring a server into its state."""
    calls = {name: {"tool": "keep", "args": {"name": name, "text": f"text of {name}"}} for name in "abc"}
    own = ServerSource(profile(setup=(calls["a"],), reset=(calls["b"],)), lambda name: None)
    shared = ServerSource(profile(fresh="session"), lambda name: None)
    task = Task(id="x", prompt="Read.", metadata={"setup": [calls["c"]]})
    seen = {}
    for source in (own, shared):
        first, second = source.make(), source.make()
        first.reset(task)
        if source is own:
            assert [text_of(act(first, "recall", name=name)) for name in "abc"] == [f"text of {name}" for name in "abc"]
        act(first, "keep", name="left", text="over")
        process = process_of(first)
        first.close()
        second.reset(task)
        seen[source] = act(second, "recall", name="left").observations[0].is_error, process_of(second) == process
        second.close()
    shared.close()
    assert seen == {own: (True, False), shared: (False, True)}
    assert (own.at_once, shared.at_once) == (8, 1)


def test_tasks_are_generated_alike_for_the_same_server_and_too_few_are_an_error_with_the_remedy() -> None:
    asked = profile(generate_from=("get_*",))
    few, several = (ServerSource(asked, lambda name: None).tasks("train", n, 0) for n in (2, 4))
    assert few == several[:2]
    assert {task.type for task in several} == {"get_square"}, "an error is no answer"
    failing = ServerSource(profile(tools=("get_missing",), generate_from=("get_missing",)), lambda name: None)
    with pytest.raises(InvalidInput, match=r"expected 3 tasks in train from .*, got 0.*`values`.*file of `tasks`"):
        failing.tasks("train", 3, 0)
