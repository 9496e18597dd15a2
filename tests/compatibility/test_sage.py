"""SAGE: the documented calls and files of its training of agents, unchanged but for import and model.

Calls of the document, each run below:
    AgentSFTConfig(base_model, num_epochs, use_coreset_selection, coreset_*, use_online_continual, continual_*), and its defaults
    AgentSFTTrainer(config).prepare_datasets(), train(); AgentLoRATrainer(config).prepare_data(), train(), save_model(path)
    AgentSFTFormatter().format_dialog(dialog); AgentTrainingUsage().get_sft_data, get_preference_data, get_evaluation_data
    AgentRLTrainer(config, base_model_path, sft_model_path, reward_model).train(), save_model(path), model
    AgentRLTrainer(...).generate_preference_pairs(prompts, num_samples)
    AgentRewardModel(AgentRewardConfig()).compute_reward(query, response, ground_truth, execution_trace)
    AgentTrainingEvaluator(benchmark_loader).evaluate(model, split)
    sage-dev agent train sft, agent train dpo, agent evaluate, with their flags
    the settings of RLTrainingConfig, the configuration for development, dialogs `agent_sft:train` and `agent_sft:dev`
The document contradicts itself in one place: compute_reward reads ground_truth["target_tools"], and generate_preference_pairs gives
it an empty ground truth. Here such an answer has no total, and another reward model orders it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs_in_process import in_process
from quintain.errors import InvalidInput, NotFound
from quintain.records.documents import parse_yaml
from quintain.settings import Settings
from quintain.tools.sage import (
    AgentLoRATrainer,
    AgentRewardConfig,
    AgentRewardModel,
    AgentRLTrainer,
    AgentSFTConfig,
    AgentSFTFormatter,
    AgentSFTTrainer,
    AgentTrainingEvaluator,
    AgentTrainingUsage,
    RLTrainingConfig,
)
from quintain.tools.services import open_services
from quintain.tools.training.methods import read_hyperparameters
from terminal import quintain

DEVELOPMENT = """
base_model: "Qwen/Qwen2.5-1.5B-Instruct"
lora_r: 16
batch_size: 1
gradient_accumulation: 16
max_length: 2048
load_in_4bit: true
"""


DPO = {"beta": 0.1, "reference_free": False, "label_smoothing": 0.0, "loss_type": "sigmoid"}


class Shorter(AgentRewardModel):
    """A reward of the program's own."""

    def compute_reward(self, query: str, response: str, *known: Any, **more: Any) -> dict[str, Any]:
        return {"total": 1 - len(response) / 10_000, "breakdown": {}, "feedback": ""}


def dialog(number: int, split: str, tools: int) -> dict[str, Any]:
    turns = [{"role": "user", "content": f"What is the weather in city {number}?"}]
    for place in range(tools):
        turns.append({"role": "assistant", "content": f"I ask tool {place}."})
        turns.append({"role": "tool", "tool_id": f"weather_00{place}", "content": "", "result": "sunny"})
    turns.append({"role": "assistant", "content": f"It is sunny in city {number}."})
    names = [f"weather_00{place}" for place in range(tools)]
    about = {"dialog_id": f"d{number}", "goal": turns[0]["content"], "split": split, "target_tools": names}
    return {
        **about,
        "turns": turns,
        "metadata": {"task_type": "multi_step_planning" if tools > 2 else "tool_selection"},
    }


