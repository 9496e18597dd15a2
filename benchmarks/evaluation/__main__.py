"""Are the statistics of comparisons honest? `python -m benchmarks.evaluation [--quick] [--only CASE ...]`.

Simulated studies with a known truth: how often a test finds a difference where there is none, how often an interval holds
the true value, how often a difference that is there is found. Every figure is a line of JSON on stdout.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.evaluation.statistics import built_in, concurrency, coverage, false_positives, power, protocol
from benchmarks.figures import choose_cases, say, summarize


def mcp(studies: int) -> None:
    """Public MCP servers as environments: what a step costs, and whether training lifts the agent; installs them, by network."""
    from benchmarks.evaluation.mcp_server import cases

    cases(studies)


def online(studies: int) -> None:
    """Online learning on the embedded model: gain on held-out tasks over five seeds; about ten minutes on two cores."""
    from benchmarks.evaluation.online import cases

    cases(studies)


def sandbox(studies: int) -> None:
    """Work on code behind walls: what a start, a step and a verdict cost, and whether the expert solves every task."""
    from benchmarks.evaluation.sandbox import cases

    cases(studies)


CASES: dict[str, Callable[[int], None]] = {
    "false_positives": false_positives,
    "coverage": coverage,
    "power": power,
    "protocol": protocol,
    "built_in": built_in,
    "concurrency": concurrency,
    "online": online,
    "mcp": mcp,
    "sandbox": sandbox,
}


USUAL = [name for name in CASES if name not in ("online", "mcp", "sandbox")]
"""Those that take minutes at most, no network and no sandbox."""

if __name__ == "__main__":
    chosen = choose_cases("evaluation", __doc__, CASES, USUAL, quick="2,000 studies in place of 20,000")
    studies = 2000 if chosen.quick else 20_000
    for name in chosen.only:
        say(f"{name}: {studies} studies each")
        CASES[name](studies)
    summarize()
