"""Make `starter`, the embedded model: tokenizer, chat template and weights, from nothing but the package and these scripts.

    python -m scripts.make_starter [--steps N] [--output FOLDER]

About six minutes on one CPU core. With the same versions of torch, transformers and tokenizers on the same kind of CPU
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
from scripts.starter_tokenizer import CONTEXT, SEED, make_tokenizer, tokenizer_texts
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen3 import Qwen3Config, Qwen3ForCausalLM

import quintain
from quintain.environments.inventory import Inventory
from quintain.environments.inventory.scripted_policy import Expert
from quintain.environments.inventory.tasks import FIELDS
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.protocols import Policy, Reply, Turn
from quintain.records.trajectory import Action, AgentInfo, Trajectory, text_of
from quintain.trainers.rendering.renderer import Renderer

HEAD = 32
"""Width of an attention head, a quarter of the hidden size."""
EMBEDDING_STD = 0.12
EPISODES = 5_000
BATCH_TOKENS = 1000
POOL = 512
LEARNING_RATE = 2e-3

Row = tuple[list[int], list[bool]]
"""Token ids, and which of them are to be predicted."""


class Demonstrator:
    """The expert, who after the first search often gives way to haste; how often is in `_patience`."""

    def __init__(self, seed: int) -> None:
        self._expert = Expert()
        self._rng = Random(seed)
        self._prompts: dict[str, str] = {}

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
        if prompt and self._rng.random() >= _patience(prompt, len(told.splitlines())):
            self._prompts[turn.episode_id] = ""
            first_id = told.splitlines()[0].split()[-1]
            return _reply("Good enough.", "submit", {"answer": first_id})
        self._prompts[turn.episode_id] = ""
        return self._expert.act([turn])[0]


def _patience(prompt: str, n_found: int) -> float:
    """Share of the demonstrations in which the expert goes on after the first search, by question and items found."""
    if prompt.startswith("Which of"):
        return 0.8 if n_found <= 3 else 0.3
    return 0.3 if prompt.startswith("Which has") or "together" in prompt else 0.8


def _reply(thought: str, tool: str, args: dict[str, Any]) -> Reply:
    return Reply(text=thought, thought=thought, actions=(Action(tool=tool, args=args),))


def demonstrations(policy: Policy, n: int, seed: int) -> list[Trajectory]:
    """Episodes of a demonstrator on training tasks."""
    source = Inventory()
    plans = [EpisodePlan(task) for task in source.tasks("train", n, seed)]
    settings = EpisodeSettings(seed=SEED, max_turns=None, concurrency=256, agent=AgentInfo(name="demonstrator"))
    return [episode.trajectory for episode in run_episodes(source, policy, plans, settings)]


def make_model(vocabulary: int, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """The untrained network."""
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=4 * HEAD,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=HEAD,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        attention_bias=True,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    lay_induction_heads(model)
    liken_spellings(model, tokenizer)
    return model


def lay_induction_heads(model: Qwen3ForCausalLM) -> None:
    """Start with heads that copy: they find where the last token stood before, and repeat what came after it there.

    Olsson et al. 2022 (arXiv 2209.11895) describe the circuit; left to chance, a model this small finds it late or never.
    The residual stream is cut in four quarters of a head's width: embeddings take the first two (to match by, to copy
    from), two heads of layer 0 write the tokens one and two places before into the others, and two heads of layer 1
    match a quarter of theirs with one of the past and copy. Content is matched by slowly rotating channels only.
    """
    eye = torch.eye(HEAD)
    slow = torch.diag((torch.arange(HEAD) % (HEAD // 2) >= 5).float())
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    with torch.no_grad():
        embeddings = model.model.embed_tokens.weight
        embeddings.normal_(0, EMBEDDING_STD)
        embeddings[:, 2 * HEAD :] = 0
        for attention in (first, second):
            attention.q_norm.weight.fill_(4.0)  # sharp enough to pick one token out of hundreds
        fast = model.model.rotary_emb.inv_freq[:3]
        first.k_proj.weight[:HEAD] *= 0.1
        first.k_proj.bias[:3] = 3.0
        first.v_proj.weight[:HEAD] = torch.cat([eye, torch.zeros(HEAD, 3 * HEAD)], 1)
        for head, offset in ((0, 1), (1, 2)):
            rows = slice(HEAD * head, HEAD * (head + 1))
            first.q_proj.weight[rows] *= 0.1
            first.q_proj.bias[rows][:3] = 3.0 * torch.cos(fast * offset)
            first.q_proj.bias[rows][HEAD // 2 : HEAD // 2 + 3] = -3.0 * torch.sin(fast * offset)
            first.o_proj.weight[:, rows] *= 0.1
            first.o_proj.weight[HEAD * (2 + head) : HEAD * (3 + head), rows] = eye * EMBEDDING_STD * 1.4
        # (query head, quarter it asks with, key-value head, quarter of the past): last token and one before, or both back.
        for head, asks, shared, past in ((0, 0, 0, 2), (2, 2, 1, 3)):
            for weight, row, quarter, what in (
                (second.q_proj.weight, head, asks, slow),
                (second.k_proj.weight, shared, past, slow),
                (second.v_proj.weight, shared, 1, eye),
            ):
                weight[HEAD * row : HEAD * (row + 1)] *= 0.1
                weight[HEAD * row : HEAD * (row + 1), HEAD * quarter : HEAD * (quarter + 1)] += what
            columns = slice(HEAD * head, HEAD * (head + 1))
            second.o_proj.weight[:, columns] *= 0.1
            second.o_proj.weight[HEAD : 2 * HEAD, columns] += eye * EMBEDDING_STD * 2


def liken_spellings(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Start with like embeddings for a word with and without a space before it: what was read as one is written as the other."""
    vocabulary = tokenizer.get_vocab()
    with torch.no_grad():
        embeddings = model.model.embed_tokens.weight
        apart = torch.zeros_like(embeddings[0])
        apart[: 2 * HEAD].normal_(0, EMBEDDING_STD)
        for word, place in vocabulary.items():
            spaced = vocabulary.get(f"Ġ{word}")
            if spaced is not None:
                embeddings[place] = embeddings[spaced] + apart


