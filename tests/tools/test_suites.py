"""Where agents act and are measured: benchmarks, written tasks, the suite of a training, experts, games, other libraries."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from environments.foreign_servers import LAKE, Solver, foreign_servers
from playing import Scripted, play
from quintain.environments.registry import open_source
from quintain.errors import InvalidInput
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.filters import TrajectoryFilter
from quintain.tools.data import row_references
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.preview import preview_dataset
from quintain.tools.evaluation.comparison import compare_agents
from quintain.tools.evaluation.leaderboard import environment_leaderboard
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.evaluation.suites import default_suite
from quintain.tools.jobs.figures import figure_of
from quintain.tools.jobs.jobs import get_job
from quintain.tools.jobs.record_reports import report_of
from quintain.tools.services import Services
from quintain.tools.training.agents import resolve_agent
from quintain.tools.training.config_files import start_config
from quintain.tools.training.planning.plan import plan_training
from quintain.tools.training.start import start_training
from store_shelves import trained, training
from terminal import quintain
from tiny_models import save_tiny_model
from tools.dict_calls import Caller
from tools.stored_records import ended, error_of, spec_of, write_rows


def benchmark(tool: Caller, environment: object, n_tasks: int = 3, agent: str = "expert") -> str:
    collected = tool(action="collect", agent=agent, environment=environment, n_tasks=n_tasks, max_turns=4)
    tool(action="wait", job_id=collected["job_id"])
    exported = tool(action="export", kind="benchmark", name="bench", filter={"job_id": collected["job_id"]})
    assert (exported["status"], exported["splits"]) == ("success", {"test": n_tasks}), exported
    return str(exported["dataset_id"])


@pytest.mark.usefixtures("jobs_in_process")
def test_a_benchmark_is_exported_played_and_compared(tool: Caller, services: Services) -> None:
    parts = {"quintain/inventory?difficulty=easy": 1, "quintain/math?difficulty=easy": 1}
    dataset = benchmark(tool, parts, n_tasks=2)
    asked = {"dataset_id": dataset, "split": "test", "max_turns": 4, "sampling": {"max_new_tokens": 4}}
    answers = [tool(action="evaluate", agent=agent, **asked) for agent in ("starter", "expert")]
    assert [answer["num_samples"] for answer in answers] == [2, 2], answers
    assert answers[1]["accuracy"] == 1.0
    compared = tool(action="compare", agents=["starter", "expert"])
    assert compared["comparisons"][0]["n_tasks"] == 2
    titles = [figure_of(services, one)["title"] for one in (answers[0]["job_id"], compared["comparison_id"])]
    assert titles[0] == "starter@1 on 2 tasks of bench, all"
    assert "of quintain/benchmark?file=test.jsonl" in titles[1], "a picture that people share names no folder"
    folder = str(services.settings.datasets_dir)
    for one in (answers[0]["job_id"], compared["comparison_id"], "starter"):
        assert folder not in str(report_of(services, one)[0])
    named = tool(action="evaluate", agent="expert", environment="quintain/benchmark?file=bench")
    assert (named["code"], "evaluate_agent(agent=..., dataset_id='bench')" in named["message"]) == (
        "no_task_file",
        True,
    )
    leaked = tool(action="export", kind="sft", name="leak", filter={"job_id": answers[1]["job_id"]})
    assert (leaked["code"], "held_out" in leaked["message"]) == ("empty_dataset", True), leaked
    report = tool(action="status", job_id=answers[1]["job_id"])["result"]["report"]
    metrics = tool(action="library", kind="evaluations")["items"][0]["metrics"]
    assert report["metrics"] == metrics, "the job itself reports them"
    assert {name: rate["n"] for name, rate in report["by_environment"].items()} == parts
    # The expert plays its own plan again: the same tools in the same order, in the same number of steps, and solves it.
    for name in ("tool_selection_f1", "plan_success", "step_efficiency", "end_to_end", "timing"):
        assert metrics[name]["value"] == 1.0, name
        assert metrics[name]["n"] == 2, name


@pytest.mark.usefixtures("jobs_in_process")
def test_a_benchmark_plays_its_tasks_with_the_options_under_which_they_were_recorded(
    tool: Caller, services: Services
) -> None:
    """With `mode=direct` the right tool is offered, and is the whole plan; without it there are two search tools."""
    dataset = benchmark(tool, "quintain/tools-1k?mode=direct", n_tasks=2)
    played = tool(action="evaluate", agent="expert", dataset_id=dataset)
    report = tool(action="status", job_id=played["job_id"])["result"]["report"]
    assert report["metrics"]["plan_success"]["value"] == 1.0, report["metrics"]
    (rows,) = Path(services.store.datasets.get(dataset).path).glob("test.jsonl")
    assert rows.read_text().count('"environment":"quintain/tools-1k?mode=direct"') == 2


@pytest.mark.usefixtures("jobs_in_process")
def test_questions_with_answers_of_a_table_are_asked(tool: Caller, home: Path) -> None:
    """The expert gives the answers of the rows, the starter says four tokens."""
    (home / "inbox").mkdir(parents=True, exist_ok=True)
    (home / "inbox" / "desk.csv").write_text("text,desk\nMy card is gone,cards\nWhere is my parcel,post\n")
    columns = {"question": "text", "answer": "desk"}
    made = tool(action="export", kind="benchmark", name="desks", path="desk.csv", columns=columns)
    asked = {"dataset_id": made["dataset_id"], "n_tasks": 2, "sampling": {"max_new_tokens": 4}}
    answers = [tool(action="evaluate", agent=agent, **asked) for agent in ("starter", "expert")]
    assert [(answer["num_samples"], answer["accuracy"]) for answer in answers] == [(2, 0.0), (2, 1.0)], answers
    compared = tool(action="compare", agents=["starter", "expert"], environment="desks")
    assert (compared["comparisons"][0]["only_b"], compared["comparisons"][0]["n_tasks"]) == (2, 2)
    for name in ("desks", made["dataset_id"]):
        asked = {"agents": ["starter", "expert"], "environment": name, "sequential": True}
        started = tool(action="compare", **asked)
        if started.get("job_id"):
            tool(action="wait", job_id=started["job_id"])
        decided = tool(action="compare", **asked)
        assert decided["sequential"]["n_tasks"] == 2, "a benchmark of two tasks is played to its end"
    links = tool(action="lineage", id=made["dataset_id"])["descendants"]
    assert decided["comparison_id"] in {node["id"] for node in links}
    (played, *_) = tool(action="search", filter={"job_id": answers[0]["job_id"]})["items"]
    shown = tool(action="get", trajectory_id=played["id"])["trajectory"]
    assert [step["actor"] for step in shown["steps"]] == ["user", "agent"], "as the rows: no system prompt and no tool"
    assert "tools" not in shown


@pytest.mark.usefixtures("jobs_in_process")
def test_a_benchmark_whose_environment_is_not_here_is_compared_by_its_first_calls(tool: Caller) -> None:
    steps = [
        {"role": "user", "content": "Find the lamp."},
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "lamp"},
    ]
    tools = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}]
    recorded = tool.record(messages=steps, tools=tools, outcome={"status": "success", "reward": 1.0})
    assert recorded["status"] == "success", recorded
    exported = tool(action="export", kind="benchmark", name="b", trajectory_ids=[recorded["trajectory_id"]])
    started = tool(action="evaluate", agent="starter", dataset_id=exported["dataset_id"], wait=False)
    assert "only the first call is compared" in started["warnings"][0]
    assert started["warnings"][0].endswith("line 1: its task names no environment")
    refused = tool(action="evaluate", agent="expert", dataset_id=exported["dataset_id"])
    assert refused["code"] == "no_weights"
    chat = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    talked = tool.record(messages=chat, outcome={"status": "success"})
    chats = tool(action="export", kind="benchmark", name="c", trajectory_ids=[talked["trajectory_id"]])
    refused = tool(action="evaluate", agent="starter", dataset_id=chats["dataset_id"])
    assert refused["code"] == "nothing_to_measure", refused
    assert chats["next_step"].startswith("No agent can be measured on it: expected tasks with an environment"), chats
    assert exported["next_step"].startswith("Measure an agent on it")
    assert f"kind='sft', name='c-turns', filter={{'dataset_id': {chats['dataset_id']!r}}}" in refused["message"]
    turns = tool(action="export", kind="sft", name="c-turns", filter={"dataset_id": chats["dataset_id"]})
    measured = tool(action="evaluate", agent="starter", dataset_id=turns["dataset_id"], split="train", wait=False)
    assert measured["job_id"], measured


@pytest.mark.usefixtures("jobs_in_process")
def test_an_answer_that_waited_has_the_warnings_of_its_start_and_a_terminal_prints_them_once(
    tool: Caller, home: Path
) -> None:
    place = "quintain/inventory"
    measured = tool(action="evaluate", agent="expert", environment=place, n_tasks=1, forbidden=["serch"])
    assert [text for text in measured["warnings"] if "no tool 'serch'" in text], measured
    acting = ("--environment", place, "--n-tasks", "1", "--forbidden", "serch")
    done = quintain("evaluate", "expert", *acting, home=home)
    assert (done.returncode, done.stderr.count("no tool 'serch'")) == (0, 1), done.stderr


@pytest.mark.usefixtures("jobs_in_process")
def test_tasks_of_a_benchmark_open_no_files_of_its_own_naming(tool: Caller, home: Path) -> None:
    secret = home / "jobs" / "secret.jsonl"
    played_in = f"quintain/math?file={secret}"
    task = {"id": "q", "prompt": "What is 1 + 1?", "environment": played_in, "metadata": {"answer": 2}}
    path = write_rows(home / "inbox" / "bench.jsonl", {"task": task, "references": []})
    played = tool(action="evaluate", agent="expert", environment=f"quintain/benchmark?file={path}", n_tasks=1)
    assert (played["status"], played["accuracy"]) == ("success", 1.0), played


@pytest.mark.usefixtures("jobs_in_process")
def test_an_agent_trained_on_questions_is_measured_on_questions(
    tool: Caller, services: Services, home: Path, tmp_path: Path
) -> None:
    rows = [{"question": f"What is {i} + 1?", "answer": f"{i} + 1 = {i + 1}.\n#### {i + 1}"} for i in range(6)]
    path = write_rows(home / "inbox" / "gsm8k.jsonl", *rows)
    imported = tool(action="import", path=str(path), tags=["gsm8k"])
    assert imported["imported"] == 6, imported
    kept = {"outcomes": ["unknown"]}
    one = tool(action="export", kind="sft", name="held", filter={"tags": ["gsm8k"]}, validation_share=0.3, **kept)
    other = tool(action="export", kind="sft", name="whole", filter={"tags": ["gsm8k"]}, validation_share=0.0, **kept)
    brief = {"max_steps": 1, "batch_size": 1}
    out = tmp_path / "out"
    assert one["status"] == other["status"] == "success", (one, other)
    trained = tool(dataset=one["dataset_id"], name="solver", use_lora=False, output_dir=str(out), hyperparameters=brief)
    assert trained["status"] == "success", trained
    suite = {"dataset_id": one["dataset_id"]}
    assert default_suite(services, "solver") == default_suite(services, str(out)) == suite
    measured = tool(action="evaluate", model_path="solver", max_samples=2, sampling={"max_new_tokens": 4})
    assert (measured["status"], measured["environment"]) == ("success", f"dataset:{one['dataset_id']}"), measured
    assert measured["num_samples"] == 2
    crammer = Agent(name="crammer", model=ModelRef(source="folder", path="/m"), dataset_id=other["dataset_id"])
    services.store.agents.add(crammer, services.clock())
    refused = tool(action="evaluate", agent="crammer")
    assert (refused["status"], refused["code"]) == ("error", "no_suite")


@pytest.mark.usefixtures("jobs_in_process")
def test_an_agent_is_measured_where_its_runs_were_recorded(tool: Caller, services: Services) -> None:
    assert default_suite(services, "starter") == {"environment": "quintain/inventory"}
    collected = tool(action="collect", agent="expert", environment="quintain/math", n_tasks=2)
    tool(action="wait", job_id=collected["job_id"])
    exported = tool(
        action="export", kind="sft", name="demos", filter={"job_id": collected["job_id"]}, validation_share=0.0
    )
    assert exported["status"] == "success", exported
    agent = Agent(name="calc", model=ModelRef(source="folder", path="/m"), dataset_id=exported["dataset_id"])
    services.store.agents.add(agent, services.clock())
    assert default_suite(services, "calc") == {"environment": "quintain/math"}


def test_the_test_split_of_a_file_of_rows_is_the_file_beside_it(services: Services, home: Path) -> None:
    question = {"question": "What is 1 + 1?", "answer": "#### 2"}
    paths = {name: write_rows(home / "inbox" / f"{name}.jsonl", question) for name in ("gsm8k-test", "test")}
    for rows, split in (("gsm8k", "gsm8k-test"), ("gsm8k-train", "gsm8k-test"), ("train", "test")):
        assert row_references.test_rows(services, f"{rows}.jsonl") == paths[split]
    assert row_references.test_rows(services, "other-train.jsonl") is None
    suites = {"gsm8k": {"environment": f"quintain/math?file={paths['gsm8k-test']}", "split": "all"}, "test": None}
    for file, beside in suites.items():
        environment = f"quintain/math?file={home / 'inbox' / file}.jsonl"
        spec = training(resolve_agent(services, "starter"), environment=environment, name=file)
        agent = trained(services.store, f"job-{file}", spec)
        assert default_suite(services, agent.id or "") == (beside or {"environment": environment})


def test_a_file_of_questions_is_acted_on_by_its_name_and_other_calls_say_how_they_take_it(
    waiting: Services, home: Path
) -> None:
    question = {"question": "What is 1 + 1?", "answer": "#### 2"}
    path = write_rows(home / "inbox" / "sums.jsonl", question)
    job = start_training(waiting, "grpo", "starter", dataset_id="sums")
    assert spec_of(waiting, job).environment == f"quintain/math?file={path}"
    document = {"method": "grpo", "dataset": "sums", "max_samples": 1}
    alone = spec_of(waiting, start_config(waiting, document))
    (stage,) = spec_of(waiting, start_config(waiting, {"model": "starter", "stages": [document]})).stages
    for inputs in (alone, stage):
        assert (inputs.environment, inputs.config.rollouts) == (f"quintain/math?file={path}", 1)
    for refused in (
        error_of(evaluate_agent, waiting, "starter", dataset_id="sums"),
        error_of(plan_training, waiting, dataset_id="sums"),
        error_of(preview_dataset, waiting, "sums", "starter"),
    ):
        assert "path='sums.jsonl'" in refused.message
        assert "environment='quintain/tasks?file=sums.jsonl'" in refused.message


def test_a_benchmark_is_played_by_the_split_that_is_named(waiting: Services, home: Path) -> None:
    rows = [{"question": f"What is {n} + {n}?", "answer": f"#### {2 * n}"} for n in range(8)]
    write_rows(home / "inbox" / "sums.jsonl", *rows)
    made = export_dataset(waiting, "benchmark", "sums", path="sums.jsonl").dataset_id
    for split in ("test", "held_out", "all"):
        spec = spec_of(waiting, evaluate_agent(waiting, "expert", dataset_id=made, split=split))
        assert (spec.n_tasks, f"{made}/test.jsonl" in spec.environment) == (8, True)
    for split in ("train", "validation"):
        assert error_of(evaluate_agent, waiting, "expert", dataset_id=made, split=split).code == "no_such_split"


SERVER = Path(__file__).parents[1] / "environments" / "notes_mcp_server.py"
ADD = {"tool": "add", "args": {"a": 2, "b": 3}}
KEEP = {"tool": "write_note", "args": {"name": "milk", "text": "Buy milk"}}
KEPT = {"type": "state", "tool": "read_note", "args": {"name": "milk"}, "contains": "milk"}
EGG = {"tool": "write_note", "args": {"name": "eggs", "text": "Six eggs"}}
EGGS = {"type": "state", "tool": "read_note", "args": {"name": "eggs"}, "contains": "eggs"}
TASKS: list[dict[str, Any]] = [
    {"id": "sum", "prompt": "What is 2 + 3?", "answer": 5, "script": [ADD]},
    {"id": "note", "prompt": "Keep a note about milk.", "checker": KEPT, "script": [KEEP]},
    {"id": "wrong", "prompt": "Keep a note about bread.", "checker": {**KEPT, "contains": "bread"}, "script": [KEEP]},
    {
        "id": "typing-error",
        "prompt": "What is 3 + 3?",
        "answer": 6,
        "script": [{"tool": "ad", "args": {"a": 3, "b": 3}}],
    },
    {"id": "given", "prompt": "Are there eggs?", "checker": EGGS, "setup": [EGG], "script": [ADD]},
]


@pytest.fixture
def notes(home: Path) -> None:
    """`mcp:notes` in the operator's file, one process for a job."""
    line = f'[mcp.notes]\ncommand = "{sys.executable}"\nargs = ["{SERVER}"]\nfresh = "session"\n'
    (home / "environments.toml").write_text(line, encoding="utf-8")


