"""The store on a PostgreSQL server of its own: locks, faults, refused values, and the same searches as on SQLite."""

from __future__ import annotations

import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy
from benchmarks.postgres_server import PASSWORD, Server, in_full, new_database

from quintain.cli.commands.doctor import _kept
from quintain.errors import InvalidInput, NotFound, Unavailable
from quintain.records.agent import Agent, ModelRef
from quintain.records.filters import TrajectoryFilter
from quintain.records.score import Score
from quintain.records.trajectory import Task
from quintain.settings import Settings
from quintain.store.database import postgresql
from quintain.store.database.engine import create_engine, read_transaction, write_transaction
from quintain.store.store import Store, open_store
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.forgetting import forget
from quintain.tools.evaluation.rollouts import evaluate_agent
from quintain.tools.services import open_services
from quintain.tools.training.start import start_training
from trajectory_runs import NOW, answer, later, run, user


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    with new_database(in_full(server.url()), migrated=False) as created:
        yield created


def test_servers_that_open_an_empty_database_together_migrate_it_once(url: str) -> None:
    with ThreadPoolExecutor(3) as threads:
        stores = list(threads.map(open_store, [url] * 3))
    for number, store in enumerate(stores):
        store.trajectories.add_many([run(f"t{number}")], NOW)
    assert [store.trajectories.count(TrajectoryFilter()) for store in stores] == [3, 3, 3]
    for store in stores:
        store.close()


def test_what_the_url_or_the_role_lacks_is_named_and_a_schema_of_its_own_serves(url: str) -> None:
    with pytest.raises(InvalidInput, match=r'libpq after the \? .* got invalid connection option "sslmod"; correct'):
        open_store(f"{url}&sslmod=require")
    theirs = f"{url}&options=-csearch_path%3Dtheirs"
    with pytest.raises(
        Unavailable, match=r"no schema has been selected .* Create the schema that the role's search_path"
    ):
        open_store(theirs)
    engine = sqlalchemy.create_engine(url.replace("postgresql", "postgresql+psycopg"))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA theirs")
        connection.exec_driver_sql("CREATE EXTENSION pg_trgm SCHEMA public")
    with pytest.raises(
        Unavailable, match=r"gin_trgm_ops.* schema of the extension pg_trgm into the role's search_path"
    ):
        open_store(theirs)
    store = open_store(f"{theirs},public")
    store.trajectories.add_many([run("t", answer("deep blue"))], NOW)
    assert len(store.trajectories.search(TrajectoryFilter(text="ep bl")).items) == 1
    with engine.connect() as connection:
        schemas = connection.exec_driver_sql("SELECT DISTINCT schemaname FROM pg_tables WHERE tablename = 'jobs'")
        assert schemas.scalars().all() == ["theirs"]
    engine.dispose()
    store.close()


def _increment_together(engine: sqlalchemy.Engine, begin: Callable[[], object], each: int) -> int:
    """Increment a counter in 4 threads, `each` times, reading it before. Return its value."""
    meet = threading.Barrier(4)
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS counter (n integer)")
        connection.exec_driver_sql("TRUNCATE counter")
        connection.exec_driver_sql("INSERT INTO counter VALUES (0)")

    def increment() -> None:
        for _ in range(each):
            meet.wait()
            with begin() as connection:
                n = connection.exec_driver_sql("SELECT n FROM counter").scalar()
                connection.exec_driver_sql("UPDATE counter SET n = %s", (n + 1,))

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(increment) for _ in range(4)]:
            done.result()
    with engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT n FROM counter").scalar_one())


def test_no_update_is_lost_between_a_read_and_a_write(url: str) -> None:
    """48 acknowledged, 48 counted. The default engine loses some in the same trial, so the trial can fail."""
    ours, default = create_engine(url), sqlalchemy.create_engine(url.replace("postgresql", "postgresql+psycopg"))
    assert _increment_together(default, default.begin, 12) < 48
    assert _increment_together(ours, lambda: write_transaction(ours), 12) == 48
    ours.dispose()
    default.dispose()


