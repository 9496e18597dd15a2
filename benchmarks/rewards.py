"""What the rules cost, whether scoring streams, and which reward puts built runs of known merit in the right order.

Run as `python -m benchmarks.rewards [--only CASE,...] [--quick]`; prints one JSON line a figure, and the ranking as a table.
Costs are processor time. The formula of knowlyr runs beside ours on the same runs, in turns.
"""

from __future__ import annotations

import argparse
import importlib
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from benchmarks.data_cost import cpu_seconds, peak_growth_mb
from benchmarks.figures import report, say, summarize
from benchmarks.known_order import DOMAINS, cases, pairs
from benchmarks.seed_formulas import FORMULAS, knowlyr
from quintain.records.filters import TrajectoryFilter
from quintain.records.trajectory import Action, Actor, Observation, Outcome, OutcomeStatus, Step, Task, Trajectory
from quintain.scoring.presets import PRESETS
from quintain.scoring.rules import RulesScorer
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


def ranking(*, quick: bool) -> None:
    """A table of what each reward gives the built runs, and the pairs that it puts in the wrong order or finds equal."""
    rewards: dict[str, Callable[[Trajectory], float | None]] = {
        name: (lambda run, make=make: make().score(run).value) for name, make in PRESETS.items()
    }
    rewards |= FORMULAS
    for domain in DOMAINS:
        runs = cases(domain)
        lines = ["| reward | " + " | ".join(runs) + " | wrong |", "|---|" + "---|" * (len(runs) + 1)]
        for name, reward in rewards.items():
            values = {case: reward(run) for case, run in runs.items()}
            wrong = misordered(values)
            shown = " | ".join("-" if value is None else f"{value:.3f}" for value in values.values())
            told = "has nothing to say" if None in values.values() else ", ".join(wrong) or "none"
            lines.append(f"| {name} | {shown} | {told} |")
            if None not in values.values():
                goal = 0.0 if name == "composite" else None
                report(
                    f"ranking_{domain}_wrong_pairs_{name.replace(' ', '_')}",
                    [len(wrong)],
                    "pairs",
                    goal,
                    "lower",
                    of=len(pairs()),
                )
        say(
            f"\n{domain}: {' > '.join(['perfect', 'recovered', 'redundant', 'lucky, hacked', 'failed'])}\n"
            + "\n".join(lines)
            + "\n"
        )


def misordered(values: Mapping[str, float | None]) -> list[str]:
    """The pairs that a reward puts in the wrong order, or finds equal."""
    found = []
    for better, worse in pairs():
        high, low = values[better], values[worse]
        if high is not None and low is not None and high - low < 1e-9:
            found.append(f"{worse} {'=' if high == low else '>'} {better}")
    return found


def _other(module: str) -> Callable[..., None]:
    def run(*, quick: bool) -> None:
        importlib.import_module(f"benchmarks.{module}").figures(quick)

    return run


CASES: dict[str, Callable[..., None]] = {"rules": rules, "linearity": linearity, "stream": stream, "ranking": ranking}
OTHERS = {"calibration": _other("reward_calibration"), "reward_model": _other("reward_models")}
"""Cases of their own modules; they load more, and run when they are asked for."""


def main() -> int:
    """Run the chosen cases."""
    known = CASES | OTHERS
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rewards", description="Rules, streaming and ranking.")
    parser.add_argument("--only", metavar="CASE,...", help=f"some of: {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="little data: for a look, not for a claim")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else list(CASES)
    if unknown := sorted(set(chosen) - set(known)):
        parser.error(f"no case is called {', '.join(unknown)}; there are {', '.join(known)}")
    for name in chosen:
        began = time.perf_counter()
        known[name](quick=arguments.quick)
        say(f"{name} took {time.perf_counter() - began:.0f} s\n")
    summarize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
