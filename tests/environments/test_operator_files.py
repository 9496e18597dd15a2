"""A job finds the operator's files in the home folder: MCP servers, task files, and models behind endpoints."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from acting_endpoint import Call
from acting_endpoint import says as acts
from fake_endpoint import Answer, Asked, says, serving
from jobs_in_process import jobs_in_process  # noqa: F401
from quintain.environments import configuration
from quintain.errors import InvalidInput
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import UNFINISHED
from quintain.records.trajectory import OutcomeStatus
from quintain.settings import Settings
from quintain.tools.evaluation.rollouts import collect_rollouts
from quintain.tools.jobs.jobs import get_job
from quintain.tools.results import JobStarted
from quintain.tools.services import Services

TRUSTED = False  # the services are a client's

SERVER = Path(__file__).parent / "rough_mcp_server.py"


def finish(services: Services, started: JobStarted, within_s: float = 100):
    until = time.monotonic() + within_s
    while (view := get_job(services, started.job_id, wait_s=5)).status in UNFINISHED:
        assert time.monotonic() < until, view
    assert view.status == "succeeded", view.error
    return view.result


def agent_and_customer(asked: Asked, before: int) -> Answer:
    """The agent submits 5 or says hello; the customer says "Hm."."""
    if "You play a person" in str(asked.body["messages"][0]["content"]):
        return says("Hm.")
    tools = [tool["function"]["name"] for tool in asked.body["tools"]]
    action = Call("submit", {"answer": 5}) if "submit" in tools else Call("respond", {"message": "Hello."})
    return acts(asked, "", action)


@pytest.fixture
def _configured() -> Iterator[None]:
    """The job configures the registry of this process: undo it."""
    yield
    configuration.configure(None)


@pytest.mark.usefixtures("jobs_in_process", "_configured")
def test_a_job_plays_on_a_server_on_a_users_file_and_against_a_model(settings: Settings, services: Services) -> None:
    settings.environments_file.write_text(
        f'[mcp.rough]\ncommand = "{sys.executable}"\nargs = ["{SERVER}"]\nmax_turns = 2\ntasks = "tasks.jsonl"\n',
        encoding="utf-8",
    )
    row = {"id": "sum", "prompt": "What is 2 + 3?", "answer": 5, "split": "train"}
    (settings.home / "tasks.jsonl").write_text(json.dumps(row), encoding="utf-8")
    settings.inbox_dir.mkdir(parents=True, exist_ok=True)
    mine = settings.inbox_dir / "mine.jsonl"
    mine.write_text(json.dumps({**row, "id": "mine"}), encoding="utf-8")
    environments = {
        "mcp:rough": 1,
        "quintain/tasks?file=mine.jsonl": 1,
        "quintain/conversation?user=endpoint:model&types=cancel": 1,
    }
    with serving(agent_and_customer) as model:
        settings.endpoints_file.write_text(
            f'[model]\nprotocol = "openai"\nbase_url = "{model.url}/v1"\nmodel = "m"\n', encoding="utf-8"
        )
        started = collect_rollouts(services, "endpoint:model", environments, n_tasks=3, max_turns=2)
        result = finish(services, started)
        mine.write_text('{"id": "bad"}\n', encoding="utf-8")
        with pytest.raises(InvalidInput, match="bad_task_rows"):
            collect_rollouts(services, "endpoint:model", environments, n_tasks=3)
        kept = TrajectoryFilter.model_validate(result.trajectories.filter)
        runs = {run.task.id: run for run in services.store.trajectories.iterate(kept)}
    customer = runs.pop(next(task_id for task_id in runs if task_id not in {"sum", "mine"}))
    assert (customer.outcome.status, customer.steps[-1].message) == (OutcomeStatus.TRUNCATED, "Hm.")
    assert {task_id: run.outcome.status for task_id, run in runs.items()} == {
        "sum": OutcomeStatus.SUCCESS,
        "mine": OutcomeStatus.SUCCESS,
    }
    tools = {task_id: {tool["function"]["name"] for tool in run.tools} for task_id, run in runs.items()}
    assert tools["mine"] == {"submit"}
    assert tools["sum"] > {"echo", "nul", "submit"}


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_agents_act_on_servers_from_the_package_index(settings: Settings, tmp_path: Path) -> None:
    """Installs two public servers into virtual environments of their own; needs the network once."""
    from benchmarks.evaluation.mcp_server import CALCULATOR, TIME, demonstrate, install, open_home
    from benchmarks.figures import say

    services = open_home(settings.home, [(server, install(server, tmp_path)) for server in (CALCULATOR, TIME)])
    try:
        for server in (CALCULATOR, TIME):
            shown = demonstrate(services, f"mcp:{server.name}", 20)
            assert shown["solved"] == shown["played"] == 20
            result = finish(services, collect_rollouts(services, "starter", f"mcp:{server.name}", n_tasks=5), 600)
            say(f"{server.package}: starter {result.success_rate} of {result.n}, {result.n_error} without a verdict")
            assert result.trajectories.count == 5
    finally:
        services.close()
