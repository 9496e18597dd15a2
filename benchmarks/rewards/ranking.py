"""Which reward puts built runs of known merit in the right order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.figures import report, say
from benchmarks.rewards.known_order import DOMAINS, cases, pairs
from benchmarks.rewards.seed_formulas import FORMULAS
from quintain.records.protocols import Scorer
from quintain.records.trajectory import Trajectory
from quintain.scoring.presets import PRESETS


def _value(make: Callable[[], Scorer], run: Trajectory) -> float | None:
    return make().score(run).value


def ranking(*, quick: bool) -> None:
    """A table of what each reward gives the built runs, and the pairs that it puts in the wrong order or finds equal."""
    rewards: dict[str, Callable[[Trajectory], float | None]] = {
        name: partial(_value, make) for name, make in PRESETS.items()
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
