"""`forget`: dry runs, equal runs under other ids, and copies in datasets, exports and job folders."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from quintain.errors import Conflict, InvalidInput, NotFound
from quintain.records.agent import Agent, ModelRef
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import JobStatus
from quintain.tools.catalog import tool
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.forgetting import forget
from quintain.tools.data.lineage import get_lineage
from quintain.tools.data.preview import preview_dataset
from quintain.tools.data.trajectories import search_trajectories
from quintain.tools.services import Services
from quintain.tools.training.start import start_training
from store_shelves import base_agent, job, measured, trained, training
from tools.stored_records import add_runs
from trajectory_runs import answer, run, user

SECRET = "my late grandmother's recipe for quinces"


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
    dataset = services.store.datasets.get(made.dataset_id)
    for job_id in ("job-done", "job-busy"):
        inputs = services.settings.jobs_dir / job_id / "inputs"
        inputs.mkdir(parents=True)
        (inputs / "train.jsonl").write_bytes((Path(dataset.path) / "train.jsonl").read_bytes())
        (inputs.parent / "log").write_text("step 1")
    assert {path.split("/")[0] for path in _held(home)} == {"datasets", "exports", "jobs"}
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
