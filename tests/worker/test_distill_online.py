"""Distillation on the student's own runs: the teacher scores what is played, the divergence falls, and a resume is bit-equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters import DistillConfig
from quintain.records.job import TrainSpec
from quintain.worker.job_kinds import train as training
from tiny_models import tiny_model, tiny_tokenizer
from trainers.playing import spread
from trainers.runs import Killed, same
from worker.job_folder import Stopping, events


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    folder = tmp_path_factory.mktemp("models") / "teacher"
    tokenizer = tiny_tokenizer()
    spread(tiny_model(tokenizer, hidden=16, seed=4)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Agent(id="agent:sharp@1", name="sharp", model=ModelRef(source="folder", path=str(folder)))


def metrics(folder: Path, name: str) -> list[Any]:
    return [
        event.metrics[name] for event in events(folder) if event.type == "progress" and name in (event.metrics or {})
    ]


def test_the_student_comes_to_write_what_its_teacher_would(tmp_path: Path, tiny_agent: Agent, teacher: Agent) -> None:
    config = DistillConfig(
        teacher="sharp",
        rollouts=6,
        tasks_per_step=2,
        group_size=4,
        updates_per_rollout=2,
        max_new_tokens=8,
        max_turns=1,
        learning_rate=1e-2,
        checkpoint_every_steps=3,
    )
    spec = TrainSpec(
        method="distill",
        agent=tiny_agent,
        environment="quintain/inventory",
        name="student",
        output_dir=str(tmp_path / "out"),
        config=config,
        teacher_agent=teacher,
        seed=2,
    )
    folder = tmp_path / "job-a"
    result = training.run(spec, folder, Stopping(folder))
    divergences = metrics(folder, "reverse_kl")
    assert len(divergences) == 12
    assert divergences[-1] < 0.8 * divergences[0]
    assert metrics(folder, "ratio_mean")[0] == pytest.approx(1.0, abs=1e-3)

    # In the middle of a rollout: its examples, with the teacher's log-probs, come from the checkpoint.
    again = spec.model_copy(update={"output_dir": str(tmp_path / "again")})
    folder = tmp_path / "again-1" / "job-a"
    with pytest.raises(Killed):
        training.run(again, folder, Stopping(folder, kill_at=4))
    resumed = training.run(again, folder, Stopping(folder))
    assert resumed.final_loss == result.final_loss
    assert same(tmp_path / "out", tmp_path / "again")
