"""What a bad server does costs its episode, what an agent does wrong costs nothing; both are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quintain.environments.mcp_server.source import ServerSource
from quintain.environments.servers import ServerProfile
from quintain.errors import InvalidInput, Unavailable
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.protocols import Environment, Reply, Turn
from quintain.records.trajectory import Action, AgentInfo, OutcomeStatus, Task

SERVER = str(Path(__file__).parent / "rough_mcp_server.py")
TASK = Task(id="t", prompt="Go on.")


def profile(*arguments: str, **fields) -> ServerProfile:
    given = {"timeout_s": 20.0, "start_timeout_s": 20.0} | fields
    return ServerProfile(name="rough", command=sys.executable, args=(SERVER, *arguments), **given)


@pytest.fixture
def playing():
    """Begins an episode; all are closed after the test."""
    opened: list[Environment] = []

    def begin(*arguments: str, **fields) -> Environment:
        environment = ServerSource(profile(*arguments, **fields), lambda name: None).make()
        opened.append(environment)
        environment.reset(TASK)
        return environment

    yield begin
    for environment in opened:
        environment.close()


def do(environment: Environment, tool: str, **args):
    return environment.step((Action(tool=tool, args=args),))


def process_of(environment: Environment) -> int:
    return environment._connection._wire.pid


def group_is_gone(pid: int) -> bool:
    """Has every process of the group ended? Those that nobody has waited for yet count as ended."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
        if not any(row.split()[0] == str(pid) and "Z" not in row.split()[1] for row in found.splitlines()):
            return True
        time.sleep(0.05)
    return False


def test_all_pages_of_tools_are_the_action_space_with_names_and_schemas_as_they_are(playing) -> None:
    environment = playing()
    assert [tool["function"]["name"] for tool in environment.tools][:5] == ["echo", "slow", "hang", "die", "flood"]
    assert len(environment.tools) == 11


def test_tools_are_chosen_by_globs_and_a_pattern_without_a_tool_is_an_error(playing) -> None:
    environment = playing(tools=("e*", "d*"), deny=("die",))
    assert [tool["function"]["name"] for tool in environment.tools] == ["echo"]
    refused = do(environment, "die").observations[0]
    assert refused.is_error
    assert "call one of: echo" in refused.content
    with pytest.raises(InvalidInput, match=r"got 'dye' \(did you mean 'die'\?\).*correct `tools` or `deny`"):
        playing(deny=("dye",))


@pytest.mark.parametrize("action", [Action(tool="echo", raw_args="{a:"), Action(tool="eco", args={})])
def test_calls_that_cannot_be_sent_are_observations(playing, action: Action) -> None:
    seen = playing().step((action,)).observations[0]
    assert seen.is_error
    assert "not valid JSON" in seen.content or "did you mean 'echo'?" in seen.content


def test_an_error_of_the_protocol_is_an_observation_for_the_server_lives(playing) -> None:
    environment = playing()
    seen = do(environment, "refuse").observations[0]
    assert seen.is_error
    assert "no such thing (code -32602)" in seen.content
    assert not do(environment, "echo", a=1).observations[0].is_error


def test_a_slow_tool_is_an_observation_and_a_server_that_hangs_is_an_error(playing) -> None:
    environment = playing(timeout_s=0.3)
    seen = do(environment, "slow").observations[0]
    assert seen.is_error
    assert "slow did not answer within 0.3 s" in seen.content
    pid = process_of(environment)
    with pytest.raises(Unavailable, match=r"hangs: no answer to hang within 0\.3 s") as caught:
        do(environment, "hang")
    assert caught.value.code == "environment_timeout"
    assert group_is_gone(pid)


def test_a_server_that_dies_is_an_error_with_its_last_words(playing) -> None:
    environment = playing()
    with pytest.raises(Unavailable, match="out of cheese"):
        do(environment, "die")
    with pytest.raises(Unavailable, match="has ended"):
        do(environment, "echo")


