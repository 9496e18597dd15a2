"""Paths and URLs that a caller may write in every argument that names a file: nothing outside is read, written or asked."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from jobs_in_process import starts_held
from quintain.errors import QuintainError
from quintain.server.calls.bindings import Binding, bind_all, read_arguments
from quintain.settings import Settings
from quintain.tools.catalog import CATALOG
from quintain.tools.roots import writable
from quintain.tools.services import Services, open_services

CANARY = "canary-7f3a91"
"""Content of every file that no caller may read."""

ARGUMENTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    # tool, argument that names a file or a location, the others
    ("import_trajectories", "path", {}),
    ("export_dataset", "path", {"name": "x", "kind": "text"}),
    ("export_dataset", "push_to", {"name": "x", "kind": "sft"}),
    ("register_agent", "model", {"name": "x"}),
    ("start_training", "model", {"method": "sft", "dataset_id": "x"}),
    ("score_trajectories", "profile", {"scorer": "rules"}),
    ("export_agent", "push_to", {"agent": "mine", "format": "merged"}),
    ("collect_rollouts", "agent", {"environment": "quintain/inventory"}),
)


@pytest.fixture
def client(settings: Settings) -> Iterator[Services]:
    """Services of a client, who may read less than the user, with secrets beside and within the home folder."""
    outside = settings.home.parent / "outside"
    for folder in (outside, settings.inbox_dir, settings.jobs_dir / "job-1", settings.agents_dir, settings.exports_dir):
        folder.mkdir(parents=True, exist_ok=True)
    line = (
        f'{{"messages": [{{"role": "user", "content": "{CANARY}"}}, {{"role": "assistant", "content": "{CANARY}"}}]}}\n'
    )
    secrets = [outside / "secret.jsonl", settings.home / "http-token", settings.home / "state.key"]
    for path in (
        *secrets,
        settings.endpoints_file,
        settings.jobs_dir / "job-1" / "log",
        settings.home.parent / "home2",
    ):
        path.write_text(line)
    (settings.inbox_dir / "link.jsonl").symlink_to(outside / "secret.jsonl")
    (settings.inbox_dir / "linked").symlink_to(outside)
    (settings.inbox_dir / "up").symlink_to("..")
    (settings.exports_dir / "linked").symlink_to(outside)
    os.mkfifo(settings.inbox_dir / "pipe.jsonl")
    opened = open_services(settings)
    with starts_held(settings.jobs_dir):
        call(bind_all(CATALOG)["register_agent"], opened, {"name": "mine", "model": "starter"})
        yield opened
    opened.close()


NAMES = r"""
    link.jsonl linked/secret.jsonl linked up/http-token up/outside pipe.jsonl .. ../ . ~ ~root/.ssh/id_rsa ~nobody
    \\host\share\a C:\Windows\win.ini CON NUL.jsonl -rf --help $(id) `id` ;id $HOME %HOME%
"""
LOOPBACK = """
    127.0.0.1 127.1 0x7f.1 0x7f000001 2130706433 017700000001 0177.0.0.1 [::1] [::] [::ffff:127.0.0.1]
    [0:0:0:0:0:ffff:7f00:1] localhost LOCALHOST. 0 0.0.0.0 127.0.0.1.nip.io user:word@127.0.0.1 evil.example@127.0.0.1
"""
SCHEMES = "ftp sftp smb webhdfs github git ssh dict gopher ws ldap jar hf data"


def hostile_paths(home: Path) -> list[str]:
    """Return more than 100 ways to name a file that is not the caller's."""
    outside = home.parent / "outside" / "secret.jsonl"
    targets = [outside, home / "http-token", home / "state.key", home / "endpoints.toml", home / "quintain.db"]
    targets += [home / "jobs" / "job-1" / "log", home.parent / "home2", Path("/etc/passwd"), Path("/proc/self/environ")]
    targets += [Path("/dev/zero"), Path("/dev/stdin"), Path("/proc/self/fd/0")]
    found: list[str] = []
    for target in targets:
        climbing = os.path.relpath(target, home / "inbox")
        found += [str(target), f"/{target}", climbing, f"./{climbing}", f"{home}/inbox/{climbing}", f"file://{target}"]
        found += [climbing.replace("../", "....//"), climbing.replace("/", "\\"), climbing.replace("..", "%2e%2e")]
        found += [climbing.replace("..", "%252e%252e"), climbing.replace(".", "\uff0e"), f"{target}\x00.jsonl"]
    texts = ["a\nb", "\u202egnp.exe", " ", "~" * 300, "a" * 5000, "../" * 2000]
    return [*found, *NAMES.split(), *texts]


