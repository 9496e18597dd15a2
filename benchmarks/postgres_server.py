"""A throw-away PostgreSQL server from the system's package, and databases for single tests.

`python -m benchmarks.postgres_server COMMAND ...` runs a command with such a server in QUINTAIN_TEST_DATABASE.
"""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import sqlalchemy

from quintain.store.store import open_store

VARIABLE = "QUINTAIN_TEST_DATABASE"
"""URL of a database whose server may receive new databases. With it, the tests of store and jobs run on PostgreSQL."""

PASSWORD = "a-passw0rd/of:tests"


class NoServer(Exception):
    """PostgreSQL cannot be started here; the message says why."""


def programs() -> Path:
    """The folder of `initdb` and `pg_ctl`.

    Raises:
        NoServer: They are not installed.
    """
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "pg_ctl").exists():
            return folder
    raise NoServer(
        "no PostgreSQL server is installed (initdb and pg_ctl are neither in PATH nor in /usr/lib/postgresql)"
    )


def _user() -> str | None:
    """The user under whom to start the server, which refuses root; None for the own one."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise NoServer("PostgreSQL does not run as root, and there is no user postgres or nobody")


class Server:
    """A server that listens on a socket in its own folder."""

    def __init__(self, *settings: str) -> None:
        self.programs, self.user = programs(), _user()
        self.folder = Path(tempfile.mkdtemp(prefix="quintain-pg-"))  # short: the path of a socket has at most 107 bytes
        self.data = self.folder / "data"
        self.settings = ("listen_addresses=", f"unix_socket_directories={self.folder}", *settings)
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        if self.user:
            for path in (self.folder, secret):
                shutil.chown(path, self.user)
        self._call("initdb", "-D", self.data, "-U", "quintain", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync",
                   "-A", "scram-sha-256", f"--pwfile={secret}")  # fmt: skip
        self.start()

    def _call(self, name: str, *arguments: str | Path) -> None:
        argv = [str(self.programs / name), *map(str, arguments)]
        with (self.folder / "calls.log").open("ab") as log:
            code = subprocess.call(argv, user=self.user, stdout=log, stderr=log, cwd="/")
        if code:
            logs = [path.read_text()[-500:] for path in self.folder.glob("*.log")]
            raise NoServer(f"{name} failed: {logs}")

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = " ".join(f"-c {setting}" for setting in self.settings)
        self._call("pg_ctl", "-D", self.data, "-w", "-l", self.folder / "server.log", "-o", options, "start")

    def allow(self, network: str) -> None:
        """Let clients of another network connect, with the password."""
        with (self.data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
            rules.write(f"host all all {network} scram-sha-256\n")
        self._call("pg_ctl", "-D", self.data, "reload")

    def processes(self) -> list[psutil.Process]:
        """Every process of the server, the one that started the others first."""
        leader = psutil.Process(int((self.data / "postmaster.pid").read_text().split()[0]))
        return [leader, *leader.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """Processor time of the server's processes that still run."""
        return sum(sum(process.cpu_times()[:2]) for process in self.processes())

    def kill(self) -> None:
        """Kill every process of the server at once."""
        processes = self.processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs([process for process in processes if not _is_zombie(process)], timeout=10)
        for left in (
            self.data / "postmaster.pid",
            self.folder / ".s.PGSQL.5432.lock",
        ):  # an unreaped process looks alive
            left.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop the server at once and remove its files."""
        with suppress(NoServer):  # a test may have killed it
            self._call("pg_ctl", "-D", self.data, "-m", "immediate", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres", password: str = PASSWORD) -> sqlalchemy.URL:
        """The URL of a database."""
        query = {"host": str(self.folder)}
        return sqlalchemy.URL.create("postgresql", "quintain", password, database=database, query=query)


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def in_full(url: sqlalchemy.URL) -> str:
    """The URL with its password."""
    return url.render_as_string(hide_password=False)


@functools.cache
def _template(server: str) -> str:
    """The name of a migrated database on this server, to be copied."""
    name = f"template_{uuid.uuid4().hex[:12]}"
    _administer(server, f"CREATE DATABASE {name}")
    open_store(in_full(sqlalchemy.make_url(server).set(database=name))).close()
    return name


def _administer(server: str, statement: str) -> None:
    url = sqlalchemy.make_url(server).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)
    finally:
        engine.dispose()


@contextmanager
def new_database(server: str, *, migrated: bool = True) -> Iterator[str]:
    """Create a database on the server of this URL for the time of the context. Yield its URL."""
    name = f"quintain_{uuid.uuid4().hex[:12]}"
    _administer(server, f"CREATE DATABASE {name}" + (f" TEMPLATE {_template(server)}" if migrated else ""))
    try:
        yield in_full(sqlalchemy.make_url(server).set(database=name))
    finally:
        _administer(server, f"DROP DATABASE {name} WITH (FORCE)")


def main(command: list[str]) -> int:
    """Run a command with a server. Without one, print the reason and succeed."""
    try:
        server = Server("fsync=off", "max_connections=300")
    except NoServer as reason:
        sys.stderr.write(f"skipped: {reason}\n")
        return 0
    try:
        return subprocess.call(command, env={**os.environ, VARIABLE: in_full(server.url())})
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
