"""Training steps and decoding on a GPU, next to TRL 1.16 and vLLM where they are installed, on random weights.

Run as `python -m benchmarks.gpu [--shape 0.5b|7b|tiny] [--only CASE,...] [--rounds N] [--peak-tflops T]`; prints one JSON line
a figure. Without a CUDA device it prints one line and ends. `--shape tiny --device cpu` runs every case in a few minutes
without one; its figures mean nothing.

All sides train adapters of rank 16 on the same tokens, on one copy of the base weights, in bf16 on CUDA. `..._vs_trl_best` is
the best of TRL with all rows of a step in one padded pass and with a pass a row, both with flash attention where it is installed
and without gradient checkpointing, the reference computed beforehand. The model FLOPs utilization (Chowdhery et al. 2022, arXiv
2204.02311, appendix B) counts useful operations: no padding, no sharing, no recomputation, no gradient of frozen weights.
Goals are for an H100.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.figures import say, summarize
from benchmarks.gpu.decoding import decoding
from benchmarks.gpu.model import H100_TFLOPS, SHAPES, Gpu
from benchmarks.gpu.training import dpo_half_shared, grpo_groups, lora_sft, per_turn

CASES: dict[str, Callable[[Gpu], None]] = {
    "lora_sft": lora_sft,
    "dpo_half_shared": dpo_half_shared,
    "grpo_groups": grpo_groups,
    "per_turn": per_turn,
    "decoding": decoding,
}


def main() -> int:
    """Run the chosen cases; 0: all of them ran, or there is no GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Training and decoding on a GPU.")
    parser.add_argument("--shape", choices=SHAPES, default="0.5b")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", metavar="CASE,...", help=f"some of: {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peak-tflops", type=float, default=H100_TFLOPS, help="of dense bf16 products, on CUDA")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else list(CASES)
    if unknown := sorted({*chosen} - {*CASES}):
        parser.error(f"no case is called {', '.join(unknown)}; there are {', '.join(CASES)}")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        say("no CUDA device: nothing was measured; --shape tiny --device cpu runs every case without one")
        return 0
    from benchmarks.workload import make_tokenizer, quieten

    quieten()
    device = torch.device(arguments.device)
    peak = arguments.peak_tflops * 1e12 if device.type == "cuda" else None
    gpu = Gpu(arguments.shape, device, arguments.rounds, peak, make_tokenizer())
    failed = [name for name in chosen if not _ran(name, partial(CASES[name], gpu))]
    summarize()
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _ran(name: str, case: Callable[[], None]) -> bool:
    """Run a case; the others are worth having where it fails."""
    try:
        case()
    except Exception as error:
        say(f"{name} failed: {type(error).__name__}: {error}")
        return False
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return True


if __name__ == "__main__":
    sys.exit(main())
