"""A server's process and its messages: bounded in memory, and ended together with its host.

The transport of the SDK reads lines of any length, and a server outlives a client that does not end it. Here messages pass between client
and process without a task in between, because each hand-over would cost a turn of the event loop.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, ObjectReceiveStream, ObjectSendStream, Process
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

LINE_BYTES = 16_000_000
"""Maximum bytes of one message; a server that writes more is killed."""

MOST_ASKED = 50
"""Maximum number of a server's requests to its client that wait for an answer; a server that sends more is killed."""

_TAIL_BYTES = 2000
_EXIT_GRACE_S = 1.0
# $0 is the read end of a pipe whose only write end belongs to this process. When that closes for any reason, the read returns, and
# the shell removes the server's folder ($1, if any) and kills the process group.
_GUARDED = (
    'own=$1; shift; { read _; [ -z "$own" ] || rm -rf -- "$own"; kill -KILL 0; } <"$0" >/dev/null 2>&1 & exec "$@"'
)


@dataclass
class Wire:
    """A server's process and its state."""

    command: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    own_folder: str | None = None
    """Folder that is removed with the server."""
    line_bytes: int = LINE_BYTES
    pid: int | None = None
    garbage: int = 0
    """Number of lines on stdout that are not messages; they are skipped."""
    asked: int = 0
    """Number of its requests that wait for an answer."""
    ended: bool = False
    fault: str | None = None
    stderr_tail: bytes = b""
    """Last bytes of its stderr."""

    def kill(self) -> None:
        """Kill the process and all processes that it started."""
        self.ended = True
        if self.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


@asynccontextmanager
async def stdio(wire: Wire) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    """Start the server and exchange messages with it; the end of the context kills its process group.

    Raises:
        OSError: the process does not start.
    """
    guard, parent_end = os.pipe()
    try:
        process = await anyio.open_process(
            ["/bin/sh", "-c", _GUARDED, f"/dev/fd/{guard}", wire.own_folder or "", *wire.command],
            env=wire.env,
            cwd=wire.cwd,
            start_new_session=True,
            pass_fds=(guard,),
        )
    except BaseException:
        os.close(parent_end)
        raise
    finally:
        os.close(guard)
    wire.pid = process.pid
    assert process.stdout is not None
    assert process.stdin is not None
    async with anyio.create_task_group() as group:
        group.start_soon(_keep_tail, process, wire)
        try:
            yield Incoming(wire, _lines(process.stdout, wire)), Outgoing(wire, process.stdin)
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process, wire, parent_end)
            group.cancel_scope.cancel()


@dataclass
class Incoming(ObjectReceiveStream[SessionMessage]):
    """Messages of the server, read on demand."""

    wire: Wire
    lines: AsyncGenerator[bytes]

    async def receive(self) -> SessionMessage:
        """Return the next message.

        Raises:
            EndOfStream: the server's output has ended.
        """
        try:
            async for line in self.lines:
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    self.wire.garbage += 1
                    continue
                self.wire.asked += isinstance(message, JSONRPCRequest)
                if self.wire.asked > MOST_ASKED:
                    self.wire.fault = f"expected at most {MOST_ASKED} requests to its client at once, got more"
                    self.wire.kill()
                    break
                return SessionMessage(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        self.wire.ended = True
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        """Do nothing: `stdio` ends the process."""


@dataclass
class Outgoing(ObjectSendStream[SessionMessage]):
    """Messages to the server."""

    wire: Wire
    stdin: ByteSendStream

    async def send(self, item: SessionMessage) -> None:
        """Write a message, completely even if the caller is cancelled.

        Raises:
            BrokenResourceError: the server has closed its input.
        """
        try:
            await self.stdin.send(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        except OSError as error:
            raise anyio.BrokenResourceError from error
        self.wire.asked -= isinstance(item.message, JSONRPCResponse | JSONRPCError)

    async def aclose(self) -> None:
        """Do nothing: `stdio` ends the process."""


async def _lines(stdout: ByteReceiveStream, wire: Wire) -> AsyncGenerator[bytes]:
    pieces: list[bytes] = []
    size = 0
    async for piece in stdout:
        *whole, rest = piece.split(b"\n")
        if whole:
            yield b"".join([*pieces, whole[0]])
            for line in whole[1:]:
                yield line
            pieces, size = [], 0
        pieces.append(rest)
        size += len(rest)
        if size > wire.line_bytes:
            wire.fault = f"expected messages of at most {wire.line_bytes:,} bytes, got more"
            wire.kill()
            return


async def _keep_tail(process: Process, wire: Wire) -> None:
    assert process.stderr is not None
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for piece in process.stderr:
            wire.stderr_tail = (wire.stderr_tail + piece)[-_TAIL_BYTES:]


async def _end(process: Process, wire: Wire, parent_end: int) -> None:
    """Close the server's stdin, as the protocol requires, wait briefly, then kill what is left."""
    assert process.stdin is not None
    wire.ended = True
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await process.stdin.aclose()
    with anyio.move_on_after(_EXIT_GRACE_S):
        await process.wait()
    wire.kill()
    os.close(parent_end)
    with anyio.move_on_after(_EXIT_GRACE_S):
        await process.aclose()
