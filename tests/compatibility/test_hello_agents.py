"""HelloAgents: the documented calls of its trainers and of `RLTrainingTool`, unchanged but for import path and model.

Calls of the document, each run below:
    RLTrainingTool().run: train (sft, grpo from its output), load_dataset (sft, rl), create_reward, evaluate
    SFTTrainerWrapper, GRPOTrainerWrapper: train(), save_model(path); with use_lora and lora_config
    create_sft_dataset, create_rl_dataset, create_accuracy_reward, create_lora_config; rows as `dataset`, a function as `reward_fn`
The document names rates by the model's size in its prose, and 2e-5 and 1e-5 as defaults: the defaults are taken.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs_in_process import in_process
from quintain.errors import InvalidInput, TrainingFailed
from quintain.scoring import registry
from quintain.settings import Settings
from quintain.tools import (
    GRPOTrainerWrapper,
    RLTrainingTool,
    SFTTrainerWrapper,
    create_accuracy_reward,
    create_lora_config,
    create_rl_dataset,
    create_sft_dataset,
)
from quintain.tools.services import open_services

SHORT = {"type": "length", "unit": "characters", "full_at": 0, "zero_at": 60}
"""A reward that differs between tries: the starter answers none of the questions right."""

LONGER = """
def longer(completions, ground_truth, **columns):
    return [min(1.0, len(text) / 100) for text in completions]
"""
"""A module of the user beside the program; in no installed package."""

QUESTIONS = [
    {
        "question": f"Ann has {i} apples and buys {i + 1} more. How many apples does she have?",
        "answer": f"She has {i} + {i + 1} = <<{i}+{i + 1}={2 * i + 1}>>{2 * i + 1} apples.\n#### {2 * i + 1}",
    }
    for i in range(2, 10)
]
RL_ROWS = [
    {
        "prompt": f"<|im_start|>user\n{row['question']}<|im_end|>\n",
        "ground_truth": row["answer"].rpartition("#### ")[2],
        "question": row["question"],
        "full_answer": row["answer"],
    }
    for row in QUESTIONS[:2]
]
"""Rows of the Dataset that HelloAgents' `create_rl_dataset` returns."""


