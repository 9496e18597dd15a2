"""A model server on this machine, which answers as it is told and notes what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from quintain.records.labels.judging import Endpoint
from quintain.settings import Settings


class Asked(NamedTuple):
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def user(self) -> str:
        """Its last message."""
        content = self.body["messages"][-1]["content"]
        return content if isinstance(content, str) else "".join(part["text"] for part in content)


@dataclass
class Answer:
    """What to send back."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    hang: threading.Event | None = None
    """Send nothing until this is set."""


def says(text: str, *, tokens: tuple[int, int] | None = (100, 10), finish: str = "stop") -> Answer:
    """An answer in OpenAI's form."""
    document: dict[str, Any] = {"choices": [{"message": {"content": text}, "finish_reason": finish}]}
    if tokens is not None:
        document["usage"] = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return Answer(body=json.dumps(document).encode())


def claude_says(text: str, *, tokens: tuple[int, int] = (100, 10)) -> Answer:
    """An answer in Anthropic's form."""
    usage = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
    content = [{"type": "text", "text": text}]
    return Answer(body=json.dumps({"content": content, "stop_reason": "end_turn", "usage": usage}).encode())


def fails(status: int, message: str = "no", **headers: str) -> Answer:
    """An error in the form that both protocols have."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, json.dumps({"error": {"message": message}}).encode(), named)


@dataclass
class FakeEndpoint:
    """The server while it runs."""

    url: str
    asked: list[Asked]
    most_at_once: Callable[[], int]

    def profile(self, **fields: Any) -> Endpoint:
        """A profile that leads here."""
        given = {"name": "fake", "protocol": "openai", "base_url": f"{self.url}/v1", "model": "fake-1", **fields}
        return Endpoint.model_validate(given)


NOWHERE = "http://127.0.0.1:9"
"""Nothing listens here."""


def profile(name: str, url: str = NOWHERE, **fields: Any) -> str:
    """The profile of an endpoint in the operator's file."""
    values = {"protocol": "openai", "base_url": f"{url}/v1", "model": f"{name}-1", **fields}
    return "\n".join([f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()), ""])


def write_profiles(settings: Settings, *profiles: str) -> None:
    """Replace the operator's file of endpoints."""
    settings.endpoints_file.write_text("".join(profiles), encoding="utf-8")


@contextmanager
def serving(answer: Callable[[Asked, int], Answer]) -> Iterator[FakeEndpoint]:
    """Serve; `answer` gets each request and how many came before it."""
    asked: list[Asked] = []
    lock = threading.Lock()
    under_way, most = 0, 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            nonlocal under_way, most
            content = self.rfile.read(int(self.headers["Content-Length"]))
            request = Asked(self.path, dict(self.headers.items()), json.loads(content))
            with lock:
                before = len(asked)
                asked.append(request)
                under_way += 1
                most = max(most, under_way)
            try:
                self._send(answer(request, before))
            finally:
                with lock:
                    under_way -= 1

        def _send(self, reply: Answer) -> None:
            if reply.hang is not None:
                reply.hang.wait(100)
            try:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)
            except OSError:  # the client has gone
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield FakeEndpoint(f"http://127.0.0.1:{server.server_address[1]}", asked, lambda: most)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