@pytest.mark.usefixtures("jobs_in_process", "notes")
def test_written_tasks_are_executed_and_those_that_hold_become_a_benchmark(tool: Caller) -> None:
    collected = tool(action="collect", agent="expert", environment="mcp:notes", tasks=TASKS)
    job = tool(action="wait", job_id=collected["job_id"])
    assert job["status"] == "succeeded", job
    assert job["result"]["report"]["solved_without_a_call"] == ["given"]
    assert (job["result"]["n"], job["result"]["success_rate"]) == (4, pytest.approx(2 / 4))
    failed = [
        tool(action="get", trajectory_id=run)["trajectory"]["task"]["id"]
        for run in tool.found(job_id=job["job_id"], outcome="failure")
    ]
    assert sorted(failed) == ["typing-error", "wrong"]
    solved = {"job_id": job["job_id"], "outcome": "success"}
    demonstrations = tool(action="export", kind="sft", name="notes", filter=solved)
    assert demonstrations["rows"] == 2, demonstrations
    benchmark = tool(action="export", kind="benchmark", name="notes-tasks", filter=solved)
    measured = tool(action="evaluate", agent="expert", dataset_id=benchmark["dataset_id"], n_tasks=2)
    assert (measured["num_samples"], measured["accuracy"]) == (2, 1.0), measured


