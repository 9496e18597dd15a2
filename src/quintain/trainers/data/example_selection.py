"""Selection of a run's examples: coreset, replay buffer and curriculum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from quintain.errors import InvalidInput
from quintain.records.hyperparameters.methods import CoresetConfig, CurriculumConfig, ReplayConfig, SFTConfig
from quintain.records.jobs.job import TrainSpec
from quintain.trainers.data.coreset import coreset, text_features
from quintain.trainers.data.example_files import read_examples, write_examples
from quintain.trainers.data.examples import ExampleBatch, ExampleMaker
from quintain.trainers.data.replay_buffer import ReplayBuffer
from quintain.trainers.data.streams import Example
from quintain.trainers.distributed.passes import OWN_PASSES, SharedPasses
from quintain.trainers.distributed.process_group import ProcessGroup
from quintain.trainers.engine.forward import Engine
from quintain.trainers.loop.checkpoints import disk_errors_explained
from quintain.trainers.rendering.renderer import Renderer


@dataclass
class Selection:
    """The examples of a run."""

    examples: list[Example]
    curriculum: tuple[CurriculumConfig, list[float]] | None = None
    """The settings, and the difficulty of each example."""
    replayed: int = 0
    notes: tuple[str, ...] = ()
    remember: Callable[[], object] = lambda: None
    """Adds the run's own examples to the replay buffer; to be called when the run has succeeded."""


def select(
    dataset: ExampleBatch,
    spec: TrainSpec,
    maker: ExampleMaker,
    engine: Engine,
    directory: Path,
    passes: SharedPasses = OWN_PASSES,
) -> Selection:
    """Choose a coreset, add examples of the replay buffer, and rank by difficulty, as the settings require.

    Rows of another tokenizer or template, and longer rows than `maker` allows, are not replayed. Replayed examples are kept in
    `directory` for a resumed run.
    """
    config, chosen = spec.config, Selection(dataset.examples)
    if not isinstance(config, SFTConfig):
        return chosen
    rewards = dataset.rewards
    if config.coreset is not None and config.coreset.size < len(dataset.examples):
        kept = _coreset(config.coreset, dataset.examples, maker.renderer, engine, spec, passes)
        rewards = [dataset.rewards[i] for i in kept]
        note = f"{len(kept)} of {len(dataset.examples)} examples were chosen by {config.coreset.method}"
        chosen = replace(chosen, examples=[dataset.examples[i] for i in kept], notes=(note,))
    if config.curriculum is not None:
        ranks = [_difficulty(e, reward) for e, reward in zip(chosen.examples, rewards, strict=True)]
        chosen = replace(chosen, curriculum=(config.curriculum, ranks))
    if config.replay is not None:
        chosen = _with_replay(config.replay, chosen, spec, maker, directory, passes.group)
    return chosen


def mean_losses(
    engine: Engine, examples: Sequence[Example], batch_tokens: int, passes: SharedPasses = OWN_PASSES
) -> list[float]:
    """Return the mean negative log-likelihood of each example under the model, in nats a token."""
    scores = passes.score(engine, examples, batch_tokens, lambda rows: engine.logprobs(rows).logprobs)
    return [-float(np.concatenate([scores[row] for row in e.rows]).mean(dtype=np.float64)) for e in examples]


def written_text(renderer: Renderer, example: Example) -> str:
    """Return the text of the tokens in the loss of an example."""
    return " ".join(renderer.decode(row.token_ids[row.supervised].tolist()) for row in example.rows)


def _coreset(
    config: CoresetConfig,
    examples: Sequence[Example],
    renderer: Renderer,
    engine: Engine,
    spec: TrainSpec,
    passes: SharedPasses,
) -> list[int]:
    needs_loss = config.method in ("loss", "hybrid")
    losses = mean_losses(engine, examples, spec.config.batch_tokens, passes) if needs_loss else [0.0] * len(examples)
    texts = [written_text(renderer, example) for example in examples]
    kept = coreset(config, losses, text_features(texts), seed=spec.seed)
    return sorted(kept)  # in the dataset's order, which the seed of the run then shuffles


def _with_replay(
    config: ReplayConfig,
    chosen: Selection,
    spec: TrainSpec,
    maker: ExampleMaker,
    directory: Path,
    group: ProcessGroup,
) -> Selection:
    if spec.cache_dir is None:
        raise InvalidInput("expected a cache_dir for the replay buffer, got none; start the job with cache_dir")
    folder = Path(spec.cache_dir) / "replay" / config.buffer
    fingerprint = maker.renderer.fingerprint
    new = list(chosen.examples)
    # A resumed run must replay what its first attempt replayed, whatever other jobs have added since.
    kept = directory / "checkpoints" / "replayed.npz"

    def read() -> tuple[list[Example], str | None]:
        buffer = ReplayBuffer.open(folder, size=config.size, fingerprint=fingerprint)
        if kept.exists():
            return read_examples(kept).examples, buffer.warning
        replayed = buffer.sample(
            round(config.ratio * len(new)), exclude={example.key for example in new}, seed=spec.seed
        )
        with disk_errors_explained(kept, kept.parent):
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_examples(kept, replayed, fingerprint)
        return replayed, buffer.warning

    replayed, warning = group.from_first(read)
    fitting = [e for e in replayed if all(len(row) <= maker.max_length for row in e.rows)]
    notes = [f"{len(fitting)} examples are replayed from the buffer {config.buffer!r}"]
    if not replayed:
        notes = [
            f"the buffer {config.buffer!r} has no examples to replay beside those of this job, which it keeps for the next"
        ]
    if len(fitting) < len(replayed):
        notes.append(f"{len(replayed) - len(fitting)} examples of the buffer are longer than {maker.max_length} tokens")
    if warning:
        notes.append(warning)
    if chosen.curriculum is not None:
        shape, ranks = chosen.curriculum
        chosen = replace(chosen, curriculum=(shape, [*ranks, *(_difficulty(e, e.value[0]) for e in fitting)]))
    return replace(
        chosen,
        examples=[*new, *fitting],
        replayed=len(fitting),
        notes=(*chosen.notes, *notes),
        remember=lambda: ReplayBuffer.open(folder, size=config.size, fingerprint=fingerprint).add(new),
    )


def _difficulty(example: Example, reward: float | None) -> float:
    """Return agent steps minus reward: short, well-rewarded runs come first. An unknown reward counts as 0."""
    n_steps = len({int(step) for row in example.rows for step in np.unique(row.step_index[row.supervised])})
    return n_steps - (reward or 0.0)
