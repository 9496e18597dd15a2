"""What the training benchmarks train on: a tokenizer, small random models and synthetic agent runs, all made on the spot.

A run has a system prompt, a task, and agent turns of 20 to 40 tokens between observations of 100 to 300: about 15 % of
its tokens are the agent's. The text is Python source that comes with PyTorch.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from quintain.importers.transcripts.chat_messages import from_messages
from quintain.records.agent import ModelRef
from quintain.records.dataset import DatasetRow, GroupRow, PairRow
from quintain.records.hyperparameters.methods import LoraConfig, TrainingConfig
from quintain.records.trajectory import Trajectory
from quintain.trainers.data.examples import ExampleBatch, ExampleMaker
from quintain.trainers.data.streams import Example, TokenRow
from quintain.trainers.models.loading import LoadedModel, load_model
from quintain.trainers.rendering.renderer import Renderer

VOCABULARY = 8000
CONTEXT = 20_480
SIZES = {"s": (384, 6, 6, 2, 1024), "m": (512, 8, 8, 2, 1408)}
"""Hidden size, layers, heads, key heads, feed-forward size. Body to head parameters is 3:1 in `s`, 5.5:1 in `m`."""
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}<|im_start|>assistant\n"
    "{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}\n"
    "{% else %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML with the marks by which TRL finds what the assistant wrote."""

Messages = list[dict[str, str]]


def quieten() -> None:
    """No progress bars and no advice from the libraries."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


def _texts(seed: int, characters: int) -> list[str]:
    """Python files in a random order, up to so many characters; none spells a control token."""
    files = sorted(Path(torch.__file__).parent.rglob("*.py"))
    random.Random(seed).shuffle(files)
    texts: list[str] = []
    for file in files:
        text = file.read_text(encoding="utf-8", errors="ignore")[:20_000]
        if "<|" not in text:
            texts.append(text)
        if sum(map(len, texts)) >= characters:
            break
    return texts


def make_tokenizer() -> Any:
    """A byte-level BPE tokenizer of `VOCABULARY` tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_texts(0, 4_000_000), trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=SPECIAL[2], pad_token=SPECIAL[0])
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def random_model(size: str, **tokens: int | None) -> Any:
    """Return a random Qwen2 model with a tied head, the same at every call; `tokens` are ids of special tokens."""
    from transformers.models.qwen2 import Qwen2Config, Qwen2ForCausalLM

    hidden, layers, heads, key_heads, intermediate = SIZES[size]
    torch.manual_seed(0)
    config = Qwen2Config(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        intermediate_size=intermediate,
        vocab_size=VOCABULARY,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        **tokens,
    )
    return Qwen2ForCausalLM(config)


def make_model(folder: Path, size: str = "s") -> None:
    """Write a random model and its tokenizer."""
    tokenizer = make_tokenizer()
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    random_model(size, bos_token_id=None, **ids).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load(folder: Path, lora: LoraConfig | None = None) -> LoadedModel:
    """The model of a folder, ready to train; equal weights at every call."""
    torch.manual_seed(1)
    return load_model(ModelRef(source="folder", path=str(folder)), lora=lora, train=True)


def load_moved(folder: Path) -> Any:
    """The model a little away from where it starts: a reference, or the policy that sampled."""
    model = load(folder).model.eval()
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=2e-4)
    return model


@dataclass
class Writer:
    """Writes agent runs; the same seed writes the same ones."""

    tokenizer: Any
    seed: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._ids = [i for text in _texts(1, 1_000_000) for i in self.tokenizer.encode(text, add_special_tokens=False)]

    def text(self, n_tokens: int) -> str:
        start = self._random.randrange(len(self._ids) - n_tokens)
        return str(self.tokenizer.decode(self._ids[start : start + n_tokens]))

    def opening(self, task_tokens: int = 100) -> Messages:
        return [{"role": "system", "content": self.text(60)}, {"role": "user", "content": self.text(task_tokens)}]

    def turns(self, n: int) -> Messages:
        """Agent turns with observations between them."""
        messages: Messages = []
        for _ in range(n):
            thought = self.text(self._random.randint(20, 40))
            observation = self.text(self._random.randint(100, 300))
            messages += [
                {"role": "assistant", "content": f"Thought: {thought}"},
                {"role": "user", "content": observation},
            ]
        return messages[:-1]

    def run(self, n_turns: int) -> Messages:
        return self.opening() + self.turns(n_turns)

    def run_of_length(self, steps: Sequence[int]) -> Messages:
        """A run with one of these numbers of turns."""
        return self.run(self._random.choice(steps))

    def runs_of_task(self, n: int, n_turns: int, *, task_tokens: int = 100, shared_turns: int = 0) -> list[Messages]:
        """Runs of one task that agree in their first turns and the observations after them."""
        head = self.opening(task_tokens)
        if shared_turns:
            head += [*self.turns(shared_turns), {"role": "user", "content": self.text(200)}]
        return [head + self.turns(n_turns - shared_turns) for _ in range(n)]


@dataclass(frozen=True)
class Examples:
    """Messages to examples, by the project's own renderer and example maker."""

    maker: ExampleMaker

    @staticmethod
    def of(tokenizer: Any, config: TrainingConfig) -> Examples:
        return Examples(ExampleMaker(Renderer.of(tokenizer), config, CONTEXT))

    def run(self, messages: Messages) -> Example:
        return _made(self.maker.run(row_of(messages), ExampleBatch()))

    def pair(self, chosen: Messages, rejected: Messages) -> Example:
        return _made(
            self.maker.pair(PairRow(chosen=trajectory_of(chosen), rejected=trajectory_of(rejected)), ExampleBatch())
        )

    def group(self, runs: Sequence[Messages], rewards: Sequence[float]) -> Example:
        trajectories = tuple(trajectory_of(messages) for messages in runs)
        return _made(
            self.maker.group(GroupRow(key="task", trajectories=trajectories, rewards=tuple(rewards)), ExampleBatch())
        )


def trajectory_of(messages: Messages) -> Trajectory:
    return from_messages(messages)


def row_of(messages: Messages) -> DatasetRow:
    return DatasetRow(trajectory=trajectory_of(messages))


def per_turn(example: Example) -> Example:
    """A run of one row as transition-level trainers store it: a row for each agent turn, with all that came before."""
    (row,) = example.rows
    rows = []
    for step in sorted({int(i) for i in row.step_index[row.supervised]}):
        own = row.supervised & (row.step_index == step)
        end = int(own.nonzero()[0][-1]) + 1
        rows.append(_cut(replace(row, supervised=own, weight=row.weight * own), end))
    return replace(example, rows=tuple(rows), member=(0,) * len(rows))


def first_tokens(example: Example, n: int) -> Example:
    """The example with its only row cut after n tokens."""
    (row,) = example.rows
    return replace(example, rows=(_cut(row, n),))


def _cut(row: TokenRow, n: int) -> TokenRow:
    return replace(row, **{name: stream[:n] for name, stream in vars(row).items() if stream is not None})


def _made(example: Example | str) -> Example:
    if isinstance(example, str):
        raise ValueError(f"the workload gave no example: {example}")
    return example