UNPLAYABLE: list[tuple[dict[str, Any], str]] = [
    ({"script": []}, "expected the calls that solve it as `script`, got none for 'What is 2"),
    ({"script": []}, "a task is {'prompt': ..., 'checker': ..., 'script': [{'tool': ..., 'args': {...}}]}"),
    ({"answer": None}, "expected a `checker` or an `answer`"),
    ({"prompt": TASKS[1]["prompt"]}, "expected a new prompt"),
    ({"split": "test"}, "expected split 'train', as in the call, got 'held_out'"),
    ({"checker": {"type": "state", "tool": "read_note"}}, "exactly one of `expect`"),
    ({"script": [{"args": {}}]}, "metadata.script"),
    ({"id": 3.5}, "id"),
]


@pytest.mark.usefixtures("notes")
def test_tasks_that_cannot_be_played_are_refused_with_their_place(tool: Caller) -> None:
    for row, message in UNPLAYABLE:
        tasks = [TASKS[1], {**TASKS[0], **row}]
        refused = tool(action="collect", agent="expert", environment="mcp:notes", tasks=tasks)
        assert refused["code"] == "bad_task_rows"
        assert refused["message"].startswith("1 of 2 tasks cannot be played: tasks[1]: ")
        assert message in refused["message"]
    several = {"mcp:notes": 1, "quintain/math": 1}
    assert "got several" in tool(action="collect", agent="expert", environment=several, tasks=tasks)["message"]


