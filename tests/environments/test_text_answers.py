"""Answers in plain text: questions of a file take them as evaluations without tools do, behind every wrapper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from playing import Scripted, play
from quintain.environments.isolation.isolated import IsolatedSource
from quintain.environments.math import Math
from quintain.environments.references import write_mixture
from quintain.environments.registry import task_source
from quintain.environments.wrappers import max_steps, recorder, wrap
from quintain.evaluation.episodes import Episode, EpisodePlan, EpisodeSettings, replay
from quintain.records.protocols import Reply, TaskSource
from quintain.records.trajectory import AgentInfo, OutcomeStatus, Trajectory

CLIPS = "Natalia sold clips to 48 friends in April, and half as many in May. How many clips did she sell?"
SOLUTION = "In May she sold 48/2 = <<48/2=24>>24 clips.\nAltogether 48+24 = <<48+24=72>>72 clips.\n#### 72"


@pytest.fixture
def gsm8k(tmp_path: Path) -> Path:
    path = tmp_path / "gsm8k.jsonl"
    path.write_text(json.dumps({"question": CLIPS, "answer": SOLUTION}) + "\n", encoding="utf-8")
    return path


def said(source: TaskSource, *lines: str) -> Episode:
    """The episode of an agent that calls nothing and says these lines."""
    left = iter(lines)
    policy = Scripted(lambda turn: Reply(text=(line := next(left)), thought=line))
    return play(source, policy, source.tasks("all", 1, 0), concurrency=1)[0]


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (SOLUTION, 1.0),  # strict match of lm-eval: the number after ####
        ("48 + 24 = 72, so Natalia sold 72 clips.", 1.0),  # flexible match: the last number
        ("Let us think.\n\nFinal Answer: 72", 1.0),  # as the seed's training data ends
        ("She sold 48 + 24 = 71.", 0.0),
    ],
)
def test_the_answer_to_a_gsm8k_question_counts_in_plain_text(gsm8k: Path, text: str, reward: float) -> None:
    for source in (Math(file=gsm8k), task_source(f"quintain/tasks?file={gsm8k}")):
        result = said(source, text).result
        assert (result.reward, result.turns) == (reward, 1)


def test_a_text_without_a_number_is_no_answer_yet(gsm8k: Path) -> None:
    episode = said(Math(file=gsm8k), "Let me think.", "It is 72.")
    assert (episode.result.reward, episode.result.turns) == (1.0, 2)
    generated = task_source("quintain/math")
    first = generated.tasks("train", 1, 0)[0]
    environment = generated.make()
    environment.reset(first)
    assert not environment.take_answer("72").terminated, "generated problems are answered by submit"  # type: ignore[attr-defined]


def test_text_answers_pass_wrappers_mixtures_and_processes(gsm8k: Path) -> None:
    kept: list[Trajectory] = []
    wrapped = wrap(Math(file=gsm8k), max_steps(1), recorder(AgentInfo(name="speaker"), kept.append))
    mixed = task_source(write_mixture({f"quintain/math?file={gsm8k}": 1, f"quintain/tasks?file={gsm8k}": 1e-6}))
    for source in (wrapped, mixed, IsolatedSource(f"quintain/math?file={gsm8k}")):
        assert said(source, "It is 72.").result.status is OutcomeStatus.SUCCESS
    assert kept[0].outcome.status is OutcomeStatus.SUCCESS


def test_a_run_that_answered_in_text_replays_to_the_same_reward(gsm8k: Path) -> None:
    source = Math(file=gsm8k)
    run = said(source, "It is 72.").trajectory
    start = next(place for place, step in enumerate(run.steps) if step.actor.value == "agent")
    settings = EpisodeSettings(seed=0, max_turns=None, concurrency=1, agent=AgentInfo(name="speaker"))
    again = replay(source, EpisodePlan(source.tasks("all", 1, 0)[0], prefix=run.steps[start:]), settings)
    assert (again.reward, again.divergence) == (1.0, None)


def test_all_rows_of_a_file_can_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "ten.jsonl"
    rows = [{"question": f"What is {i} + {i}?", "answer": f"#### {2 * i}"} for i in range(10)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    source = Math(file=path)
    everything = source.tasks("all", 10, 3)
    assert len({task.id for task in everything}) == 10
    assert {task.metadata["split"] for task in everything} == {"held_out"}, "their runs are no training data"
    assert {task.id for task in source.tasks("held_out", 1, 3)} <= {task.id for task in everything}
