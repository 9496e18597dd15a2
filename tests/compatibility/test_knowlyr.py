"""knowlyr: its trainer's documented YAML file and rows with steps, unchanged but for the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs_in_process import in_process
from quintain.settings import Settings
from quintain.tools import RLTrainingTool
from quintain.tools.services import open_services
from terminal import quintain

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

CONFIG = """
model_name_or_path: starter
train_file: sft_data.jsonl
output_dir: ./output/sft
num_epochs: 3
batch_size: 4
learning_rate: 2e-5
max_length: 4096
bf16: true
use_lora: true
agent_format: true
mask_observations: true
step_weighted_loss: true
curriculum: true
seed: 42
logging_steps: 10
warmup_steps: 2
"""


def row(number: int) -> dict[str, object]:
    return {
        "instruction": f"Fix the off-by-one bug in sort function {number}",
        "input": '{"repo": "owner/repo"}',
        "steps": [
            {
                "thought": "Read the file",
                "action": "read_file /sort.py",
                "observation": "def sort(arr): ...",
                "reward": 0.7,
            },
            {"thought": "Fix the bug", "action": "edit_file /sort.py", "observation": "File edited", "reward": 0.9},
        ],
        "task_id": f"task-{number:03}",
        "reward": 0.85,
    }


def test_the_recorders_shape_is_a_trajectory_of_record_trajectory(home: Path) -> None:
    step = {
        "step_id": 1,
        "thought": "Read it",
        "tool_call": {"name": "read_file", "parameters": {"file_path": "sort.py"}},
        "tool_result": {"output": "def sort(arr): ...", "exit_code": 0, "error": None},
        "timestamp": "2026-01-01T00:00:00Z",
        "token_count": 12,
    }
    record = {
        "task": {"task_id": "t1", "description": "Fix the bug", "type": "bug_fix", "repo": "owner/repo"},
        "agent": "my-agent",
        "model": "some-model",
        "steps": [step],
        "outcome": {"success": True, "score": 1.0, "tests_passed": 3, "tests_failed": 0, "total_steps": 1},
        "metadata": {},
    }
    tool = RLTrainingTool(home=home)
    recorded = json.loads(tool.run({"action": "record", "trajectory": record}))
    assert recorded["status"] == "success", recorded
    run = json.loads(tool.run({"action": "get", "trajectory_id": recorded["trajectory_id"]}))["trajectory"]
    tool.close()
    assert (run["task"]["prompt"], run["agent"]["model"]) == ("Fix the bug", "some-model")
    called = next(step for step in run["steps"] if step["actor"] == "agent")
    assert called["actions"][0]["tool"] == "read_file"
    assert called["observations"][0]["content"] == "def sort(arr): ..."


def test_the_documented_config_file_trains_and_leaves_the_model_in_its_output_dir(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train_config.yaml").write_text(CONFIG, encoding="utf-8")
    Path("sft_data.jsonl").write_text("".join(f"{json.dumps(row(i))}\n" for i in range(8)), encoding="utf-8")
    with in_process():
        done = quintain("train", "--method", "sft", "--config", "train_config.yaml", "--set", "max_steps=3", home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "output" / "sft" / "adapter_config.json").is_file()
    services = open_services(Settings(home=home), trusted=True)
    (job,) = services.store.jobs.page().items
    services.close()
    config = job.spec.config
    assert (job.spec.seed, config.learning_rate, config.warmup_steps, config.step_weighting) == (42, 2e-5, 2, "reward")
    assert (config.precision, config.curriculum is not None, config.lora is not None) == ("bf16", True, True)