@pytest.mark.usefixtures("jobs_in_process")
def test_written_questions_are_played_without_a_server(tool: Caller) -> None:
    rows = [{"prompt": f"What is {n} + {n}?", "answer": 2 * n} for n in range(3)]
    collected = tool(action="collect", agent="expert", environment="quintain/tasks", tasks=rows, split="held_out")
    job = tool(action="wait", job_id=collected["job_id"])
    assert (job["result"]["n"], job["result"]["success_rate"], [*job["result"]["report"]]) == (3, 1.0, ["rate"]), job


GENERATED = (
    "quintain/inventory",
    "quintain/math",
    "quintain/conversation",
    "quintain/engineering",
    "quintain/advisory",
    "quintain/discussion",
    "quintain/sandbox",
    "quintain/tools-1k",
    "quintain/tools-1k?mode=direct",
)
NIM = "quintain/nim"
"""A game, which needs an opponent: `test_opponents`."""


@pytest.fixture
def questions(home: Path) -> Path:
    """Three questions with answers, in the inbox."""
    rows = [{"id": f"q{i}", "prompt": f"What is {i} + 1?", "answer": i + 1, "split": "train"} for i in range(3)]
    return write_rows(home / "inbox" / "questions.jsonl", *rows)


@pytest.mark.usefixtures("jobs_in_process")
def test_the_expert_gives_demonstrations_for_every_built_in_environment(tool: Caller, questions: Path) -> None:
    items = tool(action="library", kind="environments")["items"]
    listed = {item["id"] for item in items if item["id"].startswith("quintain/")}
    environments = (*GENERATED, f"quintain/tasks?file={questions}", f"quintain/math?file={questions}")
    assert listed <= {reference.partition("?")[0] for reference in environments} | {"quintain/benchmark", NIM}
    for environment in environments:
        collected = tool(action="collect", agent="expert", environment=environment, n_tasks=2)
        job = tool(action="wait", job_id=collected["job_id"])
        assert (job["status"], job["result"]["success_rate"]) == ("succeeded", 1.0), (environment, job)
        exported = tool(action="export", kind="sft", name="demonstrations", filter={"job_id": job["job_id"]})
        assert (exported["status"], exported["rows"]) == ("success", 2), (environment, exported)


