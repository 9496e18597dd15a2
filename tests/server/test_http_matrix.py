"""What the HTTP server answers to every kind of request: hosts, origins, tokens, methods, types, sizes, both eras."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from quintain.server.http.tokens import TokenFile
from server.talks import SCRIPT, listening

LIMIT_MIB = 0.25


class Address(NamedTuple):
    """A server of this test."""

    port: int
    token: str
    home: Path


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    token = TokenFile(tmp_path_factory.mktemp("home"))
    token.create()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUINTAIN_HTTP_BODY_MIB", str(LIMIT_MIB))
        with listening(str(SCRIPT), "0", str(token.path.parent)) as port:
            yield Address(port, token.read(), token.path.parent)


def message(method: str, params: dict[str, Any] | None = None) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}})


CLIENT = {"clientInfo": {"name": "test", "version": "1"}}
INITIALIZE = message("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, **CLIENT})
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": CLIENT["clientInfo"],
    "io.modelcontextprotocol/clientCapabilities": {},
}
CALL = message("tools/call", {"name": "count", "arguments": {"steps": 2}, "_meta": META})
ODD = message("tools/call", {"name": "odd_note", "arguments": {"kind": "crash"}, "_meta": META})
MODERN = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "count"}
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

LEGACY: dict[str, str | None] = {"MCP-Protocol-Version": "2025-11-25"}
NONE: dict[str, str | None] = {"Authorization": None}
LONG = b" " * int(LIMIT_MIB * 2**20 + 1)


class Case(NamedTuple):
    """A request that differs from a valid one of the modern era, and its answer."""

    name: str
    status: int
    text: str
    """Part of the answer."""
    headers: Mapping[str, str | None] = MappingProxyType({})
    """`{port}` and `{token}` are filled in; None: without it."""
    method: str = "POST"
    path: str = "/mcp"
    body: str | bytes = CALL


def host(name: str, status: int, value: str | None) -> Case:
    return Case(f"host {name}", status, '"step":2' if status == 200 else "foreign_host", {"Host": value})


def origin(name: str, status: int, value: str) -> Case:
    return Case(f"origin {name}", status, '"step":2' if status == 200 else "foreign_origin", {"Origin": value})


def token(name: str, value: str | None, status: int = 401) -> Case:
    return Case(f"token {name}", status, '"step":2' if status == 200 else "unauthorized", {"Authorization": value})


CASES = (
    host("by number", 200, "127.0.0.1:{port}"),
    host("by name", 200, "localhost:{port}"),
    host("in capitals", 200, "LOCALHOST:{port}"),
    host("of IPv6", 200, "[::1]:{port}"),
    host("without port", 421, "localhost"),
    host("with another port", 421, "localhost:1"),
    host("that a prefix match accepts", 421, "localhost:1.evil.example"),
    host("with the port and more", 421, "localhost:{port}.evil.example"),
    host("with credentials", 421, "localhost:{port}@evil.example"),
    host("below a foreign domain", 421, "127.0.0.1.evil.example:{port}"),
    host("foreign", 421, "evil.example"),
    host("of the machine as a number", 421, "2130706433:{port}"),
    host("empty", 421, ""),
    origin("of the page", 200, "http://localhost:{port}"),
    origin("with another port", 403, "http://localhost:1"),
    origin("without port", 403, "http://localhost"),
    origin("that a prefix match accepts", 403, "http://localhost:{port}.evil.example"),
    origin("foreign", 403, "https://evil.example"),
    origin("null", 403, "null"),
    origin("of a file", 403, "file://"),
    origin("of an extension", 403, "chrome-extension://abcdefghijklmnop"),
    origin("two in one header", 403, "http://localhost:{port} https://evil.example"),
    token("right", "Bearer {token}", 200),
    token("with a small scheme", "bearer {token}", 200),
    token("missing", None),
    token("empty", "Bearer "),
    token("wrong", "Bearer " + "A" * 43),
    token("cut", "Bearer {token}"[:-1]),
    token("longer", "Bearer {token}A"),
    token("of another scheme", "Basic {token}"),
    token("without a scheme", "{token}"),
    token("not ASCII", "Bearer \xe9"),
    token("that is a JWT without signature", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0."),
    token("very long", "Bearer " + "A" * 20_000),
    Case("token in the query", 401, "unauthorized", NONE, path="/mcp?access_token={token}"),
    Case("token in a cookie", 401, "unauthorized", NONE | {"Cookie": "token={token}"}),
    Case("GET of the modern era", 405, "", MODERN, "GET", body=b""),
    Case("PUT", 405, "", method="PUT"),
    Case("PATCH", 405, "", method="PATCH"),
    Case("TRACE", 405, "", method="TRACE"),
    Case("preflight of a foreign page", 403, "foreign_origin", NONE | {"Origin": "https://evil.example"}, "OPTIONS"),
    Case("OPTIONS without a token", 401, "unauthorized", NONE, "OPTIONS"),
    Case("text", 400, "", {"Content-Type": "text/plain"}),
    Case("form", 400, "", {"Content-Type": "application/x-www-form-urlencoded"}, body="a=1"),
    Case("no type", 400, "", {"Content-Type": None}),
    Case("accepts HTML alone", 406, "", {"Accept": "text/html"}),
    Case("largest body", 200, '"step":2', body=CALL.encode() + LONG[len(CALL) + 1 :]),
    Case("one byte too many", 413, "expected a body of at most 262144 bytes", body=CALL.encode() + LONG[len(CALL) :]),
    Case("too long by its header", 413, "too_large", {"Content-Length": "1000000000000"}),
    Case("length that is no number", 400, "", {"Content-Length": "many"}),
    Case("not JSON", 400, "-32700", body="{"),
    Case("not UTF-8", 400, "-32700", body=b"\xff\xfe"),
    Case("deep", 400, "-32", body="[" * 5000),
    Case("an integer of 5,000 digits", 400, "-32", body="9" * 5000),
    Case("empty body", 400, "-32700", body=b""),
    Case("a batch", 400, "-32600", body=f"[{CALL}]"),
    Case("a method that its header does not name", 400, "-32020", {"Mcp-Method": "tools/list"}),
    Case("a tool that its header does not name", 400, "-32020", {"Mcp-Name": "odd_note"}),
    Case("versions that differ", 400, "-32020", {"MCP-Protocol-Version": "2099-01-01"}),
    Case("unknown version", 400, "-32022", {"MCP-Protocol-Version": "2099-07-28"}, body=CALL.replace("2026", "2099")),
    Case("a tool that fails", 200, "[internal] odd_note failed", {"Mcp-Name": "odd_note"}, body=ODD),
    Case("handshake", 200, "protocolVersion", LEGACY | {"Mcp-Method": None}, body=INITIALIZE),
    Case("handshake without a token", 401, "unauthorized", LEGACY | NONE, body=INITIALIZE),
    Case("handshake of a foreign page", 403, "foreign_origin", LEGACY | {"Origin": "https://evil.example"}),
    Case("handshake era without session", 400, "", LEGACY | {"Mcp-Method": None}),
    Case("handshake era with an unknown session", 404, "", LEGACY | {"Mcp-Session-Id": "a" * 32}),
    Case("end of an unknown session", 404, "", LEGACY | {"Mcp-Session-Id": "../../etc"}, "DELETE"),
    Case("stream of an unknown session", 404, "", LEGACY | {"Mcp-Session-Id": "a" * 32}, "GET", body=b""),
    Case("a slash at the end", 200, '"step":2', path="/mcp/"),
    Case("a slash at the end without a token", 401, "unauthorized", NONE, path="/mcp/"),
    Case("another path", 404, "not_found", path="/etc/passwd"),
    Case("a path that climbs", 404, "not_found", path="/mcp/../../../etc/passwd"),
    Case("a path that climbs, encoded", 404, "not_found", path="/%2e%2e/%2e%2e/etc/passwd"),
    Case("another path without a token", 401, "unauthorized", NONE, path="/state.key"),
    Case("liveness of any host without a token", 200, "ok", NONE | {"Host": "10.0.0.7"}, "GET", "/healthz/live", b""),
    Case("POST to the health check", 401, "unauthorized", NONE, path="/healthz"),
)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_request_is_answered_as_specified(address: Address, case: Case) -> None:
    body = case.body.encode() if isinstance(case.body, str) else case.body
    headers: dict[str, str | None] = {**JSON, **MODERN, "Host": "127.0.0.1:{port}", "Authorization": "Bearer {token}"}
    headers |= {"Content-Length": str(len(body)), **case.headers}

    def filled(text: str) -> str:
        return text.replace("{port}", str(address.port)).replace("{token}", address.token)

    with closing(http.client.HTTPConnection("127.0.0.1", address.port, timeout=100)) as connection:
        connection.putrequest(case.method, filled(case.path), skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            if value is not None:
                connection.putheader(name, filled(value))
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read().decode()
    assert (answer.status, case.text in content) == (case.status, True), content
    assert answer.status != 401 or answer.headers["WWW-Authenticate"].startswith('Bearer realm="quintain"')
    assert not [name for name in answer.headers if name.lower().startswith("access-control-") or name == "server"]
    for secret in ("Traceback", "shadow", address.token, str(Path(__file__).parents[2]), str(address.home)):
        assert secret not in content


def test_a_client_that_resumes_its_stream_after_an_event_gets_a_new_stream(address: Address) -> None:
    headers = JSON | {"Authorization": f"Bearer {address.token}", "MCP-Protocol-Version": "2025-11-25"}
    with closing(http.client.HTTPConnection("127.0.0.1", address.port, timeout=100)) as connection:
        connection.request("POST", "/mcp", INITIALIZE, headers)
        opened = connection.getresponse()
        opened.read()
    resumed = headers | {"Mcp-Session-Id": opened.headers["Mcp-Session-Id"], "Last-Event-ID": "7"}
    with closing(http.client.HTTPConnection("127.0.0.1", address.port, timeout=100)) as connection:
        connection.request("GET", "/mcp", headers=resumed)
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Type"].partition(";")[0]) == (200, "text/event-stream")
