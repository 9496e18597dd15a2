"""The store next to bare sqlite3, a page of many runs, and an export next to reading and re-writing the same JSON."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import statistics
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.data.logs import MODEL, prose
from benchmarks.figures import percentile, report, say
from benchmarks.process_cost import cpu_seconds, peak_growth_mb
from quintain.records.filters import TrajectoryFilter
from quintain.records.trajectory import (
    Action,
    Actor,
    AgentInfo,
    Observation,
    Outcome,
    OutcomeStatus,
    Step,
    Task,
    Trajectory,
)
from quintain.settings import Settings
from quintain.store.store import Store, open_store
from quintain.store.trajectories.rows import EncodedRun, encode_run
from quintain.tools.data.datasets import export_dataset
from quintain.tools.results import ExportResult
from quintain.tools.services import Services, open_services, utc_now

_BATCH = 100
_NUMBER = "000000000000"
"""Stands in a template for the number of a run."""


def add_many(folder: Path, *, quick: bool) -> None:
    """Encoded rows in batches of 100 next to `executemany` with the same pragmas, tables and columns, in turns.

    By the clock, since both sides wait for the same disk; beside it the processor time, where they do not.
    """
    n_batches, rounds = (5, 3) if quick else (20, 9)
    ratios, cpu_ratios, speeds = [], [], []
    for i in range(rounds):
        rows = [encode_run(noted_run(Random(i * 10**6 + n), n)) for n in range(n_batches * _BATCH)]
        batches = [rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH)]
        sides: dict[str, _Ours | _Bare] = {
            "ours": _Ours(folder / f"ours-{i}.db"),
            "bare": _Bare(folder / f"bare-{i}.db"),
        }
        cpu, clock = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0.0)
        for k, batch in enumerate(batches):  # in turns, so that a busy disk slows both down alike
            for name in sides if k % 2 else reversed(sides):
                began, began_cpu = time.perf_counter(), time.process_time()
                sides[name].add(batch)
                cpu[name] += time.process_time() - began_cpu
                clock[name] += time.perf_counter() - began
        assert sides["ours"].count() == sides["bare"].count() == len(rows)
        for side in sides.values():
            side.close()
        cpu_ratios.append(cpu["bare"] / cpu["ours"])
        ratios.append(clock["bare"] / clock["ours"])
        speeds.append(len(rows) / clock["ours"])
    report("store_add_many_vs_sqlite3", ratios, "1", 0.85)
    report("store_add_many_vs_sqlite3_by_processor", cpu_ratios, "1", None)
    report("store_add_many_per_s", speeds, "1/s", None)


class _Ours:
    def __init__(self, path: Path) -> None:
        self.store = open_store(f"sqlite:///{path}")
        self.add([])

    def add(self, rows: Sequence[EncodedRun]) -> None:
        self.store.trajectories.add_encoded(rows, utc_now())

    def count(self) -> int:
        return self.store.trajectories.count(TrajectoryFilter())

    def close(self) -> None:
        self.store.close()


class _Bare:
    def __init__(self, path: Path) -> None:
        self.connection = _bare_connection(path)

    def add(self, rows: Sequence[EncodedRun]) -> None:
        now = _moment()
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(_insert_sql(rows[0].columns), [(*row.columns.values(), now, now) for row in rows])
        self.connection.execute("COMMIT")

    def count(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM trajectories").fetchone()[0])

    def close(self) -> None:
        self.connection.close()


def _bare_connection(path: Path) -> sqlite3.Connection:
    """A connection to a new database with the store's tables and indexes, journal mode and pragmas."""
    store = open_store(f"sqlite:///{path}")
    pragmas = {}
    with store.engine.connect() as connection:
        for name in ("journal_mode", "synchronous", "fullfsync", "foreign_keys"):
            pragmas[name] = connection.exec_driver_sql(f"PRAGMA {name}").scalar()
    store.close()
    bare = sqlite3.connect(path, isolation_level=None)
    for name, value in pragmas.items():
        bare.execute(f"PRAGMA {name}={value}").close()
    return bare


