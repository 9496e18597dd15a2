"""Training runs of tiny models, with a reporter that remembers and can kill or stop them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import DatasetRow, GroupRow, LabelledRow, PairRow, Row, StepLabelRow
from quintain.records.hyperparameters.methods import CONFIGS, LoraConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.record import Record
from quintain.records.trajectory import Outcome, OutcomeStatus, SampledTokens, Trajectory
from quintain.trainers.data.streams import TokenRow
from quintain.trainers.loop.report import TrainingReport
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.run_setup import Collect, Data
from quintain.trainers.train import train
from trainers.episodes import episode

LORA = LoraConfig(rank=4, alpha=8.0, dropout=0.1)

Steps = Sequence[tuple[int, int, dict[str, float | None]]]


class Killed(Exception):
    """The process is gone: nothing after this line runs."""


class Recorder:
    """A reporter that records its calls, and can kill or stop the run after a step."""

    def __init__(self, *, kill_at: int | None = None, stop_at: int | None = None) -> None:
        self.phases: list[str] = []
        self.steps: list[tuple[int, int, dict[str, float | None]]] = []
        self.checkpoints: list[int] = []
        self.warnings: list[tuple[str, str]] = []
        self.kill_at, self.stop_at = kill_at, stop_at

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def progress(self, step: int, total_steps: int, metrics: dict[str, float | None]) -> None:
        self.steps.append((step, total_steps, metrics))
        if step == self.kill_at:
            raise Killed

    def checkpoint(self, step: int, path: Path) -> None:
        assert (path / "manifest.json").is_file()
        self.checkpoints.append(step)

    def warn(self, code: str, message: str) -> None:
        self.warnings.append((code, message))

    def output(self, kind: str, record: Record) -> None:
        raise AssertionError(f"a trainer hands over no records, got {kind} {record}")

    def should_stop(self) -> bool:
        return bool(self.stop_at is not None and self.steps and self.steps[-1][0] >= self.stop_at)


def dataset(n: int) -> list[DatasetRow]:
    return [
        DatasetRow(trajectory=episode(1 + i % 3, question=f"price of item {i}?"), weight=1.0 + i % 2) for i in range(n)
    ]


def run_of(i: int, said: str, *, success: bool = True, turns: int = 2) -> Trajectory:
    """A run of task `i` that ends with `said`."""
    whole = episode(turns, question=f"price of item {i}?")
    last = whole.steps[-1].model_copy(update={"message": said})
    status = OutcomeStatus.SUCCESS if success else OutcomeStatus.FAILURE
    return whole.model_copy(
        update={"steps": (*whole.steps[:-1], last), "outcome": Outcome(status=status, reward=float(success))}
    )


def as_sampled(
    run: Trajectory, renderer: Renderer, logprob: float, top_of: Callable[[TokenRow], Sequence[Any]] | None = None
) -> Trajectory:
    """The run with its rendered ids as sampled, of one log-prob each, and at each the alternatives of `top_of(row)`."""
    (row,) = renderer.render(run, 10_000).rows
    tops = top_of(row) if top_of else None
    steps = list(run.steps)
    for index in np.unique(row.step_index[row.supervised]).tolist():
        mine = row.step_index[row.places] == index
        ids = tuple(row.token_ids[row.places][mine].tolist())
        top = tuple(tops[n] for n in np.flatnonzero(mine)) if tops else None
        sampled = SampledTokens(token_ids=ids, logprobs=(logprob,) * len(ids), top=top, tokenizer=renderer.fingerprint)
        steps[index] = steps[index].model_copy(update={"sampled": sampled})
    return run.model_copy(update={"steps": tuple(steps)})


def rows_for(method: str, n: int) -> list[Row]:
    """Rows of the kind that a method learns from: the good runs say 'It costs 40.', the bad ones 'No idea.'."""
    rows: list[Row] = []
    for i in range(n):
        good, bad = run_of(i, "It costs 40.", turns=1 + i % 3), run_of(i, "No idea.", success=False, turns=1 + i % 2)
        if method in ("dpo", "orpo", "simpo", "reward"):
            rows.append(PairRow(chosen=good, rejected=bad))
        elif method == "prm":
            run = good if i % 2 else bad
            labels = [0.5] * (len(run.agent_steps) - 1)
            rows.append(StepLabelRow(trajectory=run, labels=(*labels, float(i % 2))))
        elif method == "kto":
            rows.append(LabelledRow(trajectory=good if i % 2 else bad, desirable=bool(i % 2)))
        elif method in ("grpo", "ranking"):
            rows.append(GroupRow(key=f"task-{i}", trajectories=(good, bad, good), rewards=(1.0, 0.0, 0.5)))
        else:
            rows.append(DatasetRow(trajectory=good))
    return rows


def spec(model: Path, output: Path, method: str = "sft", **config: Any) -> TrainSpec:
    settings: dict[str, Any] = {
        "epochs": 2,
        "batch_size": 2,
        "batch_tokens": 300,
        "checkpoint_every_steps": 2,
        "learning_rate": 5e-4,
        **config,
    }
    return TrainSpec(
        method=method,  # type: ignore[arg-type]
        agent=Agent(name="tiny", model=ModelRef(source="folder", path=str(model))),
        dataset_id="ds",
        dataset_path="unused",
        name="trained",
        output_dir=str(output),
        config=CONFIGS[method](**settings),  # type: ignore[arg-type]
        seed=11,
    )


def metric(recorder: Recorder, name: str) -> list[float]:
    """Return a metric of each step that has it."""
    return [value for _, _, metrics in recorder.steps if (value := metrics.get(name)) is not None]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {k: v for file in sorted(folder.glob("*.safetensors")) for k, v in load_file(file).items()}


def same(a: Path, b: Path) -> bool:
    left, right = weights(a), weights(b)
    return bool(left) and left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def alike(a: Path, b: Path, rel: float = 1e-6) -> bool:
    """Whether the weights agree to a share of their norm."""
    left, right = weights(a), weights(b)
    return left.keys() == right.keys() and all(
        float((left[k] - right[k]).norm()) <= rel * float(left[k].norm()) for k in left
    )


class Trained(NamedTuple):
    """A finished run."""

    output: Path
    report: TrainingReport
    heard: Recorder


_FIGURES = {
    "loss",
    "grad_norm",
    "tokens",
    "entropy",
    "kto_kl",
    "observation_share",
    "validation_loss",
    "validation_entropy",
}


def assert_same_figures(one: Steps, two: Steps) -> None:
    """Sums over ranks differ from those over passes in their float32 rounding alone."""
    for (_, _, a), (_, _, b) in zip(one, two, strict=True):
        assert a.keys() == b.keys()
        for figure in a.keys() & _FIGURES:
            assert b[figure] == pytest.approx(a[figure], rel=1e-5, abs=1e-6), figure


def assert_as_one(alone: Trained, together: Trained) -> None:
    """Several processes have trained as one has."""
    assert_same_figures(alone.heard.steps, together.heard.steps)
    assert alike(alone.output, together.output)
    for figure in ("best_step", "supervised_tokens"):
        assert getattr(together.report, figure) == getattr(alone.report, figure)
    assert together.report.validation_loss == pytest.approx(alone.report.validation_loss)
    assert {path.name for path in alone.output.iterdir()} == {path.name for path in together.output.iterdir()}
    assert alone.heard.checkpoints == together.heard.checkpoints


def run(
    job: TrainSpec,
    folder: Path,
    rows: Sequence[Row],
    reporter: Recorder | None = None,
    validation: Sequence[Row] = (),
) -> tuple[TrainingReport, Recorder]:
    reporter = reporter or Recorder()
    return train(job, Data(rows, validation), folder, reporter), reporter


def resumed(
    job: TrainSpec, folder: Path, data: Sequence[Row] | Data, *, kill_at: int = 3, collect: Collect | None = None
) -> tuple[TrainingReport, Recorder]:
    """Run a job that is killed after a step, and run it again to its end."""
    if not isinstance(data, Data):
        data = Data(data)
    with pytest.raises(Killed):
        train(job, data, folder, Recorder(kill_at=kill_at), collect)
    heard = Recorder()
    return train(job, data, folder, heard, collect), heard
