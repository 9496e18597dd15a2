"""Servers that take hostile inputs: `quintain serve` on a pipe and `quintain ui` over HTTP, in both protocol eras."""

from __future__ import annotations

import http.client
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from benchmarks.hostile.inputs import Address, Input, Line, Request, encode

Era = Literal["2025-11-25", "2026-07-28"]
ERAS: tuple[Era, ...] = ("2025-11-25", "2026-07-28")
MODERN: Era = "2026-07-28"

COMMAND = (sys.executable, "-m", "quintain.cli.main")
LATE_S = 30.0
"""How long an answer is waited for; one after 5 s is late, one after this never comes."""

_CLIENT = {"name": "hostile", "version": "0"}
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": _CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": _CLIENT}


@dataclass(frozen=True)
class Answer:
    """What a server answered to one input."""

    text: str
    """The whole answer; empty: none came."""
    seconds: float
    status: int | None = None
    """Of HTTP."""
    id: object = None
    """Id of the request, as it was sent; None for a line."""

    @property
    def message(self) -> Mapping[str, Any]:
        """Return the JSON of the answer, or of the last event; empty if it is none."""
        events = [line[6:] for line in self.text.splitlines() if line.startswith("data: {")]
        with suppress(ValueError):
            if isinstance(found := json.loads(events[-1] if events else self.text), dict):
                return found
        return {}


class Target(Protocol):
    """A server that inputs are sent to."""

    name: str

    def ask(self, given: Input) -> Answer:
        """Send one input and wait for its answer."""

    def is_alive(self) -> bool:
        """Return whether the process runs."""

    def restart(self) -> None:
        """Start it anew."""

    def close(self) -> None:
        """End it."""


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a server: offline, on this home, with limits that a quick client does not reach."""
    bounds = {"QUINTAIN_HTTP_CALLS_PER_S": "100000", "QUINTAIN_POLL_S": "1", "HF_HUB_OFFLINE": "1"}
    return {**os.environ, **bounds, "QUINTAIN_HOME": str(home)}


def message(request: Request, number: object, era: Era) -> bytes:
    """Return a request as one line; in the modern era with its `_meta`."""
    params = request.params
    if era == MODERN and isinstance(params, dict):
        params = {**params, "_meta": _META}
    parts = {"jsonrpc": "2.0", "id": number, "method": request.method, "params": params}
    return encode(parts).encode("utf-8", "surrogatepass")


def _fits_header(value: str) -> bool:
    return value.isascii() and value.isprintable() and bool(value)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class StdioTarget:
    """`quintain serve` on a pipe.

    Args:
        home: The home folder.
        era: The protocol era that the client speaks.
        log: File that the server's standard error is appended to.
        command: Stands in for `quintain`.
    """

    def __init__(self, home: Path, era: Era, log: Path, command: Sequence[str] = COMMAND) -> None:
        self.name, self._era = f"stdio {era}", era
        self._home, self._log, self._command = home, log, command
        self._number = 0
        self.restart()

    def restart(self) -> None:
        """Start the server and greet it."""
        self._answers: queue.Queue[bytes] = queue.Queue()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(self._home),
            )
        self._reader = threading.Thread(target=self._collect, args=(self._process, self._answers), daemon=True)
        self._reader.start()
        if self._era == MODERN:
            self.ask(Request("server/discover", {}))
            self.ask(Request("tools/list", {}))  # the first request after the discovery decides the era
        else:
            self.ask(Request("initialize", _HELLO))
            self._write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    @staticmethod
    def _collect(process: subprocess.Popen[bytes], answers: queue.Queue[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                answers.put(line)
        answers.put(b"")

    def ask(self, given: Input) -> Answer:
        """Send an input. A line is answered under its own id or none, so the next answer that is new is its own."""
        begun, number = time.perf_counter(), None
        self._number += 1
        if isinstance(given, Request):
            number = f"n{self._number}"
            self._write(message(given, number, self._era))
        elif isinstance(given, Line):
            self._write(given.content)
            if not given.is_answered:
                return self.ask(Request("tools/list", {}))
        text = self._answer(number)
        return Answer(text, time.perf_counter() - begun, None, number)

    def _answer(self, number: str | None) -> str:
        deadline = time.monotonic() + LATE_S
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._answers.get(timeout=left)
            except queue.Empty:
                break
            if not line:  # the server is ending or has ended
                self.close()
                return ""
            found = json.loads(line)
            if "id" in found and (number is None or found["id"] in (number, None)):
                return line.decode()
        return ""

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # ValueError: the server has ended, and the pipe is closed
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def is_alive(self) -> bool:
        """Return whether the process runs, as far as its last answer shows."""
        return self._process.poll() is None

    def close(self) -> None:
        """Close the pipe and wait for the end."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        _wait(self._process)
        self._reader.join()


