"""Generation over several turns next to re-encoding, and an online GRPO step next to TRL's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from benchmarks.figures import report, say
from benchmarks.trainers.sides import QUIET, RATE, SAME, Ours, stdout_to_stderr
from benchmarks.trainers.steps import Bench
from benchmarks.workload import CONTEXT, Writer
from quintain.records.agent import Sampling
from quintain.records.dataset import GroupRow
from quintain.records.hyperparameters.methods import GRPOConfig
from quintain.records.protocols import Message, Reply, Turn
from quintain.records.trajectory import Actor, Step, Task, Trajectory
from quintain.trainers.acting.policy import LocalPolicy
from quintain.trainers.data.examples import ExampleBatch, ExampleMaker
from quintain.trainers.engine.machine import products_of
from quintain.trainers.models.loading import LoadedModel
from quintain.trainers.rendering.renderer import Renderer

GROUP = 4


def generation(bench: Bench) -> None:
    """A group of 4 episodes of 6 turns, 24 new tokens a turn, prompts of 400 tokens, observations of 200, greedy.

    Both ways with PyTorch's default matrix products, as rollouts outside of training have them.
    """
    loaded = bench.load()
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.mul_(1.6)  # spreads the logits, so that rounding does not decide between tokens
    writer = Writer(loaded.tokenizer, 9)
    n_turns, n_new = (3, 12) if bench.quick else (6, 24)
    prompt = writer.text(400)
    heard = [[prompt] * GROUP] + [[writer.text(200 - 10 * k) for k in range(GROUP)] for _ in range(n_turns - 1)]
    episodes = _Episodes(loaded, _endless(loaded), heard, n_new)
    ways = {"encoded_again": episodes.encoded_again, "cached": episodes.cached}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    agreed: list[float] = []
    loaded.model.eval()
    say(f"generation: {GROUP} episodes, {n_turns} turns, {n_new} new tokens a turn")
    for i in range(bench.rounds + 1):
        wrote = {}
        for name in ways if i % 2 else reversed(ways):
            began = time.perf_counter()
            wrote[name] = ways[name]()
            if i:
                seconds[name].append(time.perf_counter() - began)
        pairs = list(zip(wrote["encoded_again"], wrote["cached"], strict=True))
        agreed.append(sum(a == b for a, b in pairs) / len(pairs))
    report("generation_token_agreement", agreed, "1", 1.0)
    ratios = [a / b for a, b in zip(seconds["encoded_again"], seconds["cached"], strict=True)]
    report("generation_speedup", ratios, "1", 2.5)
    tokens = n_turns * GROUP * n_new
    report("generation_new_tokens_per_s", [tokens / s for s in seconds["cached"]], "1/s", None)


@dataclass
class _Episodes:
    """One group of episodes, in two ways; each returns all new tokens."""

    loaded: LoadedModel
    renderer: Renderer
    heard: list[list[str]]
    """What each episode hears in each turn."""
    n_new: int

    def cached(self) -> list[int]:
        """By the project's policy."""
        policy = LocalPolicy(self.loaded, self.renderer, Sampling(temperature=0.0, max_new_tokens=self.n_new))
        wrote: list[int] = []
        for texts in self.heard:
            turns = [
                Turn(episode_id=str(k), messages=(Message(role="user", content=text),)) for k, text in enumerate(texts)
            ]
            for reply in policy.act(turns):
                wrote += _ids(reply)
        return wrote

    def encoded_again(self) -> list[int]:
        """By `generate` on the whole history in every turn, as TRL's tool loop does without a server."""
        model, renderer = self.loaded.model, self.renderer
        histories: list[list[int]] = [[] for _ in range(GROUP)]
        wrote: list[int] = []
        for texts in self.heard:
            for history, text in zip(histories, texts, strict=True):
                history += self._following(text) if history else renderer.opening([Message(role="user", content=text)])
            width = max(map(len, histories))
            ids = torch.tensor([[0] * (width - len(h)) + h for h in histories])
            mask = torch.tensor([[0] * (width - len(h)) + [1] * len(h) for h in histories])
            made = model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=self.n_new,
                min_new_tokens=self.n_new,
                do_sample=False,
                pad_token_id=0,
            )[:, width:].tolist()
            for history, new in zip(histories, made, strict=True):
                history += new
                wrote += new
        return wrote

    def _following(self, text: str) -> list[int]:
        before = [Message(role="user", content="a"), Message(role="assistant", content="b")]
        following = self.renderer.continuation(before, [Message(role="user", content=text)])
        assert following is not None, "the benchmark's template never rewrites what stands before"
        return [*self.renderer.end_turn, *following]


