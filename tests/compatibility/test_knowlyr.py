"""knowlyr: the documented command lines, Python calls and files of its packages, unchanged but for program, import and model.

Calls of the documents, each run below:
    knowlyr-trainer sft --config | --train-file --model; dpo --train-file --model --beta; grpo --train-file --model;
        eval --model --eval-file
    knowlyr-hub export --format sft|grpo -t -o; --format dpo -t -p -o
    knowlyr-hub evaluate --env --model -n --max-steps -o, process LOG -f; knowlyr-recorder convert LOG -f openhands -o,
        validate LOG -f; knowlyr-reward score FILE --domain -o, preferences FILE --min-margin
    knowlyr-recorder schema; knowlyr-reward compare FILE FILE, calibrate FILE -o, rubrics --domain, score -m -p; knowlyr-hub tasks,
        run, status, ingest crew, publish, export --format huggingface --repo-id, online --patience 0 --eval-episodes 0
    make, register, list_envs, AgentEnv, TimeStep, MaxStepsWrapper, RewardWrapper, RecorderWrapper, get_trajectory, unwrapped,
        EpisodeStatisticsWrapper, ObservationTruncateWrapper; submit and finish end an episode
    collect, make_reward_fn, DatasetExporter(...).export_sft, SFTConfig, SFTTrainer(...).train
    AgentInference.from_pretrained(...).create_agent(system_prompt=...)
    env.reset(task="free text"), and of an object with task_id and description
Not covered (docs/how-to/migrate-from-other-trainers.md): evaluate_agent, compare_agents, which have no documented signature.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from hub_endpoint import TOKEN, local_hub
from jobs_in_process import in_process
from quintain.errors import InvalidInput
from quintain.settings import Settings
from quintain.tools import RLTrainingTool
from quintain.tools import knowlyr_environments as environments
from quintain.tools.knowlyr import (
    AgentEnv,
    AgentInference,
    DatasetExporter,
    EpisodeStatisticsWrapper,
    MaxStepsWrapper,
    ObservationTruncateWrapper,
    RecorderWrapper,
    RewardWrapper,
    SFTConfig,
    SFTTrainer,
    TimeStep,
    collect,
    list_envs,
    make,
    make_reward_fn,
    register,
)
from quintain.tools.services import open_services
from small_logs import small_log
from terminal import quintain

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


EVENTS: list[dict[str, Any]] = [
    {"id": 0, "source": "user", "action": "message", "args": {"content": "Fix the bug in sort.py"}},
    {"id": 1, "source": "agent", "action": "run", "args": {"command": "pytest", "thought": "Run the tests."}},
    {"id": 2, "source": "agent", "observation": "run", "cause": 1, "content": "1 passed", "extras": {}},
    {"id": 3, "source": "agent", "action": "finish", "args": {"outputs": {}, "thought": "Done."}},
]
"""A log of OpenHands."""


def row(number: int) -> dict[str, object]:
    """Return a row with steps, as documented for `agent_format`."""
    read = {"thought": "Read the file", "action": "read_file /sort.py", "observation": "def sort(arr): ..."}
    fix = {"thought": "Fix the bug", "action": "edit_file /sort.py", "observation": "File edited"}
    return {
        "instruction": f"Fix the off-by-one bug in sort function {number}",
        "input": '{"repo": "owner/repo"}',
        "steps": [read | {"reward": 0.7}, fix | {"reward": 0.9}],
        "task_id": f"task-{number:03}",
        "reward": 0.85,
    }


def attempt(number: int, success: bool) -> dict[str, Any]:
    """Return a side of a preference of the hub's pipeline."""
    read = {"thought": f"Read {number}", "tool": "read_file", "params": {"file_path": "/s.py"}, "output": "x"}
    submit = {"thought": "Done" if success else "Give up", "tool": "submit", "params": {}, "output": ""}
    steps = [read | {"exit_code": 0}, submit | {"exit_code": 0}]
    known = {"agent_framework": "openhands", "agent_model": "m", "success": success, "reward": 0.9 if success else 0.1}
    return {**known, "steps": steps}


def trajectory(number: int, success: bool) -> dict[str, Any]:
    """Return a line of the hub's `trajectories.jsonl`."""
    ids = {"content_hash": f"{number}{success}", "task_id": f"task-{number}"}
    about = {**ids, "total_steps": 2, "step_rewards": [0.5, 0.9]}
    return {**about, **attempt(number, success), "metadata": {"task_description": f"Fix bug {number}"}}


def write(path: str, rows: list[dict[str, Any]]) -> None:
    Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


