"""Lineage and forgetting on a real home folder: both directions, the picture, and all that a forgotten run blocks and leaves."""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mcp_client import ToolCaller
from quintain.cli.main import app
from quintain.errors import Conflict, InvalidInput, NotFound
from quintain.records.agent import Agent, ModelRef
from quintain.records.evaluation import EpisodeResult
from quintain.records.filters import TrajectoryFilter
from quintain.records.imports import TakenOver
from quintain.records.jobs.handover import ExportAgentSpec, Provenance
from quintain.records.jobs.job import JobStatus, PreviewSpec, TrainSpec
from quintain.records.lineage import LineageEdge
from quintain.records.trajectory import OutcomeStatus, Source, Task
from quintain.tools.catalog import tool
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.forgetting import forget
from quintain.tools.data.imports import import_trajectories
from quintain.tools.data.library import list_library
from quintain.tools.data.lineage import get_lineage
from quintain.tools.data.preview import preview_dataset
from quintain.tools.data.trajectories import get_trajectory, search_trajectories
from quintain.tools.evaluation.comparison import compare_agents
from quintain.tools.evaluation.rollouts import evaluate_agent
from quintain.tools.evaluation.suites import trained_on_tasks
from quintain.tools.jobs.jobs import resume_job
from quintain.tools.jobs.plots import _columns, lineage_figure
from quintain.tools.services import Services
from quintain.tools.training.agents import register_agent
from quintain.tools.training.start import start_training
from quintain.worker.pictures.draw import draw
from store_shelves import base_agent, job, measured, rollout, trained, training
from terminal import quintain
from tools.stored_records import add_runs
from trajectory_runs import NOW, answer, run, user

SOLVED = tuple(
    EpisodeResult(task_id=f"t{i}", status=OutcomeStatus.SUCCESS, reward=1.0, duration_s=1.0) for i in range(2)
)
SECRET = "my late grandmother's recipe for quinces"


class History:
    """Two imported runs, a dataset of both, an agent trained on it, and what was made of that."""

    def __init__(self, services: Services, home: Path) -> None:
        store = services.store
        log = home / "log.jsonl"
        log.write_text("{}")
        self.run = run(
            "t1", user(SECRET), answer("a"), session_id="s1", tags=("mine",), source=Source(format="x", uri=str(log))
        )
        both = [self.run, run("t2", tags=("mine",))]
        self.gone, self.kept = (added.id for added in store.trajectories.add_many(both, NOW))
        self.dataset = export_dataset(services, "sft", "good", filter=TrajectoryFilter(tags=("mine",)))
        self.base = base_agent(store)
        self.spec = training(self.base, self.dataset.dataset_id)
        self.agent: Agent = trained(store, "job-train", self.spec)
        (services.settings.jobs_dir / "job-train").mkdir()
        measured(store, "eval-1", self.agent, "job-eval")


@pytest.fixture
def history(services: Services, home: Path) -> History:
    return History(services, home)


def test_an_agent_names_every_run_that_shaped_it_and_a_run_every_agent(services: Services, history: History) -> None:
    found = get_lineage(services, history.agent.id or "")
    assert {node.id for node in found.ancestors} == {
        *("job-train", history.base.id, history.dataset.dataset_id, history.gone, history.kept)
    }
    assert {node.id for node in found.descendants} == {"job-eval", "eval-1"}
    assert LineageEdge(source="job-train", target=history.agent.id or "") in found.edges
    (filter,) = found.learned_from.filters
    paged = search_trajectories(services, TrajectoryFilter(**filter)).items
    assert {item.id for item in paged} == {history.gone, history.kept}
    assert found.learned_from.count == 2
    of_run = get_lineage(services, history.gone)
    assert (of_run.shaped, of_run.learned_from, of_run.forgotten) == ((history.agent.id,), None, None)
    assert get_lineage(services, "s1").things == of_run.things
    assert len(get_lineage(services, history.gone, trajectory_ids=[history.kept]).things) == 2


def test_a_benchmark_of_runs_that_an_agent_learned_from_is_reported_where_it_is_measured_and_compared(
    services: Services, history: History
) -> None:
    """It knows the answers by heart, so a comparison on them is no evidence about new tasks."""
    bench = export_dataset(services, "benchmark", "bench", filter=TrajectoryFilter(tags=("mine",)))
    words = rf"\[trained_on_tasks\] {history.agent.id} has learned from runs of 2 of the 2 tasks of bench"
    dataset = services.store.datasets.get(bench.dataset_id)
    assert re.match(words, trained_on_tasks(services, history.agent.id, dataset.id, dataset.name))
    assert trained_on_tasks(services, history.base.id, dataset.id, dataset.name) == ""
    for agent in (history.base, history.agent):
        found = measured(services.store, f"eval-{agent.name}", agent, f"job-{agent.name}")
        update = {"id": f"eval-bench-{agent.name}", "dataset_id": dataset.id, "suite_hash": "b", "results": SOLVED}
        services.store.evaluations.add(found.model_copy(update=update), NOW)
    found = compare_agents(services, [f"eval-bench-{agent.name}" for agent in (history.base, history.agent)])
    (note,) = found.notes
    assert re.match(words, note)
    assert note in found.next_step