def _insert_sql(columns: dict[str, Any]) -> str:
    names = [*columns, "created_at", "updated_at"]
    return f"INSERT INTO trajectories ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def _moment() -> str:
    return utc_now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def noted_run(draw: Random, n: int | None, chars: int = 600) -> Trajectory:
    number = _NUMBER if n is None else f"{n:012d}"
    command = {"command": f"cat notes/{number}.txt"}
    steps = (
        Step(actor=Actor.USER, message=f"Task {number}: {_text(draw, chars // 4)}"),
        Step(
            actor=Actor.AGENT,
            thought=f"Look at {number} first.",
            message=_text(draw, chars // 6),
            actions=(Action(tool="bash", args=command, raw_args=json.dumps(command), call_id="c1"),),
            observations=(Observation(content=f"{number}\n{_text(draw, chars // 2)}", call_id="c1"),),
        ),
        Step(actor=Actor.AGENT, message=f"Done with {number}. {_text(draw, chars // 6)}"),
    )
    return Trajectory(
        agent=AgentInfo(name="helper", version="3", model=MODEL),
        task=Task(id=f"task-{number}", prompt=f"Task {number}", type="notes", environment="bench/notes"),
        steps=steps,
        outcome=Outcome(status=OutcomeStatus.SUCCESS, reward=1.0),
    )


def _text(draw: Random, chars: int) -> str:
    return prose(draw, chars)[:chars]


def fill_runs(path: Path, n: int, chars: int) -> None:
    """Put runs into a new database by bare inserts of the columns that the store would insert."""
    template = encode_run(noted_run(Random(7), None, chars)).columns
    connection = _bare_connection(path)
    connection.execute("PRAGMA synchronous=OFF").close()
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(_insert_sql(template), _rows(template, n))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
    connection.close()


def _rows(template: dict[str, Any], n: int) -> Iterator[tuple[Any, ...]]:
    now = _moment()
    old_id = template["id"]
    for i in range(n):
        identity = hashlib.sha256(str(i).encode()).hexdigest()
        number = f"{i:012d}"
        new_id = f"traj-{identity[:16]}"
        columns = {
            name: value.replace(_NUMBER, number) if isinstance(value, str) and _NUMBER in value else value
            for name, value in template.items()
        }
        columns |= {"id": new_id, "identity": identity, "document": columns["document"].replace(old_id, new_id)}
        yield (*columns.values(), now, now)


def search_page(folder: Path, *, quick: bool) -> None:
    """A page of 50 of 1,000,000 runs: the newest, and pages at any depth by their cursors."""
    n, calls = (50_000, 500) if quick else (1_000_000, 2_000)
    path = folder / "search.db"
    fill_runs(path, n, 160)
    os.sync()  # gigabytes on their way to the disk are no part of a page's time
    say(f"  {n:,} runs, {path.stat().st_size / 1e6:,.0f} MB")
    store = open_store(f"sqlite:///{path}")
    cursors = _cursors(store, n)
    filters = {"": TrajectoryFilter(), "_agent": TrajectoryFilter(agent="helper", environment="bench/notes")}
    for suffix, condition in filters.items():
        cpu, clock = _latencies(store, condition, cursors, calls)
        report(f"search{suffix}_page_p99_ms", [percentile(cpu, 0.99)], "ms", 1.0, "lower", runs=n, calls=calls)
        report(f"search{suffix}_page_p50_ms", [statistics.median(cpu)], "ms", None, "lower")
        report(f"search{suffix}_page_p99_ms_by_clock", [percentile(clock, 0.99)], "ms", None, "lower")
    store.close()
    path.unlink()


def search_conditions(folder: Path, *, quick: bool) -> None:
    """A page of 50 of 100,000 runs by text or by a bound on the reward; the texts are cut from Python's standard library.

    In processor time and by the clock, after the time that the index needs for the runs and one call of each condition.
    """
    n, each = (10_000, 30) if quick else (100_000, 100)
    path, draw = folder / "conditions.db", Random(5)
    sources = [file.read_text("utf-8", "replace") for file in Path(sysconfig.get_path("stdlib")).glob("*.py")]
    _fill_with_slices(path, n, sources, draw)
    store = open_store(f"sqlite:///{path}")
    began = time.process_time()
    while not store.trajectories.index_new_texts():
        pass
    report("text_index_runs_per_s", [n / (time.process_time() - began)], "1/s", None, runs=n)
    words = [word for source in draw.sample(sources, 40) for word in source.split()]
    sought = {
        "text_word": [draw.choice(words) for _ in range(each)],
        "text_two_words_by_chance": [f"{draw.choice(words)} {draw.choice(words)}" for _ in range(each)],
        "text_slice": [_slice(draw, sources, draw.randint(3, 30)) for _ in range(each)],
        "text_short": [draw.choice("abc仓ßéü🎉qxzj~") + draw.choice(("", *"eqzß仓)")) for _ in range(each)],
        "text_absent": ["kubernetes", "memory leak", "task x", "仓库里", "flibber"] * (each // 5),
    }
    spent = dict[str, list[float]]()
    for name, texts in sought.items():
        spent[name], clock = _pages(store, [TrajectoryFilter(text=text) for text in texts])
        report(f"search_{name}_p99_ms", [percentile(spent[name], 0.99)], "ms", None, "lower", runs=n, calls=len(clock))
        report(f"search_{name}_p50_ms", [statistics.median(spent[name])], "ms", None, "lower")
        report(f"search_{name}_p99_ms_by_clock", [percentile(clock, 0.99)], "ms", None, "lower")
    every = [ms for kind in spent.values() for ms in kind]
    report("search_text_p99_ms", [percentile(every, 0.99)], "ms", 25, "lower", runs=n, calls=len(every))
    by_reward, _ = _pages(store, [TrajectoryFilter(min_reward=reward) for reward in (0.0, 1.0, 1.5)] * (each // 3))
    report("search_min_reward_p99_ms", [percentile(by_reward, 0.99)], "ms", 25, "lower", runs=n, calls=len(by_reward))
    store.close()


def _pages(store: Store, conditions: Sequence[TrajectoryFilter]) -> tuple[list[float], list[float]]:
    """Milliseconds of a page of each search, in processor time and by the clock; each was asked for once before."""
    cpu, clock = [], []
    for condition in conditions:
        store.trajectories.search(condition, limit=50)
    for condition in conditions:
        began, began_cpu = time.perf_counter(), time.process_time()
        store.trajectories.search(condition, limit=50)
        cpu.append(1e3 * (time.process_time() - began_cpu))
        clock.append(1e3 * (time.perf_counter() - began))
    return cpu, clock


def _fill_with_slices(path: Path, n: int, sources: Sequence[str], draw: Random) -> None:
    """Put runs into a new database whose texts are slices of these; by bare inserts, as `fill_runs`."""
    connection = _bare_connection(path)
    connection.execute("PRAGMA synchronous=OFF").close()
    connection.execute("BEGIN IMMEDIATE")
    for i in range(n):
        steps = (
            Step(actor=Actor.USER, message=_slice(draw, sources, 300)),
            Step(actor=Actor.AGENT, thought=_slice(draw, sources, 200), message=_slice(draw, sources, 900)),
        )
        task = Task(id=f"task-{i}", prompt=f"Task {i}", type="notes", environment="bench/notes")
        outcome = Outcome(status=OutcomeStatus.SUCCESS, reward=1.0)
        columns = encode_run(
            Trajectory(agent=AgentInfo(name="helper"), task=task, steps=steps, outcome=outcome)
        ).columns
        connection.execute(_insert_sql(columns), (*columns.values(), _moment(), _moment()))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
    connection.close()


def _slice(draw: Random, sources: Sequence[str], chars: int) -> str:
    """A part of a text of at most this length, which is more than white space."""
    while True:
        source = draw.choice(sources)
        start = draw.randrange(max(1, len(source) - chars))
        if part := source[start : start + chars].strip():
            return part


def _cursors(store: Store, n: int) -> list[str | None]:
    """Cursors from the first page on, and others far down, made of the first by its own form."""
    from quintain.store.database.paging import encode_cursor

    draw = Random(3)
    return [None, *(encode_cursor(draw.randint(1_000, n), "trajectories") for _ in range(200))]


def _latencies(
    store: Store, condition: TrajectoryFilter, cursors: Sequence[str | None], calls: int
) -> tuple[list[float], list[float]]:
    cpu, clock = [], []
    for i in range(calls + 50):
        began, began_cpu = time.perf_counter(), time.process_time()
        page = store.trajectories.search(condition, limit=50, cursor=cursors[i % len(cursors)])
        if i >= 50:
            cpu.append(1e3 * (time.process_time() - began_cpu))
            clock.append(1e3 * (time.perf_counter() - began))
        assert len(page.items) == 50
    return cpu, clock


def export(folder: Path, *, quick: bool) -> None:
    """Runs a second of an export, over those of reading its rows and writing them again with the standard library."""
    n = 5_000 if quick else 100_000
    home = folder / "export"
    home.mkdir()
    fill_runs(home / "quintain.db", n, 1200)
    services = open_services(Settings(home=home))
    made: list[ExportResult] = []
    seconds = cpu_seconds(lambda: made.append(_export(services, "first")))
    services.close()
    assert made[0].rows == n, made[0]
    rows = Path(made[0].path) / "train.jsonl"
    size = rows.stat().st_size / 1e6
    rewrites = [cpu_seconds(lambda: _rewrite(rows, folder / "copy.jsonl")) for _ in range(3)]
    report("export_100k_vs_rewrite", [rewrite / seconds for rewrite in rewrites], "1", 0.40, runs=n)
    report("export_runs_per_s", [n / seconds], "1/s", None)
    report("export_mb_per_s", [size / seconds], "MB/s", None, mb=round(size))
    report("export_peak_mb_growth", [peak_growth_mb(_export_again, str(home))], "MB", None, "lower", runs=n)


def _export(services: Services, name: str) -> ExportResult:
    return export_dataset(services, "sft", name, TrajectoryFilter(agent="helper"))


def _export_again(home: str) -> None:
    services = open_services(Settings(home=Path(home)))
    _export(services, "again")
    services.close()


def _rewrite(source: Path, target: Path) -> None:
    with source.open(encoding="utf-8") as lines, target.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(json.loads(line), ensure_ascii=False) + "\n")
