"""The HTTP transport: this machine only, both eras, a bounded body."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from mcp import Client

from quintain.errors import Refused
from quintain.server.app import QuintainServer
from quintain.server.http.serving import serve_http
from quintain.settings import Settings

SCRIPT = Path(__file__).with_name("small_server.py")


@contextmanager
def listening(*arguments: str) -> Iterator[int]:
    """A Python process that serves HTTP and prints its URL, and nothing else, on standard output; yields its port."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=SCRIPT.parents[1], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            ready = process.stdout.readline().decode()
            yield int(re.findall(r":(\d+)", ready)[0])
        finally:
            process.terminate()
            printed = process.stdout.read()
        assert printed == b""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with listening(str(SCRIPT), "0") as number:
        yield number


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_both_eras_call_tools_over_http(port: int, mode: str) -> None:
    async def main() -> None:
        with anyio.fail_after(100):
            async with Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
                assert (await client.call_tool("count", {"steps": 2})).structured_content["step"] == 2
                text = (await client.call_tool("add_note", {"title": "a", "page": 1})).content[0].text
                assert text.startswith("[unknown_argument]")

    anyio.run(main)


@pytest.mark.parametrize(
    ("header", "value", "status"), [("Host", "evil.example", 421), ("Origin", "https://evil.example", 403)]
)
def test_a_request_from_a_foreign_page_is_refused(port: int, header: str, value: str, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", header: value}
    connection.request("POST", "/mcp", body=b"{}", headers=headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    assert response.status == status


def test_an_address_that_others_can_reach_is_refused_without_a_token(small: QuintainServer, tmp_path: Path) -> None:
    with pytest.raises(
        Refused, match=r"other machines can reach \(0\.0\.0\.0\), got --no-token; leave that option out"
    ):
        serve_http(small, Settings(home=tmp_path), "0.0.0.0")
