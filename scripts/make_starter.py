"""Make `starter`, the embedded model: tokenizer, chat template and weights, from nothing but this file and the package.

    python scripts/make_starter.py [--steps N] [--output FOLDER]

About ten minutes on two CPU cores. With the same versions of torch, transformers and tokenizers on the same kind of CPU
the files come out the same, byte for byte; `SHA256SUMS` says what is shipped.

`starter` is pre-trained on demonstrations of uneven quality, as base models are: first the expert's, then those of a
demonstrator who on most questions is hasty more often than not. So the model can do every step of every task, yet
greedily it imitates the haste, and success-filtered fine-tuning on its own episodes has something real to bring out. No
held-out item takes part.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

import quintain
from quintain.environments.inventory import Inventory
from quintain.environments.inventory.expert import Expert
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.seams import Policy, Reply, Turn
from quintain.records.trajectory import Action, AgentInfo, Trajectory, text_of
from quintain.trainers.rendering import Renderer

SEED = 20260
VOCABULARY = 1536
CONTEXT = 4096
EPISODES = 5_000
BATCH_TOKENS = 3000
POOL = 512
MUON_RATE, ADAM_RATE = 0.02, 3e-3
"""Peak learning rates: Muon (Jordan et al. 2024) for the layers' matrices, AdamW for embeddings and norms."""

Row = tuple[list[int], list[bool]]
"""Token ids, and which of them are to be predicted."""

CAREFUL = {"What": 0.8, "Which has": 0.4, "Which of": 0.4, "together": 0.35}
"""Kind of question -> share of the demonstrations in which the expert goes on after the first search."""