def test_the_expert_cannot_be_trained_and_a_program_says_what_can(tool: Caller) -> None:
    refused = tool(action="train", algorithm="grpo", model_name="expert", environment="quintain/inventory")
    assert (refused["status"], refused["code"]) == ("error", "no_weights")
    named = tool(action="register", name="expert", model="starter")
    assert named["status"] == "error"


@pytest.mark.usefixtures("jobs_in_process")
def test_an_agent_learns_from_demonstrations_in_environments_of_other_libraries(tool: Caller, home: Path) -> None:
    pytest.importorskip("websockets")
    pytest.importorskip("gymnasium")
    with foreign_servers(home / "environments.toml"):
        listed = tool(action="library", kind="environments")["items"]
        assert {"id": "agentgym:count", "tasks": 40, "max_turns": 20} in [
            {name: item.get(name) for name in ("id", "tasks", "max_turns")} for item in listed
        ]
        parts = ["openenv:guess", "agentgym:count", LAKE]
        for part in parts:
            source = open_source(part)
            for episode in play(source, Scripted(Solver()), source.tasks("train", 3, 0)):
                recorded = tool.record(trajectory=episode.trajectory.model_dump(mode="json"))
                assert recorded["status"] == "success", recorded
            source.close()
        tool(action="export", kind="sft", name="worlds", filter={"outcome": "success"})
        settings = {"learning_rate": 5e-3, "epochs": 10, "batch_size": 2}
        asked = {"algorithm": "sft", "model_name": "starter", "dataset": "worlds", "name": "player"}
        trained = tool(action="train", hyperparameters=settings, **asked)
        assert trained["status"] == "success", trained
        mixed = dict.fromkeys(parts, 1)
        measured = tool(action="evaluate", agent="player", environment=mixed, n_tasks=3, max_turns=5)
        assert (measured["status"], measured["num_samples"]) == ("success", 3), measured
        assert measured["accuracy"] > 0.3, "of one task of each library"