@pytest.fixture
def dialogs(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home whose inbox has the dialogs; jobs run in this process."""
    monkeypatch.setenv("QUINTAIN_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    (home / "inbox").mkdir()
    rows = [dialog(i, "train" if i < 8 else "dev", 1 + 3 * (i % 2)) for i in range(10)]
    (home / "inbox" / "agent_sft.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    with in_process():
        yield home


def test_the_documented_training_selects_a_coreset_replays_and_saves_its_model(dialogs: Path) -> None:
    config = AgentSFTConfig(
        base_model="starter",
        num_epochs=1,
        use_coreset_selection=True,
        coreset_target_size=4,
        coreset_strategy="hybrid",
        use_online_continual=True,
        continual_buffer_size=4096,
        continual_replay_ratio=0.3,
        lora_r=4,
        lora_alpha=8,
    )
    trainer = AgentSFTTrainer(config)
    prepared = trainer.prepare_datasets()
    assert prepared["splits"] == {"train": 8, "validation": 2}, "the dialogs of the split dev validate"
    with pytest.raises(InvalidInput, match=r"call train\(\) first"):
        trainer.save_model("./output/agent_sft")
    sft_trainer = AgentLoRATrainer(config)
    assert sft_trainer.prepare_data()["splits"] == prepared["splits"]
    assert sft_trainer.train()["status"] == "success"
    sft_trainer.save_model("./output/agent_sft")
    assert json.loads(Path("output/agent_sft/adapter_config.json").read_text())["r"] == 4
    services = open_services(Settings(home=dialogs), trusted=True)
    (job,) = services.store.jobs.page().items
    services.close()
    assert set(job.spec.dataset_files) == {"train.jsonl", "validation.jsonl"}
    settings = job.spec.config
    assert (settings.coreset.size, settings.coreset.method, settings.replay.ratio) == (4, "hybrid", 0.3)
    assert (settings.batch_size, settings.epochs) == (32, 1)
    defaults = (settings.learning_rate, settings.warmup_ratio, settings.schedule, settings.max_length)
    assert defaults == (config.learning_rate, 0.1, "cosine", 4096)
    assert (config.learning_rate, settings.lora.dropout, len(settings.lora.targets)) == (2e-5, 0.05, 7)


def test_the_documented_formatter_and_usage_give_the_rows_of_a_split(dialogs: Path) -> None:
    formatted = list(AgentTrainingUsage().get_sft_data("train"))
    assert len(formatted) == 8
    assert formatted[0] == AgentSFTFormatter().format_dialog(dialog(0, "train", 1))
    assert formatted[0] == {
        "input": "<|system|>\nTools: weather_000\n<|user|>\nWhat is the weather in city 0?\n<|assistant|>\n",
        "output": "<think>I ask tool 0.</think>\n<tool_call>weather_000</tool_call>\n<tool_result>sunny</tool_result>\n"
        "<think>It is sunny in city 0.</think>",
        "task_type": "tool_selection",
        "metadata": {"task_type": "tool_selection"},
    }
    assert formatted[1]["task_type"] == "multi_step_planning"
    rows = [{"split": split, "prompt": split, "chosen": "Yes.", "rejected": "No."} for split in ("train", "test")]
    path = dialogs / "inbox" / "agent_benchmark.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    assert list(AgentTrainingUsage().get_preference_data()) == rows[:1]
    assert list(AgentTrainingUsage().get_evaluation_data()) == rows[1:]


def test_the_documented_task_weights_draw_dialogs_by_their_class(dialogs: Path) -> None:
    config = AgentSFTConfig("starter", task_weights={"tool_selection": 0.75, "multi_step_planning": 0.25})
    answer = AgentSFTTrainer(config).prepare_datasets()
    drawn = {name: answer["distribution"][name]["after"] for name in ("tool_selection", "multi_step_planning")}
    assert drawn == {"tool_selection": 4, "multi_step_planning": 1}, (
        "of four of each, as near to 3 : 1 as whole rows are"
    )
    assert answer["splits"] == {"train": 5, "validation": 2}, "what validates is not drawn from"
    with pytest.raises(NotFound, match=r"agent_gone\.jsonl"):
        AgentSFTTrainer(AgentSFTConfig("starter", train_data="agent_gone:train")).prepare_datasets()


def test_the_documented_reinforcement_goes_on_with_the_trained_model(dialogs: Path) -> None:
    pairs = [
        {"split": "train", "prompt": f"Which is larger, {n} or 1?", "chosen": f"{n}.", "rejected": "I cannot tell."}
        for n in range(2, 6)
    ]
    path = dialogs / "inbox" / "agent_benchmark.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [*pairs, {**pairs[0], "split": "test"}]), "utf-8")
    sft_trainer = AgentLoRATrainer(AgentSFTConfig("starter", num_epochs=1, max_steps=1))
    sft_trainer.train()
    sft_trainer.save_model("./output/agent_sft")
    rl_config = RLTrainingConfig(algorithm="dpo", dpo_config=DPO, max_steps=1)
    reward_model = AgentRewardModel(AgentRewardConfig())
    rl_trainer = AgentRLTrainer(
        config=rl_config, base_model_path="starter", sft_model_path="./output/agent_sft", reward_model=reward_model
    )
    assert rl_trainer.prepare_datasets()["rows"] == 4, "the pairs of the split test are left out"
    assert rl_trainer.train()["status"] == "success"
    rl_trainer.save_model("./output/agent_dpo")
    assert Path("output/agent_dpo/adapter_config.json").is_file()
    with pytest.raises(InvalidInput, match=r"expected a reward model that values answers.*environment="):
        rl_trainer.generate_preference_pairs(["Say hello."], num_samples=1)
    rl_trainer.reward_model = Shorter()
    (pair,) = rl_trainer.generate_preference_pairs(["Say hello."], num_samples=2)
    assert len(pair["chosen"]) < len(pair["rejected"])
    assert pair["chosen_score"] > pair["rejected_score"]
    alone = AgentRLTrainer(RLTrainingConfig(algorithm="ppo"), "starter")
    with pytest.raises(InvalidInput, match="expected an environment for ppo"):
        alone.train()
    ppo = {"kl_coef": 0.02, "clip_range": 0.2, "vf_coef": 0.5, "num_rollouts": 2, "chunk_size": 64}
    few = {"rollouts": 1, "updates_per_rollout": 1, "max_new_tokens": 8, "max_turns": 2}
    plays = RLTrainingConfig("ppo", ppo_config=ppo, environment="quintain/inventory", **few)
    assert AgentRLTrainer(plays, "starter").train()["job_status"] == "succeeded"


def test_the_documented_settings_mean_the_same_or_name_the_right_field() -> None:
    found = read_hyperparameters("dpo", DPO)
    assert (found.beta, found.loss) == (0.1, "sigmoid")
    grpo = read_hyperparameters("grpo", RLTrainingConfig("grpo").settings)
    assert (grpo.group_size, grpo.kl_coefficient) == (4, 0.1)
    ppo = read_hyperparameters("ppo", RLTrainingConfig("ppo").settings)
    assert (ppo.kl_coefficient, ppo.clip_low, ppo.clip_high, ppo.value_weight) == (0.02, 0.2, 0.2, 0.5)
    assert (ppo.tasks_per_step, ppo.episodes_at_once) == (128, 64)
    with pytest.raises(InvalidInput, match="expected algorithm dpo, grpo or ppo, got 'rloo'"):
        RLTrainingConfig("rloo")
    for settings, remedy in (({"num_rollouts": 128}, "tasks_per_step"), ({"beta": 0.1}, "kl_coefficient")):
        with pytest.raises(InvalidInput, match=remedy):
            read_hyperparameters("grpo", settings)
    development = {key: value for key, value in parse_yaml(DEVELOPMENT).items() if key != "base_model"}
    taken = read_hyperparameters("sft", development)
    assert taken.quantization == "nf4"
    assert read_hyperparameters("sft", {**development, "load_in_4bit": False}).quantization is None
    assert (taken.lora.rank, taken.batch_size, taken.max_length) == (16, 16, 2048)


def test_the_documented_reward_has_its_parts_and_no_total_where_nothing_states_the_outcome() -> None:
    """Derived by hand: 0.40 x 1 + 0.25 x F1(1 of 1 wanted, 1 of 2 called) 2/3 + 0.15 + 0.10 + 0.10, less 0.3 for the wrong tool."""
    trace = [
        {"tool_id": "weather_001", "status": "success", "result": "sunny"},
        {"tool_id": "mail_002", "status": "success", "result": "sent"},
    ]
    truth = {"target_tools": ["weather_001"], "optimal_steps": 2}
    found = AgentRewardModel(AgentRewardConfig()).compute_reward("Weather?", "It is sunny.", truth, trace)
    assert found["total"] == pytest.approx(0.75 + 0.25 * 2 / 3 - 0.3)
    assert found["breakdown"]["tool_accuracy"] == pytest.approx(2 / 3)
    assert found["feedback"] == "Weakest: tool_accuracy."
    tools_alone = AgentRewardModel(AgentRewardConfig(weights={"tool_accuracy": 1.0}, penalties={}))
    tagged = "<tool_call>weather_001</tool_call>It is sunny."
    assert tools_alone.compute_reward("Weather?", "Done.", truth, trace)["total"] == pytest.approx(2 / 3)
    unknown = tools_alone.compute_reward("Weather?", tagged, truth, [])
    assert (unknown["total"], unknown["breakdown"]["tool_accuracy"]) == (None, 1.0)
    assert "outcome is unknown" in unknown["feedback"]
    with pytest.raises(InvalidInput, match="got 'speed'"):
        AgentRewardConfig(weights={"speed": 1.0})
    plays = RLTrainingConfig("dpo", environment="quintain/inventory")
    with pytest.raises(InvalidInput, match="expected the published weights"):
        AgentRLTrainer(plays, "starter", reward_model=tools_alone)


def test_the_documented_lines_train_and_the_evaluator_summarises_a_benchmark(dialogs: Path) -> None:
    weights = '{"tool_selection": 0.35, "planning": 0.30, "timing": 0.20, "retrieval": 0.15}'
    line = (
        "--base-model",
        "starter",
        "--data",
        "agent_sft:train",
        "--output",
        "./output/agent_sft_v1",
        "--epochs",
        "1",
    )
    done = quintain("sage-dev", "agent", "train", "sft", *line, "--task-weights", weights)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Path("output/agent_sft_v1/adapter_config.json").is_file()
    pairs = [{"split": "train", "prompt": f"Is {n} odd?", "chosen": "I look.", "rejected": "No."} for n in range(4)]
    rows = "".join(f"{json.dumps(row)}\n" for row in pairs)
    (dialogs / "inbox" / "agent_benchmark.jsonl").write_text(rows, encoding="utf-8")
    line = (
        "--sft-model",
        "./output/agent_sft_v1",
        "--data",
        "agent_benchmark:train",
        "--output",
        "./output/agent_dpo_v1",
    )
    done = quintain("sage-dev", "agent", "train", "dpo", *line, "--beta", "0.1", "--num-samples", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        (
            *("collect", "expert", "--environment", "quintain/inventory", "--n-tasks", "2"),
            *("--split", "held_out", "--tag", "played"),
        ),
        ("export", "benchmark", "agent_benchmark", "--tag", "played"),
    ):
        assert quintain(*words).returncode == 0
    names = ("--metrics", "tool_accuracy,plan_success,efficiency")
    line = ("--model", "./output/agent_dpo_v1", "--benchmark", "agent_benchmark:test", *names)
    done = quintain("sage-dev", "agent", "evaluate", *line)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(json.loads(done.stdout)) == ["tool_selection_accuracy", "plan_success_rate", "step_efficiency"]
    results = AgentTrainingEvaluator("agent_benchmark").evaluate(model="expert", split="test")
    assert results["plan_success_rate"] == {"mean": 1.0, "std": 0.0, "count": 2}
    assert results["tool_selection_accuracy"] == {"mean": 1.0, "std": 0.0, "count": 2}
    results = AgentTrainingEvaluator("quintain/inventory").evaluate(model="expert", max_samples=1)
    assert results["plan_success_rate"] == {"mean": None, "std": None, "count": 0}, "its tasks state no plan"
    with pytest.raises(InvalidInput, match="got 'speed'"):
        AgentTrainingEvaluator("agent_benchmark").evaluate(model="expert", metrics=["speed"])
    assert quintain("sage-dev", "agent", "fly").returncode == 2
