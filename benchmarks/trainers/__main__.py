"""Training next to TRL 1.16: speed, memory and agreement, on the same tokens, masks and weights, on the CPU.

Run as `python -m benchmarks.trainers [--only CASE,...] [--rounds N] [--size s|m] [--precision fp32|bf16] [--quick]`, with
the extra `benchmarks` installed; prints one JSON line a figure. A ratio is the median over paired rounds, with the smallest
and the largest.

`..._speedup` is against TRL as its documentation shows it, `..._vs_tuned` against the best that an expert can make of it:
batches of one, the same matmul switch, the same allocator, the reference computed beforehand. With `--precision bf16` both
compute products in bf16, TRL under autocast as its setting `bf16` has it. Both have gradient checkpointing off (TRL's
default is on, and slower: `sft_vs_default`), and in one process TRL has our allocator settings too. The parts of a ratio say
where it comes from, `matmul_back_end_gain` what the switch can give on this machine, and `sft_attention_...` what its
attention kernel allows. Losses and gradients are compared first; where they differ there is no ratio.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from quintain.threads import limit_spinning

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""For this process and those that it starts: no accelerator, no network, no progress bars."""

NAMES = (
    "sft_wall",
    "sft",
    "sft_spread",
    "lora_sft",
    "dpo",
    "dpo_half_shared",
    "grpo_group4",
    "per_turn",
    "online_grpo",
    "generation",
    "growth",
)
"""The cases, in the order in which they run: processes of their own first, while this one is small."""


def main() -> int:
    """Run the chosen cases; 0: all of them ran and all losses agree."""
    arguments = _arguments()
    try:
        trl = version("trl")
    except PackageNotFoundError:
        print("TRL is not installed; the comparison needs it: pip install -e '.[benchmarks]'", file=sys.stderr)
        return 2
    os.environ.update(ENVIRONMENT)  # before any of the libraries is imported
    limit_spinning()
    from benchmarks.figures import reported, say, summarize

    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "peft"))
    say(f"TRL {trl}, {packages}, Python {platform.python_version()}, {platform.processor() or platform.machine()}")
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for name, case in _cases(Path(folder), arguments).items():
            began = time.perf_counter()
            try:
                case()
            except Exception as error:  # the other cases are worth having
                failed.append(name)
                say(f"{name} failed: {type(error).__name__}: {error}")
            gc.collect()
            say(f"{name} took {time.perf_counter() - began:.0f} s\n")
    summarize()
    disagree = [f["name"] for f in reported if f["name"].endswith("_loss_difference") and not f["value"] <= f["goal"]]
    if failed or disagree:
        say(f"failed: {', '.join(failed) or 'none'}; losses that differ: {', '.join(disagree) or 'none'}")
    return 1 if failed or disagree else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trainers", description="Training next to TRL 1.16.")
    parser.add_argument("--only", metavar="CASE,...", help=f"some of: {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, help="paired rounds of each case; 3, or 1 with --quick")
    parser.add_argument("--size", choices=("s", "m"), default="s", help="of the model")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of both sides' products")
    parser.add_argument("--quick", action="store_true", help="short runs and one round: for a look, not for a claim")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",") if arguments.only else NAMES
    if unknown := sorted(set(arguments.only) - set(NAMES)):
        parser.error(f"no case is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    return arguments


def _cases(folder: Path, arguments: argparse.Namespace) -> dict[str, Callable[[], None]]:
    """The chosen cases, ready to run."""
    import torch

    from benchmarks.figures import say
    from benchmarks.trainers import acting, steps
    from benchmarks.trainers.wall_time import wall
    from benchmarks.workload import make_model, quieten
    from quintain.trainers.engine.machine import prepare

    quieten()
    make_model(folder / "model", arguments.size)
    machine = prepare("cpu")
    torch.set_float32_matmul_precision("highest")  # each side sets its own
    rate = (machine.matmul_flops or 0.0) / 1e9
    say(
        f"{torch.get_num_threads()} threads, {rate:.0f} GFLOP/s, the faster exact products are on: {machine.fast_matmul}"
    )
    bench = steps.Bench(folder / "model", machine, arguments.rounds, arguments.quick, arguments.precision)
    in_process = {**steps.CASES, **acting.CASES}
    ready: dict[str, Callable[[], None]] = {name: partial(case, bench) for name, case in in_process.items()}
    ready["sft_wall"] = partial(wall, folder, rounds=bench.few_rounds, quick=arguments.quick)
    return {name: ready[name] for name in NAMES if name in arguments.only}


if __name__ == "__main__":
    sys.exit(main())