@pytest.fixture
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with the hub's files; jobs run in this process."""
    monkeypatch.setenv("QUINTAIN_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environments, "_registered", {})
    write("trajectories.jsonl", [trajectory(i, success) for i in range(2) for success in (True, False)])
    pairs = [{"task_id": f"task-{i}", "chosen": attempt(i, True), "rejected": attempt(i, False)} for i in range(2)]
    write("preferences.jsonl", [{**pair, "reward_margin": 0.8} for pair in pairs])
    with in_process():
        yield tmp_path


def line(*words: str) -> str:
    """Carry out a documented command line and return what it prints."""
    done = quintain(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


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


def test_the_documented_command_lines_export_and_train_in_a_chain(folder: Path, home: Path) -> None:
    exported = ("knowlyr-hub", "export", "--format")
    shown = line(*exported, "sft", "-t", "trajectories.jsonl", "-o", "sft_data.jsonl")
    assert "quintain export sft" in shown, "the command of this program is shown"
    line(*exported, "dpo", "-t", "trajectories.jsonl", "-p", "preferences.jsonl", "-o", "dpo_data.jsonl")
    line(*exported, "grpo", "-t", "trajectories.jsonl", "-o", "grpo_data.jsonl")
    (first, *_) = [json.loads(text) for text in Path("dpo_data.jsonl").read_text().splitlines()]
    assert first["prompt"] == "Fix bug 0", "the task's text is in the trajectories alone"
    (group, *_) = [json.loads(text) for text in Path("grpo_data.jsonl").read_text().splitlines()]
    assert [member["step_rewards"] for member in group["trajectories"]] == [[0.5, 0.9]] * 2
    write("sft_data.jsonl", [row(i) for i in range(4)])
    Path("train_config.yaml").write_text(CONFIG, encoding="utf-8")
    trainer, sft = "knowlyr-trainer", "./output/sft/final"
    line(trainer, "sft", "--config", "train_config.yaml", "--epochs", "1")
    _require_config(home)
    one = ("--epochs", "1", "--no-lora")
    line(
        trainer,
        "sft",
        "--train-file",
        "sft_data.jsonl",
        "--model",
        "starter",
        "--output-dir",
        "./output/plain",
        *one,
        "--wandb-project",
        "mine",
    )
    line(trainer, "dpo", "--train-file", "dpo_data.jsonl", "--model", sft, "--beta", "0.1", *one)
    line(trainer, "grpo", "--train-file", "grpo_data.jsonl", "--model", sft, *one)
    measured = line(trainer, "eval", "--model", sft, "--eval-file", "sft_data.jsonl")
    assert "perplexity" in measured
    assert "token accuracy" in measured
    models = [
        next(Path("output", method, "final").glob("*.safetensors"), None) for method in ("sft", "plain", "dpo", "grpo")
    ]
    assert all(models), models


def _require_config(home: Path) -> None:
    """Check that the job of the config file has its settings."""
    services = open_services(Settings(home=home), trusted=True)
    (job,) = services.store.jobs.page().items
    services.close()
    config = job.spec.config
    assert (job.spec.seed, config.learning_rate, config.warmup_steps, config.step_weighting) == (42, 2e-5, 2, "reward")
    assert (config.precision, config.curriculum is not None, config.lora is not None) == ("bf16", True, True)


def test_a_log_is_converted_and_scored_by_the_documented_lines(folder: Path) -> None:
    write("agent_log.jsonl", EVENTS)
    assert "openhands" in line("knowlyr-recorder", "validate", "agent_log.jsonl", "-f", "openhands")
    line("knowlyr-recorder", "convert", "agent_log.jsonl", "-f", "openhands", "-o", "trajectory.json")
    assert "1 file unchanged" in line("knowlyr-hub", "process", "agent_log.jsonl", "-f", "openhands")
    assert "1 file unchanged" in line("knowlyr-recorder", "batch", ".", "-f", "openhands", "-o", "out", "-p", "agent_*")
    (run,) = [json.loads(text) for text in Path("trajectory.json").read_text().splitlines()]
    assert run["steps"][1]["thought"] == "Run the tests."
    shown = line("knowlyr-reward", "score", "trajectory.json", "--domain", "coding")
    assert "0 runs scored, 1 not" in shown
    assert "the outcome is unknown" in shown, "a run that ended is not taken for one that succeeded"
    line("knowlyr-reward", "score", "trajectories.jsonl", "--domain", "coding", "-o", "scores.json")
    scores = json.loads(Path("scores.json").read_text())
    assert (scores["scorer"], scores["scored"]) == ("knowlyr", 4)
    assert "2 preferences recorded" in line(
        "knowlyr-reward", "preferences", "trajectories.jsonl", "--min-margin", "0.05"
    )


def test_the_lines_that_list_and_fit_print_json(folder: Path) -> None:
    schema = json.loads(quintain("knowlyr-recorder", "schema").stdout)
    assert {"task", "steps", "outcome"} <= schema["properties"].keys()
    (rubric,) = json.loads(quintain("knowlyr-reward", "rubrics", "--domain", "coding").stdout)
    assert (rubric["name"], len(json.loads(quintain("knowlyr-reward", "rubrics").stdout)) > 7) == ("coding", True)
    values = [place / 12 for place in range(13)]
    pairs = {"reward_scores": values, "human_scores": [value**2 for value in values]}
    Path("pairs.json").write_text(json.dumps(pairs), encoding="utf-8")
    line("knowlyr-reward", "calibrate", "pairs.json", "-o", "fitted.json")
    fitted = json.loads(Path("fitted.json").read_text())
    assert (fitted["n"], fitted["error_after"] < fitted["error_before"]) == (13, True)
    refused = quintain("knowlyr-reward", "calibrate", "fitted.json")
    assert (refused.returncode, "expected lists reward_scores and human_scores" in refused.stderr) == (2, True)
    assert "quintain jobs list" in line("knowlyr-hub", "status", "./output")


def test_tasks_of_a_file_are_listed_and_played(folder: Path) -> None:
    about = {"language": "python", "difficulty": "easy"}
    kinds = ("bug_fix", "feature")
    write(
        "tasks.jsonl",
        [{"task_id": f"t{n}", "description": f"Say {n}.", "type": kinds[n % 2], **about} for n in range(4)],
    )
    wanted = ("--type", "bug_fix", "--difficulty", "easy", "--language", "python")
    listed = quintain("knowlyr-hub", "tasks", "tasks.jsonl", *wanted).stdout.splitlines()
    assert [json.loads(row)["id"] for row in listed] == ["t0", "t2"]
    assert len(quintain("knowlyr-hub", "tasks", "tasks.jsonl", "--limit", "3").stdout.splitlines()) == 3
    line(
        *("knowlyr-hub", "run", "tasks.jsonl", "-m", "starter", "-f", "custom", "--max-steps", "1", "-o", "runs.jsonl")
    )
    runs = [json.loads(text) for text in Path("runs.jsonl").read_text().splitlines()]
    assert sorted(run["task"]["prompt"] for run in runs) == ["Say 0.", "Say 1.", "Say 2.", "Say 3."]
    elsewhere = quintain("knowlyr-hub", "run", "tasks.jsonl", "-m", "starter", "-f", "openhands")
    assert (elsewhere.returncode, "read its logs by quintain import" in elsewhere.stderr) == (2, True)


def test_files_are_compared_judged_and_ingested(folder: Path) -> None:
    write("more.jsonl", [trajectory(7, True)])
    shown = line("knowlyr-reward", "compare", "trajectories.jsonl", "more.jsonl")
    assert (shown.count("4 runs scored"), shown.count("1 run scored")) == (1, 1), shown
    judged = quintain("knowlyr-reward", "score", "more.jsonl", "-m", "judge-model", "-p", "openai")
    assert "no endpoint profile 'judge-model'" in judged.stderr, "the model is one of the operator's endpoints"
    write("session.jsonl", small_log("crew"))
    assert "1 run came in" in line("knowlyr-hub", "ingest", "crew", "--source", "session.jsonl")
    assert "1 were known" in line("knowlyr-hub", "ingest", "crew", "--source", "session.jsonl", "--reset")


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the Hub's client
def test_good_runs_are_pushed_to_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = ("-t", "trajectories.jsonl", "--repo-id", "me/runs")
    refused = quintain("knowlyr-hub", "publish", *good, "--generate-card")
    assert (refused.returncode, "QUINTAIN_ARTIFACTS" in refused.stderr) == (2, True), "the operator allows it first"
    monkeypatch.setenv("QUINTAIN_ARTIFACTS", "hub:me")
    with local_hub() as hub:
        for name, value in (("ENDPOINT", hub.url), ("HF_HUB_OFFLINE", False), ("HF_HUB_DISABLE_XET", True)):
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        line("knowlyr-hub", "export", "--format", "huggingface", *good, "-o", "written")
    assert "README.md" in hub.repositories["datasets/me/runs"]
    assert Path("written", "README.md").is_file()


def test_the_documented_environments_and_wrappers_play_and_record(folder: Path) -> None:
    class MyEnv(AgentEnv):
        domain = "my_domain"

        def reset(self, *, task: Any = None, seed: int | None = None) -> TimeStep:
            return TimeStep(observation="ready")

        def step(self, action: dict[str, Any]) -> TimeStep:
            return TimeStep(observation="result", terminated=(action["tool"] == "submit"))

        @property
        def available_tools(self) -> list[str]:
            return ["observe", "act", "submit"]

    register("my-project/my-env", MyEnv, domain="my_domain")
    env: AgentEnv = make("my-project/my-env")
    env = MaxStepsWrapper(env, max_steps=50)
    env = RewardWrapper(env, reward_fn=make_reward_fn(domain="coding"))
    recorder = RecorderWrapper(env, agent_name="my-agent")
    ts = recorder.reset(task={"task_id": "t1", "description": "Do it."})
    tools = iter(("observe", "act", "submit"))
    while not ts.done:
        ts = recorder.step({"tool": next(tools), "params": {"file_path": "a.py"}})
    trajectory = recorder.get_trajectory()
    assert (trajectory["task"]["task_id"], trajectory["agent"], len(trajectory["steps"])) == ("t1", "my-agent", 3)
    assert "success" not in trajectory["outcome"], "the environment gave no verdict"
    assert all(0 <= step["reward"] <= 1 for step in trajectory["steps"])
    assert (list_envs("my_domain"), recorder.unwrapped.domain) == (["my-project/my-env"], "my_domain")
    assert list_envs("coding") == ["knowlyr/sandbox"]
    ended = EpisodeStatisticsWrapper(ObservationTruncateWrapper(make("knowlyr/sandbox"), max_chars=4))
    ended.reset()
    ts = ended.step({"tool": "finish", "params": {}})
    assert (ts.done, ts.info["episode"]["l"]) == (True, 1)
    conversation = make("knowlyr/conversation")
    ts = conversation.reset()
    assert "respond" in conversation.available_tools
    assert conversation.step({"tool": "respond", "params": {"message": "Hello"}}).observation != ts.observation
    with pytest.raises(InvalidInput, match="conversation/train/none/easy/00001"):
        conversation.reset(task="conversation/train/none/easy/00001")
    conversation.close()


def test_a_free_text_is_answered_without_data_and_without_a_verdict(folder: Path) -> None:
    env = RecorderWrapper(make("knowlyr/conversation"), agent_name="my-agent")
    ts = env.reset(task="帮用户查询订单状态")
    assert ts.observation == "帮用户查询订单状态"
    ts = env.step({"tool": "get_policy", "params": {}})
    assert "has no data for other tools" in ts.observation
    assert not ts.done
    assert env.step({"tool": "respond", "params": {"message": "Which order?"}}).done
    trajectory = env.get_trajectory()
    assert (trajectory["task"]["description"], trajectory["outcome"]) == ("帮用户查询订单状态", {"total_steps": 2})
    env.reset(task={"task_id": "t7", "description": "Greet me."})
    assert env.step({"tool": "respond", "params": {"message": "Hello."}}).done
    assert env.get_trajectory()["task"] == {"task_id": "t7", "description": "Greet me."}
    ts = env.reset(task="conversation/train/question/easy/00123")
    assert not env.step({"tool": "get_policy", "params": {}}).observation.startswith("expected respond"), (
        "a task has data"
    )
    model = AgentInference.from_pretrained("starter").create_agent()
    with pytest.raises(InvalidInput, match="neither task nor reward_fn"):
        collect("knowlyr/conversation", agent=model, task="Look up an order")


def test_the_documented_loop_collects_exports_trains_and_collects_again(folder: Path) -> None:
    def my_agent(observation: str) -> dict[str, Any]:
        return {"tool": "submit", "params": {}}

    reward_fn = make_reward_fn(domain="coding")
    trajectories = collect("knowlyr/inventory", agent=my_agent, n_episodes=2, max_steps=2, reward_fn=reward_fn)
    assert [row["outcome"] for row in trajectories] == [{"total_steps": 2, "success": False}] * 2
    write("collected.jsonl", trajectories)
    assert line("import", "collected.jsonl").count("2 runs came in") == 1
    exporter = DatasetExporter(trajectories_dir="./trajectories.jsonl")
    assert exporter.export_sft("./sft_train.jsonl") == 2
    config = SFTConfig(
        model_name_or_path="starter",
        train_file="sft_train.jsonl",
        output_dir="./output",
        agent_format=True,
        mask_observations=True,
        num_epochs=1,
    )
    assert SFTTrainer(config).train()["status"] == "success"
    inference = AgentInference.from_pretrained("./output/final", max_new_tokens=8)
    updated_agent = inference.create_agent(system_prompt="You are an assistant for code.")
    new_trajectories = collect("knowlyr/inventory", agent=updated_agent, n_episodes=2, max_steps=1)
    assert len(new_trajectories) == 2
    assert {row["agent"] for row in new_trajectories} == {"knowlyr-agent"}
    prompt = ("--system-prompt", "You answer questions.", "--domain", "generic")
    acting = ("--env", "knowlyr/inventory", "--model", "./output/final", "-n", "1", "--max-steps", "1", *prompt)
    assert "By task type" in line("knowlyr-hub", "evaluate", *acting, "-o", "report.md")
    assert Path("report.md").is_file()