@pytest.mark.usefixtures("waiting")
def test_rows_that_an_agent_learned_from_by_another_dataset_are_reported_where_they_are_measured_and_compared(
    services: Services, history: History
) -> None:
    """Two exports of the same runs may part them differently: what is held out in one was trained on in the other."""
    services.store.trajectories.add_many([run(None, tags=("mine",))], NOW)
    more = export_dataset(services, "sft", "more", filter=TrajectoryFilter(tags=("mine",)))
    started = evaluate_agent(services, history.agent.name, dataset_id=more.dataset_id, split="train")
    words = f"[trained_on_tasks] {history.agent.id} has learned from runs of 2 of the 3 tasks of more"
    assert any(words in str(note) for note in started.warnings)
    for agent in (history.base, history.agent):
        found = measured(services.store, f"eval-{agent.name}", agent, f"job-{agent.name}")
        update = {"id": f"eval-rows-{agent.name}", "dataset_id": more.dataset_id, "split": "train", "results": SOLVED}
        services.store.evaluations.add(found.model_copy(update=update), NOW)
    (note,) = compare_agents(services, [f"eval-rows-{agent.name}" for agent in (history.base, history.agent)]).notes
    assert words in note
    assert trained_on_tasks(services, history.agent.id, more.dataset_id, "more", "validation") == ""


def test_tasks_of_a_file_whose_prompts_stood_in_training_rows_are_tasks_that_an_agent_learned_from(
    services: Services, history: History
) -> None:
    """Rows and logs have no environment, so only their prompts tell; those of an environment may all be alike."""
    rows = [run(None, tags=("rows",), task=Task(prompt=prompt)) for prompt in ("1+1?", "2+2?", "x" * 300)]
    services.store.trajectories.add_many(rows, NOW)
    dataset = export_dataset(services, "sft", "rows", filter=TrajectoryFilter(tags=("rows",)))
    agent = trained(services.store, "job-rows", training(history.base, dataset.dataset_id))
    prompts = ("1+1?", "3+3?", "x" * 300, "x" * 200 + "y" * 100, "Find the red box.")
    tasks = [Task(id=f"task-{n}", prompt=prompt, environment="quintain/tasks") for n, prompt in enumerate(prompts)]
    services.store.trajectories.add_many([run(task=task, job_id="job-eval") for task in tasks], NOW)
    words = f"[trained_on_tasks] {agent.id} has learned from runs of 2 of the 5 tasks of quiz"
    assert trained_on_tasks(services, agent.id, "job-eval", "quiz", by_prompt=True).startswith(words)
    assert trained_on_tasks(services, agent.id, "job-eval", "shop") == ""  # where each task has a world of its own
    assert trained_on_tasks(services, history.agent.id, "job-eval", "quiz", by_prompt=True) == ""


def test_a_comparison_reports_held_out_tasks_that_an_agent_learned_from_all_the_same(
    services: Services, history: History
) -> None:
    """As after an export with include_held_out: what looks like a better agent knows these tasks by heart."""
    for agent in (history.base, history.agent):
        found = measured(services.store, f"eval-{agent.name}", agent, f"job-{agent.name}")
        played = [run(task, job_id=f"job-{agent.name}", episode_key=agent.name) for task in ("t1", "new")]
        services.store.trajectories.add_many(played, NOW)
        update = {"id": f"eval-played-{agent.name}", "suite_hash": "b", "results": SOLVED}
        services.store.evaluations.add(found.model_copy(update=update), NOW)
    (note,) = compare_agents(services, [f"eval-played-{agent.name}" for agent in (history.base, history.agent)]).notes
    assert f"{history.agent.id} has learned from runs of 1 of the 2 tasks of e" in note


