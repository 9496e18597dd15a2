"""A server's process and its lines, within bounds: what it says cannot fill the memory, and it ends when its host does.

The transport that the SDK brings reads a line of any length, and leaves a server alone that is not ended by its client. Here
messages go to the process and come from it without a task in between: each hand-over would cost a turn of the event loop.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Self

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

LINE_BYTES = 16_000_000
"""The longest message that is read: a server that says more is killed."""

_TAIL_BYTES = 2000
_LEAVE_S = 1.0
# $0 is the end of a pipe whose other end this process holds, and nobody else: when it is closed, however that comes about,
# the read ends, and with it the server's own folder ($1, if any) and the process group.
_GUARDED = (
    'own=$1; shift; { read _; [ -z "$own" ] || rm -rf -- "$own"; kill -KILL 0; } <"$0" >/dev/null 2>&1 & exec "$@"'
)


@dataclass
class Wire:
    """A server's process, and what is known of it."""

    command: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    own_folder: str | None = None
    """A folder that goes when the server does."""
    line_bytes: int = LINE_BYTES
    pid: int | None = None
    garbage: int = 0
    """Lines on stdout that are no messages; they are skipped."""
    ended: bool = False
    """It says nothing any more."""
    fault: str | None = None
    """Why it was killed."""
    told: bytes = b""
    """The end of what it wrote to stderr."""

    def kill(self) -> None:
        """End the process and all that it started."""
        self.ended = True
        if self.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


@asynccontextmanager
async def stdio(wire: Wire) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    """Start the server and exchange messages with it; its process group is ended at the end.

    Raises:
        OSError: the process cannot be started.
    """
    guard, lifeline = os.pipe()
    try:
        process = await anyio.open_process(
            ["/bin/sh", "-c", _GUARDED, f"/dev/fd/{guard}", wire.own_folder or "", *wire.command],
            env=wire.env,
            cwd=wire.cwd,
            start_new_session=True,
            pass_fds=(guard,),
        )
    except BaseException:
        os.close(lifeline)
        raise
    finally:
        os.close(guard)
    wire.pid = process.pid
    assert process.stdout is not None
    assert process.stdin is not None
    async with anyio.create_task_group() as group:
        group.start_soon(_keep_tail, process, wire)
        try:
            yield Incoming(wire, _lines(process.stdout, wire)), Outgoing(process.stdin)
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process, wire, lifeline)
            group.cancel_scope.cancel()


class _Stream:
    """What both directions have in common: the process outlives them."""

    async def aclose(self) -> None:
        """Nothing: `stdio` ends the process."""

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """As `aclose`."""


@dataclass
class Incoming(_Stream):
    """The server's messages, read as they are asked for."""

    wire: Wire
    lines: AsyncGenerator[bytes]

    async def receive(self) -> SessionMessage:
        """The next message.

        Raises:
            EndOfStream: the server says nothing any more.
        """
        try:
            async for line in self.lines:
                try:
                    return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                except ValueError:
                    self.wire.garbage += 1
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        self.wire.ended = True
        raise anyio.EndOfStream

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> SessionMessage:
        """The next message."""
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


@dataclass
class Outgoing(_Stream):
    """Messages to the server."""

    stdin: ByteSendStream

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message, whole even where the caller does not wait for the end of it.

        Raises:
            BrokenResourceError: the server does not listen any more.
        """
        try:
            await self.stdin.send(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        except OSError as error:
            raise anyio.BrokenResourceError from error


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
            wire.fault = f"it wrote a message of more than {wire.line_bytes:,} bytes"
            wire.kill()
            return


async def _keep_tail(process: Process, wire: Wire) -> None:
    assert process.stderr is not None
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for piece in process.stderr:
            wire.told = (wire.told + piece)[-_TAIL_BYTES:]


async def _end(process: Process, wire: Wire, lifeline: int) -> None:
    """Close its stdin, as the protocol wants it, wait a moment, then end all that is left."""
    assert process.stdin is not None
    wire.ended = True
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await process.stdin.aclose()
    with anyio.move_on_after(_LEAVE_S):
        await process.wait()
    wire.kill()
    os.close(lifeline)
    with anyio.move_on_after(_LEAVE_S):
        await process.aclose()