CHAT_TEMPLATE = """\
{%- if messages and messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}
{%- else %}{% set system = '' %}{% set rest = messages %}{% endif %}
{%- if system or tools %}{{ '<|im_start|>system\\n' + system }}
{%- if tools %}{{ ('\\n\\n' if system else '') + '# Tools\\n<tools>' }}
{%- for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}
{{- '\\n</tools>\\nCall a tool like this:\\n<tool_call>\\n{"name": tool, "arguments": object}\\n</tool_call>' }}
{%- endif %}{{ '<|im_end|>\\n' }}{% endif %}
{%- for message in rest %}{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}{% set call = call.function or call %}
{{- '\\n' if message.content or not loop.first }}{{ '<tool_call>\\n{"name": ' + call.name | tojson + ', "arguments": ' }}
{{- call.arguments if call.arguments is string else call.arguments | tojson }}{{ '}\\n</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

WORDS = """
the of and to in is you that it he was for on are with as his they be at one have this from or had by hot but some what
there we can out other were all your when up use how said an each she which do their time if will way about many then
them would write like so these her long make thing see him two has look more day could go come did my no most who over
know than call first people may down side been now find any new work part take get place made where after back little
only round man year came show every good me give our under name very through just form much great think say help low
line before turn cause same mean differ move right boy old too does tell sentence set three want air well also play
small end put home read hand large spell add even land here must big high such follow act why ask men change went light
kind off need house picture try us again animal point mother world near build self earth father head stand own page
should country found answer school grow study still learn plant cover food sun four thought let keep eye never last
"""
TERMS = """
name type description parameters properties required string number integer boolean array object items enum default title
arguments function tool tools query path file content text message user system assistant result error value status id url
search open read write edit run command shell list delete update create get set send fetch submit answer data date time
limit offset page user_id email city country price amount currency unit language code output input token model key index
true false null maximum minimum format pattern additionalProperties format schema json http https api request response
weather order customer product account book flight hotel location latitude longitude temperature calendar event start end
"""


def generic_texts(rng: Random) -> Iterator[str]:
    """Sentences, tool schemas and calls of made-up tools, so that other environments do not fall apart into bytes."""
    words, terms = WORDS.split(), TERMS.split()
    for _ in range(2500):
        said = rng.choices(words, k=rng.randint(6, 14))
        yield f"{' '.join(said).capitalize()}, {' '.join(rng.choices(words + terms, k=6))}."
        name = "_".join(rng.choices(terms, k=rng.randint(1, 2)))
        keys = rng.sample(terms, rng.randint(1, 3))
        kinds = rng.choices(["string", "integer", "number", "boolean"], k=len(keys))
        properties = {
            key: {"type": kind, "description": " ".join(rng.choices(words + terms, k=4)).capitalize()}
            for key, kind in zip(keys, kinds, strict=True)
        }
        parameters = {"type": "object", "properties": properties, "required": keys}
        yield json.dumps({"type": "function", "function": {"name": name, "description": "", "parameters": parameters}})
        yield json.dumps(
            {"name": name, "arguments": {key: rng.choice(words) for key in keys}}, indent=rng.choice([None, 2])
        )


class Demonstrator:
    """The expert, who after the first search often gives way to haste; which questions are rushed is in `CAREFUL`."""

    def __init__(self, seed: int) -> None:
        self._expert = Expert()
        self._rng = Random(seed)
        self._prompts: dict[str, str] = {}
        self._hasty: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        """The next move of each episode."""
        return [self._move(turn) for turn in turns]

    def close(self, episode_id: str) -> None:
        """Forget an episode."""
        self._expert.close(episode_id)
        self._prompts.pop(episode_id, None)

    def _move(self, turn: Turn) -> Reply:
        told = text_of(turn.messages[-1].content)
        prompt = self._prompts.get(turn.episode_id)
        if prompt is None:
            self._prompts[turn.episode_id] = told
            return self._expert.act([turn])[0]
        if prompt and self._rng.random() >= next(share for kind, share in reversed(CAREFUL.items()) if kind in prompt):
            self._prompts[turn.episode_id] = ""
            name, item_id = told.splitlines()[0].rsplit(" ", 1)
            if "together" in prompt or "Which has" in prompt:
                return _reply("Good enough.", "submit", {"answer": item_id})
            if "Which of" in prompt:
                return _reply("The first will do.", "submit", {"answer": name})
            return _reply("Good enough.", "submit", {"answer": name})
        self._prompts[turn.episode_id] = ""
        return self._expert.act([turn])[0]


def _reply(thought: str, tool: str, args: dict[str, Any]) -> Reply:
    return Reply(text=thought, thought=thought, actions=(Action(tool=tool, args=args),))


def demonstrations(policy: Policy, n: int, seed: int) -> list[Trajectory]:
    """Episodes of a demonstrator on training tasks."""
    source = Inventory()
    plans = [EpisodePlan(task) for task in source.tasks("train", n, seed)]
    settings = EpisodeSettings(seed=SEED, max_turns=None, concurrency=256, agent=AgentInfo(name="demonstrator"))
    return [episode.trajectory for episode in run_episodes(source, policy, plans, settings)]


def make_tokenizer(texts: Iterator[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE with single digits, and the chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 2,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(["<tool_call>", "</tool_call>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def tokenizer_texts(trajectories: Sequence[Trajectory]) -> Iterator[str]:
    """What the tokenizer is fit for: the episodes' texts, and generic ones."""
    for trajectory in trajectories:
        for step in trajectory.steps:
            yield text_of(step.message)
            yield step.thought or ""
            yield from (json.dumps({"name": a.tool, "arguments": a.args}) for a in step.actions)
            yield from (text_of(o.content) for o in step.observations)
    for _ in range(200):
        yield "\n".join(json.dumps(tool) for tool in trajectories[0].tools)
    yield from generic_texts(Random(SEED))


