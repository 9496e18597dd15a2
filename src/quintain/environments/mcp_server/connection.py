"""A connection to one server: the official client on a background event loop, with calls from any thread.

A tool's answer is a `ToolResult`, and so is an error of the protocol: the server is alive and the agent can continue. A server that dies,
hangs, violates its own schema or writes without end raises `Unavailable` and costs its episode.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import shutil
import tempfile
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextlib import suppress
from functools import cache
from typing import Any

import anyio
from mcp import Client, MCPError
from mcp.client.stdio import get_default_environment
from mcp.types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    Implementation,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolListChangedNotification,
)

from quintain.checkers.json_schemas import schema_fault
from quintain.environments.mcp_server.transport import Wire, stdio
from quintain.environments.servers import Call, ServerProfile, ToolResult
from quintain.environments.tool_calls import tool_definition
from quintain.errors import Unavailable

_PAGES, _TOOLS = 100, 2000
_ALIVE_S = 5.0
_HOST = Implementation(name="quintain", version="1")


class Connection:
    """A running server for use by one thread at a time; `close` ends it.

    Raises:
        Unavailable: the server does not start, breaks the protocol, or a setup call fails.
    """

    def __init__(self, profile: ServerProfile, variables: dict[str, str]) -> None:
        self._profile = profile
        self._folder = None if profile.cwd else tempfile.mkdtemp(prefix="quintain-mcp-")
        env = get_default_environment() | {"PWD": profile.cwd or str(self._folder)} | variables | profile.env
        self._wire = Wire((profile.command, *profile.args), env, profile.cwd or str(self._folder), self._folder)
        self._client: Client | None = None
        self._ready: Future[None] = Future()
        self.tools: tuple[dict[str, Any], ...] = ()
        """All tools of the server in the OpenAI function style, with its names and schemas."""
        self._schemas: dict[str, dict[str, Any]] = {}
        self.read_only: dict[str, bool | None] = {}
        """Tool -> the server's read-only hint."""
        self.changes = 0
        """Notifications of a changed tool list; the first list stays in use."""
        _open_connections.add(self)
        self._done = asyncio.run_coroutine_threadsafe(self._serve(), _loop())
        try:
            self._ready.result(profile.start_timeout_s)
            for call in profile.setup:
                self.require(call)
        except NotInTime:
            self.close()
            raise self._unavailable("did not start", f"within {profile.start_timeout_s:g} s", "timeout") from None
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether the server still answers."""
        return not self._wire.ended and not self._done.done()

    @property
    def garbage(self) -> int:
        """Number of lines so far that were not messages."""
        return self._wire.garbage

    def call(self, tool: str, args: dict[str, Any]) -> ToolResult:
        """Call a tool.

        Raises:
            Unavailable: the server died, hangs, or broke the protocol.
        """
        if not self.alive:
            raise self._unavailable("has ended")
        return asyncio.run_coroutine_threadsafe(self._call(tool, args), _loop()).result()

    def require(self, call: Call) -> ToolResult:
        """Make a call of the operator that must succeed.

        Raises:
            Unavailable: the call fails.
        """
        answer = self.call(call.tool, call.args)
        if answer.is_error:
            raise self._unavailable(f"refused the call {call.tool} that prepares an episode", answer.text, "setup")
        return answer

    def close(self) -> None:
        """End the server without waiting for it."""
        if not self._ready.done():
            self._wire.kill()
        self._done.cancel()

    async def _serve(self) -> None:
        try:
            async with Client(stdio(self._wire), message_handler=self._on_message, client_info=_HOST) as client:
                await self._list(client)
                self._client = client
                self._ready.set_result(None)
                await anyio.sleep_forever()
        except Exception as error:  # the waiting thread gets every error of the start
            if not self._ready.done():
                self._ready.set_exception(self._unavailable("did not start", _reason(error), "died"))
        finally:
            self._remove_folder()
            _open_connections.discard(self)

    def _remove_folder(self) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _list(self, client: Client) -> None:
        tools: list[Tool] = []
        cursor = None
        for _ in range(_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor or len(tools) > _TOOLS:
                break
        if cursor or len(tools) > _TOOLS:
            raise ValueError(f"expected at most {_TOOLS} tools on {_PAGES} pages, got more")
        self.tools = tuple(
            tool_definition(tool.name, tool.description or tool.title or "", tool.input_schema) for tool in tools
        )
        self._schemas = {tool.name: tool.output_schema for tool in tools if tool.output_schema}
        # The SDK's own check has no bounds: a pattern of the server would hold up all episodes of this process.
        client.session.validate_tool_result = self._require_output  # type: ignore[method-assign]
        self.read_only = {tool.name: tool.annotations.read_only_hint if tool.annotations else None for tool in tools}

    async def _require_output(self, name: str, result: CallToolResult) -> None:
        """Check the structured content of a tool that declares a schema; one that cannot be used allows everything."""
        if (schema := self._schemas.get(name)) is None:
            return
        if result.structured_content is None:
            raise ValueError(f"expected structured content, which {name} declares, got none")
        if fault := schema_fault(schema, result.structured_content):
            raise ValueError(f"expected structured content of the declared schema, got {fault}")

    async def _on_message(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.changes += 1

    async def _call(self, tool: str, args: dict[str, Any]) -> ToolResult:
        assert self._client is not None
        try:
            with anyio.fail_after(self._profile.timeout_s):
                return _answer(await self._client.call_tool(tool, args))
        except TimeoutError:
            return await self._late(tool)
        except MCPError as error:
            if self._wire.ended:
                raise self._unavailable("died", _reason(error), "died") from None
            return ToolResult(f"Error: {error.error.message[:1000]} (code {error.error.code})", is_error=True)
        except (RuntimeError, ValueError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise self._unavailable(f"answered {tool} wrongly", _reason(error), "garbage") from None

    async def _late(self, tool: str) -> ToolResult:
        """Return an error for a slow tool, which the agent chose; a server that does not list its tools meanwhile hangs."""
        with anyio.move_on_after(min(_ALIVE_S, self._profile.timeout_s)), suppress(MCPError, RuntimeError):
            assert self._client is not None
            await self._client.list_tools(cache_mode="bypass")
            return ToolResult(f"Error: {tool} did not answer within {self._profile.timeout_s:g} s.", is_error=True)
        self._wire.kill()
        raise self._unavailable("hangs", f"no answer to {tool} within {self._profile.timeout_s:g} s", "timeout")

    def _unavailable(self, what: str, why: str = "", code: str = "died") -> Unavailable:
        stderr = self._wire.stderr_tail.decode("utf-8", "replace").strip()
        parts = [why, self._wire.fault, f"stderr: {stderr[-400:]!r}" if stderr else None]
        detail = "; ".join(part for part in parts if part)
        return Unavailable(f"the MCP server of {self._profile.id} {what}: {detail}"[:1000], code=f"environment_{code}")


def _answer(result: CallToolResult) -> ToolResult:
    text = "\n".join(_shown(part) for part in result.content)
    value = result.structured_content
    if value is None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
    elif not _contains(text, value):
        text = "\n".join(part for part in (text, json.dumps(value, ensure_ascii=False)) if part)
    return ToolResult(text, value, bool(result.is_error))


def _contains(text: str, value: dict[str, Any]) -> bool:
    """Whether the text repeats the structured content, as the protocol asks; a single value is wrapped in `result`."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = text
    return read in (value, value.get("result")) or text == str(value.get("result"))


def _shown(part: object) -> str:
    match part:
        case TextContent():
            return part.text
        case ImageContent() | AudioContent():
            kind = "picture" if isinstance(part, ImageContent) else "sound"
            return f"[a {kind}, {part.mime_type}, {len(part.data) * 3 // 4:,} bytes, not shown]"
        case ResourceLink():
            return f"[resource {part.uri}]"
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return resource.text
        case EmbeddedResource():
            return f"[resource {part.resource.uri}, not text, not shown]"
    return "[content of an unknown kind, not shown]"


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]


_open_connections: set[Connection] = set()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of all connections; its thread is a daemon, so that no program waits for it at exit."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="mcp-servers", daemon=True).start()
    atexit.register(_end_all)
    return loop


def _end_all() -> None:
    for connection in list(_open_connections):
        connection._wire.kill()
        connection._remove_folder()
