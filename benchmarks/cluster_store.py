"""The store on PostgreSQL next to SQLite: writes in batches and in calls of one, by one server and by several; search.

Run as `python -m benchmarks.cluster_store [--quick]`; prints one JSON line a figure. A PostgreSQL of the system's package is
started for it, with its default durability: each commit waits for the disk.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from benchmarks.data.store import noted_run
from benchmarks.figures import report, say, summarize
from benchmarks.postgres_server import NoServer, Server, in_full, new_database
from quintain.records.filters import TrajectoryFilter
from quintain.store.store import Store, open_store
from quintain.store.trajectories.rows import EncodedRun, encode_run
from quintain.tools.services import utc_now

BATCH = 100


def rows(first: int, n: int) -> list[EncodedRun]:
    """Encoded runs of about 2 kB."""
    return [encode_run(noted_run(Random(number), number)) for number in range(first, first + n)]


def batches(found: Sequence[EncodedRun], size: int) -> list[Sequence[EncodedRun]]:
    """Runs in batches."""
    return [found[start : start + size] for start in range(0, len(found), size)]


def seconds(store: Store, parts: Sequence[Sequence[EncodedRun]]) -> float:
    """Time to store batches, one call each."""
    began = time.perf_counter()
    for part in parts:
        store.trajectories.add_encoded(part, utc_now())
    return time.perf_counter() - began


def one_server(url: str, name: str, *, quick: bool, server: Server | None = None) -> None:
    """Runs a second in batches, and in calls of one; a page of a text search.

    By the clock, which other work on the machine and its disk slows down, and by the processor time of both sides.
    """

    def processor_s() -> float:
        return time.process_time() + (server.cpu_seconds() if server else 0.0)

    goal = 1500.0 if server else None
    store = open_store(url)
    n, rounds = (500, 3) if quick else (2000, 7)
    speeds, by_processor, single, pages = [], [], [], []
    for number in range(rounds):
        found = rows(number * 10**6, n + 50)
        began_cpu = processor_s()
        speeds.append(n / seconds(store, batches(found[:n], BATCH)))
        by_processor.append(n / (processor_s() - began_cpu))
        single.append(50 / seconds(store, batches(found[n:], 1)))
    store.trajectories.index_new_texts()
    for number in range(20):
        began = time.perf_counter()
        page = store.trajectories.search(TrajectoryFilter(text=f"{number:012d}"))
        pages.append(1000 * (time.perf_counter() - began))
        assert len(page.items) == 1
    report(f"{name}_writes_in_batches_of_{BATCH}_per_s", speeds, "1/s", goal)
    report(f"{name}_writes_in_batches_of_{BATCH}_per_processor_s", by_processor, "1/s", goal)
    report(f"{name}_writes_in_calls_of_one_per_s", single, "1/s", None)
    report(f"{name}_text_search_ms", pages, "ms", None, "lower", runs=rounds * (n + 50))
    if store.engine.dialect.name != "sqlite":
        with store.engine.connect() as connection:
            size = connection.exec_driver_sql("SELECT pg_total_relation_size('trajectories')").scalar_one()
        characters = statistics.mean(len(row.columns["document"]) for row in rows(0, 100))
        report(
            f"{name}_bytes_per_run", [size / (rounds * (n + 50))], "B", None, "lower", document_characters=characters
        )
    store.close()


_WRITER = """
import sys
from benchmarks.cluster_store import batches, rows, seconds
from quintain.store.store import open_store
url, me, n, size = sys.argv[1], *map(int, sys.argv[2:])
store, found = open_store(url), rows(10**9 + me * 10**6, n)
print("ready", flush=True)
sys.stdin.readline()
print(seconds(store, batches(found, size)), flush=True)
"""


def many_servers(url: str, *, quick: bool) -> None:
    """Runs a second of all servers together, each a separate process, in batches and in calls of one."""
    for servers in (1, 2, 4, 8):
        for label, n, size in (("in_batches_of_100", 200 if quick else 1000, BATCH), ("in_calls_of_one", 50, 1)):
            first = servers * 10 + (0 if size == 1 else 100)
            command = [sys.executable, "-c", _WRITER, url]
            writers = [
                subprocess.Popen(
                    [*command, *map(str, (first + me, n, size))],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for me in range(servers)
            ]
            for writer in writers:
                assert writer.stdout
                assert writer.stdout.readline() == "ready\n"
            began = time.perf_counter()
            for writer in writers:
                assert writer.stdin
                writer.stdin.write("\n")
                writer.stdin.flush()
            for writer in writers:
                assert writer.stdout
                assert float(writer.stdout.readline()) > 0
            speed = servers * n / (time.perf_counter() - began)
            for writer in writers:
                writer.communicate()
            report(f"postgresql_{servers}_servers_writes_{label}_per_s", [speed], "1/s", None)


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_store", description="The store on PostgreSQL.")
    parser.add_argument("--quick", action="store_true", help="little data: for a look, not for a claim")
    store(quick=parser.parse_args().quick)
    summarize()
    return 0


def store(*, quick: bool = False) -> None:
    """Measure both databases."""
    with tempfile.TemporaryDirectory() as folder:
        one_server(f"sqlite:///{Path(folder) / 'store.db'}", "sqlite", quick=quick)
    try:
        server = Server()
    except NoServer as reason:
        say(f"skipped: {reason}")
        return
    try:
        with new_database(in_full(server.url())) as url:
            one_server(url, "postgresql", quick=quick, server=server)
        with new_database(in_full(server.url())) as url:
            many_servers(url, quick=quick)
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main())
