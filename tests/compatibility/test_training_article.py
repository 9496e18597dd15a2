"""The article on training agents: the rows of its listings, its pipeline and its settings, which are fragments without a program.

Its files and calls, each run below:
    rows {prompt, response}, {prompt, chosen, rejected}, {prompt, response, is_good}; AgentTraj with `action_input`, `final_reward`
    filter_by_reward(0.5); run_full_pipeline(sft_data, preference_data, rl_method="dpo"); stage_rm(preference_data)
    stage_rl(prompts_path) by the reward model; rows with `quality` of steps for a process reward model
    settings of EvolConfig, SelfEvolvingAgent, ORPOTrainer, KTOTrainer, FilteredBC, WeightedBC, TrajectoryRanking, RLHFConfig,
    PPOTrainer and R3Config
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs_in_process import in_process
from quintain.environments.tasks.task_rows import task_of
from quintain.errors import InvalidInput
from quintain.tools import RLTrainingTool
from quintain.tools.training.methods import canonical_settings, check_evolution, read_hyperparameters
from terminal import quintain

PIPELINE = """
name: pipeline
model: starter
output_dir: output/dpo_model
stages:
  - method: sft
    dataset: data/sft_trajectories.json
    hyperparameters: {num_epochs: 1, batch_size: 4, max_steps: 1}
  - method: dpo
    dataset: data/preferences.json
    hyperparameters: {beta: 0.1, batch_size: 4, max_steps: 1}
