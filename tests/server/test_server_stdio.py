"""A real server process on real pipes, spoken to in raw lines."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quintain.server.transport.json_rpc_lines import MAX_LINE_BYTES, LineCutter, LongLine, Refusal, read_line

SCRIPT = Path(__file__).with_name("small_server.py")
COMMAND = [sys.executable, "-W", "error", str(SCRIPT)]
HELLO = {
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}},
}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "0"},
}


class Pipe:
    """A server process, its answers in order, and what else it said."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=SCRIPT.parents[1]
        )
        self.answers: queue.Queue[bytes] = queue.Queue()
        self.stderr = b""
        threading.Thread(target=self._collect, daemon=True).start()
        self._errors = threading.Thread(target=self._complain, daemon=True)
        self._errors.start()

    def _collect(self) -> None:
        for line in self.process.stdout:
            self.answers.put(line)

    def _complain(self) -> None:
        self.stderr = self.process.stderr.read()

    def write(self, line: bytes) -> None:
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        return json.loads(self.answers.get(timeout=100))

    def ask(self, request_id: int, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
        self.write(json.dumps(request, ensure_ascii=False).encode())
        answer = self.answer()
        assert answer["id"] == request_id
        return answer

    def greet(self) -> None:
        assert "result" in self.ask(0, HELLO["method"], HELLO["params"])
        self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def close(self) -> int:
        self.process.stdin.close()
        code = self.process.wait(100)
        self._errors.join(100)
        return code


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.process.kill()
    pipe.process.wait(100)
    pipe.process.stdin.close()
    pipe.process.stdout.close()
    pipe.process.stderr.close()


def call_line(arguments: bytes) -> bytes:
    params = b'"params":{"name":"get_note","arguments":{"title":' + arguments + b"}}"
    return b'{"jsonrpc":"2.0","id":7,"method":"tools/call",' + params + b"}"


HALF_AN_ID = b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}'
HOSTILE = {
    "undecodable bytes": (call_line(b'"\xff"'), 7, -32700, "[not_utf8] byte 0xff at offset "),
    "half a surrogate pair": (call_line(b'"\\ud83d"'), 7, -32700, "[lone_surrogate]"),
    "half a surrogate pair, then text": (call_line(b'"\\ud83d \\u0041"'), 7, -32700, "[lone_surrogate]"),
    "too deep": (call_line(b"[" * 5000 + b"]" * 5000), 7, -32700, "[too_deep] the message is nested deeper than 200 levels"),
    "too many digits": (call_line(b"1" * 4301), 7, -32700, "[number_too_long]"),
    "cut off": (call_line(b'"a')[:-3], 7, -32700, "[invalid_json]"),
    "no JSON": (b"hello", None, -32700, "[invalid_json]"),
    "no message": (b'{"id": 7}', None, -32600, "[invalid_request]"),
    "a batch": (b'[{"jsonrpc":"2.0","id":7,"method":"ping"}]', None, -32600, "[invalid_request]"),
    "an id of a wrong type": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, -32600, "[invalid_request] the id"),
    "an id that is half a pair": (HALF_AN_ID, None, -32700, "[lone_surrogate]"),
    "such an id after the call": (
        b'{"method":"tools/call","params":{"name":"\xff"},"id":"a\\udfff"}', None, -32700, "[not_utf8]"),
    "the id at the end": (
        b'{"method":"tools/call","params":{"a":"\\ud800","id":3,"b":"\\"id\\":4}"},"jsonrpc":"2.0","id":"seven"}',
        "seven", -32700, "[lone_surrogate]"),
    "an answer, not a request": (b'{"jsonrpc":"2.0","id":7,"result":{"text":"\\ud800"}}', None, -32700, "[lone_surrogate]"),
    "an id inside": (b'{"jsonrpc":"2.0","method":"x","params":{"id":7,"a":"\\ud800"}}', None, -32700, "[lone_surrogate]"),
}  # fmt: skip