def make_model(vocabulary: int, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """The untrained network."""
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


class Phase(NamedTuple):
    """A stretch of the pre-training."""

    opening: list[int]  # what all rows begin with
    rows: list[Row]
    steps: int


def plan_phases(careful: list[Row], uneven: list[Row], end_of_turn: int, steps: int) -> list[Phase]:
    """Half of the steps without the system turn, a quarter with it, and a quarter with uneven demonstrations.

    The system turn is three quarters of an episode's tokens and the same in all: copying from context, which everything
    else rests on, is learned sooner where it is not in the way.
    """
    start = careful[0][0].index(end_of_turn) + 2  # the end token and its line break
    bare = [(ids[start:], mask[start:]) for ids, mask in careful]
    opening = careful[0][0][:start]
    return [
        Phase(bare[0][0][:1], bare, steps // 2),
        Phase(opening, careful, steps // 4),
        Phase(opening, uneven, steps - steps // 2 - steps // 4),
    ]


def batches(rows: Sequence[Row], shared: int, rng: Random) -> Iterator[list[Row]]:
    """Rows for ever, in batches of like length and `BATCH_TOKENS` tokens behind the shared opening."""
    while True:
        order = rng.sample(range(len(rows)), len(rows))
        for start in range(0, len(order), POOL):
            pool = sorted((rows[i] for i in order[start : start + POOL]), key=lambda row: len(row[0]))
            cut: list[list[Row]] = []
            while pool:
                size = max(1, BATCH_TOKENS // (len(pool[-1][0]) - shared))
                cut.append(pool[-size:])
                del pool[-size:]
            rng.shuffle(cut)
            yield from cut


def pretrain(model: Qwen3ForCausalLM, phases: Sequence[Phase], pad: int) -> None:
    """Next-token training on what the demonstrators wrote, one phase after the other under one cosine schedule."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim == 1] + [model.model.embed_tokens.weight]
    optimizers = [
        (MUON_RATE, torch.optim.Muon(matrices, lr=0.0, weight_decay=0.01)),
        (ADAM_RATE, torch.optim.AdamW(others, lr=0.0, betas=(0.9, 0.95), weight_decay=0.01)),
    ]
    rng, began, step, total = Random(SEED), time.monotonic(), 0, sum(phase.steps for phase in phases)
    smooth = 0.0
    for phase in phases:
        opening = torch.tensor([phase.opening])
        for batch in islice(batches(phase.rows, len(phase.opening), rng), phase.steps):
            share = min((step + 1) / 50, 0.52 + 0.48 * math.cos(math.pi * step / total))
            loss = batch_loss(model, batch, opening, pad)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for peak, optimizer in optimizers:
                optimizer.param_groups[0]["lr"] = peak * share
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            smooth += (loss.item() - smooth) * max(0.05, 1 / step)
            if step % 20 == 0:
                print(f"step {step}/{total}  loss {smooth:.4f}  {time.monotonic() - began:.0f} s", flush=True)


def batch_loss(model: Qwen3ForCausalLM, batch: Sequence[Row], opening: torch.Tensor, pad: int) -> torch.Tensor:
    """Mean cross-entropy of the supervised tokens.

    The opening, int64 [1, T0], runs through the network once; the whole batch shares its keys and values.
    """
    shared = opening.shape[1]
    width = max(len(ids) for ids, _ in batch) - shared
    ids = torch.full((len(batch), width), pad)
    supervised = torch.zeros((len(batch), width), dtype=torch.bool)
    for i, (row, mask) in enumerate(batch):
        ids[i, : len(row) - shared] = torch.tensor(row[shared:])
        supervised[i, : len(row) - shared] = torch.tensor(mask[shared:])
    cache = model.model(opening, use_cache=True).past_key_values
    cache.batch_repeat_interleave(len(batch))
    hidden = model.model(ids, past_key_values=cache).last_hidden_state[:, :-1]
    return F.cross_entropy(model.lm_head(hidden[supervised[:, 1:]]), ids[:, 1:][supervised[:, 1:]])


def save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write all files beside each other and move them into place one by one; the sums come last."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        made = Path(temporary)
        model.half().save_pretrained(made)
        tokenizer.save_pretrained(made)
        config = json.loads((made / "config.json").read_text(encoding="utf-8"))
        config["dtype"] = "float32"  # stored in half precision, run in single: CPUs are slow in half
        (made / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        names = sorted(path.name for path in made.iterdir())
        sums = [f"{hashlib.sha256((made / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
        (made / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
        for name in [*names, "SHA256SUMS"]:
            os.replace(made / name, folder / name)


def main() -> None:
    """Make the starter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1300)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--output", type=Path, default=Path(quintain.__file__).parent / "starter")
    options = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # the same order of every sum, and no waiting for a busy core
    careful = demonstrations(Expert(), options.episodes, SEED)
    uneven = demonstrations(Demonstrator(SEED), options.episodes // 2, SEED + 1)
    tokenizer = make_tokenizer(tokenizer_texts(careful[:1000] + uneven[:1000]))
    renderer = Renderer.of(tokenizer, "tools")
    careful_rows, uneven_rows = (
        [(row.token_ids, row.supervised) for trajectory in made for row in renderer.rows(trajectory, CONTEXT)]
        for made in (careful, uneven)
    )
    model = make_model(len(tokenizer), tokenizer)
    lengths = sorted(len(ids) for ids, _ in careful_rows)
    print(
        f"rows of {lengths[0]}..{lengths[len(lengths) // 2]}..{lengths[-1]} tokens, vocabulary {len(tokenizer)}, "
        f"{sum(p.numel() for p in model.parameters()):,} weights",
        flush=True,
    )
    phases = plan_phases(careful_rows, uneven_rows, tokenizer.eos_token_id, options.steps)
    pretrain(model, phases, tokenizer.pad_token_id)
    save(model, tokenizer, options.output)


if __name__ == "__main__":
    main()