EASY_NIM = "quintain/nim?difficulty=easy"
GRPO = {"method": "grpo", "model": "starter"}


@pytest.fixture
def tiny(services: Services, tmp_path: Path) -> str:
    folder = save_tiny_model(tmp_path / "tiny", hidden=16)
    agent = Agent(name="tiny", model=ModelRef(source="folder", path=str(folder)), sampling=Sampling(max_new_tokens=2))
    return services.store.agents.add(agent, services.clock()).id or ""


@pytest.mark.usefixtures("jobs_in_process")
def test_an_agent_is_measured_against_an_opponent_and_both_runs_are_stored(services: Services, tiny: str) -> None:
    started = evaluate_agent(services, "expert", environment=EASY_NIM, opponent=tiny, n_tasks=4)
    job = get_job(services, started.job_id)
    assert job.status == "succeeded", job.error
    assert job.label == f"evaluate expert against tiny on {EASY_NIM}: 4 tasks, held_out"
    assert job.result.trajectories.count == 8
    evaluation = services.store.evaluations.get(str(job.result.evaluation_id))
    assert (evaluation.opponent_id, evaluation.rate.value, evaluation.rate.n) == (tiny, 1.0, 4)
    runs = services.store.trajectories.search(TrajectoryFilter(job_id=started.job_id), limit=50).items
    assert sorted(run.agent for run in runs) == ["expert@1"] * 4 + ["tiny@1"] * 4
    other = ended(services, evaluate_agent(services, "expert", environment=EASY_NIM, opponent="self", n_tasks=4))
    alone = services.store.evaluations.get(str(other.result.evaluation_id))
    assert (alone.rate.value, alone.opponent_id) == (0.5, alone.agent_id), "who moves first wins, and roles alternate"
    assert alone.suite_hash != evaluation.suite_hash, "results against different opponents are not paired"