def hostile_urls(port: int) -> list[str]:
    """Return more than 60 ways to make a server ask another one."""
    loopback = [*LOOPBACK.split(), "\uff11\uff12\uff17.0.0.1", "\u24db\u24de\u24d2alhost"]
    found = [f"http://{host}:{port}/a" for host in loopback] + [f"https://{host}/a" for host in loopback]
    metadata = ["169.254.169.254", "[::ffff:a9fe:a9fe]", "2852039166", "metadata.google.internal", "100.100.100.200"]
    found += [f"http://{host}/latest/meta-data" for host in metadata]
    here = f"http://127.0.0.1:{port}/a"
    found += [f"{chain}::{here}" for chain in ("simplecache", "filecache", "blockcache", "zip://*", "tar://x", "dask")]
    found += [f"{scheme}://127.0.0.1:{port}/a" for scheme in SCHEMES.split()]
    found += [f"endpoint:{here}", f"hub:127.0.0.1:{port}/a", f"hub:../{port}", f"s3://bucket@127.0.0.1:{port}/a"]
    found += [f"//{here}", f"s3://bucket/folder/../../{port}", f"s3://bucket/folderx/{port}"]
    found += [f"s3://BUCKET/folder/?endpoint_url={here}"]
    return found


def call(binding: Binding, services: Services, arguments: dict[str, Any]) -> str:
    """Return what a client would read."""
    try:
        return str(binding.spec.function(services, **read_arguments(binding, arguments)))
    except QuintainError as error:
        return str(error)


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_no_path_argument_reads_or_writes_outside(
    client: Services, caplog: pytest.LogCaptureFixture, record_property: Callable[[str, object], None]
) -> None:
    bindings, home = bind_all(CATALOG), client.settings.home
    paths = hostile_paths(home)
    record_property("cases", len(set(paths)))
    assert len(set(paths)) >= 100
    for tool, name, others in ARGUMENTS:  # what a tool makes by itself
        call(bindings[tool], client, others | {name: "none"})
    before = tree(home.parent)
    for tool, name, others in ARGUMENTS:
        for path in paths:
            answer = call(bindings[tool], client, others | {name: path})
            assert CANARY not in answer, (tool, name, path)
    assert tree(home.parent) - before == set()
    assert CANARY not in caplog.text
    assert CANARY.encode() not in (home / "quintain.db").read_bytes()


def test_a_new_folder_lies_below_the_exports_or_the_inbox(client: Services) -> None:
    allowed = [client.settings.exports_dir.resolve(), client.settings.inbox_dir.resolve()]
    for path in (*hostile_paths(client.settings.home), "linked/new", f"{client.settings.exports_dir}/linked/new"):
        try:
            found = writable(client, path)
        except QuintainError:
            continue
        assert any(root in found.parents for root in allowed), path


def test_no_argument_makes_the_server_ask_another(
    settings: Settings,
    client: Services,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    asked: list[object] = []

    def refuse(*arguments: object, **_: object) -> NoReturn:
        asked.append(arguments)
        raise OSError("this test allows no connection")

    bindings = bind_all(CATALOG)
    allowing = Services(
        settings.model_copy(update={"artifacts": ("s3://bucket/folder", "http://allowed.example/data")}),
        client.store,
        client.jobs,
        client.clock,
    )
    urls = hostile_urls(9)
    record_property("cases", len(set(urls)))
    assert len(set(urls)) >= 60
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for tool, name, others in ARGUMENTS:
        for url in urls:
            answer = call(bindings[tool], allowing, others | {name: url})
            assert answer.startswith("["), (tool, name, url, answer)
    assert asked == []