def online_grpo(bench: Bench) -> None:
    """A prompt of 400 tokens, a group of 4, 96 new tokens each: rollout, reward and update."""
    n_new = 24 if bench.quick else 96
    writer = Writer(bench.load().tokenizer, 10)
    prompts = [writer.text(400) for _ in range(bench.rounds + 1)]
    side = _OnlineSide(bench, n_new)
    clock = _Clock(side, prompts)
    say(f"online_grpo: {n_new} new tokens, {bench.rounds} rounds")
    _trl_online(bench, prompts, n_new, clock)
    theirs, ours = clock.theirs[1:], clock.ours[1:]
    report("online_grpo_ratio_before_update", side.ratios, "1", 1.0)
    report("online_grpo_speedup", [a / b for a, b in zip(theirs, ours, strict=True)], "1", 2.0)
    tokens = GROUP * n_new
    report("online_grpo_new_tokens_per_s", [tokens / s for s in ours], "1/s", None)
    report(
        "online_grpo_rollout_share", [a / b for a, b in zip(side.rollouts[1:], ours, strict=True)], "1", None, "lower"
    )


class _OnlineSide:
    """The project's policy, example maker and loop on one model."""

    def __init__(self, bench: Bench, n_new: int) -> None:
        self.loaded = bench.load()
        self.renderer = _endless(self.loaded)
        self.config = GRPOConfig(**SAME, max_new_tokens=n_new)
        self.ours = Ours(self.loaded.model, self.config, bench.machine)
        self.maker = ExampleMaker(self.renderer, self.config, CONTEXT)
        self.products = bench.tuned
        self.rollouts: list[float] = []
        self.ratios: list[float] = []
        """Mean ratio of the policy in training to the one that sampled, before the update: 1 where they are the same."""

    def step(self, prompt: str) -> None:
        began = time.perf_counter()
        with products_of(self.products):
            group = self._group(prompt)
        self.rollouts.append(time.perf_counter() - began)
        example = self.maker.group(group, ExampleBatch())
        if isinstance(example, str):
            raise ValueError(f"the group gave no example: {example}")
        self.ours.step([example])
        self.ratios.append(self.ours.listener.metrics["ratio_max"] or 0.0)

    def _group(self, prompt: str) -> GroupRow:
        sampling = Sampling(temperature=1.0, max_new_tokens=self.config.max_new_tokens)
        policy = LocalPolicy(self.loaded, self.renderer, sampling, seed=len(self.rollouts))
        asked = (Message(role="user", content=prompt),)
        replies = policy.act([Turn(episode_id=str(k), messages=asked, seed=k) for k in range(GROUP)])
        return GroupRow(
            key=prompt,
            trajectories=tuple(_run(prompt, reply) for reply in replies),
            rewards=tuple(_reward(_ids(reply)) for reply in replies),
        )


@dataclass
class _Clock:
    """Times TRL's steps and lets our side take its step between them: before and after in turn."""

    side: _OnlineSide
    prompts: list[str]
    theirs: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    began: float = 0.0

    def begin(self) -> None:
        if len(self.theirs) % 2:
            self._take()
        self.began = time.perf_counter()

    def end(self) -> None:
        self.theirs.append(time.perf_counter() - self.began)
        if len(self.theirs) % 2:
            self._take()

    def _take(self) -> None:
        began = time.perf_counter()
        self.side.step(self.prompts[len(self.ours)])
        self.ours.append(time.perf_counter() - began)


def _trl_online(bench: Bench, prompts: Sequence[str], n_new: int, clock: _Clock) -> None:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig as TrlConfig
    from trl import GRPOTrainer

    class Watch(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            clock.begin()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            clock.end()

    loaded = bench.load()
    loaded.model.generation_config.eos_token_id = None
    config = TrlConfig(
        **QUIET,
        per_device_train_batch_size=GROUP,
        num_generations=GROUP,
        max_completion_length=n_new,
        max_steps=len(prompts),
        beta=0.0,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        generation_kwargs={"min_new_tokens": n_new},
    )
    dataset = Dataset.from_list([{"prompt": [{"role": "user", "content": prompt}]} for prompt in prompts])
    with stdout_to_stderr(), products_of("highest"):
        trainer = GRPOTrainer(
            loaded.model,
            reward_funcs=lambda completion_ids, **_: [_reward(ids) for ids in completion_ids],
            args=config,
            train_dataset=dataset,
            processing_class=loaded.tokenizer,
            callbacks=[Watch()],
        )
        trainer.train()


def _endless(loaded: LoadedModel) -> Renderer:
    """The model's renderer without end tokens, so that every turn is as long as it may be."""
    loaded.model.generation_config.eos_token_id = None
    return replace(Renderer.of(loaded.tokenizer), end_ids=frozenset())


def _run(prompt: str, reply: Reply) -> Trajectory:
    said = Step(actor=Actor.AGENT, message=reply.text, sampled=reply.sampled)
    return Trajectory(task=Task(prompt=prompt), steps=(Step(actor=Actor.USER, message=prompt), said))


def _ids(reply: Reply) -> tuple[int, ...]:
    assert reply.sampled is not None
    return reply.sampled.token_ids


def _reward(token_ids: Sequence[int]) -> float:
    """Share of even tokens: something that can be learnt and that costs no time."""
    return sum(token % 2 == 0 for token in token_ids) / len(token_ids)


CASES = {"generation": generation, "online_grpo": online_grpo}