"""


RATED = [
    {"thought": "I add the numbers.", "action": "calculate", "quality": 0.8},
    {"thought": "I repeat it.", "action": "calculate", "quality": 0.2},
]


def answers(number: int) -> dict[str, Any]:
    return {"prompt": f"What is {number} + 1?", "chosen": f"It is {number + 1}.", "rejected": "I do not know."}


def agent_trajectory(number: int, final_reward: float) -> dict[str, Any]:
    look = {"thought": "I look for the product.", "action": "search", "action_input": {"query": f"red shirt {number}"}}
    buy = {"thought": "I buy it.", "action": "click", "action_input": "buy now"}
    steps = [
        look | {"observation": "Page 1: red shirt.", "reward": 0.0},
        buy | {"observation": "Done.", "reward": final_reward},
    ]
    about = {"task_id": f"webshop-{number}", "task_type": "web_browsing", "instruction": f"Buy red shirt {number}."}
    return {**about, "steps": steps, "final_reward": final_reward, "metadata": {"env": "webshop", "num_steps": 2}}


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RLTrainingTool]:
    """A project with the article's data files, and the tools; jobs run in this process."""
    monkeypatch.setenv("QUINTAIN_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    pairs = [answers(i) for i in range(4)]
    files = {
        "sft_trajectories": [{"prompt": pair["prompt"], "response": pair["chosen"]} for pair in pairs],
        "preferences": pairs,
        "unpaired": [
            {"prompt": pair["prompt"], "response": pair[side], "is_good": side == "chosen"}
            for pair in pairs
            for side in ("chosen", "rejected")
        ],
        "rated_steps": [{"instruction": pair["prompt"], "steps": RATED} for pair in pairs],
        "rl_prompts": [pair["prompt"] for pair in pairs],
        "agenttraj_webshop": [agent_trajectory(i, i / 3) for i in range(4)],
    }
    Path("data").mkdir()
    for name, rows in files.items():
        Path("data", f"{name}.json").write_text(json.dumps(rows), encoding="utf-8")
    tool = RLTrainingTool()
    with in_process():
        yield tool
    tool.close()


def answered(tool: RLTrainingTool, **parameters: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(tool.run(parameters))
    assert answer["status"] == "success", answer
    return answer


def test_the_pipeline_trains_on_the_articles_rows_and_leaves_its_model(project: RLTrainingTool) -> None:
    Path("pipeline.yaml").write_text(PIPELINE, encoding="utf-8")
    done = quintain("train", "--config", "pipeline.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert Path("output/dpo_model/config.json").is_file()
    few = {"hyperparameters": {"max_steps": 1}, "use_lora": False, "batch_size": 2, "action": "train"}
    for method, rows in (("kto", "unpaired"), ("prm", "rated_steps"), ("reward", "preferences")):
        done_by = answered(project, algorithm=method, dataset=f"data/{rows}.json", **few)
        assert done_by["job_status"] == "succeeded"
    prompts = "quintain/tasks?file=data/rl_prompts.json&open=true&plain=true"
    acting = {"rollouts": 1, "tasks_per_step": 2, "updates_per_rollout": 1, "max_new_tokens": 8, "max_turns": 1}
    model = {"reward": f"agent:{done_by['agent'].removeprefix('agent:')}", "environment": prompts, "use_lora": False}
    assert answered(project, algorithm="ppo", action="train", hyperparameters=acting, **model)["agent"]


def test_its_trajectories_keep_their_calls_and_are_filtered_by_reward(project: RLTrainingTool) -> None:
    good = {"curation": {"min_reward": 0.5}, "outcomes": ["success", "unknown"]}
    path = str(Path("data/agenttraj_webshop.json").absolute())
    made = answered(project, action="export", kind="sft", name="good", path=path, **good)
    assert (made["rows"], made["dropped"]) == (2, {"below_min_reward": 2}), made
    (found, *_) = answered(project, action="search", filter={"text": "red shirt 3"})["items"]
    run = answered(project, action="get", trajectory_id=found["id"])["trajectory"]
    calls = [action for step in run["steps"] if step["actor"] == "agent" for action in step["actions"]]
    assert [(call["tool"], call["args"]) for call in calls] == [
        ("search", {"query": "red shirt 3"}),
        ("click", {"input": "buy now"}),
    ]
    assert run["outcome"] == {"reward": 1.0}, "a reward is no verdict: the status stays unknown"


def test_its_settings_mean_the_same_or_name_the_right_field() -> None:
    taken: dict[str, dict[str, Any]] = {
        "orpo": {"lambda_orpo": 0.1},
        "kto": {"beta": 0.1, "desirable_weight": 1.0, "undesirable_weight": 1.0},
        "bc": {"success_threshold": 0.5, "temperature": 1.0},
        "ranking": {"beta": 0.1},
        "grpo": {"clip_range": 0.2, "kl_coef": 0.1, "max_new_tokens": 256},
        "ppo": {
            "ppo_epochs": 4,
            "clip_range": 0.2,
            "vf_coef": 0.1,
            "kl_penalty_weight": 0.1,
            "gamma": 1.0,
            "lam": 0.95,
        },
    }
    for method, settings in taken.items():
        assert canonical_settings(method, settings).keys() <= set(
            type(read_hyperparameters(method, settings)).model_fields
        )
    evolution = {"num_iterations": 5, "selection_ratio": 0.3, "reward_threshold": 0.5, "temperature": 0.8}
    for method in ("sft", "dpo", "ppo"):
        settings = {**evolution, "trajectories_per_iter": 500, "training_method": method}
        config, training = check_evolution(canonical_settings("evolve", settings))
        assert (config.iterations, config.ratio, config.threshold, config.train) == (5, 0.3, 0.5, method)
        assert (config.tasks_per_iteration * config.attempts, training.method) == (500, method)
    rounds = {"num_attempts": 5, "selection_method": "threshold", "score_threshold": 0.7, "num_generations": 10}
    config, _ = check_evolution(canonical_settings("evolve", rounds))
    assert (config.attempts, config.select, config.threshold, config.iterations) == (5, "threshold", 0.7, 10)
    task = {"id": "t1", "instruction": "Buy a shirt.", "type": "web_browsing", "difficulty": "easy"}
    assert task_of(task).prompt == "Buy a shirt.", "a row of its test_tasks.json"
    for method, settings, remedy in (
        ("grpo", {"target_kl": 0.02}, "kl_stop"),
        ("ppo", {"task_reward_weight": 1.0, "reasoning_reward_weight": 0.5}, "give `reward` with weights"),
        ("reinforce++", {}, "ppo"),
    ):
        with pytest.raises(InvalidInput, match=remedy):
            canonical_settings(method, settings)
