"""A database of the first schema, with rows in it, under today's program."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
import sqlalchemy
from benchmarks.first_schema import create_first_schema
from benchmarks.postgres_server import VARIABLE, new_database
from sqlalchemy import Connection

from full_disk import full_disk
from quintain.errors import Unavailable
from quintain.records.agent import Agent, ModelRef
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import Job, JobStatus, TrainSpec
from quintain.records.trajectory import AgentInfo, Trajectory
from quintain.store.database.engine import create_engine, write_transaction
from quintain.store.lineage.links import Ref
from quintain.store.migrations import REVISIONS
from quintain.store.store import open_store
from quintain.store.trajectories.rows import encode_run
from trajectory_runs import NOW, answer, later, run, user

MOMENT = "2026-01-02T03:04:05.678901Z"
_UNNAMED = AgentInfo(model="qwen3-4b@2")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An empty SQLite database of revision 0001."""
    found = tmp_path / "quintain.db"
    _create_first_schema(f"sqlite:///{found}")
    return found


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """An empty database of revision 0001, on the PostgreSQL server of QUINTAIN_TEST_DATABASE if there is one."""
    server = os.environ.get(VARIABLE)
    sqlite = nullcontext(f"sqlite:///{tmp_path / 'quintain.db'}")
    with new_database(server, migrated=False) if server else sqlite as created:
        _create_first_schema(created)
        yield created


def _create_first_schema(url: str) -> None:
    engine = create_engine(url)
    with write_transaction(engine) as connection:
        create_first_schema(connection)
    engine.dispose()


