"""`quintain serve --transport http` as an operator runs it: its token, its health checks, its page, its end."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from starlette.testclient import TestClient

from quintain.errors import Unavailable
from quintain.server.app import create_server
from quintain.server.calls.failures import tool_failure
from quintain.server.http.application import http_application
from quintain.server.http.limits import Limits
from quintain.server.http.serving import access_of
from quintain.server.http.tokens import TokenFile
from quintain.settings import Settings
from quintain.tools.services import open_services
from server.test_http_matrix import JSON, META, message

LIST = {"name": "list_jobs", "arguments": {}}


def start(home: Path, *options: str) -> tuple[subprocess.Popen[str], str, list[str]]:
    """Return a server on a free port, its URL, and what it wrote until it was ready."""
    command = [sys.executable, "-m", "quintain.cli.main", "serve", "--transport", "http", "--port", "0", *options]
    process = subprocess.Popen([*command, "--home", str(home)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines: list[str] = []
    while "ready" not in lines:
        lines.append(process.stderr.readline().strip())
        assert lines[-1], lines
    return process, lines[0].removeprefix("Serving at ").removesuffix("/mcp"), lines


def ask(url: str, token: str | None = None, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=100) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_token_is_printed_once_and_opens_what_the_page_may_change(tmp_path: Path) -> None:
    process, url, lines = start(tmp_path)
    try:
        token = (tmp_path / "http-token").read_text().strip()
        assert [token in line for line in lines] == [False, True, False]
        assert [ask(f"{url}/api/tools/list_jobs", key, {})[0] for key in (None, "of yesterday", token)] == [200] * 3
        note = {"name": "a", "model": "starter"}
        assert [ask(f"{url}/api/tools/register_agent", key, note)[0] for key in (None, "wrong", token)] == [
            401,
            401,
            200,
        ]
        status, health = ask(f"{url}/healthz")
        assert (status, health["status"], health["store"]) == (200, "ok", "ok")
        with urllib.request.urlopen(f"{url}/api/events", timeout=100) as stream:  # open while the server stops
            assert stream.readline().startswith(b"event:")
            process.send_signal(signal.SIGTERM)
            assert process.wait(100) == 0
    finally:
        process.kill()
        left = process.communicate()[1]
    assert left == ""


def test_health_names_what_is_wrong_and_no_path(tmp_path: Path) -> None:
    home = tmp_path / "home"
    settings = Settings(home=home)
    token = TokenFile(home)
    access = access_of(settings, "127.0.0.1", 8765, token)
    home.mkdir()
    token.create()
    (home / "quintain.db").write_bytes(b"not a database" * 100)
    app = http_application(create_server(settings), access, Limits())
    with TestClient(app, base_url="http://anything") as client:
        assert client.get("/healthz/live").json() == {"status": "ok"}
        answer = client.get("/healthz")
        assert answer.status_code == 503
        assert answer.json()["status"] == "unavailable"
        assert answer.json()["store"].startswith("database_")
        assert str(tmp_path) not in answer.text
        (home / "jobs").rmdir()
        (home / "jobs").touch()  # a file where a folder should be
        for method, params in (("tools/call", LIST), ("resources/read", {"uri": "job://job-1"})):
            headers = JSON | {"Host": "127.0.0.1:8765", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
            headers["Mcp-Name"] = params.get("name") or params["uri"]
            headers["Authorization"] = f"Bearer {token.read()}"
            answer = client.post("/mcp", content=message(method, params | {"_meta": META}), headers=headers)
            assert "cannot create or write the home folder 'the home folder'" in answer.text


def test_what_the_disk_refuses_a_tool_is_told_with_its_remedy() -> None:
    remedies = (
        (errno.EACCES, "give this user write permission"),
        (errno.ENOSPC, "free disk space"),
        (errno.ENOLCK, "locks"),
    )
    for error, remedy in remedies:
        refused = OSError(error, os.strerror(error), "/the/home/jobs/job-1")
        (block,) = tool_failure("get_job", refused, Path("/the/home")).content
        assert block.text.startswith("[disk_refused] the disk refuses the home folder/jobs/job-1 (")
        assert remedy in block.text


def test_a_home_on_a_disk_without_locks_is_refused_with_the_remedy(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lustre can be mounted without them, and NFS."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(Unavailable, match=r"No locks available.*a file system with locks"):
        open_services(Settings(home=home / "new"))
