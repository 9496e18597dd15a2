"""Lines of JSON-RPC as they arrive on a pipe: cut, bounded, read, and refused in words where they cannot be read.

The SDK leaves a line that it cannot read unanswered, so that the client waits for its own timeout. Here every such line
gets an error that names what was wrong with it, under the id of its request where that can be made out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

MAX_LINE_BYTES = 16 * 2**20
"""Bytes that one message may have; a longer one is skipped while it streams in."""

_KEPT_BYTES = 64 * 2**10
"""Bytes at each end of a line in which the id of its request is looked for."""

# A string without its end still matches: tried again from each of its escaped quotes, it would cost quadratic time.
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"?|[{}\[\]]|[^\s"{}\[\]:,]+')
_ID_AT_END = re.compile(rb'"id"\s*:\s*(-?\d{1,18}|"[^"\\]{0,200}")\s*\}\s*$')
_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class LongLine:
    """Remains of a line over the bound: its ends and its size in bytes."""

    head: bytes
    tail: bytes
    size: int


class LineCutter:
    """Cuts chunks of bytes into lines; at most `limit` bytes of an unfinished one are in memory, once."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._line = bytearray()
        """The unfinished line, or its ends if it is over the limit."""
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytearray | LongLine]:
        """Yield the lines that this chunk completes, without their line ends; blank ones are left out."""
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            self._grow(part)
            yield from self.finish()
        self._grow(rest)

    def finish(self) -> Iterator[bytearray | LongLine]:
        """Yield the line that has come in so far, complete or not; at most one."""
        if self._size > self._limit or (self._line and not self._line.isspace()):
            yield self._take()
        self._line, self._size = bytearray(), 0

    def _take(self) -> bytearray | LongLine:
        line, size = self._line, self._size
        self._line, self._size = bytearray(), 0
        if size > self._limit:
            return LongLine(bytes(line[:_KEPT_BYTES]), bytes(line[-_KEPT_BYTES:]), size)
        return line

    def _grow(self, part: bytes) -> None:
        self._size += len(part)
        self._line += part
        if self._size > self._limit:
            del self._line[_KEPT_BYTES:-_KEPT_BYTES]


@dataclass(frozen=True)
class Refusal:
    """A line that is not passed on, and the error to answer it with."""

    answer: JSONRPCError


def read_line(line: bytes | bytearray | LongLine) -> JSONRPCMessage | Refusal:
    """The message of a line, or why it is refused."""
    if isinstance(line, LongLine):
        return _refusal(
            line.head,
            line.tail,
            INVALID_REQUEST,
            f"[line_too_long] the message has {line.size:,} bytes, the bound is {MAX_LINE_BYTES:,}; send less in one call: "
            "record a long run in parts (record_trajectory with live='open', then 'append'), or cut long texts",
        )
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        return _explain(line, error)
    if isinstance(message, JSONRPCNotification) and b'"id"' in line and "id" in json.loads(line):
        # The SDK takes a request whose id is of a wrong type for a notification and would never answer it.
        return _refuse(
            None,
            INVALID_REQUEST,
            "[invalid_request] the id of a request must be a string or a whole number; correct it",
        )
    return message


def _explain(line: bytes | bytearray, error: ValidationError) -> Refusal:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as wrong:
        text = (
            f"[not_utf8] byte 0x{line[wrong.start]:02x} at offset {wrong.start} is not UTF-8; encode messages as UTF-8"
        )
        return _refusal(line, line, PARSE_ERROR, text)
    fault = error.errors(include_url=False, include_input=False)[0]
    if fault["type"] != "json_invalid":
        text = "[invalid_request] this is JSON but no JSON-RPC 2.0 message; valid: one object with jsonrpc, method and, for a request, id"
        return _refusal(line, line, INVALID_REQUEST, text)
    reason = str(fault["ctx"]["error"])
    if "recursion limit" in reason:
        text = "[too_deep] the message is nested deeper than 200 levels; flatten it, or pass the inner part as a JSON string"
    elif "number out of range" in reason:
        text = "[number_too_long] a number has more than 4,300 digits; send it as a string"
    elif "surrogate" in reason or ("hex escape" in reason and _LONE_SURROGATE.search(line)):
        text = "[lone_surrogate] a \\u escape is half of a surrogate pair and no Unicode text; replace it by \\ufffd"
    else:
        text = f"[invalid_json] {reason}; send one JSON object a line"
    return _refusal(line, line, PARSE_ERROR, text)


def _refusal(head: bytes | bytearray, tail: bytes | bytearray, code: int, text: str) -> Refusal:
    return _refuse(_request_id(head[:_KEPT_BYTES], tail[-_KEPT_BYTES:]), code, text)


def _refuse(request_id: RequestId | None, code: int, text: str) -> Refusal:
    return Refusal(JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=text)))


def _request_id(head: bytes | bytearray, tail: bytes | bytearray) -> RequestId | None:
    """The id of the request that a broken line was meant to be; None where it is not to be found, or no request.

    An answer of the client has an id too, but no method: to answer it under that id could end a call of ours.
    """
    depth, key, keys = 0, b"", {b"method": b"", b"id": b""}
    for token in _TOKEN.finditer(head):
        text = token.group()
        if text in b"{[":
            depth += 1
        elif text in b"}]":
            depth -= 1
        elif depth == 1 and key in keys:
            keys[key], key = text, b""
        elif depth == 1:
            key = token.group(1) or b""
            continue
        key = b""
    found = keys[b"id"]
    if not found and (at_end := _ID_AT_END.search(tail)):
        found = at_end.group(1)
    if not keys[b"method"] or not found:
        return None
    try:
        return encodable_id(json.loads(found))
    except ValueError:
        return None


def encodable_id(value: object) -> RequestId | None:
    """Return the id of a request as an answer can carry it; None for another type, or text that is not Unicode."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return None
        return value
    return value if isinstance(value, int) and not isinstance(value, bool) else None
