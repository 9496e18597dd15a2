"""Time that torch's threads lose beside other processes, by how long a thread spins while it waits.

Run as `python -m benchmarks.threads [--rounds N] [--seconds S] [--counts default 0 1000] [--busy 0 1 2]` on a quiet
machine; prints one JSON line a figure. A cell takes about 6 s. Each cell is measured in a child process, because OpenMP
reads GOMP_SPINCOUNT once, when it is loaded. `..._fair` is the time that a fair scheduler would give, (threads + busy
processes) / cores times the quiet time without a setting, over the measured time: below 1, waiting threads have wasted
the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable

from benchmarks.figures import report, say, summarize
from benchmarks.machine import busy_processes, load_average
from quintain.threads import GOMP_SPINCOUNT

_COUNTS = ("default", GOMP_SPINCOUNT)
_BUSY = (0, 1)
_WORKLOADS = ("linear_1x1024x384", "linear_1x2048x640", "linear_64x64", "linear_512x1024x1024", "lora_step")
_MS = 1e3


def main() -> int:
    """Measure every spin count quiet and beside busy processes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threads", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="of all cells; a figure is the median of its rounds")
    parser.add_argument("--seconds", type=float, default=0.5, help="time of each workload in a round")
    parser.add_argument(
        "--counts", nargs="+", default=_COUNTS, help="spin counts; `default` leaves GOMP_SPINCOUNT unset"
    )
    parser.add_argument("--busy", nargs="+", type=int, default=_BUSY, help="numbers of busy processes beside")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(_measure(arguments.seconds)))
        return 0
    if (load := load_average()) > 0.5:
        say(f"load average {load}: the quiet figures need a quiet machine")
    times: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for _ in range(arguments.rounds):
        for busy in sorted({0, *arguments.busy}):
            with busy_processes(busy):
                for count in dict.fromkeys(["default", *arguments.counts]):
                    for workload, seconds in _child(count, arguments.seconds).items():
                        times[workload, count, busy].append(seconds * _MS)
    _report(times)
    summarize()
    return 0


def _report(times: dict[tuple[str, str, int], list[float]]) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for (workload, count, busy), values in times.items():
        name = f"{workload}_spin_{count}_beside_{busy}"
        report(f"{name}_ms", values, "ms", None, "lower", load=load_average())
        if busy:
            slowdown = (cores + busy) / cores
            pairs = zip(times[workload, "default", 0], values, strict=True)
            goal = 1.0 if count == GOMP_SPINCOUNT and workload == "lora_step" else None
            report(f"{name}_fair", [quiet * slowdown / value for quiet, value in pairs], "ratio", goal)


def _child(count: str, seconds: float) -> dict[str, float]:
    """Return the mean time of one call of each workload, in seconds, under a spin count."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    if count != "default":
        environment["GOMP_SPINCOUNT"] = count
    command = [sys.executable, "-m", "benchmarks.threads", "--child", "--seconds", str(seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    times: dict[str, float] = json.loads(done.stdout)
    return times


def _measure(seconds: float) -> dict[str, float]:
    import torch

    torch.manual_seed(0)
    linear = torch.nn.functional.linear

    def product(rows: int, width: int, out: int) -> Callable[[], object]:
        values, weight = torch.randn(rows, width), torch.randn(out, width)
        return lambda: linear(values, weight)

    workloads = zip(
        _WORKLOADS,
        (
            product(1, 1024, 384),
            product(1, 2048, 640),
            product(64, 64, 64),
            product(512, 1024, 1024),
            _lora_step(tokens=256, width=640, layers=8, rank=8),
        ),
        strict=True,
    )
    with torch.no_grad():
        return {name: _mean_time(call, seconds) for name, call in workloads}


def _lora_step(*, tokens: int, width: int, layers: int, rank: int) -> Callable[[], object]:
    """Return a step of AdamW over low-rank additions to frozen layers, as LoRA trains them."""
    import torch

    frozen = [torch.randn(width, width) / width**0.5 for _ in range(layers)]
    down = [torch.randn(rank, width, requires_grad=True) for _ in range(layers)]
    up = [torch.zeros(width, rank, requires_grad=True) for _ in range(layers)]
    optimizer = torch.optim.AdamW([*down, *up], lr=1e-4)
    inputs = torch.randn(tokens, width)

    @torch.enable_grad()
    def step() -> None:
        hidden = inputs
        for weight, a, b in zip(frozen, down, up, strict=True):
            hidden = torch.nn.functional.silu(hidden @ weight.T + hidden @ a.T @ b.T)
        hidden.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _mean_time(call: Callable[[], object], seconds: float) -> float:
    call()
    began, calls = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < seconds:
        call()
        calls += 1
    return elapsed / calls


if __name__ == "__main__":
    sys.exit(main())
