"""Simulated studies with a known truth: error rates of tests, coverage of intervals, power; and what an episode costs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from scipy.stats import binom

from benchmarks.figures import report
from benchmarks.jobs import STARTER
from quintain.environments.isolation.isolated import IsolatedSource
from quintain.environments.registry import task_source
from quintain.environments.scripted_policy import expert_of
from quintain.environments.wrappers import (
    episode_statistics,
    max_steps,
    shaped_reward,
    shorter_observations,
    time_limit,
    wrap,
)
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.evaluation.statistics.significance import (
    mcnemar_exact,
    paired_t,
    required_tasks,
    sign_flip_exact,
    wilcoxon,
)
from quintain.evaluation.statistics.success_rates import clopper_pearson, mcnemar_interval, rate_over_tasks
from quintain.records.agent import Sampling
from quintain.records.protocols import TimeStep
from quintain.records.trajectory import Action, AgentInfo

SIZES = (3, 5, 10, 30, 100)


LEVEL = 0.05


def false_positives(studies: int) -> None:
    """Share of studies of two equal agents in which a test says that they differ."""
    drawn = np.random.default_rng(0)
    for n in SIZES:
        normal = drawn.normal(size=(studies, n))
        share = _rejections(paired_t, normal)
        report(f"A/A paired t, n={n}, off 5 % by", [abs(share - LEVEL)], "share", 0.01, "lower", rejected=share)
        share = _rejections(wilcoxon, normal)
        _exact(f"A/A Wilcoxon, n={n}, rejected", share, studies)
    for n in SIZES:
        rate_a = drawn.uniform(0.05, 0.95, size=studies)
        a, b = (drawn.random((studies, n)) < rate_a[:, None] for _ in range(2))
        only_a, only_b = (a & ~b).sum(1), (b & ~a).sum(1)
        rejected = sum(_mcnemar(int(x), int(y)) < LEVEL for x, y in zip(only_a, only_b, strict=True))
        _exact(f"A/A McNemar, n={n}, rejected", rejected / studies, studies)
        repeats = drawn.binomial(3, rate_a[:, None], size=(2, studies, n))
        rejected = sum(_sign_flip(*sorted(row.tolist())) < LEVEL for row in repeats[1] - repeats[0])
        _exact(f"A/A sign flip over 3 repeats, n={n}, rejected", rejected / studies, studies)


# Exact tests are functions of whole numbers, of which the simulated studies have few: each is asked once.
_mcnemar = cache(mcnemar_exact)


@cache
def _sign_flip(*differences: int) -> float:
    return sign_flip_exact(differences)


def _rejections(test: Callable[[Sequence[float]], float], studies: np.ndarray) -> float:
    return float(np.mean([test(study) < LEVEL for study in studies]))


def _exact(name: str, share: float, studies: int) -> None:
    """An exact test may reject less often than its level, never more, but for chance."""
    report(name, [share], "share", LEVEL + 2 * math.sqrt(LEVEL * (1 - LEVEL) / studies), "lower")


def coverage(studies: int) -> None:
    """How often a 95 % interval holds the true value: of rates by exact sums, at the worst true rate; of differences by studies."""
    grid = np.unique(np.concatenate([np.linspace(0.001, 0.06, 60), np.linspace(0.06, 0.94, 177)]))
    grid = np.concatenate([grid, 1 - grid[grid < 0.06]])
    for n in (10, 12, 20, 30, 50, 100, 200):
        bounds = [clopper_pearson(k, n) for k in range(n + 1)]
        low, high = (np.array([getattr(rate, name) for rate in bounds]) for name in ("ci_low", "ci_high"))
        held = (low[:, None] <= grid) & (grid <= high[:, None])
        shares = (binom.pmf(np.arange(n + 1)[:, None], n, grid) * held).sum(0)
        worst = float(shares.min())
        mean, at = float(shares.mean()), float(grid[shares.argmin()])
        report(
            f"coverage of a success rate, n={n}, worst", [worst], "share", 0.93, "higher", mean=mean, at=round(at, 4)
        )
    drawn = np.random.default_rng(1)
    for n in (10, 30, 100):
        report(
            f"coverage with 4 repeats, {n} tasks",
            [float(np.mean(shares := _repeated(drawn, n, studies // 10)))],
            "share",
            0.93,
            "higher",
            worst=min(shares),
        )
        shares = []
        for cells in ((0.4, 0.1, 0.1, 0.4), (0.2, 0.1, 0.3, 0.4), (0.05, 0.05, 0.6, 0.3), (0.8, 0.05, 0.1, 0.05)):
            tables = drawn.multinomial(n, cells, size=studies)
            truth = cells[2] - cells[1]
            found = [mcnemar_interval(*map(int, table[1:3]), n) for table in tables]
            shares.append(float(np.mean([one.low <= truth <= one.high for one in found])))
        name = f"coverage of a paired difference, n={n}"
        report(name, [float(np.mean(shares))], "share", 0.93, "higher", worst=min(shares))


def _repeated(drawn: np.random.Generator, n: int, studies: int) -> list[float]:
    """Coverage of a success rate over tasks of differing difficulty, by mean rate and by how much tasks differ."""
    shares = []
    for rate in (0.02, 0.1, 0.3, 0.5, 0.8):
        for alike in (0.5, 2.0, 20.0):
            of_task = drawn.beta(rate * alike, (1 - rate) * alike, size=(studies, n))
            found = [rate_over_tasks([(int(k), 4) for k in row]) for row in drawn.binomial(4, of_task)]
            shares.append(float(np.mean([(one.ci_low or 0) <= rate <= (one.ci_high or 0) for one in found])))
    return shares


def power(studies: int) -> None:
    """Share of studies in which a test finds the difference that is there; McNemar's, of as many tasks as were promised to do."""
    drawn = np.random.default_rng(2)
    for difference, discordant in ((0.05, 0.2), (0.1, 0.3), (0.3, 0.4)):
        n = required_tasks(difference, discordant)
        up, down = (discordant + difference) / 2, (discordant - difference) / 2
        tables = drawn.multinomial(n, [up, down, 1 - up - down], size=studies)
        found = float(np.mean([_mcnemar(int(down_), int(up_)) < LEVEL for up_, down_, _ in tables]))
        report(
            f"power for +{100 * difference:.0f} points, {100 * discordant:.0f} % discordant",
            [found],
            "share",
            None,
            n=n,
        )
    for n in (10, 30, 100):
        shifted = drawn.normal(0.5, size=(studies // 4, n))
        for name, test in (("paired t", paired_t), ("Wilcoxon", wilcoxon)):
            report(f"power of {name}, n={n}, half a deviation", [_rejections(test, shifted)], "share", None)
        solved = [drawn.binomial(3, rate, size=(studies // 4, n)) for rate in (0.5, 0.7)]
        found = float(np.mean([_sign_flip(*sorted(row.tolist())) < LEVEL for row in solved[1] - solved[0]]))
        report(f"power of sign flip over 3 repeats, n={n}, +20 points", [found], "share", None)


def protocol(studies: int) -> None:
    """Microseconds of a step without the model: what the wrappers add, and all of a step in a child process."""
    action = [Action(tool="search", args={"query": "red"})]
    source = task_source("quintain/inventory")
    task = source.tasks("train", 1, 0)[0]
    around = (max_steps(10**9), time_limit(1e9), episode_statistics(), shorter_observations(), shaped_reward(_as_it_is))
    far = IsolatedSource("quintain/inventory")
    sides = {"bare": source.make(), "wrapped": wrap(source, *around).make(), "child": far.make()}
    for environment in sides.values():
        environment.reset(task)
    rounds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(9):
        for name, environment in sides.items():
            began = time.perf_counter()
            for _ in range(studies // 20):
                environment.step(action)
            rounds[name].append((time.perf_counter() - began) / (studies // 20) * 1e6)
    sides["child"].close()
    added = [wrapped - bare for wrapped, bare in zip(rounds["wrapped"], rounds["bare"], strict=True)]
    report("five wrappers, a step", added, "us", 50, "lower")
    report("an environment in a child process, a step", [us / 1000 for us in rounds["child"]], "ms", 1, "lower")


def _as_it_is(actions: Sequence[Action], step: TimeStep) -> float | None:
    return step.reward


_TALKS = ("conversation", "engineering", "advisory", "discussion")


_SAYS = Action(
    tool="respond", args={"message": "I have looked into it, and it is 42 dollars. What is the number, please?"}
)


def built_in(studies: int) -> None:
    """Of each built-in environment: microseconds of a step without a search, and how many tasks its scripted expert solves."""
    calls: dict[str, Action] = {
        "quintain/inventory": Action(tool="search", args={"query": "red"}),
        "quintain/math": Action(tool="calculate", args={"expression": "(48 + 24) * 3"}),
        "quintain/tools-1k": Action(tool="call_tool", args={"name": "delete_song", "args": {"reference": "AK-100"}}),
        "quintain/tools-1k?mode=direct": Action(tool="delete_song", args={}),
        **{f"quintain/{name}": _SAYS for name in _TALKS},
    }
    settings = EpisodeSettings(seed=0, max_turns=None, concurrency=64, agent=AgentInfo(name="expert"))
    for reference, action in calls.items():
        source, rounds = task_source(reference), list[float]()
        tasks = source.tasks("held_out", studies // 10, 0)
        environment = source.make()
        environment.reset(tasks[0])
        for _ in range(9):
            began = time.perf_counter()
            for _ in range(studies // 20):
                environment.step([action])
            rounds.append((time.perf_counter() - began) / (studies // 20) * 1e6)
        report(f"{reference}, a step", rounds, "us", 50, "lower")
        played = run_episodes(source, expert_of(source, tasks), [EpisodePlan(task) for task in tasks], settings)
        solved = sum(episode.result.success is True for episode in played)
        report(f"{reference}, solved by its expert", [solved / len(tasks)], "share", 0.99, n=len(tasks))


def concurrency(studies: int) -> None:
    """Episodes a second of the embedded model in its environment: 32 at the same time against one after the other."""
    from quintain.trainers.acting.policy import open_policy

    source, agent = task_source("quintain/inventory"), AgentInfo(name="starter")
    policy = open_policy(STARTER, Sampling(), seed=0)
    plans = [EpisodePlan(task) for task in source.tasks("held_out", max(64, studies // 100), 0)]
    speeds: dict[int, list[float]] = {1: [], 32: []}
    for _ in range(5):
        for at_once, found in speeds.items():
            settings = EpisodeSettings(seed=0, max_turns=None, concurrency=at_once, agent=agent)
            played = plans if at_once > 1 else plans[:32]
            began = time.perf_counter()
            assert len(list(run_episodes(source, policy, played, settings))) == len(played)
            found.append(len(played) / (time.perf_counter() - began))
    ratios = [many / one for many, one in zip(speeds[32], speeds[1], strict=True)]
    alone, together = (round(float(np.median(found)), 1) for found in speeds.values())
    report(
        "32 episodes at once, episodes a second against one", ratios, "x", 2.5, "higher", alone=alone, together=together
    )
