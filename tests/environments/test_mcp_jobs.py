"""Jobs on MCP servers and on task files: the worker finds the operator's file in the home folder, and starts the servers."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from quintain.errors import InvalidInput
from quintain.records.filters import TrajectoryFilter
from quintain.records.job import UNFINISHED
from quintain.records.trajectory import OutcomeStatus
from quintain.settings import Settings
from quintain.tools.evaluation.rollouts import collect_rollouts
from quintain.tools.jobs.jobs import get_job
from quintain.tools.results import JobStarted
from quintain.tools.services import Services, open_services

SERVER = Path(__file__).parent / "notes_mcp_server.py"


def finish(services: Services, started: JobStarted, within_s: float = 100):
    until = time.monotonic() + within_s
    while (view := get_job(services, started.job_id, wait_s=5)).status in UNFINISHED:
        assert time.monotonic() < until, view
    assert view.status == "succeeded", view.error
    return view.result


def test_rollouts_on_a_server_and_on_a_users_file_become_trajectories(settings: Settings) -> None:
    settings.environments_file.write_text(
        f'[mcp.notes]\ncommand = "{sys.executable}"\nargs = ["{SERVER}"]\nmax_turns = 2\ntasks = "tasks.jsonl"\n',
        encoding="utf-8",
    )
    rows = [{"id": f"sum-{i}", "prompt": f"What is {i} + 3?", "answer": i + 3, "split": "train"} for i in (1, 2)]
    (settings.home / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    services = open_services(settings)
    try:
        settings.inbox_dir.mkdir(parents=True, exist_ok=True)
        mine = settings.inbox_dir / "mine.jsonl"
        mine.write_text('{"id": "mine", "prompt": "What is 1 + 1?", "answer": 2, "split": "train"}\n', encoding="utf-8")
        both = {"mcp:notes": 2, "quintain/tasks?file=mine.jsonl": 1}
        result = finish(services, collect_rollouts(services, "starter", both, n_tasks=3))
        assert result.trajectories.count == 3
        mine.write_text('{"id": "bad"}\n', encoding="utf-8")
        with pytest.raises(InvalidInput, match="bad_task_rows"):
            collect_rollouts(services, "starter", both, n_tasks=3)
        runs = list(services.store.trajectories.iterate(TrajectoryFilter.model_validate(result.trajectories.filter)))
    finally:
        services.close()
    tools = {run.task.id: {tool["function"]["name"] for tool in run.tools} for run in runs}
    assert tools.pop("mine") == {"submit"}
    assert tools.keys() == {"sum-1", "sum-2"}
    assert all(names >= {"add", "write_note", "submit"} for names in tools.values())
    assert not any(run.outcome.status is OutcomeStatus.ERROR for run in runs)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_agents_act_on_servers_from_the_package_index(settings: Settings, tmp_path: Path) -> None:
    """Installs two public servers into virtual environments of their own; needs the network once."""
    from benchmarks.figures import say
    from benchmarks.mcp_server import CALCULATOR, TIME, demonstrate, install, open_home

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
