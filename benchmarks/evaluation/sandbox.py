"""`quintain/sandbox`: what its steps cost, and how many tasks its scripted expert solves; `--only sandbox`, needs a sandbox."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from benchmarks.figures import report
from quintain.environments.registry import task_source
from quintain.environments.sandbox.scripted_policy import Expert
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.trajectory import Action, AgentInfo

SETTINGS = EpisodeSettings(seed=0, max_turns=None, concurrency=8, agent=AgentInfo(name="expert"))
_STEPS = {
    "list_files": Action(tool="list_files", args={}),
    "bash ls": Action(tool="bash", args={"command": "ls"}),
    "run_tests": Action(tool="run_tests", args={}),
}


def cases(studies: int) -> None:
    """Milliseconds of a start, of steps and of the verdict; then the expert."""
    source = task_source("quintain/sandbox")
    tasks = source.tasks("held_out", max(12, studies // 200), 0)
    starts, verdicts = list[float](), list[float]()
    steps: dict[str, list[float]] = {name: [] for name in _STEPS}
    for task in tasks[:9]:
        environment = source.make()
        starts.append(_ms(partial(environment.reset, task)))
        for name, action in _STEPS.items():
            steps[name].append(min(_ms(partial(environment.step, [action])) for _ in range(3)))
        verdicts.append(_ms(partial(environment.step, [Action(tool="submit", args={})])))
        environment.close()
    for name, found in {"a start": starts, **steps, "the verdict": verdicts}.items():
        report(f"quintain/sandbox, {name}", found, "ms", None, "lower")
    began = time.perf_counter()
    episodes = list(run_episodes(source, Expert(), [EpisodePlan(task) for task in tasks], SETTINGS))
    seconds = (time.perf_counter() - began) / len(tasks)
    solved = sum(episode.result.success is True for episode in episodes) / len(tasks)
    report(
        "quintain/sandbox, solved by its expert", [solved], "share", 0.99, n=len(tasks), seconds_each=round(seconds, 2)
    )


def _ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000
