"""Recipes: stages follow each other from agent to agent, and what dies goes on at the stage and step where it was."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quintain.datasets.dataset_writer import ExportOptions, write_dataset
from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import KeyedRow
from quintain.jobs.directory import JobDirectory
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.dataset import Row, TextRow
from quintain.records.hyperparameters import CONFIGS
from quintain.records.job import RecipeSpec
from quintain.records.job_events import JobEvent
from quintain.records.recipe import EvaluateStage, TrainStage
from quintain.settings import Settings
from quintain.tools.data.dataset_folders import freeze, new_options
from quintain.tools.jobs.curves import metric_curves
from quintain.tools.jobs.jobs import cancel_job, get_job, resume_job
from quintain.tools.results import JobView
from quintain.tools.services import Services, open_services
from quintain.tools.training.config_files import start_recipe
from quintain.worker.job_kinds import recipe
from tiny_models import save_tiny_model
from trainers.runs import Killed, dataset, same
from worker.stopping import Stopping

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

ENVIRONMENT = "quintain/inventory"
QUICK: dict[str, Any] = {"batch_size": 2, "batch_tokens": 300, "checkpoint_every_steps": 1}
TEXTS: list[Row] = [TextRow(text=f"Item {i} has a price and a stock.") for i in range(4)]


def train_stage(label: str, method: str, rows: list[Row], folder: Path, **settings: Any) -> TrainStage:
    options = ExportOptions(dataset_id=f"ds-{label}", name=label, kind="text" if method == "pretrain" else "sft")
    lines = (KeyedRow("", row) for row in rows)
    made = write_dataset(lines, folder / f"ds-{label}", options, ExportCounts()).dataset
    return TrainStage(
        label=label,
        method=method,  # type: ignore[arg-type]
        dataset_id=made.id,
        dataset_path=made.path,
        dataset_files=made.files,
        rows=made.splits["train"],
        config=CONFIGS[method](**QUICK | settings),  # type: ignore[arg-type]
    )


@pytest.fixture
def spec(tmp_path: Path) -> RecipeSpec:
    """Two steps on texts, three on runs, then two episodes: seven steps in all."""
    model = save_tiny_model(tmp_path / "tiny", hidden=16)
    return RecipeSpec(
        name="clerk",
        agent=Agent(id="agent:tiny@1", name="tiny", version=1, model=ModelRef(source="folder", path=str(model))),
        stages=(
            train_stage("corpus", "pretrain", TEXTS, tmp_path, epochs=1),
            train_stage("sft", "sft", list(dataset(3)), tmp_path, epochs=1.5),
            EvaluateStage(
                label="after", environment=ENVIRONMENT, n_tasks=2, max_turns=1, sampling=Sampling(max_new_tokens=4)
            ),
        ),
        output_dir=str(tmp_path / "out"),
        seed=3,
    )


def events(folder: Path) -> list[JobEvent]:
    return [JobEvent.model_validate_json(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]


def steps(folder: Path) -> list[int | None]:
    return [event.step for event in events(folder) if event.type == "progress"]


def test_stages_count_as_one_run_and_hand_the_agent_on(spec: RecipeSpec, tmp_path: Path) -> None:
    """4 texts in batches of 2 are 2 steps; 3 runs for 1.5 epochs in batches of 2 are 3 (ceil 4.5 / 2); 2 episodes."""
    assert [stage.planned_steps for stage in spec.stages] == [2, 3, 2]
    folder = tmp_path / "job-a"
    result = recipe.run(spec, folder, Stopping(folder))
    heard = events(folder)
    assert steps(folder) == [1, 2, 3, 4, 5, 6, 7]
    assert {event.total_steps for event in heard if event.type == "progress"} == {7}
    saved = [event.step for event in heard if event.type == "checkpoint"]
    assert saved == [1, 3, 4], "after each step but the last of a stage, which saves the model itself"
    phases = [event.name or "" for event in heard if event.type == "phase"]
    assert [name.split()[0] for name in phases] == sorted(name.split()[0] for name in phases)
    assert {name.split()[0] for name in phases} == {"00-corpus", "01-sft", "02-after"}
    (line,) = (folder / "outputs" / "agent.jsonl").read_text().splitlines()
    assert '"name":"clerk"' in line
    assert '"parent":"agent:tiny@1"' in line
    assert "pretrain on ds-corpus, sft on ds-sft" in line
    assert (result.dataset_id, result.evaluation_id) == ("ds-sft", "eval-a-02-after")
    assert result.trajectories is not None
    assert (result.trajectories.count, result.trajectories.filter) == (2, {"job_id": "job-a"})
    assert [(stage["stage"], stage["steps"]) for stage in result.report["stages"]] == [
        ("corpus", 2),
        ("sft", 3),
        ("after", 2),
    ]


def test_a_recipe_killed_in_every_stage_continues_there_and_ends_with_the_same_weights(
    spec: RecipeSpec, tmp_path: Path
) -> None:
    whole = tmp_path / "job-whole"
    expected = recipe.run(spec, whole, Stopping(whole))
    again = spec.model_copy(update={"output_dir": str(tmp_path / "again")})
    folder = tmp_path / "job-killed"
    resumed: list[set[str]] = []
    for kill_at in (2, 4, 6):
        before = len(events(folder)) if folder.exists() else 0
        with pytest.raises(Killed):
            recipe.run(again, folder, Stopping(folder, kill_at=kill_at))
        resumed.append({(event.name or "").split()[0] for event in events(folder)[before:] if event.type == "phase"})
    result = recipe.run(again, folder, Stopping(folder))
    assert resumed == [{"00-corpus"}, {"00-corpus", "01-sft"}, {"01-sft", "02-after"}], (
        "finished stages are not repeated"
    )
    assert sorted(set(steps(folder)), key=lambda step: step or 0) == [1, 2, 3, 4, 5, 6, 7]
    for stage in ("00-corpus", "01-sft"):
        assert same(Path(spec.output_dir) / stage, tmp_path / "again" / stage)
    assert (result.final_loss, result.success_rate, result.n) == (
        expected.final_loss,
        expected.success_rate,
        expected.n,
    )


def test_a_stopped_recipe_reports_its_finished_stages(spec: RecipeSpec, tmp_path: Path) -> None:
    folder = tmp_path / "job-b"
    result = recipe.run(spec, folder, Stopping(folder, stop_at=3))
    assert result.is_partial
    assert [stage["stage"] for stage in result.report["stages"]] == ["corpus"]
    assert not (folder / "outputs" / "agent.jsonl").exists()


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    opened = open_services(settings, trusted=True)
    yield opened
    opened.close()


def started(services: Services, tmp_path: Path) -> str:
    """A recipe of real processes: texts, a measured agent, more training from it, and a last measuring."""
    model = save_tiny_model(tmp_path / "tiny", hidden=16)
    (tmp_path / "notes.txt").write_text("Items have a price and a stock.\n", encoding="utf-8")
    rows = dataset(3)
    services.store.trajectories.add_many([row.trajectory for row in rows], services.clock())
    freeze(services, (KeyedRow("", row) for row in rows), new_options(services, "runs", "sft"), ExportCounts())
    measuring = {
        "method": "evaluate",
        "environment": ENVIRONMENT,
        "n_tasks": 2,
        "max_turns": 1,
        "sampling": {"max_new_tokens": 4},
    }
    document = {
        "name": "clerk",
        "model": str(model),
        "stages": [
            {"method": "pretrain", "text": "notes.txt", "hyperparameters": {**QUICK, "epochs": 2}},
            measuring,
            {"method": "sft", "dataset": "runs", "hyperparameters": {**QUICK, "epochs": 100, "lr": 1e-3}},
            {**measuring, "label": "after"},
        ],
    }
    return start_recipe(services, document, tmp_path).job_id


def until(services: Services, job_id: str, reached: Callable[[JobView], bool]) -> JobView:
    deadline = time.monotonic() + 100
    while not reached(view := get_job(services, job_id, wait_s=0.2)):
        assert time.monotonic() < deadline, view
        assert view.status not in {"failed", "succeeded"}, view
    return view


@pytest.mark.soak
def test_a_recipe_outlives_kill_and_cancel_and_its_stages_are_found_in_the_store(
    services: Services, tmp_path: Path
) -> None:
    """2 steps on texts, 2 episodes, 200 steps on runs (100 epochs of ceil 3 / 2), 2 episodes: 206."""
    job_id = started(services, tmp_path)
    until(services, job_id, lambda view: view.step >= 5)
    shim = JobDirectory(services.settings.jobs_dir / job_id).shim()
    assert shim is not None
    for pid in (shim.worker, shim.shim):
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
    until(services, job_id, lambda view: view.attempt == 2 and view.step >= 7)
    cancel_job(services, job_id)
    assert until(services, job_id, lambda view: view.status == "cancelled").attempt == 2
    assert set(metric_curves(services, job_id)["loss"].steps) >= {1, 2, 5, 6, 7}

    again = resume_job(services, job_id).job_id
    view = until(services, again, lambda view: view.status == "succeeded")
    assert (view.resumed_from, view.step, view.total_steps) == (job_id, 206, 206)
    own = [event.step for event in services.store.jobs.progress(again) if event.step is not None]
    assert min(own) > 5, "the new job began at the checkpoint of the old one"
    assert {1, 2, *own[-3:]} <= {*metric_curves(services, again)["loss"].steps, 206}, "its curve is whole"
    agents = {agent.id: agent.job_id for agent in services.store.agents.page().items}
    assert agents.pop("agent:tiny@1") is None
    assert agents == {"agent:clerk-pretrain@1": f"{job_id}/00-pretrain", "agent:clerk@1": again}
    (before,) = services.store.evaluations.of_agent("agent:clerk-pretrain@1")
    (after,) = services.store.evaluations.of_agent("agent:clerk@1")
    assert (before.job_id, after.job_id, before.suite_hash) == (job_id, again, after.suite_hash)
    assert view.result is not None
    assert (view.result.agent, view.result.evaluation_id) == ("agent:clerk@1", after.id)