@pytest.fixture
def gsm8k(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home whose inbox has questions under the name of GSM8K, and a working folder for `./output`."""
    inbox = home / "inbox"
    inbox.mkdir()
    for name, rows in (("gsm8k", QUESTIONS), ("gsm8k-test", QUESTIONS[:3])):
        (inbox / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    monkeypatch.setenv("QUINTAIN_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    with in_process():
        yield home


def run(**parameters: Any) -> dict[str, Any]:
    tool = RLTrainingTool()
    answer: dict[str, Any] = json.loads(tool.run(parameters))
    tool.close()
    return answer


def test_the_documented_tool_calls_train_by_sft_then_by_grpo_from_its_output(gsm8k: Path) -> None:
    sft = run(
        action="train",
        algorithm="sft",
        model_name="starter",
        max_samples=8,
        num_epochs=1,
        output_dir="./output/sft",
        use_lora=True,
        batch_size=4,
        use_tensorboard=False,
        use_wandb=False,
        wandb_project="mine",
    )
    assert (sft["status"], sft["algorithm"], sft["dataset_size"]) == ("success", "SFT", 8), sft
    assert Path("output/sft/adapter_config.json").is_file()
    few = {"group_size": 2, "tasks_per_step": 2, "max_new_tokens": 8}
    grpo = run(
        action="train",
        algorithm="grpo",
        model_name="./output/sft",
        max_samples=2,
        num_epochs=1,
        output_dir="./output/grpo",
        use_lora=True,
        batch_size=2,
        hyperparameters=few,
        reward=SHORT,
    )
    assert (grpo["status"], grpo["algorithm"]) == ("success", "GRPO"), grpo
    assert Path(grpo["output_dir"]).is_dir()
    few = {"group_size": 2, "tasks_per_step": 8, "max_new_tokens": 2, "max_turns": 1}
    more = run(action="train", algorithm="grpo", max_samples=500, num_epochs=1, hyperparameters=few, reward=SHORT)
    services = open_services(Settings(home=gsm8k), trusted=True)
    config = services.store.jobs.get(more["job_id"]).spec.config
    services.close()
    assert config.rollouts == 1, "the file has 8 questions, although 500 were asked for"
    idle = [" batch_size ha" in str(answer.get("warnings")) for answer in (grpo, more)]
    assert idle == [True, False], "what the call does not give is no mistake of it"
    for given, size in (
        ({"format": "sft", "split": "train", "max_samples": 5, "model_name": "Qwen/Qwen3-0.6B"}, 5),
        ({"format": "rl", "split": "train", "max_samples": 7, "model_name": "Qwen/Qwen3-0.6B"}, 7),
        ({"format": "rl", "split": "test"}, 3),
        ({"format": "sft", "max_samples": "2"}, 2),
        ({"format": "sft", "dataset": QUESTIONS[:4]}, 4),
    ):
        loaded = run(action="load_dataset", **given)
        assert (loaded["status"], loaded["format"], loaded["dataset_size"]) == ("success", given["format"], size), (
            loaded
        )
    measured = run(action="evaluate", model_path="./output/sft", max_samples=2, sampling={"max_new_tokens": 8})
    assert (measured["status"], measured["num_samples"]) == ("success", 2), measured
    assert "gsm8k-test.jsonl" in measured["environment"]
    assert measured["accuracy"] == 0.0
    for reward_type in ("accuracy", "length_penalty", "step"):
        assert run(action="create_reward", reward_type=reward_type)["status"] == "success"


def test_the_documented_wrappers_train_and_save(gsm8k: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    monkeypatch.syspath_prepend(gsm8k)
    (gsm8k / "own_rewards.py").write_text(LONGER, encoding="utf-8")
    reward_fn = importlib.import_module("own_rewards").longer
    lora = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "target_modules": ["q_proj", "v_proj"]}
    translated = {"rank": 4, "alpha": 8.0, "dropout": 0.0, "targets": ["q_proj", "v_proj"]}
    assert create_lora_config(**lora) == translated, "either is a lora_config"
    trainer = SFTTrainerWrapper(
        model_name="starter",
        dataset=create_sft_dataset(split="train", max_samples=4),
        output_dir="./output/sft",
        num_epochs=1,
        batch_size=4,
        use_lora=True,
        lora_config=lora,
    )
    with pytest.raises(InvalidInput, match=r"call train\(\) first"):
        trainer.save_model("./my_model")
    result = trainer.train()
    assert _rate(gsm8k) == 2e-5
    assert result["output_dir"] == "output/sft"
    trainer.save_model("./my_model")
    config = json.loads(Path("my_model/adapter_config.json").read_text(encoding="utf-8"))
    assert (config["r"], sorted(config["target_modules"])) == (4, ["q_proj", "v_proj"])
    grpo = GRPOTrainerWrapper(
        model_name="./output/sft",
        dataset=RL_ROWS,
        reward_fn=reward_fn,
        output_dir="./output/grpo",
        num_epochs=1,
        batch_size=2,
        num_generations=2,
        tasks_per_step=2,
        max_completion_length=8,
        max_turns=1,
    )
    assert grpo.train()["status"] == "success"
    assert _rate(gsm8k) == 1e-5
    documented = create_rl_dataset(split="train", max_samples=2, model_name="Qwen/Qwen3-0.6B")
    assert (documented.name, documented.max_samples, create_accuracy_reward()) == ("gsm8k", 2, "answer")
    memory = {"batch_size": 2, "gradient_accumulation_steps": 4, "fp16": False, "max_steps": 1}
    rows = create_sft_dataset(split="train", max_samples=4)
    small = SFTTrainerWrapper(model_name="starter", dataset=rows, output_dir="./small", **memory)
    assert small.train()["status"] == "success", "as the page on memory has it"


def _rate(home: Path) -> float:
    """Return the learning rate of the newest job."""
    services = open_services(Settings(home=home), trusted=True)
    job = services.store.jobs.page().items[0]
    services.close()
    return float(job.spec.config.learning_rate)


def test_a_function_inside_the_program_scores_here_and_a_job_names_the_module_it_should_be_in(
    gsm8k: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})

    def longer_is_better(completions: list[str], ground_truth: list[str], **columns: Any) -> list[float]:
        assert columns["prompts"][0].startswith("Ann has")
        return [len(text) / 100 for text in completions]

    messages = [{"role": "user", "content": "Ann has"}, {"role": "assistant", "content": "x" * 25}]
    tool = RLTrainingTool()
    tool.run({"action": "record", "messages": messages, "tags": ["own"]})
    tool.register_reward_function("longer", longer_is_better)
    scored = json.loads(tool.run({"action": "score", "scorer": "longer", "filter": {"tags": ["own"]}}))
    tool.close()
    assert (scored["scored"], scored["summary"]["mean"]) == (1, 0.25), scored
    for inside in (longer_is_better, lambda completions, **columns: [0.5]):
        trainer = GRPOTrainerWrapper("starter", create_rl_dataset(max_samples=2), inside, output_dir="./out")
        with pytest.raises(TrainingFailed, match=r"cannot reach a job.*top level of a module beside the program"):
            trainer.train()


def test_rows_and_paths_are_datasets_and_without_gsm8k_the_answer_names_the_way(gsm8k: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": q["question"]}, {"role": "assistant", "content": q["answer"]}]}
        for q in QUESTIONS
    ]
    steps = {"max_steps": 1}
    listed = run(action="train", dataset=rows, output_dir="./out", hyperparameters=steps)
    assert (listed["status"], listed["dataset_size"]) == ("success", 8), listed
    Path("mine.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[:6]), encoding="utf-8")
    given = run(action="train", custom_dataset=rows[:5], output_dir="./out", hyperparameters=steps)
    assert "[too_few_rows] " in given["warnings"][0], "what the start warned of is in the answer that waited"
    assert (given["status"], given["dataset_size"]) == ("success", 5), given
    inside = run(action="train", algorithm="grpo", max_samples=2, custom_reward=lambda completions, **columns: [0.5])
    assert (inside["status"], "cannot reach a job" in inside["message"]) == ("error", True), "it is no module's"
    named = run(action="train", dataset="mine.jsonl", output_dir="./out2", hyperparameters=steps)
    assert (named["status"], named["dataset_size"]) == ("success", 6), named
    (gsm8k / "inbox" / "gsm8k.jsonl").unlink()
    gone = run(action="train", algorithm="sft", max_samples=4)
    assert (gone["status"], "inbox as gsm8k.jsonl" in gone["message"]) == ("error", True)
