"""The stdio transport: one JSON-RPC message a line, every line answered, nothing else on standard output.

It replaces the SDK's own `stdio_server` because that one neither bounds nor answers a line that it cannot read, and
ends when an answer cannot be encoded. It also answers `server/discover` that comes before `initialize` on the same pipe,
as some clients send it; the SDK would take the first for the protocol era of the whole connection and refuse the second.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.message import SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    DiscoverResult,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp_types import PROTOCOL_VERSION_META_KEY, SERVER_INFO_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import PydanticSerializationError

from quintain.server.app import QuintainServer
from quintain.server.transport.json_rpc_lines import LineCutter, Refusal, encodable_id, read_line

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 64 * 2**10


def serve_stdio(server: QuintainServer) -> None:
    """Serve one client on standard input and output until the input closes; jobs go on after that."""
    with _claimed(0, os.open(os.devnull, os.O_RDONLY)) as source, _claimed(1, os.dup(2)) as sink:
        anyio.run(_serve, server, source, sink)


@contextmanager
def _claimed(descriptor: int, stand_in: int) -> Iterator[int]:
    """Take a standard stream for the protocol: prints and child processes get the stand-in instead of it."""
    private = os.dup(descriptor)
    os.dup2(stand_in, descriptor)
    os.close(stand_in)
    try:
        yield private
    finally:
        # The duplicate stays open: a thread may still wait on it, and its number must not be given to another file.
        os.dup2(private, descriptor)


async def _serve(server: QuintainServer, source: int, sink: int) -> None:
    chunks_in, chunks = anyio.create_memory_object_stream[bytes](0)
    inbound_in, inbound = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbound_in, outbound = anyio.create_memory_object_stream[SessionMessage](0)
    # A daemon thread, because nothing can wake a read that waits for a terminal when the server stops.
    token = anyio.lowlevel.current_token()
    threading.Thread(target=_read, args=(source, chunks_in, token), name="stdin", daemon=True).start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_deliver, server, chunks, inbound_in, outbound_in.clone())
        tasks.start_soon(_write, outbound, sink, tasks.cancel_scope)
        await server.run(inbound, outbound_in, server.create_initialization_options())


def _read(source: int, chunks: MemoryObjectSendStream[bytes], token: anyio.lowlevel.EventLoopToken) -> None:
    """Hand over what arrives until the input ends or the server has stopped."""
    try:
        while chunk := os.read(source, _CHUNK_BYTES):
            anyio.from_thread.run(chunks.send, chunk, token=token)
        anyio.from_thread.run_sync(chunks.close, token=token)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.RunFinishedError):
        return


async def _deliver(
    server: QuintainServer,
    chunks: MemoryObjectReceiveStream[bytes],
    inbound: MemoryObjectSendStream[SessionMessage | Exception],
    outbound: MemoryObjectSendStream[SessionMessage],
) -> None:
    """Read the lines, answer what the SDK would not, and pass the rest on."""
    era_is_open = True
    async with chunks, inbound, outbound:
        async for message in _messages(chunks):
            answer: JSONRPCMessage | None = None
            if isinstance(message, Refusal):
                answer = message.answer
            elif era_is_open and isinstance(message, JSONRPCRequest):
                answer = _discovery(server, message)
                era_is_open = answer is not None
            if answer is not None:
                await outbound.send(SessionMessage(answer))
            elif not isinstance(message, Refusal):
                await inbound.send(SessionMessage(message))


async def _messages(chunks: MemoryObjectReceiveStream[bytes]) -> AsyncIterator[JSONRPCMessage | Refusal]:
    cutter = LineCutter()
    async for chunk in chunks:
        # A line is not in memory any more while its message is answered.
        for message in map(read_line, cutter.feed(chunk)):
            yield message
    for message in map(read_line, cutter.finish()):
        yield message


def _discovery(server: QuintainServer, request: JSONRPCRequest) -> JSONRPCMessage | None:
    """The answer to a `server/discover` that opens a connection; None for any other request, which decides the era."""
    params = request.params or {}
    if request.method != "server/discover" or PROTOCOL_VERSION_META_KEY not in (params.get("_meta") or {}):
        return None
    route = classify_inbound_request({"method": request.method, "params": params})
    if isinstance(route, InboundLadderRejection):
        error = ErrorData(code=route.code, message=route.message, data=route.data)
        return JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
    found = DiscoverResult(
        supported_versions=list(MODERN_PROTOCOL_VERSIONS),
        capabilities=server.get_capabilities(protocol_version=route.protocol_version),
        instructions=server.instructions,
    )
    result = found.model_dump(by_alias=True, mode="json", exclude_none=True)
    result |= {"resultType": "complete", "_meta": {SERVER_INFO_META_KEY: server.server_info_stamp}}
    return JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result)


async def _write(outbound: MemoryObjectReceiveStream[SessionMessage], sink: int, everything: anyio.CancelScope) -> None:
    """Write the answers; when the client no longer reads them, end the server."""
    async with outbound:
        async for item in outbound:
            try:
                await anyio.to_thread.run_sync(_write_all, sink, _encode(item.message))
            except OSError:
                everything.cancel()
                return


def _encode(message: JSONRPCMessage) -> bytes:
    try:
        text = message.model_dump_json(by_alias=True, exclude_unset=True)
    except PydanticSerializationError:
        logger.exception("an answer cannot be written as JSON")
        error = ErrorData(
            code=INTERNAL_ERROR, message="[internal] the answer cannot be written as JSON; the server's log has more"
        )
        answered = encodable_id(getattr(message, "id", None))
        text = JSONRPCError(jsonrpc="2.0", id=answered, error=error).model_dump_json(exclude_unset=True)
    return text.encode("utf-8") + b"\n"


def _write_all(sink: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(sink, rest) :]