def test_a_message_without_end_gets_the_server_killed(playing) -> None:
    environment = playing()
    with pytest.raises(Unavailable, match="messages of at most 16,000,000 bytes, got more"):
        do(environment, "flood")
    assert group_is_gone(process_of(environment))


def test_lines_that_are_no_messages_are_skipped_and_counted(playing) -> None:
    step = do(playing(), "chatter")
    assert step.observations[0].content == "done"
    assert step.info == {"garbage_lines": 4}


def test_what_the_server_asks_its_client_for_is_declined_and_the_call_goes_on(playing) -> None:
    seen = do(playing(), "ask").observations[0]
    assert not seen.is_error
    assert seen.content.startswith("refused: [-32")


def test_tools_that_change_during_an_episode_are_noted_and_not_offered(playing) -> None:
    environment = playing()
    assert do(environment, "change").info == {"tools_changed": 1}
    assert do(environment, "another").observations[0].is_error


def test_an_answer_against_its_own_schema_is_an_error_of_the_server(playing) -> None:
    with pytest.raises(Unavailable, match="answered break_schema wrongly") as caught:
        do(playing(), "break_schema")
    assert caught.value.code == "environment_garbage"


def test_long_results_are_cut_and_null_characters_are_replaced(playing) -> None:
    seen = do(playing(), "nul").observations[0]
    assert seen.content.startswith("a\ufffdby")
    assert seen.content.endswith("[30,003 more characters were cut]")


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
    made = profile(*arguments).model_dump() | fields
    with pytest.raises(Unavailable, match=message):
        ServerSource(ServerProfile.model_validate(made), lambda name: None).make().reset(TASK)


class Caller:
    """A policy that calls what the task names, then stops."""

    def act(self, turns: list[Turn]) -> list[Reply]:
        tools = [str(turn.messages[-1].content) for turn in turns]
        actions = [(Action(tool=tool, args={}),) if tool in {"echo", "die", "hang"} else () for tool in tools]
        return [Reply(text="", thought="t", actions=made) for made in actions]

    def close(self, episode_id: str) -> None:
        pass


def test_a_server_that_dies_or_hangs_ends_only_its_own_episode() -> None:
    source = ServerSource(profile(timeout_s=1.0), lambda name: None)
    plans = [EpisodePlan(Task(id=tool, prompt=tool)) for tool in ("echo", "die", "hang", "echo2")]
    agent = AgentInfo(name="caller")
    played = list(run_episodes(source, Caller(), plans, EpisodeSettings(0, None, 4, agent)))
    assert [episode.result.status for episode in played] == [
        OutcomeStatus.UNKNOWN,
        OutcomeStatus.ERROR,
        OutcomeStatus.ERROR,
        OutcomeStatus.UNKNOWN,
    ]
    assert "environment" not in (played[0].result.error or "")
    assert "out of cheese" in str(played[1].result.error)


def test_a_server_that_does_not_leave_is_ended_with_all_that_it_started(playing) -> None:
    environment = playing("deaf")
    pid = process_of(environment)
    environment.close()
    assert group_is_gone(pid)


def test_servers_end_with_the_program_that_started_them_even_where_it_is_killed() -> None:
    program = (
        "import sys, time; from tests_rough import playing_in_this_process; print(playing_in_this_process(), flush=True); time.sleep(1000)"
    ).replace("tests_rough", Path(__file__).stem)
    host = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
    )
    assert host.stdout is not None
    pid, folder = json.loads(host.stdout.readline())
    assert Path(folder).is_dir()
    host.send_signal(signal.SIGKILL)
    host.wait()
    host.stdout.close()
    assert group_is_gone(pid)
    assert not Path(folder).exists()


def playing_in_this_process() -> str:
    environment = ServerSource(profile("deaf"), lambda name: None).make()
    environment.reset(TASK)
    _kept.append(environment)
    return json.dumps([process_of(environment), environment._connection._folder])


_kept: list[Environment] = []
