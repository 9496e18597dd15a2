"""A training step in bf16 beside our own in float32, in one run.

Run as `python -m benchmarks.precision [--only lora,full] [--rounds N] [--rows N] [--tokens N] [--home DIR]`. `lora` trains
adapters of Gemma 3 270M (`benchmarks.real_model` names its packages), `full` all weights of a random Qwen2 model of 512 x 8. Both
sides alternate, a figure is the median of its rounds, one JSON line each. Processor time is given beside wall time, because
other processes disturb it less.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figures import report, say, summarize
from benchmarks.machine import load_average
from benchmarks.real_model import model_file
from quintain.settings import Settings
from quintain.threads import limit_spinning

_GOAL = 1.3
"""Of the wall times, on a CPU with AVX512-BF16."""


class Step(NamedTuple):
    """Everything of one side's step."""

    engine: Any
    optimizer: Any
    config: Any

    def take(self, rows: Sequence[Any], weight: Any) -> tuple[float, float, float]:
        """Take an optimizer step on the rows; return the loss, seconds of wall time and of processor time."""
        from quintain.trainers.loop.optimizer import clip, update
        from quintain.trainers.loop.precision import loss_scale

        scale = loss_scale(self.engine.model.device, enabled=False)
        wall, processor = time.perf_counter(), time.process_time()
        loss, _ = self.engine.nll(rows, weight)
        loss.backward()
        clip(self.engine.model, self.optimizer, scale, self.config.grad_clip)
        update(self.optimizer, scale, 1e-5)
        return loss.item(), time.perf_counter() - wall, time.process_time() - processor


def _side(load: Callable[[], Any], config: Any) -> Step:
    from quintain.trainers.engine.forward import Engine
    from quintain.trainers.loop.optimizer import adamw
    from quintain.trainers.loop.precision import choose, hold_base

    model = load()
    number_format = choose(config.precision, model)
    hold_base(model, config, number_format)
    return Step(Engine.of(model, autocast=number_format.autocast), adamw(model, config), config)


def _gemma(home: Path) -> Any:
    import torch

    from quintain.records.agent import ModelRef
    from quintain.records.hyperparameters.methods import LoraConfig
    from quintain.trainers.models.loading import load_model

    torch.manual_seed(0)
    return load_model(ModelRef(source="gguf", path=str(model_file(home))), lora=LoraConfig(), train=True).model


def _random_model() -> Any:
    from benchmarks.workload import random_model

    return random_model("m").train()


def _compare(name: str, load: Callable[[], Any], lora: Any, asked: argparse.Namespace) -> None:
    """Report both sides' times, their ratio and what `auto` chooses."""
    import numpy as np
    import torch

    from quintain.records.hyperparameters.methods import SFTConfig
    from quintain.trainers.data.streams import token_row
    from quintain.trainers.engine.machine import prepare
    from quintain.trainers.loop.precision import choose

    sides = {one: _side(load, SFTConfig(precision=one, lora=lora, learning_rate=1e-5)) for one in ("fp32", "bf16")}
    prepare("cpu")
    model = sides["fp32"].engine.model
    draw = np.random.default_rng(0)
    ids = draw.integers(5, model.config.get_text_config().vocab_size, (asked.rows, asked.tokens))
    is_supervised = [i % 4 == 3 for i in range(asked.tokens)]  # a quarter of a run is the agent's
    rows = [token_row(row.tolist(), is_supervised) for row in ids]
    weight = torch.full((n := sum(row.n_supervised for row in rows),), 1.0 / n)
    say(f"{name}: {asked.rows} rows of {asked.tokens} tokens, path {sides['fp32'].engine.path}")
    taken: dict[str, list[tuple[float, float, float]]] = {one: [] for one in sides}
    for i in range(asked.rounds + 1):
        for one in sides if i % 2 else reversed(sides):
            figures = sides[one].take(rows, weight)
            if i:  # the first round compiles products
                taken[one].append(figures)
    for at, clock in ((1, "wall"), (2, "processor")):
        ratios = [wide[at] / narrow[at] for wide, narrow in zip(taken["fp32"], taken["bf16"], strict=True)]
        report(f"{name}_bf16_against_fp32_{clock}", ratios, "1", _GOAL if at == 1 else None, load=load_average())
        for one, figures_of in taken.items():
            report(f"{name}_{one}_{clock}_s", [figures[at] for figures in figures_of], "s", None)
    for one, figures_of in taken.items():
        report(f"{name}_{one}_loss", [figures_of[-1][0]], "nats/token", None)
    chosen = choose("auto", model)
    say(f"{name}: auto takes {chosen.name}: {chosen.rule}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the figures that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="lora,full", help="figures, separated by commas")
    parser.add_argument("--rounds", type=int, default=5, help="a figure is the median of its rounds")
    parser.add_argument("--rows", type=int, default=2, help="rows of a step")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of a row")
    parser.add_argument("--home", type=Path, default=Settings().home, help="folder whose cache keeps the model")
    asked = parser.parse_args(arguments)
    limit_spinning()
    from quintain.records.hyperparameters.methods import LoraConfig

    figures = {
        "lora": lambda: _compare("lora_step", lambda: _gemma(asked.home), LoraConfig(), asked),
        "full": lambda: _compare("full_step", _random_model, None, asked),
    }
    for figure in asked.only.split(","):
        figures[figure]()
    summarize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