def _insert(database: Connection, table: str, **values: object) -> None:
    marks = ", ".join(f":{name}" for name in values)
    database.execute(sqlalchemy.text(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"), values)


def _old_row(database: Connection, whole: Trajectory) -> str:
    """Insert a run as revision 0001 held it: tags by its id, no column for them, an agent without a name unknown."""
    row = encode_run(whole)
    columns = {name: value for name, value in row.columns.items() if name not in ("tags", "personal_data")}
    columns |= {"agent": whole.agent.name, "agent_label": whole.agent.name}
    _insert(database, "trajectories", **columns, created_at=MOMENT, updated_at=MOMENT)
    run_id = str(columns["id"])
    for tag in whole.tags:
        _insert(database, "trajectory_tags", trajectory_id=run_id, tag=tag)
    return run_id


def _first_run() -> Trajectory:
    return run("t", user(), answer("Straße"), tags=("b", "a"), session_id="s", reward=0.5, redactions={"email": 1})


def _fill(url: str) -> tuple[str, str]:
    """Two linked runs, one with tags, score and dataset; the agent that was trained on it, measured and compared."""
    engine = create_engine(url)
    with write_transaction(engine) as database:
        first = _old_row(database, _first_run())
        second = _old_row(database, run("u", continues=first, subagents=("traj-sub",), agent=_UNNAMED))
        score = json.dumps({"trajectory_id": first, "scorer": "rules", "status": "scored", "value": 0.5})
        _insert(
            database, "scores", trajectory_id=first, identity="i", scorer="rules", document=score, created_at=MOMENT
        )
        dataset = {"id": "ds-1", "name": "good", "kind": "sft", "path": "/d", "rows": 1, "splits": {"train": 1}}
        _insert(database, "datasets", id="ds-1", name="good", document=json.dumps(dataset), created_at=MOMENT)
        _insert(database, "dataset_members", dataset_id="ds-1", trajectory_id=first)
        model = ModelRef(source="folder", path="/m")
        given = Agent(id="agent:base@1", name="base", version=1, model=model, created_at=NOW)
        clerk = given.model_copy(update={"id": "agent:clerk@1", "name": "clerk", "job_id": "job-2", "parent": given.id})
        for agent in (given, clerk):
            columns = {"id": agent.id, "name": agent.name, "version": 1, "job_id": agent.job_id}
            _insert(database, "agents", **columns, document=agent.model_dump_json(), created_at=MOMENT)
        spec = TrainSpec(agent=given, dataset_id="ds-1", name="clerk", output_dir="/o")
        for number, resumed_from in ((1, None), (2, "job-1")):
            _job(database, f"job-{number}", spec, resumed_from)
        evaluation = {"id": "eval-1", "agent_id": "agent:clerk@1", "environment": "e", "split": "held_out"}
        evaluation |= {"rate": {"successes": 1, "n": 2}}
        _insert(
            database,
            "evaluations",
            **{name: evaluation[name] for name in ("id", "agent_id", "environment")},
            document=json.dumps(evaluation),
            created_at=MOMENT,
        )
        pair = {"a": "agent:x@1", "b": "agent:clerk@1", "evaluation_a": "eval-0", "evaluation_b": "eval-1"}
        comparison = {"comparisons": [pair]}
        _insert(
            database, "comparisons", id="cmp-1", environment="e", document=json.dumps(comparison), created_at=MOMENT
        )
    engine.dispose()
    return first, second


def _job(database: Connection, job_id: str, spec: TrainSpec, resumed_from: str | None) -> None:
    job = Job(
        id=job_id,
        kind="train",
        status=JobStatus.SUCCEEDED,
        spec=spec,
        request_key=job_id,
        created_at=NOW,
        updated_at=NOW,
    )
    columns = {
        name: getattr(job, name) for name in ("id", "request_key", "priority", "attempt", "max_attempts", "step")
    }
    texts = {"metrics": "{}", "warnings": "[]", "offsets": "{}", "created_at": MOMENT, "updated_at": MOMENT}
    state = {"kind": "train", "status": "succeeded", "cancel_requested": False, "resumed_from": resumed_from}
    _insert(database, "jobs", **columns, **texts, **state, spec=spec.model_dump_json())


def test_everything_of_the_first_schema_is_there_after_the_upgrade(url: str) -> None:
    first, second = _fill(url)
    store = open_store(url)
    assert store.trajectories.get(first) == _first_run().model_copy(update={"id": first})
    newest, oldest = store.trajectories.search(TrajectoryFilter()).items
    assert (newest.id, oldest.id, oldest.tags, oldest.reward, oldest.created_at) == (
        second,
        first,
        ("a", "b"),
        0.5,
        NOW,
    )
    for conditions in ({"tags": ("a",)}, {"text": "STRASSE"}, {"tags": ("a", "b"), "outcome": "success"}):
        assert [item.id for item in store.trajectories.search(TrajectoryFilter(**conditions)).items] == [first]
    called_by_model = store.trajectories.search(TrajectoryFilter(agent="qwen3-4b")).items
    assert [(item.id, item.agent) for item in called_by_model] == [(second, "qwen3-4b@2")]
    for state, run_id in (("found", first), ("unknown", second)):
        found = store.trajectories.search(TrajectoryFilter(personal_data=state)).items  # type: ignore[arg-type]
        assert [item.id for item in found] == [run_id]
    assert [score.value for score in store.scores.of_trajectory(first)] == [0.5]
    assert store.datasets.member_ids("ds-1") == [first]
    grown = run("t", user(), answer("Straße"), answer("more"), tags=("c",), session_id="s")
    assert store.trajectories.add_many([grown], later(1)) == [(first, "grown")]
    assert [item.tags for item in store.trajectories.search(TrajectoryFilter(tags=("c",))).items] == [("a", "b", "c")]
    assert [item.id for item in store.trajectories.search(TrajectoryFilter(tags=("a",))).items] == [first]
    store.close()


def test_a_session_of_the_second_schema_still_grows_and_a_forgotten_one_stays_away(path: Path) -> None:
    url = f"sqlite:///{path}"
    store = open_store(url)
    half, lost = run("t", user(), answer("Str"), session_id="s"), run("u", user(), answer("a"), session_id="lost")
    (kept, gone) = (added.id for added in store.trajectories.add_many([half, lost], NOW))
    store.lineage.forget([gone], NOW)
    store.close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE trajectories SET opening = 'of the second schema'")
        for later_table in (
            "preferences",
            "judging_batches",
            "calibrations",
            "trajectories_text_trigrams",
            "trajectories_text",
            "trajectories_text_state",
            "homes",
        ):
            database.execute(f"DROP TABLE {later_table}")
        for change in ("delete", "update"):
            database.execute(f"DROP TRIGGER trajectories_text_{change}")
        for later_index in ("ix_trajectories_reward", "ix_jobs_status_seq", "ix_jobs_kind", "ix_jobs_kind_status"):
            database.execute(f"DROP INDEX {later_index}")
        database.execute("DROP INDEX ix_trajectories_personal_data")
        database.execute("ALTER TABLE trajectories DROP COLUMN personal_data")
        database.execute("ALTER TABLE dataset_members DROP COLUMN split")
        for table in ("datasets", "agents"):
            database.execute(f"ALTER TABLE {table} DROP COLUMN removed_at")
        for later_column in ("home", "lease_until", "name", "note"):
            database.execute(f"ALTER TABLE jobs DROP COLUMN {later_column}")
        database.execute("UPDATE alembic_version SET version_num = '0002'")
    store = open_store(url)
    finished = run("t", user(), answer("Straße"), session_id="s")
    grown = run("u", user(), answer("a"), answer("b"), session_id="lost")
    assert store.trajectories.add_many([finished, grown], later(1)) == [(kept, "grown"), (gone, "forgotten")]
    store.close()


def test_lineage_is_derived_from_records_of_the_first_schema(url: str) -> None:
    first, second = _fill(url)
    store = open_store(url)
    found = {node.id for node in store.lineage.descendants([Ref("trajectory", first)], 9).nodes}
    assert found == {second, "traj-sub", f"{first}/rules", "ds-1", "job-1", "job-2", "agent:clerk@1", "eval-1", "cmp-1"}
    assert store.lineage.agents_trained_on([first]) == ["agent:clerk@1"]
    assert {node.id for node in store.lineage.ancestors([Ref("agent", "agent:clerk@1")], 9).nodes} == {
        *("job-1", "job-2", "ds-1", "agent:base@1", first)
    }
    store.close()


def test_a_copy_of_the_older_database_is_kept_once(path: Path) -> None:
    _fill(f"sqlite:///{path}")
    before = path.read_bytes()
    open_store(f"sqlite:///{path}").close()
    copy = path.with_name(f"quintain.db.before-{REVISIONS[-1]}")
    with closing(sqlite3.connect(copy)) as kept, closing(sqlite3.connect(path)) as now:
        assert kept.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
        assert kept.execute("SELECT count(*) FROM trajectories").fetchone() == (2,)
        assert now.execute("SELECT version_num FROM alembic_version").fetchone() == (REVISIONS[-1],)
    copy.write_bytes(b"mine")
    path.write_bytes(before)
    open_store(f"sqlite:///{path}").close()
    assert copy.read_bytes() == b"mine"
    assert sorted(found.name for found in path.parent.glob("*before*")) == [copy.name]


def test_a_copy_that_the_disk_does_not_hold_is_refused_and_leaves_nothing_behind(path: Path) -> None:
    _fill(f"sqlite:///{path}")
    with full_disk(path.stat().st_size // 2), pytest.raises(Unavailable, match=r"cannot back up .*free disk space"):
        open_store(f"sqlite:///{path}")
    assert not list(path.parent.glob("*before*")) + list(path.parent.glob(".*before*"))
    os.truncate(path, 10**12)
    with pytest.raises(Unavailable, match=r"the copy needs 931 GiB and the disk has "):
        open_store(f"sqlite:///{path}")


def test_a_new_database_leaves_no_copy_behind(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path / 'new.db'}").close()
    assert list(tmp_path.glob("*before*")) == []