def test_forgetting_a_session_blocks_all_that_it_touched(services: Services, history: History, home: Path) -> None:
    dataset_id = history.dataset.dataset_id
    waiting = job(services.store, "job-waiting", history.spec, JobStatus.QUEUED)
    running = job(services.store, "job-running", history.spec, JobStatus.RUNNING)
    stopped = job(services.store, "job-stopped", history.spec, JobStatus.INTERRUPTED)
    report = forget(services, "s1", dry_run=False)
    assert (report.runs, report.before) == (1, 0)
    states = {(thing.kind, thing.id): thing.state for thing in report.touched}
    assert states == {
        ("dataset", dataset_id): "blocked",
        ("job", "job-train"): "succeeded",
        ("job", waiting): "cancelled",
        ("job", running): "stopping",
        ("job", stopped): "interrupted",
        ("job", "job-eval"): "succeeded",
        ("agent", history.agent.id): "tainted",
        ("evaluation", "eval-1"): "kept",
    }
    assert all(thing.remedy for thing in report.touched)
    assert {history.dataset.path, str(home / "jobs" / "job-train"), str(home / "log.jsonl")} <= set(report.copies)
    assert services.store.jobs.get(waiting).status is JobStatus.CANCELLED
    assert services.store.jobs.get(running).cancel_requested
    for refused in (
        lambda: start_training(services, "sft", "base", dataset_id),
        lambda: resume_job(services, stopped),
    ):
        with pytest.raises(
            Conflict, match=rf"\[forgotten\] dataset {dataset_id} \(good\) contains 1 forgotten run, .* export"
        ):
            refused()
    assert services.store.evaluations.get("eval-1").rate.value == 0.5


def test_what_was_forgotten_cannot_be_read_exported_or_brought_back(services: Services, history: History) -> None:
    forget(services, history.gone, dry_run=False)
    with pytest.raises(NotFound, match=r"\[forgotten\]"):
        get_trajectory(services, history.gone)
    again = export_dataset(services, "sft", "again", filter=TrajectoryFilter(tags=("mine",)))
    assert services.store.datasets.member_ids(again.dataset_id) == [history.kept]
    by_id = export_dataset(services, "sft", "by-id", trajectory_ids=[history.gone, history.kept])
    assert services.store.datasets.member_ids(by_id.dataset_id) == [history.kept]
    assert SECRET not in (Path(again.path) / "train.jsonl").read_text()
    assert services.store.trajectories.add_many([history.run], NOW) == [(history.gone, "forgotten")]
    assert [item.id for item in search_trajectories(services).items] == [history.kept]
    second = forget(services, history.gone, dry_run=False)
    assert (second.runs, second.before) == (0, 1)


def test_an_agent_that_learned_from_a_forgotten_run_says_so_wherever_it_is_used(
    services: Services, history: History
) -> None:
    clean = register_agent(services, "prompted", history.agent.id or "", system_prompt="Be brief.")
    assert "forgotten" not in clean.next_step
    forget(services, history.gone, dry_run=False)
    said = f"Note: {history.agent.id} has learned from a run that was forgotten since"
    notes = {item["id"]: item.get("note") for item in list_library(services, "agents").items}
    assert (notes[history.agent.id] or "").startswith(said)
    assert notes[history.base.id] is None
    assert "Note: agent:brief@1 has learned" in register_agent(services, "brief", history.agent.id or "").next_step
    marks = {node.id: node.mark for node in get_lineage(services, history.gone).descendants}
    assert marks[history.dataset.dataset_id] == "blocked"
    assert marks[history.agent.id or ""] == "tainted"


def test_replay_buffers_of_forgotten_runs_are_emptied(services: Services, history: History, home: Path) -> None:
    spec = TrainSpec.model_validate({**history.spec.model_dump(), "config": {"replay": {"buffer": "mine"}}})
    job(services.store, "job-replay", spec)
    for name in ("mine", "other"):
        (services.settings.cache_dir / "replay" / name).mkdir(parents=True)
    report = forget(services, history.gone, dry_run=False)
    assert report.removed == (str(services.settings.cache_dir / "replay" / "mine"),)
    assert [path.name for path in (services.settings.cache_dir / "replay").iterdir()] == ["other"]


def test_runs_are_not_forgotten_together_with_other_records(services: Services, history: History) -> None:
    for wrong in (history.dataset.dataset_id, history.agent.id or "", "eval-1"):
        with pytest.raises(InvalidInput, match=r"\[not_a_run\] forget takes runs and sessions, or datasets and agents"):
            forget(services, history.gone, dry_run=False, trajectory_ids=[wrong])
    assert services.store.lineage.forgotten([history.gone]) == set()


def test_things_stand_right_of_what_they_were_made_from() -> None:
    """a -> b -> d and a -> d, c -> d: d is right of b; c, made from nothing, stands right before d."""
    edges = [LineageEdge(source=s, target=t) for s, t in ("ab", "bd", "ad", "cd")]
    assert _columns(list("abcd"), edges) == {"a": 0, "b": 1, "c": 1, "d": 2}
    circle = [LineageEdge(source=s, target=t) for s, t in ("ab", "ba")]
    assert max(_columns(["a", "b"], circle).values()) <= 2


