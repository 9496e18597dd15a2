"""What the job `train` hands over when it has trained a model that values runs."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import pytest

from quintain.records.agent import Agent
from quintain.records.jobs.job import JobResult
from quintain.records.jobs.job_events import JobEvent
from quintain.worker.job_kinds import train as training
from quintain.worker.job_kinds.train import held_out_agreement
from trainers.runs import rows_for, spec
from worker.job_folder import Stopping, events, outputs


def trained(base: Agent, folder: Path, method: str, held_out: int) -> tuple[JobResult, Agent, list[JobEvent]]:
    """Train on two rows, with so many rows held out; the result, the agent and what was told."""
    data, files = folder / "data", dict[str, str]()
    data.mkdir()
    rows = rows_for(method, 2 + held_out)
    for split, lines in (("train", rows[:2]), ("validation", rows[2:])):
        if lines:
            path = data / f"{split}.jsonl"
            path.write_text("".join(row.model_dump_json() + "\n" for row in lines), encoding="utf-8")
            files[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    job = spec(Path(base.model.path), folder / "out", method, epochs=1)
    job = job.model_copy(update={"dataset_path": str(data), "dataset_files": files})
    directory = folder / "job-1"
    result = training.run(job, directory, Stopping(directory))
    (agent,) = outputs(directory, "agent")
    return result, Agent.model_validate(agent), events(directory)


@pytest.mark.parametrize(("method", "role"), [("reward", "reward_model"), ("prm", "step_model")])
def test_the_agent_contains_its_held_out_agreement(tiny_agent: Agent, tmp_path: Path, method: str, role: str) -> None:
    result, agent, _ = trained(tiny_agent, tmp_path, method, held_out=3)
    assert agent.role == role
    assert result.report["held_out_agreement"] == agent.held_out.model_dump(mode="json", exclude_none=True)
    assert (agent.held_out.brier is None) == (method == "reward")
    assert str(agent.held_out) in agent.description
    assert (
        agent.held_out.ci_low
        <= agent.held_out.rate
        == agent.held_out.right / agent.held_out.n
        <= agent.held_out.ci_high
    )


@pytest.mark.parametrize("method", ["dpo", "orpo", "simpo", "ranking"])
def test_an_agent_that_learned_from_pairs_is_asked_for_the_held_out_ones(
    tiny_agent: Agent, tmp_path: Path, method: str
) -> None:
    """People who picked the better run ask how often the agent agrees with picks that it has not seen."""
    result, agent, told = trained(tiny_agent, tmp_path, method, held_out=3)
    assert result.report["held_out_agreement"]["of"] == "pairs ordered as labelled"
    assert result.report["held_out_agreement"]["n"] >= 3
    steps = [event.metrics for event in told if event.type == "progress" and "validation_loss" in (event.metrics or {})]
    assert 0 <= steps[-1]["validation_reward_accuracy"] <= 1
    assert agent.held_out is None, "it is no measure of an agent that acts"


def test_an_agent_without_held_out_labels_is_described_so_and_the_job_warns(tiny_agent: Agent, tmp_path: Path) -> None:
    result, agent, message = trained(tiny_agent, tmp_path, "reward", held_out=0)
    assert agent.held_out is None
    assert result.report["held_out_agreement"] is None
    assert "its accuracy is unknown" in agent.description
    assert [event.code for event in message if event.type == "warning"][-1] == "no_held_out"


def test_the_interval_is_exact() -> None:
    """At its ends 8 of 10 or more, and 8 of 10 or fewer, have a chance of 2.5 % (Clopper and Pearson 1934)."""
    known = held_out_agreement("reward", {"reward_accuracy": (8.0, 10.0)})
    assert (known.right, known.n, known.rate) == (8, 10, 0.8)

    def at_most(k: int, p: float) -> float:
        return sum(math.comb(10, i) * p**i * (1 - p) ** (10 - i) for i in range(k + 1))

    assert 1 - at_most(7, known.ci_low) == pytest.approx(0.025, abs=1e-6)
    assert at_most(8, known.ci_high) == pytest.approx(0.025, abs=1e-6)
    steps = held_out_agreement("prm", {"step_accuracy": (3.0, 4.0), "brier": (1.0, 5.0)})
    assert steps.brier == pytest.approx(0.2)
    assert held_out_agreement("prm", {"brier": (0.1, 2.0)}) is None, "labels of 0.5 are on no side"
