"""What the rules cost a step, and whether scoring of stored runs streams."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from benchmarks.figures import report, say
from benchmarks.process_cost import cpu_seconds, peak_growth_mb
from benchmarks.rewards.seed_formulas import knowlyr
from quintain.records.filters import TrajectoryFilter
from quintain.records.trajectory import Action, Actor, Observation, Outcome, OutcomeStatus, Step, Task, Trajectory
from quintain.scoring.presets import PRESETS
from quintain.scoring.rules.scorer import RulesScorer
from quintain.settings import Settings
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import open_services, utc_now

_LENGTHS = (25, 50, 100, 200, 400, 800)


_WORDS = [
    f"{verb}_{noun}" for verb in ("load", "store", "parse", "render") for noun in ("config", "token", "path", "chunk")
]
_WORDS += ["return", "if", "for", "in", "self", "None", "==", "+", "value", "the", "not", "raise", "import", "import"]


def _text(draw: Random, chars: int) -> str:
    """Something like source: names, and a line break now and then."""
    words: list[str] = []
    length = 0
    while length < chars:
        word = draw.choice(_WORDS) + ("\n   " if draw.random() < 0.12 else "")
        words.append(word)
        length += len(word) + 1
    return " ".join(words)


def coding_run(draw: Random, n_steps: int, chars: int = 1500) -> Trajectory:
    """A run that searches, reads, reads on, edits and tests, file after file; observations of about so many characters."""
    steps = [Step(actor=Actor.USER, message="Make load_config in src/module_3.py work, and whatever else fails.")]
    for i in range(n_steps):
        file = f"src/module_{i // 5}.py"
        tool, args, size = (
            ("bash", {"command": f"grep -rn 'load_{i}' src | head -20"}, chars // 2),
            ("read_file", {"path": file}, 2 * chars),
            ("read_file", {"path": file, "offset": 100, "limit": 50}, chars),
            ("edit_file", {"path": file, "old_string": _text(draw, 300), "new_string": _text(draw, 300)}, 40),
            ("bash", {"command": f"pytest tests -q -k case_{i}"}, chars),
        )[i % 5]
        steps.append(
            Step(
                actor=Actor.AGENT,
                thought=_text(draw, 200),
                actions=(Action(tool=tool, args=args),),
                observations=(Observation(content=_text(draw, size)),),
            )
        )
    steps.append(Step(actor=Actor.AGENT, message="Done."))
    task = Task(id=f"bench-{draw.randrange(10**9)}", prompt="Mend it.", type="bug_fix", environment="bench/coding")
    return Trajectory(task=task, steps=tuple(steps), outcome=Outcome(status=OutcomeStatus.SUCCESS)).identified()


def rules(*, quick: bool) -> None:
    """Microseconds a step on runs of 50 steps, beside the formula of knowlyr."""
    runs = [coding_run(Random(i), 50) for i in range(20)]
    rounds = 5 if quick else 30
    sides: dict[str, tuple[Callable[[Trajectory], object], int]] = {
        "rules": (RulesScorer().score, 20),
        "composite": (PRESETS["composite"]().score, 20),
        "knowlyr_formula": (knowlyr, 2),
    }
    cost: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, (score, n) in sides.items():
            seconds = cpu_seconds(lambda: [score(run) for run in runs[:n]])  # noqa: B023  called at once
            cost[name].append(1e6 * seconds / (50 * n))
    report("rules_us_per_step", cost["rules"], "us", 150, "lower", steps=50)
    report("composite_us_per_step", cost["composite"], "us", None, "lower", steps=50)
    report("knowlyr_formula_us_per_step", cost["knowlyr_formula"], "us", None, "lower", steps=50)


def linearity(*, quick: bool) -> None:
    """The exponent k of cost ~ steps^k between 25 and 800 steps, by least squares on the logarithms."""
    rounds = 3 if quick else 15
    sides: dict[str, tuple[Callable[[Trajectory], object], tuple[int, ...]]] = {
        "rules": (RulesScorer().score, _LENGTHS),
        "knowlyr_formula": (knowlyr, _LENGTHS[:4]),
    }
    for name, (score, lengths) in sides.items():
        costs = []
        for n_steps in lengths:
            run = coding_run(Random(n_steps), n_steps)
            score(run)
            seconds = [cpu_seconds(lambda: score(run)) for _ in range(rounds)]  # noqa: B023  called at once
            costs.append(min(seconds))
        say(
            "  "
            + name
            + ": "
            + ", ".join(f"{n} steps {1e3 * cost:.2f} ms" for n, cost in zip(lengths, costs, strict=True))
        )
        report(
            f"{name}_exponent", [_slope(lengths, costs)], "1", 1.1 if name == "rules" else None, "lower", steps=lengths
        )


def _slope(lengths: tuple[int, ...], costs: list[float]) -> float:
    fit = statistics.linear_regression([math.log(n) for n in lengths], [math.log(cost) for cost in costs])
    return fit.slope


def stream(*, quick: bool) -> None:
    """Stored runs scored by the tool in one pass: by how much more a process grows for ten times as many runs."""
    few, many = (200, 2_000) if quick else (1_000, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        growth = {}
        for n in (few, many):
            home = Path(folder) / str(n)
            home.mkdir()
            _fill(home, n)
            growth[n] = peak_growth_mb(_score_all, str(home), n)
            say(f"  {n:,} runs: {growth[n]:.0f} MB")
        seconds = cpu_seconds(lambda: _score_all(str(Path(folder) / str(many)), many))
        report("score_stream_growth_mb", [growth[many] - growth[few]], "MB", 16, "lower", runs=[few, many])
        report("score_runs_per_s", [many / seconds], "1/s", None, runs=many)


_ALL = TrajectoryFilter(environment="bench/coding")


def _fill(home: Path, n: int) -> None:
    services = open_services(Settings(home=home))
    for start in range(0, n, 200):
        runs = [coding_run(Random(i), 12, 400) for i in range(start, min(n, start + 200))]
        services.store.trajectories.add_many(runs, utc_now())
    services.close()


def _score_all(home: str, n: int) -> None:
    services = open_services(Settings(home=Path(home)))
    scored, cursor = 0, None
    while True:  # the tool answers in time, and goes on from its cursor
        done = score_trajectories(services, "rules", filter=_ALL, cursor=cursor)
        scored, cursor = scored + done.scored, done.next_cursor
        if cursor is None:
            break
    assert scored == n, (scored, n)
    services.close()