class WebServer:
    """`quintain ui` on a free port, which serves the page and the protocol of both eras."""

    def __init__(self, home: Path, log: Path) -> None:
        self._home, self._log = home, log
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "ui", "--port", "0", "--json"],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(self._home),
            )
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        self.port = int(ready["url"].rstrip("/").rpartition(":")[2])
        self.token = ready["url_with_token"].partition("#token=")[2]

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        _wait(self.process)
        assert self.process.stdout is not None
        self.process.stdout.close()


class HttpTarget:
    """One kind of client of a web server, on one connection as long as the server keeps it.

    Args:
        server: The server.
        era: The protocol era of `/mcp`; None for the web page.
    """

    def __init__(self, server: WebServer, era: Era | None) -> None:
        self.name = f"http {era}" if era else "page"
        self._server, self._era = server, era
        self._number, self._session = 0, ""
        self._socket: socket.socket | None = None
        self._greet()

    def ask(self, given: Input) -> Answer:
        """Send an input; to the web page, a request of the protocol is none."""
        self._number += 1
        begun = time.perf_counter()
        if isinstance(given, Address):
            status, text = self._send(given.method, given.path, dict(given.headers), given.body)
            return Answer(text, time.perf_counter() - begun, status)
        number = f"n{self._number}" if isinstance(given, Request) else None
        body = message(given, number, self._era or MODERN) if isinstance(given, Request) else given.content
        status, text = self._send("POST", "/mcp", self._protocol_headers(given), body)
        if status == 404 and self._era == "2025-11-25":  # the session has ended: later inputs need another
            self._greet()
        return Answer(text, time.perf_counter() - begun, status, number)

    def _protocol_headers(self, given: Input) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        headers["MCP-Protocol-Version"] = str(self._era)
        if self._era != MODERN:
            return headers | ({"Mcp-Session-Id": self._session} if self._session else {})
        method, params = (given.method, given.params) if isinstance(given, Request) else ("ping", {})
        named = params.get("name", params.get("uri")) if isinstance(params, dict) else None
        pairs = {"Mcp-Method": str(method), "Mcp-Name": named if isinstance(named, str) else ""}
        return headers | {name: value for name, value in pairs.items() if _fits_header(value)}

    def _greet(self) -> None:
        self._session = ""
        if self._era == "2025-11-25":
            self._send(
                "POST", "/mcp", self._protocol_headers(Line(b"")), message(Request("initialize", _HELLO), 0, self._era)
            )
            done = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
            self._send("POST", "/mcp", self._protocol_headers(Line(b"")), done)

    def _send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int | None, str]:
        """Send a request on the open connection, or on a new one where the server has closed it."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self._server.port}", f"Content-Length: {len(body)}"]
        lines += [
            f"{name}: {value}" for name, value in {"Authorization": f"Bearer {self._server.token}", **headers}.items()
        ]
        request = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
        for is_last in (self._socket is None, True):
            try:
                return self._exchange(method, request)
            except TimeoutError:
                self._drop()
                return None, ""
            except (OSError, http.client.HTTPException):
                self._drop()
                if is_last:
                    return None, ""
        return None, ""

    def _exchange(self, method: str, request: bytes) -> tuple[int, str]:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._server.port), LATE_S)
        with suppress(BrokenPipeError, ConnectionResetError):  # a refusal that came before the whole body was sent
            self._socket.sendall(request)
        answer = http.client.HTTPResponse(self._socket, method=method)
        answer.begin()
        self._session = answer.getheader("Mcp-Session-Id") or self._session
        is_endless = method == "GET" and "event-stream" in (answer.getheader("Content-Type") or "")
        content = b"" if is_endless else answer.read()
        if is_endless or answer.will_close:
            self._drop()
        return answer.status, content.decode("utf-8", "replace")

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self._server.process.poll() is None

    def restart(self) -> None:
        """Start the server anew."""
        self._drop()
        self._server.start()
        self._greet()

    def close(self) -> None:
        """Close the connection."""
        self._drop()