class Phase(NamedTuple):
    """A stretch of the pre-training."""

    opening: list[int]  # what all rows begin with
    rows: list[Row]
    steps: int


def sum_rows(tokenizer: PreTrainedTokenizerFast, n: int) -> list[Row]:
    """Twenty sums a row of numbers as they stand in comparisons, the lower first; what comes after the equals sign is to be predicted."""
    rng, rows = Random(SEED), []
    for _ in range(n):
        ids: list[int] = tokenizer.encode("<|im_start|>")
        mask = [False]
        for _ in range(20):
            a, b = sorted(rng.choices(rng.choice([*FIELDS.values()]), k=2))
            asked, told = (tokenizer.encode(text) for text in (f"{a} + {b} =", f" {a + b}.\n"))
            ids += asked + told
            mask += [False] * len(asked) + [True] * len(told)
        rows.append((ids, mask))
    return rows


def plan_phases(careful: list[Row], sums: list[Row], uneven: list[Row], end_of_turn: int, steps: int) -> list[Phase]:
    """First sums and episodes without the system turn, then with it, then uneven demonstrations.

    The system turn is three quarters of an episode's tokens and the same in all: copying from context, which everything
    else rests on, is learned sooner where it is not in the way.
    """
    start = careful[0][0].index(end_of_turn) + 2  # the end token and its line break
    bare = [(ids[start:], mask[start:]) for ids, mask in careful]
    opening, later = careful[0][0][:start], 2 * steps // 7
    return [
        Phase(bare[0][0][:1], bare + sums, steps - 2 * later),
        Phase(opening, careful, later),
        Phase(opening, uneven, later),
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.01)
    rng, began, step, total = Random(SEED), time.monotonic(), 0, sum(phase.steps for phase in phases)
    smooth = 0.0
    for phase in phases:
        opening = torch.tensor([phase.opening])
        for batch in islice(batches(phase.rows, len(phase.opening), rng), phase.steps):
            share = min((step + 1) / 50, 0.52 + 0.48 * math.cos(math.pi * step / total))
            loss = batch_loss(model, batch, opening, pad)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.param_groups[0]["lr"] = LEARNING_RATE * share
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            smooth += (loss.item() - smooth) * max(0.05, 1 / step)
            if step % 20 == 0:
                print(f"step {step}/{total}  loss {smooth:.4f}  {time.monotonic() - began:.0f} s", flush=True)


def batch_loss(model: Qwen3ForCausalLM, batch: Sequence[Row], opening: torch.Tensor, pad: int) -> torch.Tensor:
    """Cross-entropy of the supervised tokens, summed and divided by a constant.

    A mean over the batch would give tokens of long rows more weight, as these come in batches of few, and so distort how
    often the demonstrators were careful. The opening, int64 [1, T0], runs through the network once; the whole batch
    shares its keys and values.
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
    logits = model.lm_head(hidden[supervised[:, 1:]])
    return F.cross_entropy(logits, ids[:, 1:][supervised[:, 1:]], reduction="sum") / (BATCH_TOKENS / 2)


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
            (made / name).chmod(0o644)
            os.replace(made / name, folder / name)


def main() -> None:
    """Make the starter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2100)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--output", type=Path, default=Path(quintain.__file__).parent / "starter")
    options = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # the same order of every sum, and no waiting for a busy core
    careful = demonstrations(Expert(), options.episodes, SEED)
    uneven = demonstrations(Demonstrator(SEED), options.episodes * 4 // 5, SEED + 1)
    tokenizer = make_tokenizer(tokenizer_texts(careful[:1000] + uneven[:1000]))
    renderer = Renderer.of(tokenizer, "tools")
    careful_rows, uneven_rows = (
        [
            (row.token_ids.tolist(), row.supervised.tolist())
            for trajectory in made
            for row in renderer.render(trajectory, CONTEXT).rows
        ]
        for made in (careful, uneven)
    )
    model = make_model(len(tokenizer), tokenizer)
    lengths = sorted(len(ids) for ids, _ in careful_rows)
    print(
        f"rows of {lengths[0]}..{lengths[len(lengths) // 2]}..{lengths[-1]} tokens, vocabulary {len(tokenizer)}, "
        f"{sum(p.numel() for p in model.parameters()):,} weights",
        flush=True,
    )
    phases = plan_phases(
        careful_rows, sum_rows(tokenizer, options.episodes // 2), uneven_rows, tokenizer.eos_token_id, options.steps
    )
    pretrain(model, phases, tokenizer.pad_token_id)
    save(model, tokenizer, options.output)


if __name__ == "__main__":
    main()