def test_a_game_without_an_opponent_and_an_opponent_without_a_game_are_refused(services: Services) -> None:
    refused: tuple[tuple[Any, dict[str, Any], str], ...] = (
        (evaluate_agent, {"agent": "expert", "environment": EASY_NIM}, "`opponent='self'`, 'expert' or another agent"),
        (collect_rollouts, {"agent": "expert", "environment": EASY_NIM}, "a game of first and second, got none"),
        (evaluate_agent, {"agent": "expert", "environment": "quintain/math", "opponent": "self"}, "acts alone"),
        (
            compare_agents,
            {"agents": ["expert", "starter"], "environment": EASY_NIM, "sequential": True},
            "for one player",
        ),
        (start_training, GRPO | {"environment": EASY_NIM}, r"set `hyperparameters=\{'self_play': \{\}\}"),
        (start_training, GRPO | {"environment": "quintain/math", "hyperparameters": {"self_play": {}}}, "acts alone"),
        (
            start_training,
            GRPO | {"environment": EASY_NIM, "hyperparameters": {"self_play": {"train_role": "third"}}},
            "first or second, got 'third'",
        ),
    )
    for tool, arguments, words in refused:
        with pytest.raises(InvalidInput, match=words):
            tool(services, **arguments)
    assert not services.store.jobs.page().items


@pytest.mark.usefixtures("jobs_in_process")
def test_a_model_trained_by_self_play_is_rated_against_its_start(services: Services, tiny: str) -> None:
    settings = {"self_play": {"pool_size": 2}, "rollouts": 2, "group_size": 2, "tasks_per_step": 1, "max_new_tokens": 4}
    started = start_training(
        services, method="grpo", model=tiny, environment=EASY_NIM, name="player", hyperparameters=settings
    )
    assert ended(services, started).error is None
    assert f"opponent='{tiny}'" in str(get_job(services, started.job_id).next_step)
    runs = services.store.trajectories.search(TrajectoryFilter(job_id=started.job_id), limit=50).items
    assert len(runs) == 8, "two rollouts of two games, each with a run of either player"
    for opponent in (tiny, "expert"):
        played = evaluate_agent(services, "player", environment=EASY_NIM, opponent=opponent, n_tasks=4)
        assert ended(services, played).error is None
    board = environment_leaderboard(services, EASY_NIM)
    assert board.ratings[0].agent == "agent:expert@1"
    assert {rating.agent: rating.games for rating in board.ratings} == {
        "agent:player@1": 8,
        tiny: 4,
        "agent:expert@1": 4,
    }