def test_lineage_is_a_tool_a_resource_and_a_picture_over_the_protocol(
    services: Services, history: History, ask: ToolCaller
) -> None:
    """The label of one node looks like markup and like mathematics, which must not disturb the drawing."""
    add_runs(services, run("$x_{y$ \\frac <b>", user(), answer("z"), continues=history.gone))
    found = ask("get_lineage", id=history.agent.id)
    assert {node["id"] for node in found["ancestors"]} >= {history.gone, history.kept}
    assert history.gone in ask.read(found["resource_uri"]).text
    figure = lineage_figure(services, history.gone)
    assert draw(figure).startswith(b"\x89PNG")
    (panel,) = figure["panels"]
    assert {box["kind"] for box in panel["graph"]["nodes"]} >= {"trajectory", "dataset", "job", "agent", "evaluation"}
    assert [box["id"] for box in panel["graph"]["nodes"] if box["root"]] == [history.gone]
    picture = ask.read(f"lineage://{history.gone}/picture")
    assert picture.mime_type == "image/png"
    assert picture.blob.startswith("iVBORw0KGgo")


def test_the_command_prints_trees_draws_and_forgets_after_asking(
    services: Services, history: History, home: Path, tmp_path: Path
) -> None:
    command = ["lineage", "s1", "--home", str(home)]
    png = tmp_path / "lineage.png"
    shown = CliRunner().invoke(app, [*command, "--png", str(png)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert f"dataset {history.dataset.dataset_id}: good (sft, 2 rows)" in shown.output
    assert f"Agents that learned from it: {history.agent.id}." in shown.output
    assert png.read_bytes().startswith(b"\x89PNG")
    assert CliRunner().invoke(app, [*command, "--forget"]).exit_code == 2
    command[0] = "forget"
    planned = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert "Would forget: 1 run (0 before)" in planned.output
    assert "quintain forget s1 --for-good" in planned.output
    assert CliRunner().invoke(app, [*command, "--for-good"], input="n\n").exit_code == 1
    assert services.store.lineage.forgotten([history.gone]) == set()
    done = CliRunner().invoke(app, [*command, "--for-good", "--yes"], env={"COLUMNS": "200"})
    assert "Forgotten: 1 run (0 before), 0 scores removed." in done.output
    assert services.store.lineage.forgotten([history.gone]) == {history.gone}
    assert CliRunner().invoke(app, ["lineage", "nothing", "--home", str(home)]).exit_code == 2


def test_the_log_of_a_forgotten_run_and_its_exports_for_other_trainers_are_among_the_copies(
    services: Services, tmp_path: Path
) -> None:
    """Sources are stored as `file:` URIs; `#` and a space are written in another way in them."""
    log = tmp_path / "a log #1.jsonl"
    turns = [{"role": "user", "content": SECRET}, {"role": "assistant", "content": "a"}]
    log.write_text(json.dumps({"messages": turns}) + "\n", encoding="utf-8")
    assert import_trajectories(services, str(log)).imported == 1
    (run_id,) = (item.id for item in search_trajectories(services, TrajectoryFilter(text="quinces")).items)
    made = export_dataset(services, "sft", "good", trajectory_ids=[run_id], outcomes=["unknown"], format="trl")
    report = forget(services, run_id, dry_run=False)
    held = {path for path in report.copies if SECRET in "".join(_texts(Path(path)))}
    assert {str(log), made.path, str(services.settings.datasets_dir / made.dataset_id)} <= held
    assert report.copies_count == len(report.copies)


def _texts(path: Path) -> list[str]:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return [file.read_text(encoding="utf-8", errors="replace") for file in files]


def test_a_stored_prompt_cannot_steer_the_terminal(services: Services, home: Path) -> None:
    prompt = "\x1b]0;owned\x07\x1b[2J\u202ehidden [red]not a style, root:x:0"
    spoken = run(None, user(prompt), answer(), task=Task(prompt=prompt))
    (added,) = services.store.trajectories.add_many([spoken], NOW)
    export_dataset(services, "sft", "good", trajectory_ids=[added.id])
    shown = CliRunner().invoke(app, ["lineage", added.id, "--home", str(home)], env={"COLUMNS": "300"})
    assert shown.exit_code == 0, shown.output
    assert not {"\x1b", "\x07", "\u202e"} & set(shown.output)
    assert "hidden [red]not a style, root:x:0" in shown.output
    done = CliRunner().invoke(app, ["lineage", "\x1b[2J", "--home", str(home)])
    assert "\x1b[2J" not in done.output + done.stderr


def test_secrets_in_the_words_of_an_agent_are_not_stored(services: Services) -> None:
    key = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    result = register_agent(services, "keyed", "starter", system_prompt=f"Use {key}.", description=f"has {key}")
    assert result.agent.system_prompt == "Use [REDACTED:github_token]."
    assert key not in result.model_dump_json()


def _spoken(**more: object) -> object:
    return run("t1", user(SECRET), answer("a"), tags=("mine",), **more)


@pytest.fixture
def runs(services: Services) -> list[str]:
    """Return the ids of a run, its twins in another session and another episode, another run, and a near twin."""
    spoken = [_spoken(session_id="s1"), _spoken(session_id="s2"), _spoken(episode_key="job/1")]
    others = [run("t2", tags=("mine",)), run("t1", user(SECRET), answer("b"), session_id="s4")]
    return add_runs(services, *spoken, *others)


def _held(home: Path) -> set[str]:
    files = (path for path in home.rglob("*") if path.is_file() and not path.name.startswith("quintain.db"))
    return {str(path.relative_to(home)) for path in files if SECRET.encode() in path.read_bytes()}


def test_lineage_only_reads_and_points_at_the_tool_that_forgets(services: Services, runs: list[str]) -> None:
    assert (tool("get_lineage").read_only, tool("forget").destructive) == (True, True)
    with pytest.raises(InvalidInput, match=rf"\[moved\] get_lineage only reads; forget with forget\(id='{runs[0]}'\)"):
        get_lineage(services, runs[0], forget=True)


def test_a_dry_run_is_the_default_and_reports_what_then_happens(
    services: Services, runs: list[str], home: Path
) -> None:
    dataset = export_dataset(services, "sft", "good", trajectory_ids=runs, outcomes=["unknown", "success"])
    before = _held(home)
    for options in ({}, {"twins": True}, {"copies": True}, {"twins": True, "copies": True}):
        planned = forget(services, runs[0], **options)
        assert (planned.dry_run, planned.runs, planned.twins) == (
            True,
            3 if "twins" in options else 1,
            tuple(runs[1:3]),
        )
        assert f"forget(id={runs[0]!r}, dry_run=False" in planned.next_step
    assert services.store.lineage.forgotten(runs) == set()
    assert _held(home) == before
    done = forget(services, runs[0], dry_run=False, twins=True, copies=True)
    assert done.model_dump(exclude={"dry_run", "next_step"}) == planned.model_dump(exclude={"dry_run", "next_step"})
    assert [(thing.id, thing.state) for thing in done.touched] == [(dataset.dataset_id, "blocked")]
    remove = f"forget(id={dataset.dataset_id!r}, dry_run=False) removes "
    (listed,) = list_library(services, "datasets").items
    assert (remove in done.touched[0].remedy, remove in listed["note"]) == (True, True)
    forget(services, dataset.dataset_id, dry_run=False)
    assert list_library(services, "datasets").items == ()


def test_a_filter_names_runs_and_the_next_step_forgets_the_same_ones(services: Services, runs: list[str]) -> None:
    chosen = TrajectoryFilter(tags=("mine",))
    for named in ({"filter": chosen}, {"id": runs[0], "trajectory_ids": runs[1:4]}):
        planned = forget(services, **named)
        (step,) = (one for one in planned.next_step.calls if one.tool == "forget")
        assert planned.runs == 4
        assert {**step.arguments, "dry_run": True} == {
            **{name: value if name != "filter" else {"tags": ["mine"]} for name, value in named.items()},
            "dry_run": True,
        }
    for wrong in ({}, {"id": runs[0], "filter": chosen}):
        with pytest.raises(InvalidInput, match="expected `id` or `filter`, got both or neither"):
            forget(services, **wrong)
    assert forget(services, filter=chosen, dry_run=False).runs == 4
    assert [item.id for item in search_trajectories(services).items] == [runs[4]]


def test_equal_runs_are_named_and_go_along_on_request(services: Services, runs: list[str]) -> None:
    first = forget(services, "s1", dry_run=False)
    assert (first.runs, first.twins, first.twins_count, first.twins_forgotten) == (1, tuple(runs[1:3]), 2, False)
    assert f"forget(id={runs[1]!r}, trajectory_ids=[{runs[2]!r}])" in first.next_step
    assert len(search_trajectories(services, TrajectoryFilter(text="quinces")).items) == 3
    second = forget(services, runs[1], dry_run=False, twins=True)
    assert (second.runs, second.twins, second.twins_forgotten) == (2, (runs[2],), True)
    assert [one.id for one in search_trajectories(services, TrajectoryFilter(text="quinces")).items] == [runs[4]]


def test_the_text_leaves_the_database_and_its_index(services: Services, home: Path) -> None:
    (added,) = add_runs(services, _spoken())
    search_trajectories(services, TrajectoryFilter(text="quinces"))
    forget(services, added, dry_run=False)
    services.close()
    with sqlite3.connect(home / "quintain.db") as database:
        assert database.execute("SELECT text, document, prompt FROM trajectories").fetchall() == [("", "", "")]
        found = "SELECT count(*) FROM trajectories_text WHERE trajectories_text MATCH '\"qui\"'"
        assert database.execute(found).fetchone() == (0,)
    assert b"quinces" not in (home / "quintain.db").read_bytes()


def test_copies_in_datasets_exports_and_finished_jobs_are_deleted_on_request(
    services: Services, runs: list[str], home: Path
) -> None:
    made = export_dataset(services, "sft", "good", trajectory_ids=runs, outcomes=["unknown", "success"], format="trl")
    kept = export_dataset(services, "sft", "kept", trajectory_ids=[runs[3]], outcomes=["unknown", "success"])
    spec = training(base_agent(services.store), made.dataset_id)
    trained(services.store, "job-done", spec)
    job(services.store, "job-busy", spec, JobStatus.RUNNING)
    preview = PreviewSpec(
        agent=spec.agent,
        dataset_id=made.dataset_id,
        dataset_path=made.path,
        dataset_files={},
        dataset_kind="sft",
        dataset_rows=4,
        config=spec.config,
        cache_dir=str(services.settings.cache_dir),
        key="k",
    )
    job(services.store, "job-preview", preview, JobStatus.SUCCEEDED)
    (services.settings.jobs_dir / "job-preview").mkdir(parents=True)
    dataset = services.store.datasets.get(made.dataset_id)
    for job_id in ("job-done", "job-busy"):
        inputs = services.settings.jobs_dir / job_id / "inputs"
        inputs.mkdir(parents=True)
        (inputs / "train.jsonl").write_bytes((Path(dataset.path) / "train.jsonl").read_bytes())
        (inputs.parent / "log").write_text("step 1")
    assert {path.split("/")[0] for path in _held(home)} == {"datasets", "exports", "jobs"}
    planned = forget(services, runs[0], trajectory_ids=[runs[4]], twins=True)
    assert {str(home / f"jobs/job-{name}") for name in ("done", "busy")} <= set(planned.copies)
    assert planned.next_step.startswith("3 places with copies would stay; `copies` deletes them too. ")
    done = forget(services, runs[0], trajectory_ids=[runs[4]], dry_run=False, twins=True, copies=True)
    assert done.runs == 4
    assert _held(home) == {"jobs/job-busy/inputs/train.jsonl"}
    assert (home / "jobs/job-done/log").is_file()
    assert Path(kept.path).is_dir()
    assert done.copies == (str(home / "jobs/job-busy"),)
    assert {dataset.path, made.path, str(home / "jobs/job-done/inputs")} == set(done.removed)
    for refused in (
        lambda: start_training(services, "sft", "base", made.dataset_id),
        lambda: preview_dataset(services, made.dataset_id, "starter"),
    ):
        with pytest.raises(Conflict, match=r"\[forgotten\] dataset .* contains 2 forgotten runs"):
            refused()
    again = export_dataset(services, "sft", "good", filter=TrajectoryFilter(dataset_id=made.dataset_id))
    assert services.store.datasets.member_ids(again.dataset_id) == [runs[3]]
    repeated = forget(services, runs[0], dry_run=False, copies=True)
    assert (repeated.runs, repeated.before, repeated.removed) == (0, 1, ())


def test_the_copy_in_a_job_that_took_a_run_over_goes_with_the_copy_in_the_job_that_played_it(
    services: Services, home: Path
) -> None:
    (added,) = services.store.trajectories.add_many([run("t", user("one"), answer("a"), job_id="job-cancelled")], NOW)
    played, base = added.id, base_agent(services.store)
    for job_id, status in (("job-cancelled", JobStatus.CANCELLED), ("job-resumed", JobStatus.SUCCEEDED)):
        job(services.store, job_id, rollout(base), status)
        outputs = home / "jobs" / job_id / "outputs"
        outputs.mkdir(parents=True)
        for name in ("trajectory", "taken_over"):
            (outputs / f"{name}.jsonl").write_text(f'{{"id": "{played}"}}\n')
    services.store.trajectories.take_over("job-resumed", [TakenOver(trajectory_id=played)])
    done = forget(services, played, dry_run=False, copies=True)
    assert (done.copies, [*home.glob("jobs/*/outputs/*")]) == ((), [])


def test_copies_that_stayed_when_runs_were_forgotten_are_deleted_by_the_call_that_the_answer_names(
    services: Services, home: Path
) -> None:
    """By their ids: no filter finds forgotten runs."""
    (added,) = services.store.trajectories.add_many([run("t", user("quinces"), answer("a"), job_id="job-done")], NOW)
    job(services.store, "job-done", rollout(base_agent(services.store)), JobStatus.SUCCEEDED)
    episodes = home / "jobs" / "job-done" / "outputs" / "trajectory.jsonl"
    episodes.parent.mkdir(parents=True)
    episodes.write_text(f'{{"id": "{added.id}"}}\n')
    (deletes,) = forget(services, filter=TrajectoryFilter(text="quinces"), dry_run=False).next_step.calls
    done = forget(services, **deletes.arguments)
    assert (done.before, done.removed, done.copies, episodes.exists()) == (1, (str(episodes),), (), False)
    assert forget(services, **deletes.arguments).next_step == "No copy of them is known."


def test_a_dry_run_at_the_terminal_names_the_runs_that_a_filter_chooses(
    services: Services, runs: list[str], home: Path
) -> None:
    export_dataset(services, "sft", "good", trajectory_ids=runs, outcomes=["unknown", "success"])
    shown = quintain("forget", "--tag", "mine", home=home).stdout
    assert {one for one in runs if one in shown.partition("Would forget")[0]} == set(runs[:4])
    assert "Would stay on the disk: " in shown
    assert "--copies deletes them too" in shown
    assert "Still on the disk" not in shown


def _model(services: Services, name: str) -> str:
    folder = services.settings.agents_dir / name
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"w")
    return str(folder)


def test_a_dataset_is_removed_by_name_after_a_dry_run_that_names_what_was_made_from_it(
    services: Services, runs: list[str], home: Path
) -> None:
    """A run's forgetting still finds the agent that learned from it through the removed dataset."""
    made = export_dataset(services, "sft", "good", trajectory_ids=runs, outcomes=["unknown", "success"], format="trl")
    agent = trained(services.store, "job-done", training(base_agent(services.store), made.dataset_id))
    inputs = services.settings.jobs_dir / "job-done" / "inputs"
    inputs.mkdir(parents=True)
    (inputs / "train.jsonl").write_text(SECRET)
    before = _held(home)

    planned = forget(services, "good")
    assert (planned.dry_run, planned.runs, _held(home)) == (True, 0, before)
    assert {(one.kind, one.id, one.state) for one in planned.touched} == {
        ("dataset", made.dataset_id, "kept"),
        ("agent", agent.id, "kept"),
        ("job", "job-done", "kept"),
    }
    dataset = services.store.datasets.get("good")
    assert (planned.removed, set(planned.copies)) == ((dataset.path,), {made.path, str(inputs)})
    assert services.store.datasets.get("good").id == made.dataset_id

    (removal,) = forget(services, "good", copies=True).next_step.calls
    done = forget(services, **removal.arguments)
    assert set(done.removed) == {dataset.path, made.path, str(inputs)}
    assert (done.copies, _held(home), services.store.datasets.page().items) == ((), set(), ())
    with pytest.raises(NotFound, match=f"got '{made.dataset_id}', which was removed on "):
        services.store.datasets.get(made.dataset_id)
    with pytest.raises(NotFound):
        forget(services, "good")
    marks = {node.id: node.mark for node in get_lineage(services, agent.id or "").ancestors}
    assert marks[made.dataset_id] == "removed"
    assert {one.id for one in forget(services, runs[0]).touched} == {agent.id, "job-done"}


@pytest.mark.parametrize("kind", ["text", "sft"])
def test_the_file_that_a_removed_dataset_was_read_from_is_a_copy_that_stays(services: Services, kind: str) -> None:
    file = services.settings.inbox_dir / ("letters.txt" if kind == "text" else "letters.jsonl")
    file.write_text(SECRET if kind == "text" else json.dumps({"prompt": "Who?", "completion": SECRET}))
    made = export_dataset(services, kind, "letters", path=str(file), outcomes=["unknown"])
    agent = trained(services.store, "job-done", training(base_agent(services.store), made.dataset_id))
    done = forget(services, "letters", dry_run=False, copies=True)
    assert (done.copies, file.exists()) == ((str(file),), True)
    (remedy,) = (one.remedy for one in done.touched if one.id == agent.id)
    assert "keeps what it has learned" in remedy


def test_an_agent_is_removed_with_its_model_and_its_version_is_not_given_again(services: Services) -> None:
    store, now = services.store, services.clock()
    shared, own = _model(services, "shared"), _model(services, "own")
    kept = store.agents.add(Agent(name="clerk", model=ModelRef(source="folder", path=shared)), now)
    wrong = store.agents.add(Agent(name="clerk", model=ModelRef(source="folder", path=shared, adapter=own)), now)
    measured(store, "eval-1", wrong, "job-eval")

    planned = forget(services, "clerk")
    assert [(one.kind, one.id) for one in planned.touched] == [
        ("agent", wrong.id),
        ("evaluation", "eval-1"),
        ("job", "job-eval"),
    ]
    assert planned.removed == (own,), "the other version's model stays"
    assert store.agents.get("clerk").id == wrong.id
    (removal,) = planned.next_step.calls
    assert forget(services, **removal.arguments).removed == (own,)
    assert (Path(own).exists(), Path(shared).exists()) == (False, True)
    assert store.agents.get("clerk").id == kept.id
    assert store.agents.find(wrong.id or "") is None
    again = store.agents.add(Agent(name="clerk", model=ModelRef(source="folder", path="/m/new")), now)
    assert again.id == "agent:clerk@3"
    assert [agent.id for agent in store.agents.page().items] == [again.id, kept.id]


def test_copies_of_an_agent_s_weights_are_named_and_removed_with_it(services: Services, home: Path) -> None:
    store, jobs = services.store, services.settings.jobs_dir
    agent = trained(store, "job-done", training(base_agent(store), None, "quintain/inventory"))
    best = jobs / "job-done" / "checkpoints" / "best"
    exported, elsewhere = services.settings.exports_dir / "clerk-1-merged", home.parent / "clerk"
    for number, folder in enumerate((best, exported, elsewhere)):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"w")
        if folder != best:
            spec = ExportAgentSpec(
                agent=agent, format="merged", destination=str(folder), provenance=Provenance(ancestors=())
            )
            job(store, f"job-export{number}", spec)
    weights = {str(best.parent), str(exported), str(elsewhere)}
    assert set(forget(services, "clerk").copies) == weights
    done = forget(services, "clerk", dry_run=False, copies=True)
    assert (set(done.removed), done.copies) == (weights - {str(elsewhere)}, (str(elsewhere),))
    assert (best.exists(), exported.exists(), elsewhere.exists()) == (False, False, True)


