"""Distillation on the student's own runs: the teacher scores what is played, and a resumed job ends bit-equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quintain.records.agent import Agent
from quintain.trainers.models.loading import load_model
from quintain.trainers.rendering.renderer import Renderer
from quintain.worker.job_kinds import train as training
from trainers.own_forward import own_logprobs
from trainers.playing import save_sharp_teacher
from trainers.runs import Killed, same
from worker.job_folder import Stopping, progress, trajectories
from worker.online import online


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    return save_sharp_teacher(tmp_path_factory.mktemp("models") / "teacher")


def metrics(folder: Path, name: str) -> list[Any]:
    return [step[name] for step in progress(folder) if name in step]


def test_the_teacher_scores_what_the_student_plays_and_a_resume_is_bit_equal(
    tmp_path: Path, tiny_agent: Agent, teacher: Agent
) -> None:
    small = {"rollouts": 2, "tasks_per_step": 1, "group_size": 2, "updates_per_rollout": 2, "max_new_tokens": 8}
    small |= {"max_turns": 1, "learning_rate": 1e-2, "checkpoint_every_steps": 3}
    spec = online(
        tiny_agent, "distill", output=tmp_path / "out", teacher="sharp", teacher_agent=teacher, seed=2, **small
    )
    folder = tmp_path / "job-a"
    result = training.run(spec, folder, Stopping(folder))
    loaded = load_model(teacher.model)
    renderer, model = Renderer.of(loaded.tokenizer), loaded.model.eval()
    differences = []
    for run in trajectories(folder)[:2]:
        (row,) = renderer.render(run, 4096).rows
        assert row.old_logprob is not None
        differences += (row.old_logprob[row.places] - own_logprobs(model, [row]).detach().numpy()).tolist()
    divergences = metrics(folder, "reverse_kl")
    assert len(divergences) == 4
    assert divergences[0] == pytest.approx(sum(differences) / len(differences), rel=1e-3)
    assert metrics(folder, "ratio_mean")[0] == pytest.approx(1.0, abs=1e-3)

    # In the middle of a rollout: its examples, with the teacher's log-probs, come from the checkpoint.
    again = spec.model_copy(update={"output_dir": str(tmp_path / "again")})
    folder = tmp_path / "again-1" / "job-a"
    with pytest.raises(Killed):
        training.run(again, folder, Stopping(folder, kill_at=4))
    resumed = training.run(again, folder, Stopping(folder))
    assert resumed.final_loss == result.final_loss
    assert same(tmp_path / "out", tmp_path / "again")
