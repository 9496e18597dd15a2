"""Starting an evolution, by tool, dict call, config file and command; what is wrong is told before anything is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from quintain.cli.commands.evolve import _show
from quintain.cli.main import app
from quintain.errors import Conflict, InvalidInput
from quintain.records.dataset import Dataset
from quintain.records.jobs.evolve import EvolveConfig, round_dataset_id
from quintain.records.jobs.job import EvolveSpec, JobResult
from quintain.settings import Settings
from quintain.tools.data.forgetting import forget
from quintain.tools.jobs.jobs import cancel_job, resume_job, view_of
from quintain.tools.results import JobStarted
from quintain.tools.services import Services
from quintain.tools.training.config_files import start_config
from quintain.tools.training.start import start_training
from tools.dict_calls import Caller
from tools.stored_records import add_runs, error_of, spec_of
from trajectory_runs import run

INVENTORY = "quintain/inventory"


def start(services: Services, **settings: Any) -> JobStarted:
    return start_training(services, "evolve", "starter", environment=INVENTORY, hyperparameters=settings)


WRONG_SETTINGS: list[tuple[dict[str, Any], list[str]]] = [
    ({"iteration": 3}, ["hyperparameters.iteration", "did you mean 'iterations'"]),
    ({"iterations": 0}, ["iterations", "greater than or equal to 1"]),
    ({"ratio": 1.5}, ["ratio", "less than or equal to 1"]),
    ({"select": "best"}, ["select", "expected one of top_k, threshold, rejection"]),
    ({"training": {"gamma": 1}}, ["in `training`", "hyperparameters.gamma", "fields of sft"]),
    ({"train": "dpo", "training": {"rollouts": 3}}, ["rollouts would have no effect"]),
    ({"training": {"replay": {}}}, ["replay", "accumulate"]),
    ({"train": "dpo", "attempts": 1}, ["train 'dpo'", "raise attempts"]),
    ({"temperature": 0}, ["makes all attempts equal"]),
    ({"temperature": [1.0, 0.5]}, ["1..0.5", "swap them"]),
    ({"temperature": [0.5, 1.0], "attempts": 1}, ["attempts 1, got a pair"]),
    ({"select": "rejection", "ratio": 0.5}, ["no ratio", "got 0.5", "select 'rejection'", "omit it"]),
    ({"select": "threshold", "threshold": None}, ["a threshold", "got null"]),
    ({"train": "grpo", "threshold": 0.7}, ["no threshold", "got 0.7", "train 'grpo'"]),
    ({"train": "grpo", "select": "rejection"}, ["got 'rejection'", "omit it"]),
    ({"train": "grpo", "reflect": 1}, ["reflect 0", "got 1", "log-probs"]),
    ({"train": "ppo", "ratio": 0.5}, ["no ratio", "train 'ppo'", "good and bad runs"]),
    ({"train": "ppo", "temperature": [0.5, 1.0]}, ["one temperature above 0 with train 'ppo'", "0.5..1"]),
    ({"train": "ppo", "accumulate": True}, ["no accumulate with train 'ppo'"]),
    ({"train": "ppo", "training": {"rollouts": 3}}, ["in `training`", "no rollouts, got 3", "set tasks_per_iteration"]),
    ({"train": "ppo", "training": {"self_play": {}}}, ["no self_play", "train once by ppo"]),
    (
        {"train": "ppo", "tasks_per_iteration": 128, "training": {"critic_warmup_steps": 8}},
        ["critic_warmup_steps below the 8 optimizer steps of a round", "got 8", "lower it"],
    ),
    ({"trajectories_per_iter": 500, "tasks_per_iteration": 9}, ["hyperparameters.trajectories_per_iter"]),
    ({"curriculum": []}, ["curriculum.levels"]),
    ({"curriculum": {"stages": []}}, ["curriculum.levels is required", "fields of curriculum: levels, advance_at, "]),
    ({"curriculum": ["?difficulty=easy", "?difficulty=moon"]}, ["curriculum.levels[1]", "'moon'"]),
]


def test_settings_that_are_wrong_or_without_effect_are_told_what_would_do(waiting: Services) -> None:
    for given, words in WRONG_SETTINGS:
        message = error_of(start, waiting, **given).message
        assert [word for word in words if word not in message] == [], message
    assert waiting.store.jobs.page().items == ()


def test_an_evolution_needs_an_environment_and_takes_no_dataset(waiting: Services) -> None:
    with pytest.raises(InvalidInput, match="needs `environment`"):
        start_training(waiting, "evolve", "starter")
    with pytest.raises(InvalidInput, match=r"dataset 'runs' cannot be taken"):
        start_training(waiting, "evolve", "starter", dataset_id="runs", environment=INVENTORY)
    with pytest.raises(InvalidInput, match=r"dataset 'runs' cannot be taken"):
        start_config(waiting, {"method": "evolve", "environment": INVENTORY, "dataset": "runs"})


def test_a_spec_holds_checked_settings_by_any_name_and_whole_levels(waiting: Services) -> None:
    started = start(
        waiting,
        num_iterations=3,
        selection_ratio=0.2,
        selection_method="top_k",
        reward_threshold=0.7,
        samples_per_task=5,
        curriculum=["?difficulty=easy", INVENTORY],
        training={"lr": 1e-3},
    )
    spec = spec_of(waiting, started)
    config = spec.config
    assert (config.iterations, config.ratio, config.select) == (3, 0.2, "top_k")
    assert (config.threshold, config.attempts) == (0.7, 5)
    assert config.curriculum.levels == (f"{INVENTORY}?difficulty=easy", INVENTORY)
    assert (spec.training.learning_rate, config.training) == (1e-3, {})
    assert (spec.name, spec.datasets_dir) == ("starter-evolve", str(waiting.settings.datasets_dir))
    assert EvolveSpec.model_validate_json(spec.model_dump_json()) == spec


def test_the_rollouts_of_ppo_are_the_episodes_of_a_round(waiting: Services) -> None:
    """250 tasks in rollouts of 100: three, the last of which repeats tasks. Of their 12 steps 3 train the value head alone."""
    training = {"tasks_per_step": 100, "kl_coef": 0.02}
    spec = spec_of(waiting, start(waiting, train="ppo", attempts=2, temperature=0.9, max_turns=4, training=training))
    found = spec.training
    assert (found.rollouts, found.tasks_per_step, found.group_size) == (3, 100, 2)
    assert (found.temperature, found.max_turns, found.kl_coefficient) == (0.9, 4, 0.02)
    assert found.critic_warmup_steps == 3
    few = spec_of(waiting, start(waiting, train="ppo", tasks_per_iteration=20, training={"critic_warmup_steps": 2}))
    assert (few.training.rollouts, few.training.tasks_per_step, few.training.critic_warmup_steps) == (1, 20, 2)


def test_earlier_selections_come_back_by_themselves_where_every_round_starts_from_the_base() -> None:
    assert [EvolveConfig(start_from=start).accumulates for start in ("best", "last", "base")] == [False, False, True]
    assert not EvolveConfig(start_from="base", accumulate=False).accumulates


def test_tool_dict_call_file_and_command_start_the_same_job(waiting: Services, tool: Caller, tmp_path: Path) -> None:
    settings = {"iterations": 2, "attempts": 3, "training": {"epochs": 1}}
    first = start_training(waiting, "evolve", "starter", environment=INVENTORY, hyperparameters=settings)
    common = {"environment": INVENTORY, "hyperparameters": settings, "wait": False}
    answers = [
        tool(action="evolve", **common),
        tool(action="train", algorithm="evolve", model_name="starter", **common),
    ]
    assert [(answer["job_id"], answer["deduplicated"]) for answer in answers] == [(first.job_id, True)] * 2
    document = {"method": "evolve", "environment": INVENTORY, **settings, "iterations": 7}
    file = tmp_path / "evolve.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    asked = f"evolve starter --config {file} --iterations 2 --detach --home {waiting.settings.home}"
    ran = CliRunner().invoke(app, asked.split())
    assert (ran.exit_code, ran.stdout.strip()) == (0, first.job_id)
    refused = tool(algorithm="evolve", environment=INVENTORY, num_epochs=3)  # a setting of single trainings
    assert (refused["code"], "num_epochs" in refused["message"]) == ("unknown_argument", True)


def test_the_command_refuses_two_words_for_one_setting_and_files_of_other_methods(
    settings: Settings, tmp_path: Path
) -> None:
    home = ["--environment", INVENTORY, "--home", str(settings.home)]
    twice = CliRunner().invoke(app, ["evolve", "--iterations", "2", "--set", "iterations=3", *home])
    assert (twice.exit_code, "give the same setting" in twice.stderr) == (2, True)
    file = tmp_path / "sft.yaml"
    file.write_text("method: sft\ndataset: runs\n", encoding="utf-8")
    other = CliRunner().invoke(app, ["evolve", "--config", str(file), *home])
    assert (other.exit_code, "quintain train --config" in other.stderr) == (2, True)


REPORT: dict[str, Any] = {
    "rounds": [
        {"round": 1, "environment": INVENTORY, "explored": 240, "explored_success": 0.4583, "selected": 31}
        | {"success": 0.95, "gain": 0.61, "ci_low": 0.503, "ci_high": 0.698, "decision": "better"},
        {"round": 2, "environment": INVENTORY, "explored": 240, "explored_success": None, "selected": 0}
        | {"decision": "nothing_selected"},
    ],
    "stopped": "patience: 1 round in a row without a significant gain",
    "result_round": 1,
    "final": {"before": 0.34, "after": 0.96, "gain": 0.62, "ci_low": 0.547, "ci_high": 0.683, "p": 9.4e-38}
    | {"evaluations": ["eval-1-final-start", "eval-1-final-result"]},
}


def test_the_command_shows_each_round_and_the_last_comparison(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    _show(Console(width=120, soft_wrap=True), JobResult(agent="agent:keeper@1", report=REPORT))
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 240 45.8% 31 95.0% +61.0% [+50%, +70%] better" in shown
    assert "2 240 unknown 0 unknown nothing selected" in shown
    assert "34.0% before, 96.0% after (+62.0%, 95 % +54.7% to +68.3%, p = 9.4e-38)" in shown


def test_the_next_step_after_an_evolution_is_its_proof_or_what_to_try(waiting: Services) -> None:
    started = start_training(waiting, "evolve", "starter", environment=INVENTORY)
    job = waiting.store.jobs.get(started.job_id).model_copy(update={"status": "succeeded"})
    done = JobResult(agent="agent:keeper@1", evaluation_id="eval-1-final-result", report=REPORT)
    result = view_of(waiting, job.model_copy(update={"result": done})).next_step
    assert "compare_agents(agents=['eval-1-final-start', 'eval-1-final-result'], show=True)" in result
    unmoved = done.model_copy(update={"report": {**REPORT, "result_round": 0}})
    result = view_of(waiting, job.model_copy(update={"result": unmoved})).next_step
    assert "No round was better" in result


def test_an_evolution_that_selected_a_run_that_was_forgotten_does_not_go_on(waiting: Services) -> None:
    job_id = start_training(waiting, "evolve", "starter", environment=INVENTORY).job_id
    cancel_job(waiting, job_id)
    forgotten = run("t1").identified()
    add_runs(waiting, forgotten)
    name = round_dataset_id(job_id, 2)
    made = Dataset(id=name, name="round", kind="sft", path="/d", rows=1, splits={"train": 1})
    waiting.store.datasets.add_from_job(made, [forgotten.id or ""], waiting.clock())
    resumed = resume_job(waiting, job_id).job_id
    cancel_job(waiting, resumed)
    waiting.store.lineage.forget([forgotten.id or ""], waiting.clock())
    for each in (job_id, resumed):
        with pytest.raises(Conflict, match="forgotten since"):
            resume_job(waiting, each)


def test_an_evolution_under_way_is_asked_to_stop_when_a_run_that_it_learns_from_is_forgotten(waiting: Services) -> None:
    """It holds the run in a dataset of a round; another one goes on for it; a third played the run; a fourth has nothing of it."""
    job_id = start_training(waiting, "evolve", "starter", environment=INVENTORY).job_id
    cancel_job(waiting, job_id)
    going_on = resume_job(waiting, job_id).job_id
    player = start_training(waiting, "evolve", "starter", environment=INVENTORY, seed=1).job_id
    other = start_training(waiting, "evolve", "starter", environment=INVENTORY, seed=2).job_id
    for each in (going_on, player, other):
        waiting.store.jobs.begin_attempt(each, 0, 1, waiting.clock())
    forgotten = run("t1", job_id=player).identified()
    add_runs(waiting, forgotten)
    made = Dataset(id=round_dataset_id(job_id, 1), name="round", kind="sft", path="/d", rows=1, splits={"train": 1})
    waiting.store.datasets.add_from_job(made, [forgotten.id or ""], waiting.clock())
    report = forget(waiting, forgotten.id or "", dry_run=False)
    stopping = [thing for thing in report.touched if thing.state == "stopping"]
    assert [(thing.kind, thing.id) for thing in stopping] == [("job", going_on), ("job", player)]
    assert f"get_job(job_id={player!r}" in stopping[1].remedy
    asked = [waiting.store.jobs.get(each).cancel_requested for each in (going_on, player, other)]
    assert asked == [True, True, False]
