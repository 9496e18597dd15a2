"""The web page on a real server in a thread, with a real database."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from quintain.cli.command_lines import command_line
from quintain.server.app import create_server
from quintain.server.http.application import http_application
from quintain.server.http.connections import bounded_protocol
from quintain.server.http.limits import Limits
from quintain.server.http.serving import access_of
from quintain.server.http.tokens import TokenFile
from quintain.settings import Settings
from quintain.ui.app import web_app


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Site:
    """A served home."""

    port: int
    token: str
    home: Path

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
        """Send a request as it stands: the path is not normalised."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=100)
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in {"Content-Length": str(len(body or b"")), **headers}.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, content)

    def call(self, tool: str, arguments: Any, **headers: str) -> Answer:
        """Call a tool as the page does."""
        return self.ask(
            f"/api/tools/{tool}", "POST", json.dumps(arguments).encode(), Content_Type="application/json", **headers
        )

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@contextmanager
def served(home: Path) -> Iterator[Site]:
    """Serve a home on a free port of the loopback address."""
    settings = Settings(home=home, poll_s=0.1)
    token = TokenFile(home)
    token.create()
    server = create_server(settings)
    limits = Limits()
    protocol = bounded_protocol(limits, ())
    config = uvicorn.Config("", port=0, http=protocol, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    listener = config.bind_socket()
    listener.listen()
    port = listener.getsockname()[1]
    access = access_of(settings, "127.0.0.1", port, token)
    config.app = http_application(server, access, limits, page=web_app(server, access, command_line))
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, args=([listener],))
    thread.start()
    try:
        yield Site(port, token.read(), home)
    finally:
        running.should_exit = True
        thread.join(100)
        listener.close()
        assert not thread.is_alive()