def test_files_that_only_another_home_on_the_database_sees_are_named_among_the_copies(
    services: Services, history: History, home: Path
) -> None:
    """Its server finds them by the same call, also when the runs are forgotten already."""
    store, folder = services.store, history.dataset.path
    job(store, "job-there", history.spec, home="there-1")
    settings = services.settings.model_copy(update={"home": home / "of-another"})
    there = replace(services, settings=settings)
    hidden = Path(folder).rename(home / "hidden")
    weights = Path(history.agent.model.path).rename(home / "weights")
    unseen = {folder, "the folder of job-there in home there-1"}
    assert set(forget(there, history.gone, copies=True).copies) == {*unseen, str(home / "log.jsonl")}
    done = forget(there, history.gone, dry_run=False, copies=True)
    assert unseen <= set(done.copies)
    assert "another home" in done.next_step
    assert set(forget(there, "good").copies) == unseen
    assert set(forget(there, history.agent.id or "").copies) == {history.agent.model.path}
    weights.rename(history.agent.model.path)
    hidden.rename(folder)
    assert folder in forget(services, history.gone, dry_run=False, copies=True).removed


def test_what_an_unfinished_job_uses_is_not_removed(services: Services, runs: list[str]) -> None:
    made = export_dataset(services, "sft", "good", trajectory_ids=runs, outcomes=["unknown", "success"])
    base = base_agent(services.store)
    job(services.store, "job-busy", training(base, made.dataset_id), JobStatus.RUNNING)
    for name in ("good", "base"):
        planned = forget(services, name)
        assert ("job-busy", "running") in {(one.id, one.state) for one in planned.touched}
        (stop,) = planned.next_step.calls
        assert (stop.tool, stop.arguments) == ("cancel_job", {"job_id": "job-busy"})
        with pytest.raises(Conflict, match=r"\[in_use\] expected records that no unfinished job uses"):
            forget(services, name, dry_run=False)
    assert services.store.agents.get("base") == base
    with pytest.raises(InvalidInput, match="`twins` are of runs"):
        forget(services, "good", twins=True)
    services.store.jobs.finish("job-busy", 1, JobStatus.CANCELLED, services.clock())
    both = forget(services, "good", trajectory_ids=["base"], dry_run=False)
    assert [(one.id, one.state) for one in both.touched[:2]] == [(made.dataset_id, "removed"), (base.id, "removed")]