def test_hostile_lines_long_lines_and_odd_answers_do_not_end_the_connection(pipe: Pipe) -> None:
    """One process; what it writes is the protocol alone, and what tools print goes to standard error."""
    found = pipe.ask(1, "server/discover", {"_meta": MODERN})["result"]
    assert found["supportedVersions"] == ["2026-07-28"]
    assert found["capabilities"]["resources"]["subscribe"] is True
    assert found["resultType"] == "complete"
    newer = {**MODERN, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    assert pipe.ask(2, "server/discover", {"_meta": newer})["error"]["code"] == -32022
    pipe.write(HALF_AN_ID)
    assert pipe.answer()["id"] is None
    pipe.greet()
    assert len(pipe.ask(3, "tools/list")["result"]["tools"]) == 6
    pipe.write(b'{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"count","arguments":{}}}')
    pipe.write(HALF_AN_ID)
    answers = {answer["id"]: answer for answer in (pipe.answer(), pipe.answer())}
    assert answers[None]["error"]["message"].startswith("[lone_surrogate]")
    assert answers[4]["result"]["structuredContent"]["step"] == 3

    for name, (line, request_id, code, text) in HOSTILE.items():
        pipe.write(line)
        answer = pipe.answer()
        assert answer["id"] == request_id, name
        assert answer["error"]["code"] == code, name
        assert answer["error"]["message"].startswith(text), (name, answer)
    not_finite = pipe.ask(8, "tools/call", {"name": "count", "arguments": {"wait_s": float("nan")}})["result"]
    assert not_finite["content"][0]["text"].startswith("[not_finite] arguments.wait_s is nan")

    text = "ä" * 5_000_000
    result = pipe.ask(10, "tools/call", {"name": "add_note", "arguments": {"title": "long", "text": text}})["result"]
    assert result["structuredContent"]["text"] == text
    pipe.write(call_line(b'"' + b"a" * MAX_LINE_BYTES + b'"'))
    answer = pipe.answer()
    assert (answer["id"], answer["error"]["code"]) == (7, -32600)
    assert answer["error"]["message"].startswith("[line_too_long] the message has 16,777,")
    assert "bound is 16,777,216" in answer["error"]["message"]

    result = pipe.ask(11, "tools/call", {"name": "odd_note", "arguments": {"kind": "surrogate"}})["result"]
    assert result["structuredContent"]["text"] == "cut emoji \ufffd"
    assert "result" in pipe.ask(12, "tools/call", {"name": "odd_note", "arguments": {"kind": "noise"}})
    assert pipe.ask(13, "tools/call", {"name": "odd_note", "arguments": {"kind": "crash"}})["result"]["isError"] is True
    assert pipe.close() == 0
    assert pipe.answers.empty()
    assert b"noise by print" in pipe.stderr
    assert b"noise by a child" in pipe.stderr
    assert b"RuntimeError: the secret is in /etc/shadow" in pipe.stderr


def test_the_server_ends_when_standard_input_closes_even_before_a_word_was_said(pipe: Pipe) -> None:
    assert pipe.close() == 0
    assert pipe.stderr == b""


def test_the_server_ends_when_nobody_reads_its_answers_any_more() -> None:
    reader, writer = os.pipe()
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=writer, cwd=SCRIPT.parents[1]) as process:
        os.close(writer)
        os.close(reader)
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, **HELLO}).encode() + b"\n")
        process.stdin.flush()
        # Standard input is still open.
        assert process.wait(100) == 0


def test_lines_are_cut_whatever_the_chunks() -> None:
    text = b"one\r\n\n  \ntwo\nthree"
    for size in range(1, len(text) + 1):
        cutter = LineCutter(limit=100)
        chunks = [text[i : i + size] for i in range(0, len(text), size)]
        lines = [line for chunk in chunks for line in cutter.feed(chunk)] + list(cutter.finish())
        assert lines == [b"one\r", b"two", b"three"]


def test_a_line_over_the_bound_is_skipped_without_being_held() -> None:
    cutter = LineCutter(limit=10)
    assert list(cutter.feed(b"0123456789")) == []
    for _ in range(1000):
        assert list(cutter.feed(b"x" * 1000)) == []
    assert len(cutter._line) < 200_000
    long, short = cutter.feed(b"end\nshort\n")
    assert isinstance(long, LongLine)
    assert long.size == 10 + 1_000_000 + 3
    assert long.head.startswith(b"0123456789xxx")
    assert long.tail.endswith(b"xxxend")
    assert short == b"short"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("filling", [b"[", b'\\"', b'"', b'{"id":'])
def test_a_hostile_line_is_refused_in_bounded_time_however_long(filling: bytes) -> None:
    refusal = read_line(b'{"method":"x","a":"' + filling * 1_000_000)
    assert isinstance(refusal, Refusal)
    assert refusal.answer.id is None