def test_a_reader_keeps_its_snapshot_does_not_wait_for_a_writer_and_cannot_write(shared: Store) -> None:
    count = "SELECT count(*) FROM trajectories"
    with read_transaction(shared.engine) as reader:
        assert reader.exec_driver_sql(count).scalar() == 0
        shared.trajectories.add_many([run("t")], NOW)
        assert reader.exec_driver_sql(count).scalar() == 0
    with write_transaction(shared.engine):
        assert shared.trajectories.count(TrajectoryFilter()) == 1
    with pytest.raises(Unavailable, match="read-only transaction"), read_transaction(shared.engine) as reader:
        reader.exec_driver_sql("DELETE FROM trajectories")


def test_a_writer_that_waits_too_long_gives_up_and_names_the_lock(shared: Store) -> None:
    hurried = create_engine(shared.url, wait_s=0.05)
    with write_transaction(shared.engine):
        with pytest.raises(Unavailable, match="lock timeout"), write_transaction(hurried):
            pass
        shared.trajectories.count(TrajectoryFilter())
    with write_transaction(hurried):
        pass
    hurried.dispose()


def test_a_writer_that_is_cut_off_loses_the_lock_to_the_next(shared: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = create_engine(shared.url)
    monkeypatch.setattr(postgresql, "IDLE_TRANSACTION_S", 0.1)
    refused = pytest.raises(Unavailable, match=r"idle-in-transaction timeout.*unknown")
    with refused, write_transaction(shared.engine), write_transaction(patient):
        pass
    patient.dispose()


def test_text_that_postgresql_refuses_is_kept_or_refused_by_name(shared: Store) -> None:
    task = Task(id="a\0b", prompt="p\0", environment="e\0")
    nul = run(None, user("x\0y"), answer("z\0"), task=task, tags=("t\0",), session_id="s\0")
    [added] = shared.trajectories.add_many([nul], NOW)
    assert shared.trajectories.get(added.id) == nul.model_copy(update={"id": added.id})
    for conditions in ({"tags": ("t\0",)}, {"environment": "e\0"}, {"text": "X Y"}):
        assert [found.id for found in shared.trajectories.search(TrajectoryFilter(**conditions)).items] == [added.id]
    longer = nul.model_copy(update={"steps": (*nul.steps, answer("more"))})
    assert shared.trajectories.add_many([longer], later(1)) == [(added.id, "grown")]
    score = Score(trajectory_id=added.id, scorer="s", status="scored", value=0.5, reason="r\0", rubric="good")
    shared.scores.add_many([score], NOW)
    assert shared.scores.of_trajectory(added.id)[0].reason == "r\0"
    assert shared.scores.rubrics("s") == ["good"]
    assert shared.scores.values("s", TrajectoryFilter())[added.id][0].value == 0.5

    draw = "".join(f"{n:04x}" for n in range(3000))  # does not compress below the limit of an index
    for bad in (run("u", tags=(draw,)), run("v", id="i" * 121)):
        with pytest.raises(InvalidInput, match=r"\[bad_value\] the database cannot store a value"):
            shared.trajectories.add_many([bad], NOW)
    with pytest.raises(InvalidInput, match="lone_surrogate"):
        shared.trajectories.add_many([run("w", answer("\ud800"))], NOW)
    with pytest.raises(InvalidInput, match="without NUL"):
        shared.trajectories.add_many([run("w", id="i\0")], NOW)
    assert shared.trajectories.count(TrajectoryFilter()) == 1


def test_a_search_finds_what_sqlite_finds_and_starts_from_the_index(
    shared: Store, empty_database: Path, tmp_path: Path
) -> None:
    texts = (
        "Straße nach Köln",
        "50% off_now",
        "日本語のテスト",
        "a/b\\c 'quoted' \"x\"",
        "İstanbul ΣΟΦΟΣ",
        "plain ascii words",
    )
    runs = [run(f"t{n}", user(text), answer()) for n, text in enumerate(texts)]
    local = open_store(f"sqlite:///{shutil.copy(empty_database, tmp_path)}")
    patterns = [*(text[i : i + n] for text in texts for n in (1, 2, 3, 7) for i in range(0, len(text), 4)), "STRASSE"]
    for store in (shared, local):
        store.trajectories.add_many(runs, NOW)
    for pattern in patterns:
        filter = TrajectoryFilter(text=pattern)
        found, expected = ([item.task_id for item in s.trajectories.search(filter).items] for s in (shared, local))
        assert found == expected != [], pattern
    local.close()
    with shared.engine.connect() as connection:  # so few rows that any other index is cheaper; all of it is rolled back
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        for name in ("agent", "agent_label", "environment", "outcome", "personal_data", "reward"):
            connection.exec_driver_sql(f"DROP INDEX ix_trajectories_{name}")
        query = "EXPLAIN SELECT id FROM trajectories WHERE forgotten_at IS NULL AND text LIKE %s ESCAPE '/'"
        plan = connection.exec_driver_sql(query, ("%stra_sse%",)).scalars().all()
    assert any("ix_trajectories_text" in line for line in plan), plan


def test_errors_of_the_connection_name_the_remedy_and_never_the_password(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = {
        in_full(server.url(password="wrong-secret")): "password authentication failed",
        in_full(server.url(database="missing")): 'database "missing" does not exist',
        "postgresql://u:wrong-secret@127.0.0.1:1/db": r"127\.0\.0\.1:1 runs and accepts connections",
        "postgresql://u:wrong-secret@127.0.0.1/db?sslmode=wrong-secret": r"invalid sslmode value: \"\*\*\*\"",
        "mysql://u:wrong-secret@h/db": "expected a database URL .*, got 'mysql'",
        "postgresql://u:wrong-secret@h:port/db": "got text that is not a URL",
    }
    for url, text in cases.items():
        with pytest.raises((Unavailable, InvalidInput), match=text) as raised:
            open_store(url, wait_s=2)
        assert "wrong-secret" not in str(raised.value)
        assert PASSWORD not in str(raised.value)
    with new_database(in_full(server.url())) as url:
        store = open_store(url)
        assert re.fullmatch(rf"PostgreSQL \d.*, {server.folder}; back it up with pg_dump", store.description())
        store.close()
    monkeypatch.setitem(sys.modules, "psycopg.types.string", None)
    with pytest.raises(Unavailable, match=r"\[missing_driver\].*pip install 'quintain\[postgres\]'"):
        open_store(in_full(server.url()))


def test_a_killed_server_loses_no_acknowledged_run_and_the_store_recovers(server: Server, shared: Store) -> None:
    acknowledged: list[str] = []
    errors: list[Unavailable] = []
    killed = threading.Event()

    def write() -> None:
        number = 0
        while not (killed.is_set() and errors):
            try:
                acknowledged.extend(one.id for one in shared.trajectories.add_many([run(f"t{number}")], NOW))
                number += 1
            except Unavailable as error:
                errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    while len(acknowledged) < 20:
        killed.wait(0.01)
    server.kill()
    killed.set()
    writer.join(30)
    server.start()
    assert errors[0].code == "database_unavailable"
    assert PASSWORD not in str(errors[0])
    shared.trajectories.add_many([run("after")], NOW)
    stored = {item.id for item in shared.trajectories.iterate()}
    assert set(acknowledged) <= stored


def test_a_home_names_what_another_one_has_and_its_doctor_does_not_take_it_for_lost(
    shared: Store, tmp_path: Path
) -> None:
    one, two = (
        open_services(Settings(home=tmp_path / name, database_url=shared.url), trusted=True) for name in ("one", "two")
    )
    runs = [added.id for added in shared.trajectories.add_many([run("t", answer("a"))], NOW)]
    made = export_dataset(one, "sft", "good", trajectory_ids=runs)
    model = ModelRef(source="folder", path=str(one.settings.agents_dir / "clerk"))
    shared.agents.add(Agent(name="clerk", model=model), NOW)
    one.settings.home.rename(tmp_path / "of-another-machine")
    with pytest.raises(InvalidInput, match=rf"{made.dataset_id} has no folder at .*another home .*export it again"):
        start_training(two, "sft", "starter", "good")
    with pytest.raises(NotFound, match=r"agent:clerk@1 are not at .*another home"):
        evaluate_agent(two, "clerk", "quintain/inventory")
    assert _kept(two) == "ok (2 outside this home, and not seen here)"
    Path(export_dataset(two, "sft", "mine", trajectory_ids=runs).path, "train.jsonl").unlink()
    with pytest.raises(Unavailable, match="has lost its file"):
        _kept(two)
    forget(two, runs[0], dry_run=False, copies=True)
    assert _kept(two) == "ok (2 outside this home, and not seen here)", "what was forgotten was not lost"
    one.close()
    two.close()
