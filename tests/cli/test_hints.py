"""Every hint that a flow really produces is carried out: as a call of a tool, and as a command line."""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from jobs_in_process import in_process, starts_held
from quintain.cli.command_lines import command_line, explain_for_terminal
from quintain.datasets.selection import drop_remedy
from quintain.errors import QuintainError
from quintain.next_step import Hint, ToolCall
from quintain.next_step import call as tool_call
from quintain.records.hyperparameters.methods import DATASET_KINDS
from quintain.settings import Settings
from quintain.tools.catalog import CATALOG, tool
from quintain.tools.invocation import call
from quintain.tools.services import Services, open_services
from terminal import quintain

INVENTORY = "quintain/inventory"
SLOW = {"epochs": 1, "max_steps": 1, "batch_size": 4}
ENDINGS = {"succeeded", "failed", "cancelled", "interrupted"}


def hints_in(value: Any) -> Iterator[Hint]:
    """Every hint in a result, at any depth."""
    if isinstance(value, Hint):
        yield value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from hints_in(getattr(value, name))
    elif isinstance(value, dict | list | tuple):
        for one in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from hints_in(one)


class Flow:
    """A home on which tools are called one after the other; the calls in all answers and refusals are kept."""

    def __init__(self, services: Services, folder: Path) -> None:
        self.services = services
        self.folder = folder
        self.calls: dict[str, ToolCall] = {}
        self.known: dict[str, Any] = {}
        """Argument -> a value for its placeholder; also the runs that can be closed, and given an outcome."""
        self.evaluated: dict[str, str] = {}
        """Agent or evaluation -> the agent; both agents were measured on one suite."""
        self.twins: dict[str, str] = {}
        """Run -> another one for the second form of a call: a recording closes once, and an outcome is stated once."""

    def do(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool, wait for its job, and return its result or its refusal."""
        try:
            result = call(self.services, tool(name), arguments)
        except QuintainError as error:
            self.keep(error.message, but=name)
            return error
        self.keep(result)
        if getattr(result, "job_id", None) and name not in ("get_job", "cancel_job", "resume_job"):
            while (view := self.do("get_job", job_id=result.job_id, wait_s=20)).status not in ENDINGS:
                pass
            assert view.status == "succeeded", view
            return view
        return result

    def keep(self, value: Any, but: str = "") -> None:
        """Keep the calls of an answer or refusal, but not the name of a tool that is to be called again."""
        for one in (one for hint in hints_in(value) for one in hint.calls if str(one) != but):
            self.calls.setdefault(str(one), one)


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flow]:
    """The whole way from a record to a comparison, and the refusals beside it."""
    folder = tmp_path_factory.mktemp("hints")
    with in_process():
        flow = played_flow(folder)
    with starts_held(flow.services.settings.jobs_dir):  # the jobs that hints start are stored and cancelled
        yield flow
    flow.services.close()


def played_flow(folder: Path) -> Flow:
    """Call the tools in the order of the way, and keep what their hints need."""
    services = open_services(Settings(home=folder / "home", poll_s=0.05), trusted=True)
    flow = Flow(services, folder)
    for name in ("search_trajectories", "list_jobs"):
        flow.do(name)
    flow.do("get_judging_batch", limit=2)
    flow.do("plan_training", goal=["imitate"])
    for kind in ("datasets", "agents", "environments", "scorers", "methods"):
        flow.do("list_library", kind=kind)
    messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    run = flow.do("record_trajectory", messages=messages, task="Add.", outcome="success").trajectory_id
    flow.do("record_trajectory", messages=messages, task="Add.", outcome="failure")
    opened = {"messages": messages, "live": "open"}
    live = flow.do("record_trajectory", **opened, task="Add more.").trajectory_id
    twin = call(services, tool("record_trajectory"), {**opened, "task": "Add still more."}).trajectory_id
    played = flow.do(
        "collect_rollouts", agent="starter", environment=INVENTORY, n_tasks=4, attempts=4, temperature=1.5, max_turns=3
    )
    runs = {"job_id": played.job_id}
    flow.do("search_trajectories", filter=runs, limit=2)
    flow.do("get_trajectory", trajectory_id=run)
    flow.do("score_trajectories", scorer="rules", filter=runs)
    for scorer in ("people", "judge", "montecarlo"):
        flow.do("score_trajectories", scorer=scorer, filter=runs)
    flow.do("fit_calibration", scorer="rules")
    batch = flow.do("get_judging_batch", limit=1)
    answer = {"item_id": batch.items[0].item_id, "value": 0.5}
    flow.do("submit_scores", batch_id=batch.batch_id, scores=[answer])
    flow.do("record_preferences", source="mined", scorer="rules", filter=runs)
    flow.do("record_preferences", source="person", pairs=[{"chosen": run, "rejected": "traj-none"}])
    dataset = flow.do("export_dataset", kind="sft", name="all", scorer="rules", min_score=0, filter=runs).dataset_id
    flow.do("export_dataset", kind="benchmark", name="tasks", filter=runs)
    flow.do("preview_dataset", dataset_id=dataset, model="starter")
    flow.do("plan_training", dataset_id=dataset)
    flow.do("start_training", method="dpo", model="starter", dataset_id=dataset)
    flow.do("start_training", method="evolve", model="starter")
    trained = flow.do("start_training", method="sft", model="starter", dataset_id=dataset, hyperparameters=SLOW)
    flow.do("compare_agents", agents=["starter", trained.result.agent])
    evaluations = {}
    for agent in ("starter", trained.result.agent):
        done = flow.do("evaluate_agent", agent=agent, environment=INVENTORY, n_tasks=2, max_turns=2)
        evaluations[done.result.evaluation_id] = agent
    flow.do("compare_agents", agents=["starter", trained.result.agent])
    flow.do("register_agent", name="careful", model="starter", system_prompt="Be careful.")
    flow.do("get_lineage", id=run)
    flow.do("search_trajectories", filter={"text": "nothing has this"})
    flow.do("score_trajectories", scorer="rules", filter={"text": "nothing has this"})
    flow.do("resume_job", job_id=played.job_id)
    unknown = flow.do("record_trajectory", messages=messages, task="Add at last.").trajectory_id
    other = call(services, tool("record_trajectory"), {"messages": messages, "task": "Add it all."}).trajectory_id
    for kind, ids in (("sft", [unknown]), ("kto", [unknown]), ("prm", [unknown]), ("sft", [live]), ("dpo", [run])):
        flow.do("export_dataset", kind=kind, name="none", trajectory_ids=ids)
    flow.do("export_dataset", kind="sft", name="none", trajectory_ids=[run], scorer="people", min_score=0.5)
    gone = call(services, tool("record_trajectory"), {"messages": messages, "task": "Forget."}).trajectory_id
    call(services, tool("forget"), {"id": gone, "dry_run": False})
    for name, wrong in (
        ("get_trajectory", {"trajectory_id": "traj-none"}),
        ("get_trajectory", {"trajectory_id": gone}),
        ("get_job", {"job_id": "job-none"}),
        ("get_lineage", {"id": "nobody"}),
        ("evaluate_agent", {"agent": "nobody", "environment": INVENTORY}),
        ("preview_dataset", {"dataset_id": "none"}),
        ("compare_agents", {"agents": ["eval-none", "eval-nothing"]}),
    ):
        assert isinstance(flow.do(name, **wrong), QuintainError), name
    for reason in ("unscored", "reward_unknown", "group_of_one", "outcome_error"):
        flow.keep(drop_remedy(reason))
    flow.known = {
        "filter": runs,
        "trajectory_id": run,
        "open run": live,
        "run without outcome": unknown,
        "judge": "starter",
        "cap": 0.5,
        "attempts": 2,
        "pairs": [{"chosen": run, "rejected": unknown}],
        "dataset_id": dataset,
        "agent": "starter",
        "environment": INVENTORY,
        "scorer": "rules",
        "method": "sft",
        "messages": [{"role": "user", "content": "And 3?"}, {"role": "assistant", "content": "7"}],
        "scores": [answer],
        "id": run,
    }
    flow.evaluated = {"starter": "starter", trained.result.agent: trained.result.agent} | evaluations
    flow.twins = {live: twin, unknown: other}
    return flow


def filled(flow: Flow, one: ToolCall) -> ToolCall:
    """The call with a value for each placeholder."""
    arguments = {}
    for name, value in one.arguments.items():
        if value is ...:
            stated = {"live": "open run", "outcome": "run without outcome"}
            kinds = [kind for argument, kind in stated.items() if argument in one.arguments]
            value = flow.known[kinds[0] if name == "trajectory_id" and kinds else name]
        elif isinstance(value, list) and ... in value:  # one of two agents to compare
            measured = {flow.evaluated[part] for part in value if part is not ...}
            other = next(agent for agent in flow.evaluated.values() if agent not in measured)
            value = [other if part is ... else part for part in value]
        arguments[name] = value
    return tool_call(one.tool, **arguments)


def for_its_twin(flow: Flow, one: ToolCall) -> ToolCall:
    """The same call for the twin of its run, where the run has one."""
    return tool_call(one.tool, **{name: flow.twins.get(str(value), value) for name, value in one.arguments.items()})


def parsed(text: str) -> tuple[str, dict[str, Any]]:
    """A call as it is printed, read as a client would read it."""
    tree = ast.parse(text, mode="eval").body
    if isinstance(tree, ast.Name):
        return tree.id, {}
    assert isinstance(tree, ast.Call)
    assert isinstance(tree.func, ast.Name)
    return tree.func.id, {str(word.arg): ast.literal_eval(word.value) for word in tree.keywords}


def starts(one: ToolCall) -> bool:
    """Whether a call starts a job that the test cancels."""
    jobs = {"start_training", "collect_rollouts", "evaluate_agent", "export_agent"}
    return one.tool in jobs or (one.tool == "score_trajectories" and "judge" in one.arguments)


def as_a_call(flow: Flow, one: ToolCall) -> str:
    """Carry out a call as it is printed for MCP and Python; return what went wrong."""
    name, arguments = parsed(str(one))
    assert (name, arguments) == (one.tool, dict(one.arguments))
    try:
        result = call(flow.services, tool(name), arguments)
    except QuintainError as error:
        return f"{one}: {error}"
    if starts(one):
        flow.services.jobs.cancel(result.job_id)
    return ""


def as_a_command(flow: Flow, one: ToolCall) -> str:
    """Carry out a call as the command line of the terminal; return what went wrong."""
    line = command_line(one)
    program, *words = shlex.split(line)
    assert program == "quintain"
    if "FILE" in words:
        file = flow.folder / "content.json"
        file.write_text(json.dumps(one.arguments.get("messages") or one.arguments.get("pairs")), encoding="utf-8")
        words[words.index("FILE")] = str(file)
    detached = ["--detach"] if starts(one) else []
    done = quintain(*words, *detached, home=flow.services.settings.home)
    for word in done.stdout.split() if starts(one) else ():
        if word.startswith("job-"):
            flow.services.jobs.cancel(word)
    return "" if done.returncode == 0 else f"{line}: {done.returncode} {done.stderr}{done.stdout}"[:600]


def test_every_hint_is_carried_out_as_a_call_and_as_a_command(flow: Flow) -> None:
    assert len(flow.calls) >= 45
    assert {one.tool for one in flow.calls.values()} >= {
        "export_dataset",
        "start_training",
        "get_job",
        "compare_agents",
    }
    faults = []
    # Plans first: they take the newest dataset, and other hints add smaller ones.
    first = sorted(flow.calls.values(), key=lambda one: one.tool != "plan_training")
    calls = [filled(flow, one) for one in first]
    for whole in {str(one): one for one in calls}.values():
        faults += [as_a_call(flow, whole), as_a_command(flow, for_its_twin(flow, whole))]
    assert not any(faults), "\n".join(filter(None, faults))


LISTINGS = """
    runs; runs --summary; runs --sort reward; show RUN; show DATASET; show AGENT; show EVALUATION; show COMPARISON; show JOB;
    agents; datasets; environments; library evaluations; library comparisons; library scorers; library methods; jobs list;
    jobs show JOB --detail metrics; lineage RUN; plan --method sft; prefer list; search; get RUN; judge --agreement;
    compare EVALUATION EVALUATION_2; import LOGS --again; version; show leaderboard://quintain/inventory
"""


def test_tables_fit_80_columns_and_nothing_is_raw_json_unless_it_is_asked_for(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk over what lists and shows, on the home with everything in it."""
    monkeypatch.setenv("COLUMNS", "80")
    store = flow.services.store
    first, second = store.evaluations.page(limit=2).items
    (flow.folder / "logs").mkdir()
    log = flow.folder / "logs" / f"{'a-long-name-' * 6}.jsonl"
    log.write_text(json.dumps({"messages": flow.known["messages"]}), encoding="utf-8")
    things = {
        "EVALUATION_2": second.id,
        "EVALUATION": first.id,
        "COMPARISON": call(flow.services, tool("compare_agents"), {"agents": [first.id, second.id]}).comparison_id,
        "DATASET": flow.known["dataset_id"],
        "AGENT": "starter",
        "RUN": flow.known["trajectory_id"],
        "JOB": store.jobs.page(kind="train", status="succeeded", limit=1).items[0].id,
        "LOGS": str(log.parent),
    }
    for line in LISTINGS.split(";"):
        words = [things.get(word, word) for word in line.split()]
        home = None if words == ["version"] else flow.services.settings.home
        plain, as_json = quintain(*words, home=home), quintain(*words, "--json", home=home)
        refused = 0 if words[0] != "plan" else 1  # a plan may have blockers, such as too little memory
        assert plain.returncode == as_json.returncode <= refused, (line, plain.stderr, as_json.stderr)
        json.loads(as_json.stdout)
        texts = plain.stdout.splitlines()
        assert texts, line
        assert not any(text.startswith(("{", "[{")) for text in texts), plain.stdout
        tabular = [text for text in texts if "   " in text.strip() and "quintain " not in text and "note:" not in text]
        assert [text for text in tabular if len(text) > 80] == [], line


def test_every_command_has_json() -> None:
    from quintain.cli.main import command, command_names
    from quintain.cli.table import GROUPS

    paths = [
        name for name in command_names() if not name.startswith(("knowlyr-", "sage-"))
    ]  # other programs, with their flags
    for group in set(paths) & set(GROUPS):
        paths.remove(group)
        paths += [f"{group} {name}" for name in command_names(group)]
    assert len(paths) > 30
    assert [path for path in paths if not any("--json" in param.opts for param in command(path).params)] == []


@pytest.mark.parametrize(
    ("one", "line"),
    [
        (tool_call("get_job", job_id="job-1", wait_s=30), "quintain jobs watch job-1"),
        (tool_call("get_job", job_id="job-1", detail="log"), "quintain jobs show job-1 --detail log"),
        (tool_call("forget", id="traj-1", dry_run=False), "quintain forget traj-1 --for-good"),
        (tool_call("compare_agents", agents=["a@1", ...]), "quintain compare a@1 AGENT"),
        (tool_call("start_training", method="evolve", model="a"), "quintain evolve a"),
        (
            tool_call("start_training", method="dpo", model="a", dataset_id="d", hyperparameters={"lora": {"rank": 8}}),
            "quintain train --method dpo --model a --dataset d --set 'lora={\"rank\": 8}'",
        ),
        (
            tool_call("export_dataset", kind="sft", name="good", scorer="rules", min_score=0.5, filter=...),
            "quintain export sft good --scorer rules --min-score 0.5 --all",
        ),
        (
            tool_call(
                "export_dataset", kind="sft", name="x", filter={"agent": "a", "tags": ["b", "c"], "min_reward": 1}
            ),
            "quintain export sft x --agent a --tag b --tag c --filter '{\"min_reward\": 1}'",
        ),
        (
            tool_call("score_trajectories", scorer={"judge": 1, "rules": 0.5}, filter=..., calibrate=False),
            "quintain score judge=1,rules=0.5 --raw --all",
        ),
        (tool_call("get_judging_batch", limit=5), "quintain judge --limit 5 --judge assistant"),
        (tool_call("get_judging_batch", limit=5, judge="person"), "quintain judge --limit 5 --judge person"),
        (tool_call("record_trajectory", live="append", trajectory_id="t", messages=...), None),
        (tool_call("record_preferences", source="mined", filter=...), "quintain prefer mine --all"),
    ],
)
def test_calls_become_command_lines(one: ToolCall, line: str | None) -> None:
    written = command_line(one)
    assert sorted(shlex.split(written)) == sorted(
        shlex.split(line or "quintain record FILE --live append --trajectory-id t")
    )


def test_every_tool_has_a_command_with_an_option_for_each_argument() -> None:
    from quintain.cli.table import COMMANDS
    from quintain.cli.tool_options import options_of
    from quintain.tools.invocation import arguments_model

    named = {command.tool for command in COMMANDS.values()}
    assert {spec.name for spec in CATALOG} == named
    for spec in CATALOG:
        offered = set()
        for command in COMMANDS.values():
            if command.tool == spec.name:
                offered |= {option.argument for option in options_of(command, spec)} | set(command.fixed)
        read_from_a_file = {
            "record_trajectory": {"messages", "trajectory", "tools"},
            "record_preferences": {"pairs", "source"},
        }
        missing = set(arguments_model(spec).model_fields) - offered - read_from_a_file.get(spec.name, set())
        assert not missing - {"max_chars"}, spec.name
    methods = next(
        option for option in options_of(COMMANDS["train"], tool("start_training")) if option.argument == "method"
    )
    assert set(methods.choices) == {*DATASET_KINDS, "evolve"} - {None}


@pytest.mark.parametrize(
    ("command", "text", "shown"),
    [
        ("export", "export again with `curation.near_duplicates=1.0`", "export again with --near-duplicates 1.0"),
        ("export", "`seed=7` meets it", "--seed 7 meets it"),
        (
            "export",
            'such as `columns={"prompt": ..., "label": "thumbs"}`',
            "such as --column prompt=VALUE --column label=thumbs",
        ),
        ("export", "`columns={'label': 'a', 'good': VALUE}` too", "--column label=a --column good=VALUE too"),
        ("export", "or `outcomes=['unknown']`; or `pairs='mined'`", "or --keep unknown; or --pairs mined"),
        ("export", "`outcomes='unknown'`, `columns='a'`, `columns=f()`", "--keep unknown, --column a, `columns=f()`"),
        ("export", "export_dataset(kind=..., name='a', test_share=0.1)", "quintain export KIND a --test-share 0.1"),
        ("export", "`kind` and `kind='sft'`; see list_library", "KIND and `kind='sft'`; see quintain library"),
        ("import", "With `again`, set `format='trl'`", "With --again, set --format trl"),
        ("compare", "or set `sequential=true`", "or set --sequential"),
        ("evaluate", "export with `validation_share=0.1`", "export with `validation_share=0.1`"),
        (
            "export",
            "the log says seed=3, `a b`, `` and `environment`",
            "the log says seed=3, `a b`, `` and `environment`",
        ),
        (
            "train",
            "`hyperparameters={'epochs': 2}`, arguments.hyperparameters.lora.rank: 3; hyperparameters.epoch.",
            "--set epochs=2, --set lora.rank: 3; --set epoch.",
        ),
        ("tag", "arguments.trajectory_ids[0]: 3; arguments.filter.tags: 4", "--run: 3; --tag: 4"),
        ("forget", "`forget` and `dry_run`", "`quintain forget` and --dry-run"),
    ],
)
def test_an_argument_in_a_text_is_shown_as_the_option_of_its_command(command: str, text: str, shown: str) -> None:
    assert explain_for_terminal(text, command) == shown


def test_after_a_training_and_an_evaluation_both_agents_are_named(flow: Flow) -> None:
    """`starter` was the start of the training, and the trained agent was measured."""
    trained = next(agent for agent in flow.evaluated.values() if agent != "starter")
    pairs = [one.arguments["agents"] for one in flow.calls.values() if one.tool == "compare_agents"]
    assert ["agent:starter@1", trained] in pairs
    measured = next(name for name, agent in flow.evaluated.items() if agent == trained and name.startswith("eval-"))
    assert ["agent:starter@1", measured] in pairs
