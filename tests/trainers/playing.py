"""Episodes for local policies: tiny models that act in made-up conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.protocols import Message, Reply, Turn
from quintain.trainers.acting.policy import LocalPolicy
from quintain.trainers.models.loading import LoadedModel
from quintain.trainers.rendering.renderer import Renderer
from tiny_models import tiny_model, tiny_tokenizer
from trainers.episodes import TOOLS

TOKENIZER = tiny_tokenizer()


GREEDY = Sampling(max_new_tokens=10)


WARM = Sampling(temperature=1.0, top_p=0.9, top_k=60, min_p=0.001, max_new_tokens=10)


def spread(model: Any) -> Any:
    """Larger weights, so that the most likely token wins by more than rounding."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model.eval()


def with_random_adapters(model: Any, *, dropout: float = 0.0) -> Any:
    """Return a model in training mode whose adapters change what it computes."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        settings = LoraConfig(r=4, lora_dropout=dropout, target_modules="all-linear", task_type="CAUSAL_LM")
        adapted = get_peft_model(model, settings)
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=0.3)
    return adapted.train()


def save_sharp_teacher(folder: Path) -> Agent:
    """Save a tiny model whose weights are large, so that its distributions are sharp."""
    spread(spread(tiny_model(TOKENIZER, hidden=16, seed=4))).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return Agent(id="agent:sharp@1", name="sharp", model=ModelRef(source="folder", path=str(folder)))


def policy(
    sampling: Sampling = GREEDY, *, model: Any = None, tokenizer: Any = TOKENIZER, context: int = 1024
) -> LocalPolicy:
    model = model or spread(tiny_model(tokenizer))
    return LocalPolicy(LoadedModel(model, tokenizer, context), Renderer.of(tokenizer), sampling, seed=7)


def first(name: str, words: int) -> Turn:
    messages = (Message(role="system", content="You are an agent."), Message(role="user", content="mango " * words))
    return Turn(episode_id=name, messages=messages, tools=TOOLS, seed=words)


def later(name: str, words: int) -> Turn:
    return Turn(episode_id=name, messages=(Message(role="user", content=f"{name}: " + "lamp " * words),))


def play(actor: LocalPolicy, names: str, n_turns: int = 3) -> dict[str, list[Reply]]:
    """Every episode through its turns, all together; lengths differ from episode to episode and turn to turn."""
    replies: dict[str, list[Reply]] = {name: [] for name in names}
    for turn in range(n_turns):
        turns = [(first if turn == 0 else later)(n, 1 + (ord(n) * (turn + 3)) % 11) for n in names]
        for name, reply in zip(names, actor.act(turns), strict=True):
            replies[name].append(reply)
    return replies


def ids_of(replies: list[Reply]) -> list[tuple[int, ...]]:
    return [reply.sampled.token_ids for reply in replies if reply.sampled]
